//! The effect of a request, as judged by its response.

use onceward_api::Outcome;

use crate::effect::Effect;
use crate::policy::Policy;
use crate::settled::Settled;
use crate::store::StoreError;

/// The progress of a request towards the handler, as far as the handler's mark shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The handler has no mark, or was not reached.
    Unmarked,
    /// The extractors of a marked handler were called; the handler was not.
    Extracting,
    /// A marked handler was called, and has not returned.
    Entered,
    /// A marked handler has returned.
    Returned,
}

/// The origin of the error behind a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorSource {
    /// The error declares that the handler was not called.
    Declared,
    /// Only the framework's extractors create errors of this type, unless a handler constructs one.
    Extractor,
    /// Middleware may have created the response after dropping the handler: the usual response of a timeout.
    Timeout,
    /// Unknown, or there is no error.
    Other,
}

/// The facts about a response, as plain data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseFacts {
    pub(crate) status: u16,
    /// The effect that the handler stated itself.
    pub(crate) handler: Option<Effect>,
    pub(crate) entry: Entry,
    pub(crate) source: ErrorSource,
    /// True if the body was read to its end before the handler was called, so that no extractor can find it incomplete.
    pub(crate) had_whole_body: bool,
}

/// The result of judging a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) effect: Effect,
    /// True if the handler certainly ran. An error may come from the router or an extractor, unless a mark or the application shows
    /// otherwise.
    pub(crate) shows_a_run: bool,
}

/// Decides the effect of a response: by the handler's own statement, then by whether the handler was dropped, then by the route's
/// function, then by whether the response was created before the handler was called, then by the status. `route` is called only if the
/// first two do not decide.
pub(crate) fn judge(policy: &Policy, facts: ResponseFacts, route: impl FnOnce() -> Option<Effect>) -> Judgement {
    let stated = facts.handler.or_else(|| match facts.entry {
        // Another party responds for a handler that has started: a timeout has dropped it, or its panic was caught.
        Entry::Entered => Some(Effect::Unknown),
        Entry::Unmarked | Entry::Extracting | Entry::Returned => route(),
    });
    let effect = stated.unwrap_or_else(|| match origin(policy, facts) {
        Origin::BeforeHandler => Effect::NotApplied,
        Origin::MaybeTimeout => Effect::Unknown,
        Origin::Handler => policy.effect(facts.status),
    });
    let is_error = (400..600).contains(&facts.status);
    Judgement { effect, shows_a_run: stated.is_some() || facts.entry == Entry::Returned || !is_error }
}

impl Entry {
    pub(super) fn from_u8(entry: u8) -> Self {
        match entry {
            entry if entry == Self::Returned as u8 => Self::Returned,
            entry if entry == Self::Entered as u8 => Self::Entered,
            entry if entry == Self::Extracting as u8 => Self::Extracting,
            _ => Self::Unmarked,
        }
    }
}

impl Judgement {
    /// Returns the outcome to report for a run that was settled by this judgement. An outcome that the handler or an inner guard
    /// reported itself, a rejection or a replay, takes precedence.
    pub(crate) fn outcome(
        self,
        reported: Option<Outcome>,
        settled: &Result<Settled, StoreError>,
        policy: &Policy,
    ) -> Outcome {
        reported.unwrap_or_else(|| match outcome_of(settled, policy, self.effect) {
            Outcome::Executed if !self.shows_a_run => Outcome::Replayable,
            outcome => outcome,
        })
    }

    /// Returns the outcome to report for a run that no guard protected.
    pub(crate) fn outcome_unprotected(self, reported: Option<Outcome>) -> Outcome {
        reported.unwrap_or(match self.effect {
            Effect::NotApplied => Outcome::NotApplied,
            Effect::Applied | Effect::Unknown => Outcome::Unprotected,
        })
    }
}

/// Returns the outcome to report. If an applied effect could not be recorded, a duplicate may run, and the outcome shows that.
fn outcome_of(settled: &Result<Settled, StoreError>, policy: &Policy, effect: Effect) -> Outcome {
    let is_plain_token = matches!(policy, Policy::Token(rules) if rules.remember.is_none());
    match (effect, settled) {
        (_, Ok(Settled::Lost)) => Outcome::Unprotected,
        (Effect::Applied, Err(_)) if !is_plain_token => Outcome::Unprotected,
        (Effect::Applied, _) => Outcome::Executed,
        (Effect::NotApplied, Ok(Settled::Released)) => Outcome::NotApplied,
        (Effect::NotApplied, _) => Outcome::NotReleased,
        (Effect::Unknown, _) => Outcome::Unknown,
    }
}

/// The part of an application that created a response.
enum Origin {
    /// An extractor, or another part that rejects a request before the handler is called.
    BeforeHandler,
    /// The handler, or a timeout that has dropped it.
    MaybeTimeout,
    Handler,
}

/// Determines the origin of a response. The handler's mark is decisive. Without one, an error is created before the handler if it declares
/// that, or, if the policy trusts extractors, if only an extractor creates it.
fn origin(policy: &Policy, facts: ResponseFacts) -> Origin {
    match (facts.entry, facts.source) {
        (Entry::Extracting, _) | (Entry::Unmarked, ErrorSource::Declared) => Origin::BeforeHandler,
        (Entry::Unmarked, ErrorSource::Extractor) if facts.had_whole_body && policy.believes_extractors() => {
            Origin::BeforeHandler
        }
        (Entry::Unmarked, ErrorSource::Timeout) => Origin::MaybeTimeout,
        _ => Origin::Handler,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::KeyRules;

    const PLAIN: ResponseFacts = ResponseFacts {
        status: 400,
        handler: None,
        entry: Entry::Unmarked,
        source: ErrorSource::Other,
        had_whole_body: true,
    };

    fn retryable() -> Policy {
        Policy::key(KeyRules::retryable())
    }

    fn effect(policy: &Policy, facts: ResponseFacts) -> Effect {
        judge(policy, facts, || None).effect
    }

    #[test]
    fn handler_decides_before_route_before_extractor_before_status() {
        let policy = retryable();
        let extracting = ResponseFacts { entry: Entry::Extracting, ..PLAIN };
        let stated = ResponseFacts { handler: Some(Effect::Unknown), ..extracting };
        assert_eq!(judge(&policy, stated, || panic!("the handler decides")).effect, Effect::Unknown);
        assert_eq!(judge(&policy, extracting, || Some(Effect::Applied)).effect, Effect::Applied);
        assert_eq!(effect(&policy, extracting), Effect::NotApplied);
        assert_eq!(effect(&policy, PLAIN), Effect::Applied, "a response of the handler, stored and replayed");
    }

    #[test]
    fn handler_mark_outweighs_error_type() {
        for source in [ErrorSource::Declared, ErrorSource::Extractor, ErrorSource::Timeout, ErrorSource::Other] {
            let returned = ResponseFacts { entry: Entry::Returned, source, ..PLAIN };
            assert_eq!(effect(&retryable(), returned), Effect::Applied, "{source:?}");
            let extracting = ResponseFacts { entry: Entry::Extracting, source, status: 502, ..PLAIN };
            assert_eq!(effect(&retryable(), extracting), Effect::NotApplied, "{source:?}");
        }
    }

    #[test]
    fn dropped_handler_is_unknown_unless_the_response_states_its_effect() {
        for status in [200, 408, 429, 500, 503] {
            let dropped = ResponseFacts { entry: Entry::Entered, status, ..PLAIN };
            let judged = judge(&retryable(), dropped, || panic!("the handler was dropped"));
            assert_eq!((judged.effect, judged.shows_a_run), (Effect::Unknown, true), "{status}");
            let stated = ResponseFacts { handler: Some(Effect::NotApplied), ..dropped };
            assert_eq!(effect(&retryable(), stated), Effect::NotApplied, "{status}");
        }
    }

    #[test]
    fn possible_timeout_is_unknown_without_a_mark() {
        let timeout = ResponseFacts { status: 408, source: ErrorSource::Timeout, ..PLAIN };
        assert_eq!(effect(&retryable(), timeout), Effect::Unknown);
        assert_eq!(effect(&Policy::token(), timeout), Effect::Unknown);
        assert_eq!(judge(&retryable(), timeout, || Some(Effect::NotApplied)).effect, Effect::NotApplied);
        let returned = ResponseFacts { entry: Entry::Returned, ..timeout };
        assert_eq!(effect(&retryable(), returned), Effect::NotApplied, "the handler's own 408");
    }

    #[test]
    fn extractor_error_counts_only_with_whole_body_and_retryable_key() {
        let from_extractor = ResponseFacts { source: ErrorSource::Extractor, ..PLAIN };
        assert_eq!(effect(&retryable(), from_extractor), Effect::NotApplied);
        let partial = ResponseFacts { had_whole_body: false, ..from_extractor };
        assert_eq!(effect(&retryable(), partial), Effect::Applied);
        let at_most_once = Policy::key(KeyRules::at_most_once());
        assert_eq!(effect(&at_most_once, from_extractor), Effect::Applied);
        let declared = ResponseFacts { source: ErrorSource::Declared, had_whole_body: false, ..PLAIN };
        assert_eq!(effect(&at_most_once, declared), Effect::NotApplied);
    }

    #[test]
    fn reported_outcome_outweighs_the_settlement() {
        use onceward_api::Code;
        let policy = retryable();
        let judged = |effect, shows_a_run| Judgement { effect, shows_a_run };
        let applied = judged(Effect::Applied, true);
        let reported = Some(Outcome::Rejected(Code::TokenUsed));
        assert_eq!(applied.outcome(reported, &Ok(Settled::Final), &policy), Outcome::Rejected(Code::TokenUsed));
        assert_eq!(applied.outcome(None, &Ok(Settled::Final), &policy), Outcome::Executed);
        let doubtful = judged(Effect::Applied, false);
        assert_eq!(doubtful.outcome(None, &Ok(Settled::Final), &policy), Outcome::Replayable);
        assert_eq!(doubtful.outcome(None, &Err(StoreError::unknown("down")), &policy), Outcome::Unprotected);
        let not_applied = judged(Effect::NotApplied, true);
        assert_eq!(not_applied.outcome(None, &Ok(Settled::Released), &policy), Outcome::NotApplied);
        assert_eq!(not_applied.outcome_unprotected(None), Outcome::NotApplied);
        assert_eq!(applied.outcome_unprotected(None), Outcome::Unprotected);
        assert_eq!(applied.outcome_unprotected(reported), Outcome::Rejected(Code::TokenUsed));
    }

    #[test]
    fn error_without_mark_or_statement_does_not_show_a_run() {
        let shows = |facts| judge(&retryable(), facts, || None).shows_a_run;
        assert!(!shows(PLAIN) && !shows(ResponseFacts { status: 500, ..PLAIN }));
        assert!(shows(ResponseFacts { status: 302, ..PLAIN }) && shows(ResponseFacts { status: 200, ..PLAIN }));
        assert!(shows(ResponseFacts { entry: Entry::Returned, ..PLAIN }));
        assert!(shows(ResponseFacts { handler: Some(Effect::Applied), ..PLAIN }));
        assert!(judge(&retryable(), PLAIN, || Some(Effect::Applied)).shows_a_run);
    }
}
