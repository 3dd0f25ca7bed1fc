//! The protection of each order route, one for each policy.

use std::time::Duration;

use onceward::actix::protect::{IntervalPolicy, KeyPolicy, RememberedPolicy, TokenPolicy};
use onceward::actix::{Protect, SubjectFrom};
use onceward::{Guard, IntervalRules, KeyRules};

use crate::visitor::Visitor;

/// Retention of responses: longer than a visit, and short enough that they do not accumulate.
const RETENTION: Duration = Duration::from_secs(5 * 60);
/// Maximum time that a duplicate waits for the first request: longer than the slow handler takes.
const WAIT: Duration = Duration::from_secs(5);
/// The interval in which the same order is accepted once: long enough to notice.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of bytes in a body. An order is far shorter.
pub(crate) const MAX_BODY: usize = 4 * 1024;

/// A token: a second click is rejected.
pub(crate) fn token(guard: &Guard) -> Protect<TokenPolicy> {
    Protect::token(guard, visitor()).body_limit(MAX_BODY)
}

/// A remembered token: a second click receives the stored response.
pub(crate) fn remembered(guard: &Guard) -> Protect<RememberedPolicy> {
    Protect::token(guard, visitor()).remember(RETENTION).wait(WAIT).body_limit(MAX_BODY)
}

/// A key, which the page generates for each order. It is retryable: an order charges no money, and a handler that fails with 503 has placed
/// no order, so that the same order may be sent again. A route that handles money is at most once.
pub(crate) fn key(guard: &Guard) -> Protect<KeyPolicy> {
    Protect::key(guard, visitor(), KeyRules::retryable().retain(RETENTION)).wait(WAIT).body_limit(MAX_BODY)
}

/// An interval: neither token nor key.
pub(crate) fn interval(guard: &Guard) -> Protect<IntervalPolicy> {
    let rules = IntervalRules::new().every(INTERVAL).unwrap_or_default();
    Protect::interval(guard, visitor(), rules).body_limit(MAX_BODY)
}

/// The subject is the visitor, so that visitors share no keys and do not wait for each other.
fn visitor() -> SubjectFrom {
    SubjectFrom::resolver(|request| Some(Visitor::of(request).id()))
}
