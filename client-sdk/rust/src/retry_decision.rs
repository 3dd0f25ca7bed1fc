//! Decides whether an attempt is retried: a pure function.
//!
//! An attempt that was *rejected*, *refused* (a refused connection) or *not sent* certainly ran nothing. An attempt *without a response*
//! may have run: from then on the submission is retried with the same token or key only, and a rejection leaves its outcome unknown.

use std::time::Duration;

use onceward_api::{Code, Retry};

use crate::backoff::Backoff;
use crate::retry_limits::RetryLimits;

/// The part of an attempt's result that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptSummary {
    /// A response of the application.
    Response,
    /// An error status without the mark of a guard: from the application, or from a gateway.
    UnmarkedFailure,
    /// 401: the client's credentials are invalid or expired.
    Unauthorized,
    /// A guard rejected the attempt: this request ran nothing.
    Rejected { code: Code, retry: Retry, retry_after: Option<Duration> },
    /// A guard rejected the attempt with a code of a later version, which may say that the outcome is unknown.
    RejectedLater { retry: Retry, retry_after: Option<Duration> },
    /// 429 without the mark of a guard: the rate limit of a gateway.
    TooManyRequests { retry_after: Option<Duration> },
    /// 502, 503 or 504 without the mark of a guard. The request may have run.
    GatewayError { retry_after: Option<Duration> },
    /// The client could not connect.
    NotSent,
    /// The server refused the connection.
    Refused,
    /// The connection failed before the response was complete. The request may have run.
    Lost,
}

/// The earlier attempts of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttemptHistory {
    /// The number of attempts.
    pub(crate) attempts: u32,
    /// The number of refused connections. They do not count against the limit of attempts.
    refusals: u32,
    /// True if the last connection was refused.
    pub(crate) ends_refused: bool,
    /// True if an attempt had no response.
    unanswered: bool,
    /// True if an attempt was rejected because the submission is in progress.
    in_progress: bool,
    /// True if an attempt ended with anything but `retry: new_token` or a failed connection.
    otherwise_answered: bool,
    renewed: bool,
    refreshed: bool,
}

impl AttemptHistory {
    /// True if every connection was refused.
    pub(crate) fn was_always_refused(&self) -> bool {
        self.refusals == self.attempts
    }

    /// A history without attempts. A resumed submission may have been sent before.
    pub(crate) fn new(is_resumed: bool) -> Self {
        let (unanswered, in_progress, otherwise_answered) = (is_resumed, false, false);
        Self {
            attempts: 0,
            refusals: 0,
            ends_refused: false,
            unanswered,
            in_progress,
            otherwise_answered,
            renewed: false,
            refreshed: false,
        }
    }

    /// True if an attempt may have run.
    pub(crate) fn in_doubt(&self) -> bool {
        self.unanswered || self.in_progress
    }

    /// Adds an attempt and the decision that followed it.
    pub(crate) fn and(self, summary: AttemptSummary, decision: Decision) -> Self {
        let says_new_token = matches!(
            summary,
            AttemptSummary::Rejected { retry: Retry::NewToken, .. }
                | AttemptSummary::RejectedLater { retry: Retry::NewToken, .. }
        );
        let (is_refused, is_unsent) = (summary == AttemptSummary::Refused, summary == AttemptSummary::NotSent);
        Self {
            attempts: self.attempts + 1,
            refusals: self.refusals + u32::from(is_refused),
            ends_refused: is_refused,
            unanswered: self.unanswered
                || matches!(summary, AttemptSummary::Lost | AttemptSummary::GatewayError { .. }),
            in_progress: self.in_progress || matches!(summary, AttemptSummary::Rejected { code: Code::InProgress, .. }),
            otherwise_answered: self.otherwise_answered || !(says_new_token || is_refused || is_unsent),
            renewed: self.renewed || matches!(decision, Decision::NewToken(_)),
            refreshed: self.refreshed || matches!(decision, Decision::RefreshCredentials),
        }
    }
}

/// The limits of a submission's retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryConditions {
    pub(crate) limits: RetryLimits,
    /// The time left until the deadline.
    pub(crate) time_left: Duration,
    /// True if the body can be sent again.
    pub(crate) is_repeatable: bool,
    /// The credential that the last request of the attempt carried.
    pub(crate) carried: CredentialKind,
    /// True to retry until the deadline, without a limit of attempts.
    pub(crate) until_deadline: bool,
    /// True if the client's `Authorization` can be refreshed.
    pub(crate) is_refreshable: bool,
}

/// The credential that an attempt carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    Token,
    Key,
    /// Neither, after a redirect to another origin.
    Nothing,
}

/// The step that follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Return the response.
    Return,
    /// Retry with the same token or key.
    Retry(Backoff),
    /// Retry with a new token.
    NewToken(Backoff),
    /// Retry with a refreshed `Authorization`, and the same token or key.
    RefreshCredentials,
    /// End with this rejection: nothing ran.
    Reject,
    /// End: nothing was sent.
    NotSent,
    /// End: the outcome is unknown.
    Unknown,
}

/// Returns the step that follows an attempt.
pub(crate) fn decide(history: &AttemptHistory, summary: AttemptSummary, conditions: &RetryConditions) -> Decision {
    let end = |certain: Decision| if history.in_doubt() { Decision::Unknown } else { certain };
    // After a redirect to another origin no `Authorization` was sent, so there is none to refresh.
    let may_refresh = conditions.is_refreshable && may_send(history, conditions) && !conditions.time_left.is_zero();
    match summary {
        AttemptSummary::Response => Decision::Return,
        // A server that accepts tokens has a guard, which marks every response: an unmarked one does not settle an earlier attempt.
        AttemptSummary::UnmarkedFailure if conditions.carried == CredentialKind::Token => end(Decision::Return),
        AttemptSummary::UnmarkedFailure => Decision::Return,
        AttemptSummary::Unauthorized if may_refresh && !history.refreshed => Decision::RefreshCredentials,
        AttemptSummary::Unauthorized => end(Decision::Return),
        AttemptSummary::Rejected { code, retry, retry_after } => {
            after_rejection(history, code, retry, retry_after, conditions)
        }
        AttemptSummary::RejectedLater { retry: Retry::Same, retry_after } => {
            retry_same(history, retry_after, conditions).unwrap_or(Decision::Unknown)
        }
        AttemptSummary::RejectedLater { retry: Retry::NewToken, retry_after } => {
            retry_with_new_token(history, retry_after, conditions).unwrap_or(Decision::Unknown)
        }
        AttemptSummary::RejectedLater { retry: Retry::No, .. } => Decision::Unknown,
        AttemptSummary::TooManyRequests { retry_after } => {
            retry_same(history, retry_after, conditions).unwrap_or(end(Decision::Return))
        }
        AttemptSummary::GatewayError { retry_after } => {
            retry_same(history, retry_after, conditions).unwrap_or(Decision::Unknown)
        }
        AttemptSummary::NotSent => retry_same(history, None, conditions).unwrap_or(end(Decision::NotSent)),
        AttemptSummary::Refused => retry_refused(history, conditions).unwrap_or(end(Decision::NotSent)),
        AttemptSummary::Lost => retry_same(history, None, conditions).unwrap_or(Decision::Unknown),
    }
}

fn after_rejection(
    history: &AttemptHistory,
    code: Code,
    retry: Retry,
    retry_after: Option<Duration>,
    conditions: &RetryConditions,
) -> Decision {
    let is_certain = if code == Code::InProgress { !history.unanswered } else { !history.in_doubt() };
    let end = if is_certain { Decision::Reject } else { Decision::Unknown };
    match (code, retry) {
        // The server reports that the submission ran: its outcome is known.
        (Code::ReplyNotKept, _) => Decision::Reject,
        (code, _) if leaves_unknown(code) => Decision::Unknown,
        // An earlier attempt of this submission may have claimed the interval, even one that was rejected: if the reply of the store was
        // lost, the claim remains until it expires. The SDK never waits for the interval to end, even if the problem says so: the duplicate
        // would run.
        (Code::TooSoon, _) if history.in_doubt() || history.otherwise_answered => Decision::Unknown,
        (Code::TooSoon, _) => Decision::Reject,
        // An earlier attempt of this submission may hold the lock; a retry after it ends would run a second time.
        (Code::Locked, _) if history.in_doubt() => Decision::Unknown,
        // An earlier attempt may have used the token, even one that was rejected: if the reply of the store was lost, the token stays used.
        (Code::TokenUsed, _) if history.otherwise_answered => Decision::Unknown,
        (_, Retry::Same) => retry_same(history, retry_after, conditions).unwrap_or(end),
        (_, Retry::NewToken) => retry_with_new_token(history, retry_after, conditions).unwrap_or(end),
        (_, Retry::No) => end,
    }
}

/// Returns true if a response with this code says that the outcome is unknown.
pub(crate) fn leaves_unknown(code: Code) -> bool {
    matches!(code, Code::OutcomeUnknown | Code::UpstreamTimeout | Code::UpstreamFailed | Code::Internal)
}

/// Returns a retry with the same token or key, if it is allowed and can start before the deadline.
fn retry_same(
    history: &AttemptHistory,
    retry_after: Option<Duration>,
    conditions: &RetryConditions,
) -> Option<Decision> {
    backoff(history, retry_after, conditions).filter(|_| may_send(history, conditions)).map(Decision::Retry)
}

/// Returns a retry after a refused connection: until the deadline, since a restart takes seconds. With a limit of one attempt there is
/// none.
fn retry_refused(history: &AttemptHistory, conditions: &RetryConditions) -> Option<Decision> {
    let retries = conditions.until_deadline || conditions.limits.attempts > 1;
    let is_allowed = retries && can_repeat(conditions) && !conditions.time_left.is_zero();
    let backoff = Backoff::after_refusals(history.refusals, &conditions.limits).within(conditions.time_left);
    is_allowed.then_some(Decision::Retry(backoff))
}

/// Returns true if an attempt is left, the body can be sent again, and a token or key identifies the submission.
fn may_send(history: &AttemptHistory, conditions: &RetryConditions) -> bool {
    let sent = history.attempts - history.refusals;
    (conditions.until_deadline || sent + 1 < conditions.limits.attempts) && can_repeat(conditions)
}

fn can_repeat(conditions: &RetryConditions) -> bool {
    conditions.is_repeatable && conditions.carried != CredentialKind::Nothing
}

/// Returns a retry with a new token: once, and only if every earlier attempt was rejected with `new_token` or not sent.
fn retry_with_new_token(
    history: &AttemptHistory,
    retry_after: Option<Duration>,
    conditions: &RetryConditions,
) -> Option<Decision> {
    let is_clean = !history.in_doubt() && !history.otherwise_answered && !history.renewed;
    let is_allowed = is_clean && conditions.carried == CredentialKind::Token && may_send(history, conditions);
    let backoff = Backoff { minimum: retry_after.unwrap_or_default(), jitter: Duration::ZERO };
    (is_allowed && backoff.minimum < conditions.time_left).then_some(Decision::NewToken(backoff))
}

/// Returns the backoff before the next attempt, if it ends before the deadline.
fn backoff(history: &AttemptHistory, retry_after: Option<Duration>, conditions: &RetryConditions) -> Option<Backoff> {
    let Backoff { minimum, jitter } = Backoff::after(history.attempts, retry_after, &conditions.limits);
    let room = conditions.time_left.checked_sub(minimum).filter(|room| !room.is_zero())?;
    Some(Backoff { minimum, jitter: jitter.min(room / 2) })
}

#[cfg(test)]
mod tests;
