//! The headers that a guard adds to a response: its outcome, the next token, the client's key and the retention.

use std::borrow::Cow;

use bytes::Bytes;
use onceward_api::{Outcome, header};

use super::retention_header::RetentionHeader;
use crate::token::Token;

/// The headers that report an outcome: one for HTTP clients, and one that the script of a page can read after a navigation.
#[derive(Debug)]
pub(super) struct OutcomeHeaders {
    /// The value of `Onceward-Outcome`, which replaces an earlier one.
    pub(super) outcome: &'static str,
    /// The value of `Server-Timing`, in addition to earlier ones.
    pub(super) server_timing: Option<String>,
}

impl OutcomeHeaders {
    /// Creates the headers for an outcome. `has_server_timing` means that the response already has a `Server-Timing`.
    pub(super) fn of(outcome: Outcome, has_server_timing: bool) -> Self {
        // After a run that took effect the status is sufficient, unless an inner guard has reported a different outcome.
        let is_implied = matches!(outcome, Outcome::Executed | Outcome::Replayed) && !has_server_timing;
        Self { outcome: outcome.as_str(), server_timing: (!is_implied).then(|| outcome.server_timing()) }
    }
}

/// The outcome of an inner guard, in the extensions of its response. An outer guard reports the same outcome instead of judging by the
/// status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerOutcome(pub(crate) Outcome);

/// The headers that a guard adds to the response of a handler.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The outcome to report; `None` adds no header.
    pub(crate) outcome: Option<Outcome>,
    /// The next token, if the route sends one.
    pub(crate) next: Option<Token>,
    /// True if the response is a rejection by code that knows the guard, so that it may name the next step.
    pub(crate) is_rejection: bool,
    /// True if the connection is closed after the response.
    pub(crate) is_last: bool,
    /// The client's key, if the route sends it back.
    pub(crate) key: Option<Bytes>,
    /// The time for which the response is stored, if the route says so.
    pub(crate) retention: Option<RetentionHeader>,
}

impl Signature {
    /// Adds the headers to a response.
    pub(crate) fn apply(&self, headers: &mut impl SignedHeaders) {
        let Some(outcome) = self.outcome else { return };
        let reported = OutcomeHeaders::of(outcome, headers.has(header::SERVER_TIMING));
        if !self.is_rejection && headers.has(header::RETRY) {
            // The handler has passed on the response of another service. A client takes a response that names the next step for a rejection.
            headers.remove(header::RETRY);
        }
        headers.set(header::OUTCOME.into(), Bytes::from_static(reported.outcome.as_bytes()));
        if let Some(timing) = reported.server_timing {
            headers.add(header::SERVER_TIMING.into(), timing.into());
        }
        if let Some(next) = &self.next {
            headers.set(header::NEXT_TOKEN.into(), Bytes::copy_from_slice(next.as_str().as_bytes()));
        }
        if let Some(key) = &self.key {
            headers.set(header::IDEMPOTENCY_KEY.into(), key.clone());
        }
        if let Some(RetentionHeader { name, value }) = &self.retention {
            headers.set(name.clone(), value.clone());
        }
    }
}

/// The headers of a response of a framework. A header whose name or value is not valid is left out.
pub(crate) trait SignedHeaders {
    /// Returns whether there is a header of this name.
    fn has(&self, name: &'static str) -> bool;

    /// Removes a header.
    fn remove(&mut self, name: &'static str);

    /// Sets a header, in place of an earlier one.
    fn set(&mut self, name: Cow<'static, str>, value: Bytes);

    /// Adds a header to earlier ones.
    fn add(&mut self, name: Cow<'static, str>, value: Bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_is_omitted_if_the_status_suffices() {
        assert!(OutcomeHeaders::of(Outcome::Executed, false).server_timing.is_none());
        assert!(OutcomeHeaders::of(Outcome::Executed, true).server_timing.is_some());
        assert!(OutcomeHeaders::of(Outcome::NotApplied, false).server_timing.is_some());
    }
}
