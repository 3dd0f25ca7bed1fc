//! The counters at which orders are taken: one without a guard, and one for each policy.

use std::time::Duration;

use onceward::actix::protect::{IntervalPolicy, KeyPolicy, RememberedPolicy, TokenPolicy};
use onceward::actix::{Protect, SubjectFrom};
use onceward::{Guard, IntervalRules, KeyRules};

use crate::visitor::Visitor;

/// How long an answer is remembered: longer than anybody looks at the page, and not so long that it adds up.
const RETAIN: Duration = Duration::from_secs(5 * 60);
/// How long a duplicate waits for the first: longer than the slow handler takes.
const WAIT: Duration = Duration::from_secs(5);
/// How long the same order is not taken again. Long enough to be seen.
const EVERY: Duration = Duration::from_secs(5);
/// How much of a body is read. An order is far shorter.
pub(crate) const BODY: usize = 4 * 1024;

/// The guard of one counter.
pub(crate) fn token(guard: &Guard) -> Protect<TokenPolicy> {
    Protect::token(guard, visitor()).body_limit(BODY)
}

/// The same, and a second click gets the first answer.
pub(crate) fn remembered(guard: &Guard) -> Protect<RememberedPolicy> {
    Protect::token(guard, visitor()).remember(RETAIN).wait(WAIT).body_limit(BODY)
}

/// The page makes a key for each order.
pub(crate) fn key(guard: &Guard) -> Protect<KeyPolicy> {
    Protect::key(guard, visitor(), KeyRules::retryable().retain(RETAIN)).wait(WAIT).body_limit(BODY)
}

/// Nobody makes anything.
pub(crate) fn interval(guard: &Guard) -> Protect<IntervalPolicy> {
    let rules = IntervalRules::new().every(EVERY).unwrap_or_default();
    Protect::interval(guard, visitor(), rules).body_limit(BODY)
}

/// One visitor never meets another's key, nor waits for another's order.
fn visitor() -> SubjectFrom {
    SubjectFrom::resolver(|request| Some(Visitor::of(request).id()))
}
