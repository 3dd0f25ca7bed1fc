//! The description of the proxy's rules: the body of `GET /_onceward/.well-known/onceward`.

use http::Method;
use onceward::Guard;
use onceward_api::{DescribedPolicy, DescribedRoute, Description, KeyPlace};

use super::route::{KeyLocation, ProxyRoute, RoutePolicy};
use super::rule::{DefaultGuards, RuleError, guard_of_route};
use super::settings::{ProxySettings, Require};

/// The path of the default rule: all others.
const ELSEWHERE: &str = "/*";

/// Describes the routes in their order, and the default rule.
pub(super) fn describe(settings: &ProxySettings, guard: &Guard) -> Result<Description, RuleError> {
    let mut description = Description::new().token_ttl(guard.token_ttl());
    for route in &settings.routes {
        description = description.route(of_route(route, settings, guard)?);
    }
    let DefaultGuards { key, token } = DefaultGuards::new(settings, guard);
    let [key, mut token] = [key, token].map(|guard| guard.describe(ELSEWHERE));
    if settings.require_for(&Method::POST) == Require::Key {
        token.methods = ["PUT", "PATCH", "DELETE"].map(str::to_owned).into();
    }
    // A request without a key does not have what the first rule requires, so the second one applies.
    let by_default = match settings.require {
        Require::Token => vec![token],
        Require::Key => vec![key],
        Require::Either | Require::Nothing => vec![key, token],
    };
    description.routes.extend(by_default);
    Ok(description)
}

fn of_route(route: &ProxyRoute, settings: &ProxySettings, guard: &Guard) -> Result<DescribedRoute, RuleError> {
    let mut described = match guard_of_route(route, settings, guard)? {
        Some(protect) => protect.describe(route.path.as_str()),
        None => DescribedRoute::new(route.path.as_str(), DescribedPolicy::None),
    };
    described.methods = route.methods.iter().map(|method| method.as_str().to_owned()).collect();
    if let Some(KeyLocation::Path(name)) = key_location(&route.policy) {
        described.key_from = Some(KeyPlace::Path(name.clone()));
    }
    Ok(described)
}

fn key_location(policy: &RoutePolicy) -> Option<&KeyLocation> {
    match policy {
        RoutePolicy::Key { from, .. } => Some(from),
        RoutePolicy::Interval { from, .. } => from.as_ref(),
        RoutePolicy::Token { .. } | RoutePolicy::None => None,
    }
}
