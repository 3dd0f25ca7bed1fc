//! Describes the rules of a route, as plain data.

use std::time::Duration;

use bytes::Bytes;
use onceward_api::{DescribedPolicy, DescribedRoute, Description, KeyPlace, header};

use super::framework::Framework;
use super::route_rules::RouteRules;
use crate::policy::{IntervalRules, Policy, TokenRules};

/// Describes the rules of a route, written as `POST /orders`.
pub(super) fn describe<F: Framework>(rules: &RouteRules<F>, route: &str) -> DescribedRoute {
    let policy = &rules.route.policy;
    let mut described = DescribedRoute::new(route, name(policy));
    described.retention = policy.retention();
    let retention_header = rules.retention_header.as_ref().filter(|_| described.retention.is_some());
    described.retention_header = retention_header.map(|name| name.to_string());
    described.wait = rules.route.wait.filter(|wait| *wait > Duration::ZERO && described.retention.is_some());
    described.rejections = rules.format.name().to_owned();
    described.body_limit = Some(rules.reader.limit as u64);
    described.reply_limit = reply_limit(policy).map(|limit| limit as u64);
    described.key_from = match (policy, &rules.reader.key) {
        (Policy::Token(_), _) => None,
        (_, Some(source)) => source.place(),
        (Policy::Key(_), None) => Some(KeyPlace::Header(header::IDEMPOTENCY_KEY.to_owned())),
        (Policy::Interval(_), None) => None,
    };
    let has_id = !matches!(policy, Policy::Interval(_)) || rules.reader.key.is_some();
    described.required = has_id && !rules.reader.is_optional;
    match policy {
        Policy::Token(rules) => described.bound = rules.bound,
        Policy::Key(key) => {
            described.at_most_once = Some(key.at_most_once);
            described.profile = Some(rules.profile.as_str().to_owned());
        }
        Policy::Interval(rules) => (described.interval, described.lock) = (Some(rules.every), rules.is_lock),
    }
    described
}

/// Returns the body of `GET /.well-known/onceward`.
pub(crate) fn body_of(description: &Description) -> Bytes {
    serde_json::to_vec(description).unwrap_or_default().into()
}

fn name(policy: &Policy) -> DescribedPolicy {
    match policy {
        Policy::Token(_) => DescribedPolicy::Token,
        Policy::Key(_) => DescribedPolicy::Key,
        Policy::Interval(_) => DescribedPolicy::Interval,
    }
}

/// Returns the maximum size of a stored response; `None` if none is stored.
fn reply_limit(policy: &Policy) -> Option<usize> {
    match policy {
        Policy::Key(rules) => Some(rules.reply_limit),
        Policy::Token(TokenRules { remember, .. }) => remember.as_ref().map(|rules| rules.reply_limit),
        Policy::Interval(IntervalRules { remember, .. }) => *remember,
    }
}
