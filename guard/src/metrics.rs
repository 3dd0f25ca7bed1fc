//! Metrics of a guard, for applications that install a recorder of the `metrics` facade.
//!
//! The guard registers its counters when it is built, so that no request looks up a counter by name. The exceptions are codes that only an
//! application uses, and the counter of observe mode. Without a recorder each handle is empty, and using it costs one comparison.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use metrics::{Counter, counter};
use onceward_api::metric::{self, Metric, MetricKind};
use onceward_api::{Code, Outcome};

/// The counters of one guard.
pub(crate) struct Metrics {
    issued: Counter,
    verdicts: [VerdictCounters; PolicyLabel::ALL.len()],
    claims: [[Counter; ClaimEvent::ALL.len()]; PolicyLabel::ALL.len()],
    answered: Counter,
    ran: Counter,
    timed_out: Counter,
    renewed: Counter,
    not_renewed: Counter,
    unprotected: Counter,
}

/// The value of the label `policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyLabel {
    Token,
    Remembered,
    Key,
    Interval,
}

/// An event of a claim, as metrics and the audit log name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimEvent {
    Claimed,
    Completed,
    Released,
    Unknown,
    Lost,
}

impl ClaimEvent {
    const ALL: [Self; 5] = [Self::Claimed, Self::Completed, Self::Released, Self::Unknown, Self::Lost];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
        }
    }
}

/// The result of waiting for a run in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitResult {
    /// The waiter received the reply of the run, or its outcome without a reply.
    Answered,
    /// The run was not applied, and the waiter runs.
    Ran,
    /// Timed out waiting: the waiter is rejected as `in_progress`. Includes a waiter that found no free seat or no outcome on record.
    TimedOut,
}

/// The counters for verdicts of one policy.
struct VerdictCounters {
    label: PolicyLabel,
    run: Counter,
    replay: Counter,
    /// Rejections by code. A code that this policy does not use itself is registered when an application first uses it.
    rejected: [OnceLock<Counter>; Code::ALL.len()],
}

impl Metrics {
    /// Registers the counters with the currently installed recorder.
    pub(crate) fn new() -> Self {
        metric::OF_THE_LIBRARY.iter().for_each(describe);
        counter!(metric::WOULD_HAVE.name, "outcome" => Outcome::Replayed.as_str()).increment(0);
        Self {
            issued: counter!(metric::ISSUED.name),
            verdicts: PolicyLabel::ALL.map(VerdictCounters::new),
            claims: PolicyLabel::ALL.map(|label| ClaimEvent::ALL.map(|event| happened(label, event))),
            answered: counter!(metric::WAITS.name, "outcome" => "answered"),
            ran: counter!(metric::WAITS.name, "outcome" => "ran"),
            timed_out: counter!(metric::WAITS.name, "outcome" => "timed_out"),
            renewed: counter!(metric::RENEWALS.name, "outcome" => "renewed"),
            not_renewed: counter!(metric::RENEWALS.name, "outcome" => "failed"),
            unprotected: counter!(metric::UNPROTECTED.name),
        }
    }

    pub(crate) fn issued(&self) {
        self.issued.increment(1);
    }

    pub(crate) fn run(&self, label: PolicyLabel) {
        self.verdicts[label as usize].run.increment(1);
    }

    pub(crate) fn replay(&self, label: PolicyLabel) {
        self.verdicts[label as usize].replay.increment(1);
    }

    pub(crate) fn reject(&self, label: PolicyLabel, code: Code) {
        self.verdicts[label as usize].rejected(code).increment(1);
    }

    pub(crate) fn claim(&self, label: PolicyLabel, event: ClaimEvent) {
        self.claims[label as usize][event as usize].increment(1);
    }

    pub(crate) fn waited(&self, waited: WaitResult) {
        match waited {
            WaitResult::Answered => self.answered.increment(1),
            WaitResult::Ran => self.ran.increment(1),
            WaitResult::TimedOut => self.timed_out.increment(1),
        }
    }

    pub(crate) fn renewed(&self) {
        self.renewed.increment(1);
    }

    pub(crate) fn not_renewed(&self) {
        self.not_renewed.increment(1);
    }

    pub(crate) fn unprotected(&self) {
        self.unprotected.increment(1);
    }
}

/// Returns whether a recorder is installed: the no-op recorder of the facade has size zero, and a real recorder usually holds state. A
/// recorder whose state is all in statics receives every metric except the latency of the store.
pub(crate) fn is_recorded() -> bool {
    metrics::with_recorder(|recorder| size_of_val(recorder) > 0)
}

/// Counts a request that would not have run under enforcement. Looks up the counter by name, since observe mode is not performance
/// critical.
pub(crate) fn would_have(outcome: &'static str) {
    counter!(metric::WOULD_HAVE.name, "outcome" => outcome).increment(1);
}

impl VerdictCounters {
    fn new(label: PolicyLabel) -> Self {
        let rejected = [const { OnceLock::new() }; Code::ALL.len()];
        let replay = if label.keeps_replies() { decided(label, "replay") } else { Counter::noop() };
        let verdicts = Self { label, run: decided(label, "run"), replay, rejected };
        for code in label.rejections() {
            verdicts.rejected(*code);
        }
        verdicts
    }

    fn rejected(&self, code: Code) -> &Counter {
        self.rejected[code as usize].get_or_init(|| decided(self.label, code.as_str()))
    }
}

impl PolicyLabel {
    const ALL: [Self; 4] = [Self::Token, Self::Remembered, Self::Key, Self::Interval];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Remembered => "remembered",
            Self::Key => "key",
            Self::Interval => "interval",
        }
    }

    /// Returns whether this policy stores replies.
    const fn keeps_replies(self) -> bool {
        matches!(self, Self::Remembered | Self::Key)
    }

    /// Returns the codes with which this policy rejects requests itself. Their counters start at zero, so that the first rejection appears
    /// as an increase.
    const fn rejections(self) -> &'static [Code] {
        use Code::{
            InProgress, KeyMalformed, KeyMissing, KeyReused, Locked, OutcomeUnknown, Overloaded, RedeemUnknown,
            ReplyNotKept, StoreUnavailable, TokenExpired, TokenInvalid, TokenMalformed, TokenMissing, TokenRevoked,
            TokenStale, TokenUsed, TooSoon,
        };
        match self {
            Self::Token => &[
                TokenMissing,
                TokenMalformed,
                TokenInvalid,
                TokenExpired,
                TokenUsed,
                TokenRevoked,
                TokenStale,
                RedeemUnknown,
                StoreUnavailable,
                Overloaded,
            ],
            Self::Remembered => &[
                TokenMissing,
                TokenMalformed,
                TokenInvalid,
                TokenExpired,
                TokenUsed,
                TokenRevoked,
                TokenStale,
                InProgress,
                OutcomeUnknown,
                ReplyNotKept,
                StoreUnavailable,
                Overloaded,
            ],
            Self::Key => &[
                KeyMissing,
                KeyMalformed,
                KeyReused,
                InProgress,
                OutcomeUnknown,
                ReplyNotKept,
                StoreUnavailable,
                Overloaded,
            ],
            Self::Interval => &[TooSoon, Locked, StoreUnavailable, Overloaded],
        }
    }
}

fn decided(label: PolicyLabel, code: &'static str) -> Counter {
    counter!(metric::VERDICTS.name, "policy" => label.as_str(), "code" => code)
}

/// Returns the counter of an event. A plain token has no claim, so its counters are no-ops.
fn happened(label: PolicyLabel, event: ClaimEvent) -> Counter {
    match label {
        PolicyLabel::Token => Counter::noop(),
        PolicyLabel::Remembered | PolicyLabel::Key | PolicyLabel::Interval => {
            counter!(metric::CLAIMS.name, "policy" => label.as_str(), "event" => event.as_str())
        }
    }
}

fn describe(metric: &Metric) {
    match metric.kind {
        MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
        MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
        MetricKind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
    }
}
