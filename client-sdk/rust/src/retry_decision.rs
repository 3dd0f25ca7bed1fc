//! What comes after a try: a plain function over plain data.
//!
//! Two things are told apart all through it. A try that was *refused*, or never left, ran nothing, and that is certain. A try
//! *without an answer* may have run: from then on the submission is repeated with the same token or key only, and
//! whatever else refuses it makes its outcome unknown.

use std::time::Duration;

use onceward_api::{Code, Retry};

use crate::retry_limits::Limits;

/// What came of one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// An answer of the application.
    Answer,
    /// A failure without a word of a guard: the application's, or of something on the way.
    Failure,
    /// The caller's credentials are not, or no longer, good: 401.
    Unauthorized,
    /// A guard refused it: this request ran nothing.
    Refused { code: Code, retry: Retry, after: Option<Duration> },
    /// Something on the way wants fewer requests: 429 without a word of a guard.
    Busy { after: Option<Duration> },
    /// Something on the way has no answer: 502, 503 or 504 without a word of a guard. It may have run.
    Between { after: Option<Duration> },
    /// It never left: no connection could be made.
    NotSent,
    /// It left, wholly or in part, and no whole answer came back. It may have run.
    Lost,
}

/// What came of the tries before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct History {
    /// How many there were.
    pub(crate) tries: u32,
    /// Whether one of them had no answer.
    unanswered: bool,
    /// Whether one of them was told that the same is being carried out.
    runs: bool,
    /// Whether any of them was answered with anything but `new_token`.
    otherwise_answered: bool,
    renewed: bool,
    refreshed: bool,
}

impl History {
    /// Nothing was tried; or, if it is resumed, somebody may have.
    pub(crate) fn new(is_resumed: bool) -> Self {
        let (unanswered, runs, otherwise_answered) = (is_resumed, false, false);
        Self { tries: 0, unanswered, runs, otherwise_answered, renewed: false, refreshed: false }
    }

    /// Whether one of them may have run.
    pub(crate) fn in_doubt(&self) -> bool {
        self.unanswered || self.runs
    }

    /// What it is after this try, and after what was decided then.
    pub(crate) fn and(self, came: Came, next: Next) -> Self {
        let says_new_token = matches!(came, Came::Refused { retry: Retry::NewToken, .. });
        Self {
            tries: self.tries + 1,
            unanswered: self.unanswered || matches!(came, Came::Lost | Came::Between { .. }),
            runs: self.runs || matches!(came, Came::Refused { code: Code::InProgress, .. }),
            otherwise_answered: self.otherwise_answered || !(says_new_token || came == Came::NotSent),
            renewed: self.renewed || matches!(next, Next::NewToken(_)),
            refreshed: self.refreshed || matches!(next, Next::Refresh),
        }
    }
}

/// What a submission has to go by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) limits: Limits,
    /// What is left of the deadline.
    pub(crate) left: Duration,
    /// Whether the body can be sent again.
    pub(crate) repeatable: bool,
    /// What it carries, and where that was carried to.
    pub(crate) carries: Carries,
    /// Whether it goes on until the deadline, however many tries that takes.
    pub(crate) insists: bool,
    /// Whether the caller's credentials can be refreshed.
    pub(crate) refreshable: bool,
}

/// What a try carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carries {
    Token,
    Key,
    /// Nothing any more: it was led to another origin.
    Nothing,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The answer is handed over.
    Give,
    /// The same again, with the same token or key.
    Same(Wait),
    /// Again with a new token.
    NewToken(Wait),
    /// The same again, with refreshed credentials of the caller.
    Refresh,
    /// It ends: this refusal is the last word, and nothing ran.
    Refused,
    /// It ends: it never left.
    NotSent,
    /// It ends, and nobody knows whether it ran.
    Unknown,
}

/// How long to wait: this long, and a random part of the spread on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) at_least: Duration,
    pub(crate) spread: Duration,
}

impl Wait {
    /// Full jitter: anything up to a bound that doubles with each try. What the server asks for comes on top.
    pub(crate) fn before(tries: u32, after: Option<Duration>, limits: &Limits) -> Self {
        let doubled = limits.first_wait.saturating_mul(1 << tries.min(20));
        Self { at_least: after.unwrap_or_default(), spread: doubled.min(limits.longest_wait) }
    }

    /// A wait of this kind, drawn with a number from 0 to 1.
    pub(crate) fn drawn(self, random: f64) -> Duration {
        self.at_least.saturating_add(self.spread.mul_f64(random))
    }
}

/// Decides what comes after a try.
pub(crate) fn decide(history: &History, came: Came, terms: &Terms) -> Next {
    let ends = |certain: Next| if history.in_doubt() { Next::Unknown } else { certain };
    // What was led to another origin had no credentials with it that could be refreshed.
    let may_refresh = terms.refreshable && may_send(history, terms) && !terms.left.is_zero();
    match came {
        Came::Answer => Next::Give,
        // Whoever goes by tokens has a guard, which marks every answer: this one says nothing of the try before.
        Came::Failure if terms.carries == Carries::Token => ends(Next::Give),
        Came::Failure => Next::Give,
        Came::Unauthorized if may_refresh && !history.refreshed => Next::Refresh,
        Came::Unauthorized => ends(Next::Give),
        Came::Refused { code, retry, after } => refused(history, code, retry, after, terms),
        Came::Busy { after } => again(history, after, terms).unwrap_or(ends(Next::Give)),
        Came::Between { after } => again(history, after, terms).unwrap_or(Next::Unknown),
        Came::NotSent => again(history, None, terms).unwrap_or(ends(Next::NotSent)),
        Came::Lost => again(history, None, terms).unwrap_or(Next::Unknown),
    }
}

fn refused(history: &History, code: Code, retry: Retry, after: Option<Duration>, terms: &Terms) -> Next {
    let is_certain = if code == Code::InProgress { !history.unanswered } else { !history.in_doubt() };
    let ends = if is_certain { Next::Refused } else { Next::Unknown };
    match (code, retry) {
        // It is said that it was carried out, whoever did it: that is no longer unknown.
        (Code::ReplyNotKept, _) => Next::Refused,
        (Code::OutcomeUnknown | Code::Internal, _) => Next::Unknown,
        // The one that was sent a moment ago may have been ours, also if that was refused: the claim of a store whose answer was lost is
        // there for a moment. It is never waited for, whatever the problem says of that: once the interval is over, the duplicate would run.
        (Code::TooSoon, _) if history.in_doubt() || history.otherwise_answered => Next::Unknown,
        (Code::TooSoon, _) => Next::Refused,
        // The one that holds the lock may be ours; once that has ended, the same would run again.
        (Code::Locked, _) if history.in_doubt() => Next::Unknown,
        // An earlier try may have used it up, also one that was refused: a store's answer may be lost, and a token not put back.
        (Code::TokenUsed, _) if history.otherwise_answered => Next::Unknown,
        (_, Retry::Same) => again(history, after, terms).unwrap_or(ends),
        (_, Retry::NewToken) => renewed(history, after, terms).unwrap_or(ends),
        (_, Retry::No) => ends,
    }
}

/// The same again, if it may be, and may still be in time.
fn again(history: &History, after: Option<Duration>, terms: &Terms) -> Option<Next> {
    wait(history, after, terms).filter(|_| may_send(history, terms)).map(Next::Same)
}

/// Whether there is a try left, and something to send and to know it by.
fn may_send(history: &History, terms: &Terms) -> bool {
    let has_tries = terms.insists || history.tries + 1 < terms.limits.tries;
    has_tries && terms.repeatable && terms.carries != Carries::Nothing
}

/// Again with a new token: once, and only while nothing else was ever said of this submission.
fn renewed(history: &History, after: Option<Duration>, terms: &Terms) -> Option<Next> {
    let is_clean = !history.in_doubt() && !history.otherwise_answered && !history.renewed;
    let may = is_clean && terms.carries == Carries::Token && may_send(history, terms);
    let now = Wait { at_least: after.unwrap_or_default(), spread: Duration::ZERO };
    (may && now.at_least < terms.left).then_some(Next::NewToken(now))
}

/// The wait before the next try, if it ends before the deadline.
fn wait(history: &History, after: Option<Duration>, terms: &Terms) -> Option<Wait> {
    let Wait { at_least, spread } = Wait::before(history.tries, after, &terms.limits);
    let room = terms.left.checked_sub(at_least).filter(|room| !room.is_zero())?;
    Some(Wait { at_least, spread: spread.min(room / 2) })
}

#[cfg(test)]
mod tests;
