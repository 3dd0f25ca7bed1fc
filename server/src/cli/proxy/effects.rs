//! The effects of a route's responses, by status.

use onceward::{Effect, Policy, TokenRules};

use crate::proxy::route::{ProxyRoute, RoutePolicy};

/// Returns the statuses of each effect, as ranges, or nothing if the route checks no requests.
pub(super) fn effects(route: &ProxyRoute) -> Vec<(&'static str, String)> {
    let Some(policy) = policy(&route.policy) else { return Vec::new() };
    let effect = |status: u16| route.effects.of(status).unwrap_or_else(|| policy.effect(status));
    [("applied", Effect::Applied), ("not applied", Effect::NotApplied), ("unknown", Effect::Unknown)]
        .map(|(name, of)| (name, ranges((200..600).filter(|status| effect(*status) == of))))
        .into()
}

/// Returns the policy in the library.
fn policy(policy: &RoutePolicy) -> Option<Policy> {
    match policy {
        RoutePolicy::Token { remember: Some(rules), .. } => {
            Some(Policy::Token(TokenRules::new().remember_by(rules.clone())))
        }
        RoutePolicy::Token { remember: None, .. } => Some(Policy::token()),
        RoutePolicy::Key { rules, .. } => Some(Policy::key(rules.clone())),
        RoutePolicy::Interval { rules, .. } => Some(Policy::interval(rules.clone())),
        RoutePolicy::None => None,
    }
}

/// Formats ascending numbers as ranges: `200-400, 402`.
fn ranges(numbers: impl Iterator<Item = u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = |(begin, end): (u16, u16)| if begin == end { begin.to_string() } else { format!("{begin}-{end}") };
    ranges.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}
