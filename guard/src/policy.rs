//! Policies: the rules by which a guard recognises a duplicate, and by which a response status implies an effect.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use crate::effect::Effect;
use crate::metrics::PolicyLabel;
use crate::reply::{NoReply, Reply};

/// The rule by which a guard recognises a duplicate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Accepts each token that the guard issued once.
    Token(TokenRules),
    /// Identifies a submission by a key that the client chose; a duplicate receives the stored reply.
    Key(KeyRules),
    /// Deduplicates without a token or key: accepts at most one equivalent request per subject and interval.
    Interval(IntervalRules),
}

/// The settings of a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRules {
    pub(crate) bound: bool,
    pub(crate) remember: Option<KeyRules>,
}

impl TokenRules {
    /// Creates rules under which a token is valid once, on every route that its binding allows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts only a token that was issued for this action, and for this subject unless it is anonymous.
    #[must_use]
    pub fn bound(mut self) -> Self {
        self.bound = true;
        self
    }

    /// Stores the reply for `retain`, and replays it to a duplicate. This suits a plain HTML form: after a double click, the browser shows
    /// the response to the second request. A run whose outcome is unknown is never repeated.
    #[must_use]
    pub fn remember(self, retain: Duration) -> Self {
        self.remember_by(KeyRules::retryable().retain(retain))
    }

    /// Like [`remember`](Self::remember), with your own lease, ceiling and limit. The claim always outlives its lease, as under [at most
    /// once](KeyRules::at_most_once). A status implies the same effect as for a plain token: a 500 releases the token, so that the user can
    /// send the form again.
    #[must_use]
    pub fn remember_by(mut self, rules: KeyRules) -> Self {
        self.remember = Some(KeyRules { at_most_once: true, ..rules });
        self
    }
}

/// The settings of an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalRules {
    pub(crate) every: Duration,
    pub(crate) ceiling: Duration,
    pub(crate) is_lock: bool,
    /// Maximum size of a stored reply; `None` if a duplicate is rejected.
    pub(crate) remember: Option<usize>,
    pub(crate) fails_open: bool,
    pub(crate) message: Option<Cow<'static, str>>,
}

impl IntervalRules {
    /// Minimum lease of the claim: it has to exceed the time that a reply of the store takes.
    const SHORTEST_CLAIM: Duration = Duration::from_millis(300);
    /// The same if the reply is stored. That write ends the claim in time, so it may be longer than the interval.
    const SHORTEST_REMEMBERED_CLAIM: Duration = Duration::from_secs(1);

    /// Creates rules with an interval of one second.
    pub fn new() -> Self {
        let ceiling = KeyRules::retryable().ceiling;
        Self {
            every: Duration::from_secs(1),
            ceiling,
            is_lock: false,
            remember: None,
            fails_open: false,
            message: None,
        }
    }

    /// Sets the interval. Default: 1 second.
    ///
    /// # Errors
    /// If the interval is shorter than a millisecond.
    pub fn every(mut self, every: Duration) -> Result<Self, SettingError> {
        self.every = every;
        if every < Duration::from_millis(1) { Err(SettingError::IntervalTooShort) } else { Ok(self) }
    }

    /// Sets the maximum time for which the interval is extended while its handler runs. Default: 1 hour. A run that takes longer counts as
    /// lost, and a duplicate may run concurrently.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Turns the interval into a lock: a duplicate is rejected as `locked` while the first run is in flight, by default for [an hour at
    /// most](Self::ceiling). The lock is released as soon as that run ends, whatever its outcome. If the owner crashes, the lock expires
    /// after `every`.
    ///
    /// A lock stores no reply: this replaces an earlier [`remember`](Self::remember).
    #[must_use]
    pub fn release_always(mut self) -> Self {
        (self.is_lock, self.remember) = (true, None);
        self
    }

    /// Stores the reply until the interval ends, and replays it to a duplicate, which is rejected as `too_soon` otherwise. The interval
    /// begins with the first request.
    ///
    /// While the handler runs, the interval is extended, and a duplicate waits or is rejected as `in_progress`. The reply is stored for at
    /// least one second after the run, so that each duplicate that waits finds it: an interval ends later than `every` if less than a
    /// second of it was left. A run that is not applied ends the interval at once; a duplicate that waits then runs, but only in the
    /// process of that run. After a run whose outcome is unknown, duplicates receive `outcome_unknown` until the interval ends, and for at
    /// least one second.
    ///
    /// A duplicate by content receives the reply of *the same subject*: do not use this with an anonymous subject, unless all clients may
    /// see the reply. A duplicate by [name](crate::http::Protect::from) has to have the same content; otherwise it is rejected as
    /// `key_reused`.
    ///
    /// A reply of up to 1 MiB is stored; [`reply_limit`](Self::reply_limit) changes that. This replaces an earlier
    /// [`release_always`](Self::release_always).
    #[must_use]
    pub fn remember(mut self) -> Self {
        (self.is_lock, self.remember) = (false, Some(KeyRules::retryable().reply_limit));
        self
    }

    /// Like [`remember`](Self::remember), with this maximum size of a stored reply. A duplicate of a larger one is rejected as
    /// `reply_not_kept`.
    #[must_use]
    pub fn reply_limit(self, bytes: usize) -> Self {
        Self { remember: Some(bytes), ..self.remember() }
    }

    /// Runs submissions unprotected when the store fails. Their responses are marked as `unprotected`, and the guard
    /// [counts](crate::Guard::let_through) them. No other policy can fail open.
    ///
    /// ```compile_fail,E0599
    /// onceward::KeyRules::retryable().fail_open();
    /// ```
    ///
    /// ```compile_fail,E0599
    /// onceward::TokenRules::new().fail_open();
    /// ```
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.fails_open = true;
        self
    }

    /// Sets the text that a duplicate receives instead of the default text of `too_soon` or `locked`.
    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Returns the rules of the claim for this interval.
    pub(crate) fn claim(&self) -> KeyRules {
        let shortest = if self.remember.is_some() { Self::SHORTEST_REMEMBERED_CLAIM } else { Self::SHORTEST_CLAIM };
        KeyRules {
            lease: self.every.max(shortest),
            ceiling: self.ceiling,
            retain: self.every,
            reply_limit: self.remember.unwrap_or(0),
            ..KeyRules::retryable()
        }
    }

    /// Returns whether the claim lives longer than the interval, and has to be shortened.
    pub(crate) fn is_shorter_than_its_claim(&self) -> bool {
        self.every < Self::SHORTEST_CLAIM
    }
}

impl Default for IntervalRules {
    fn default() -> Self {
        Self::new()
    }
}

/// The error for an invalid setting of a guard or a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The interval is too short; see [`IntervalRules::every`].
    #[error("an interval must be at least 1 millisecond; to accept all requests, do not protect the route")]
    IntervalTooShort,
    /// The lease is too short; see [`KeyRules::lease`].
    #[error("a lease must be at least 100 milliseconds, so that it can be renewed in time")]
    LeaseTooShort,
    /// The time to live is out of range; see [`Guard::TOKEN_TTL`](crate::Guard::TOKEN_TTL).
    #[error("the time to live of a token must be from 1 second to 24 hours, not {0:?}")]
    TokenTtl(Duration),
    /// The header name is invalid; see [`KeySource::header`](crate::http::KeySource::header).
    #[error("`{0}` is not a valid header name")]
    HeaderName(String),
}

/// Converts the error, for a `main` that returns [`io::Result`].
impl From<SettingError> for io::Error {
    fn from(error: SettingError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The settings of a key: its lease, its retention, and what a duplicate receives after a run whose outcome is unknown.
///
/// There is no default: choose [`at_most_once`](Self::at_most_once) or [`retryable`](Self::retryable).
///
/// ```compile_fail,E0599
/// onceward::KeyRules::default();
/// ```
///
/// ```compile_fail,E0599
/// onceward::KeyRules::new();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    pub(crate) lease: Duration,
    pub(crate) ceiling: Duration,
    pub(crate) retain: Duration,
    pub(crate) reply_limit: usize,
    pub(crate) at_most_once: bool,
    pub(crate) stored_failures: StoredFailures,
}

/// The failures of a handler that are stored and replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoredFailures {
    /// Those after which the run took effect.
    ByEffect,
    /// All except 401 and 429, after which nothing ran, and 502 and 504, which say that a gateway has no response.
    Certain,
    All,
}

impl KeyRules {
    /// Minimum lease: a renewal has to fit into it, even if the store is briefly busy.
    const SHORTEST_LEASE: Duration = Duration::from_millis(100);

    /// Creates rules for work that must not run twice, such as a payment.
    ///
    /// The outcome is unknown if the process crashed, or if the handler responded with 408, 500, 501 or 503. Such a run keeps the key: a
    /// duplicate receives `outcome_unknown` until [`Guard::settle`](crate::Guard::settle) records the outcome, or until
    /// [`retain`](Self::retain) has passed (24 hours by default).
    ///
    /// A response with status 401, 403, 425 or 429 means that the run did not take effect, and frees the key. A handler that passes on such
    /// a status from another service after it took effect has to state the effect.
    ///
    /// Both constructors set the same limits: a lease of 15 seconds, renewed for an hour at most, and a reply of up to 1 MiB that is stored
    /// for a day.
    pub fn at_most_once() -> Self {
        Self { at_most_once: true, ..Self::retryable() }
    }

    /// Creates rules for work that may run again after a failure.
    ///
    /// A crash frees the key when its lease expires, and a response with status 500 frees it at once. The next request with the same key
    /// runs the handler again, even if the first run took effect before it failed.
    pub fn retryable() -> Self {
        Self {
            lease: Duration::from_secs(15),
            ceiling: Duration::from_secs(60 * 60),
            retain: Duration::from_secs(24 * 60 * 60),
            reply_limit: 1024 * 1024,
            at_most_once: false,
            stored_failures: StoredFailures::ByEffect,
        }
    }

    /// Sets the lease: the time until a claim expires after its process has crashed. Default: 15 seconds. The claim is renewed while the
    /// handler runs, so the lease may be shorter than the handler takes.
    ///
    /// # Errors
    /// If the lease is shorter than 100 milliseconds: a renewal has to fit into it.
    pub fn lease(mut self, lease: Duration) -> Result<Self, SettingError> {
        self.lease = lease;
        if lease < Self::SHORTEST_LEASE { Err(SettingError::LeaseTooShort) } else { Ok(self) }
    }

    /// Sets the maximum time for which a claim is renewed. Default: 1 hour. A run that takes longer counts as lost.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Sets the retention: how long a reply is stored, and how long an unknown outcome under [at most once](Self::at_most_once) keeps the
    /// key. Default: 1 day. Afterwards, a request with the same key runs again.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    /// Returns the retention.
    pub fn retention(&self) -> Duration {
        self.retain
    }

    /// Sets the maximum size of a stored reply. Default: 1 MiB. For a larger reply, only the fact that the run took effect is stored.
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// Stores and replays every response of a handler, including failures of any status.
    #[must_use]
    pub fn replay_everything(mut self) -> Self {
        self.stored_failures = StoredFailures::All;
        self
    }

    /// Returns whether this reply is stored: not if it is too large or cannot be encoded.
    pub fn keeps(&self, reply: &Reply) -> bool {
        reply.size() <= self.reply_limit && reply.fits()
    }

    /// Returns the reply to store, or the reason why none is stored.
    pub(crate) fn kept(&self, reply: Result<Reply, NoReply>) -> Result<Reply, NoReply> {
        reply.and_then(|reply| if self.keeps(&reply) { Ok(reply) } else { Err(NoReply::TooLarge) })
    }

    fn effect(&self, status: u16) -> Effect {
        let is_certain = !matches!(status, 401 | 429 | 502 | 504);
        match status {
            _ if self.stored_failures == StoredFailures::All => Effect::Applied,
            _ if self.stored_failures == StoredFailures::Certain && is_certain => Effect::Applied,
            408 | 500 | 501 | 503 if self.at_most_once => Effect::Unknown,
            401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::NotApplied,
            ..500 => Effect::Applied,
            500.. => Effect::Unknown,
        }
    }
}

impl Policy {
    /// Creates a policy that accepts each token that the guard issued once, on every route that its binding allows.
    pub fn token() -> Self {
        Self::Token(TokenRules::new())
    }

    /// Creates a policy that identifies a submission by a key that the client chose.
    pub fn key(rules: KeyRules) -> Self {
        Self::Key(rules)
    }

    /// Creates a policy that accepts at most one equivalent request per subject and interval.
    pub fn interval(rules: IntervalRules) -> Self {
        Self::Interval(rules)
    }

    /// Returns the effect that a status of the handler's response implies, unless the handler states the effect.
    pub fn effect(&self, status: u16) -> Effect {
        match (self, status) {
            (Self::Key(rules), status) => rules.effect(status),
            (Self::Token(TokenRules { remember: Some(rules), .. }), _)
                if rules.stored_failures == StoredFailures::All =>
            {
                Effect::Applied
            }
            (_, ..400) => Effect::Applied,
            (_, 400..=501 | 503) => Effect::NotApplied,
            (_, _) => Effect::Unknown,
        }
    }

    /// Returns whether an error of a type that only an extractor creates proves that the handler was not entered. A handler can construct
    /// such an error, so at most once requires a better proof. Under a token or in an interval, every 4xx counts as not applied anyway.
    pub(crate) fn believes_extractors(&self) -> bool {
        matches!(self, Self::Key(rules) if !rules.at_most_once)
    }

    /// Returns the effect that an error of the work implies, unless the work states the effect: the same as a response with status 500. An
    /// error cannot be replayed, so [`replay_everything`](KeyRules::replay_everything) does not change this.
    pub(crate) fn effect_of_failure(&self) -> Effect {
        match self {
            Self::Key(rules) if rules.at_most_once => Effect::Unknown,
            Self::Key(_) | Self::Token(_) | Self::Interval(_) => Effect::NotApplied,
        }
    }

    /// Returns whether a reply is stored for duplicates.
    pub(crate) fn keeps_replies(&self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Token(rules) => rules.remember.is_some(),
            Self::Interval(rules) => rules.remember.is_some(),
        }
    }

    /// Returns whether this reply is stored for duplicates.
    #[allow(dead_code, reason = "only adapters need it, and each is a feature of its own")]
    pub(crate) fn keeps(&self, reply: &Reply) -> bool {
        match self {
            Self::Key(rules) => rules.keeps(reply),
            Self::Token(rules) => rules.remember.as_ref().is_some_and(|rules| rules.keeps(reply)),
            Self::Interval(rules) => rules.remember.is_some() && rules.claim().keeps(reply),
        }
    }

    /// Returns how long a reply is stored; `None` if none is.
    #[allow(dead_code, reason = "only adapters send it, and each is a feature of its own")]
    pub(crate) fn retention(&self) -> Option<Duration> {
        match self {
            Self::Key(rules) => Some(rules.retain),
            Self::Token(rules) => rules.remember.as_ref().map(|rules| rules.retain),
            Self::Interval(rules) => rules.remember.map(|_| rules.every),
        }
    }

    /// Returns whether a submission runs although the store failed.
    pub(crate) fn fails_open(&self) -> bool {
        matches!(self, Self::Interval(rules) if rules.fails_open)
    }

    /// Returns the name of the policy in metrics and logs.
    pub(crate) fn label(&self) -> PolicyLabel {
        match self {
            Self::Token(rules) if rules.remember.is_none() => PolicyLabel::Token,
            Self::Token(_) => PolicyLabel::Remembered,
            Self::Key(_) => PolicyLabel::Key,
            Self::Interval(_) => PolicyLabel::Interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A column of the table, as text: `+` is applied, `-` is not applied, `?` is unknown.
    fn column(policy: &Policy, statuses: &[u16]) -> String {
        let sign = |status: &u16| match policy.effect(*status) {
            Effect::Applied => '+',
            Effect::NotApplied => '-',
            Effect::Unknown => '?',
        };
        statuses.iter().map(sign).collect()
    }

    #[test]
    fn interval_below_a_millisecond_is_rejected() {
        assert_eq!(IntervalRules::new().every(Duration::ZERO), Err(SettingError::IntervalTooShort));
        assert_eq!(IntervalRules::new().every(Duration::from_micros(999)), Err(SettingError::IntervalTooShort));
        let short = IntervalRules::new().every(Duration::from_millis(1)).unwrap();
        assert_eq!(short.claim().lease, Duration::from_millis(300));
    }

    #[test]
    fn lease_below_100_milliseconds_is_rejected() {
        for rules in [KeyRules::at_most_once, KeyRules::retryable] {
            assert_eq!(rules().lease(Duration::from_millis(99)), Err(SettingError::LeaseTooShort));
            assert_eq!(rules().lease(Duration::from_millis(100)).unwrap().lease, Duration::from_millis(100));
        }
    }

    #[test]
    fn interval_is_extended_up_to_its_ceiling() {
        assert_eq!(IntervalRules::new().claim().ceiling, Duration::from_secs(60 * 60));
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(IntervalRules::new().release_always().ceiling(day).claim().ceiling, day);
    }

    #[test]
    fn status_maps_to_the_documented_effect() {
        let statuses = [200, 302, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 505, 599];
        let key = |rules| Policy::key(rules);
        assert_eq!(column(&Policy::token(), &statuses), "++-----------?-???");
        let remembered = |rules| Policy::Token(TokenRules::new().remember_by(rules));
        assert_eq!(
            column(&remembered(KeyRules::retryable()), &statuses),
            "++-----------?-???",
            "at most once, with the effects of a plain token"
        );
        assert_eq!(
            column(&remembered(KeyRules::retryable().replay_everything()), &statuses),
            "+".repeat(statuses.len())
        );
        assert_eq!(column(&Policy::interval(IntervalRules::new()), &statuses), "++-----------?-???");
        assert_eq!(column(&key(KeyRules::retryable()), &statuses), "+++--+-++----?-???");
        assert_eq!(column(&key(KeyRules::at_most_once()), &statuses), "+++--+?++--???????");
        assert_eq!(column(&key(KeyRules::retryable().replay_everything()), &statuses), "+".repeat(statuses.len()));
        let certain = |rules| KeyRules { stored_failures: StoredFailures::Certain, ..rules };
        for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
            assert_eq!(column(&key(certain(rules)), &statuses), "+++-++++++-++?+?++");
        }
    }
}
