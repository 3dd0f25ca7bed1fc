//! A policy is a row of the table: how a request enters, and what its answer says about the effect.

use std::borrow::Cow;
use std::time::Duration;

use crate::effect::Effect;
use crate::metrics::PolicyLabel;
use crate::reply::{NoReply, Reply};

/// How a submission is told from its repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// A token that we issued is good for one use.
    Token(TokenRules),
    /// A key that the caller made names one submission, and its first answer is given again.
    Key(KeyRules),
    /// Nobody made anything: the same, from the same caller, is taken once in a while.
    Interval(IntervalRules),
}

/// What holds for a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRules {
    pub(crate) bound: bool,
    pub(crate) remember: Option<KeyRules>,
}

impl TokenRules {
    /// Good once, on every route it is not bound away from.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts only a token that was issued for this action, and for this caller where there is one.
    #[must_use]
    pub fn bound(mut self) -> Self {
        self.bound = true;
        self
    }

    /// Keeps the answer this long, and gives it again to the same submission. A browser shows the answer to the second
    /// click; so this is what a plain form wants. A run that nobody can tell the end of is never repeated.
    #[must_use]
    pub fn remember(self, retain: Duration) -> Self {
        self.remember_by(KeyRules::retryable().retain(retain))
    }

    /// The same, with a lease, a ceiling and a limit of your own. The claim is always held; what an answer says goes by what
    /// holds for tokens all the same: a 500 gives the token back, so that the form can be sent again.
    #[must_use]
    pub fn remember_by(mut self, rules: KeyRules) -> Self {
        self.remember = Some(KeyRules { at_most_once: true, ..rules });
        self
    }
}

/// What holds for an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalRules {
    pub(crate) every: Duration,
    pub(crate) ceiling: Duration,
    pub(crate) is_lock: bool,
    pub(crate) fails_open: bool,
    pub(crate) message: Option<Cow<'static, str>>,
}

impl IntervalRules {
    /// For less than this nothing can be claimed safely: an answer of the store takes its time.
    const SHORTEST_CLAIM: Duration = Duration::from_millis(300);

    /// The same again only after a second.
    pub fn new() -> Self {
        let ceiling = KeyRules::retryable().ceiling;
        Self { every: Duration::from_secs(1), ceiling, is_lock: false, fails_open: false, message: None }
    }

    /// The same again only after this long.
    ///
    /// # Errors
    /// If that is no time at all.
    pub fn every(mut self, every: Duration) -> Result<Self, SettingError> {
        self.every = every;
        if every < Duration::from_millis(1) { Err(SettingError::IntervalTooShort) } else { Ok(self) }
    }

    /// How long it is kept for a handler that takes longer than the interval: an hour. Work that takes longer still is taken for
    /// lost, and the same may run beside it.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Makes it a plain lock: refused as `locked` while the first runs, for [an hour at most](Self::ceiling), and free as soon as it has ended,
    /// however it did. It is then `every` that a lock outlives its owner by, if that has died.
    #[must_use]
    pub fn release_always(mut self) -> Self {
        self.is_lock = true;
        self
    }

    /// Lets submissions through when the store cannot be asked: they are answered as `unprotected`, and
    /// [counted](crate::Guard::let_through). No other policy can do that.
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

    /// What a duplicate is told, in place of the text that `too_soon` or `locked` has.
    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The claim behind it.
    pub(crate) fn claim(&self) -> KeyRules {
        KeyRules { lease: self.every.max(Self::SHORTEST_CLAIM), ceiling: self.ceiling, ..KeyRules::retryable() }
    }

    /// Whether the claim outlasts the interval, and has to be shortened.
    pub(crate) fn is_shorter_than_its_claim(&self) -> bool {
        self.every < Self::SHORTEST_CLAIM
    }
}

impl Default for IntervalRules {
    fn default() -> Self {
        Self::new()
    }
}

/// A setting that a guard or a policy cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// See [`IntervalRules::every`].
    #[error("an interval lasts a millisecond at least; to have none, do not protect the route")]
    IntervalTooShort,
    /// See [`KeyRules::lease`].
    #[error("a lease lasts 100 milliseconds at least, so that it can be renewed in time")]
    LeaseTooShort,
    /// See [`Guard::TOKEN_TTL`](crate::Guard::TOKEN_TTL).
    #[error("a token lives for 1 second to 24 hours, not for {0:?}")]
    TokenTtl(Duration),
    /// See [`KeySource::header`](crate::http::KeySource::header).
    #[error("`{0}` cannot be the name of a header")]
    HeaderName(String),
}

/// The settings of a key: how long its claim and its reply live, and what happens after a run whose outcome is unknown.
///
/// There is no default: [`at_most_once`](Self::at_most_once) or [`retryable`](Self::retryable) has to be written out.
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
    pub(crate) replays_everything: bool,
}

impl KeyRules {
    /// The shortest lease: a renewal has to fit into it, and a store that is busy for a moment.
    const SHORTEST_LEASE: Duration = Duration::from_millis(100);

    /// For work that must not run twice, such as a payment. A run whose outcome is unknown, because its process crashed or its handler
    /// answered 408, 500, 501 or 503, keeps the key: a duplicate receives `outcome_unknown` until [`Guard::settle`](crate::Guard::settle)
    /// says how the run ended, or until [`retain`](Self::retain) has passed (24 hours by default).
    ///
    /// A response with status 401, 403, 425 or 429 says that nothing took effect and frees the key. A handler that passes on such a status
    /// of another party after it took effect has to say so.
    ///
    /// Both constructors set the same limits: a lease of 15 seconds, renewed for an hour at most, and a reply of up to 1 MiB that is stored
    /// for a day.
    pub fn at_most_once() -> Self {
        Self { at_most_once: true, ..Self::retryable() }
    }

    /// For work that may run again after a failure. A crash frees the key when its lease expires, and a response with status 500 frees it at
    /// once: the next request with the same key runs the handler again, even if the first run took effect before it failed.
    pub fn retryable() -> Self {
        Self {
            lease: Duration::from_secs(15),
            ceiling: Duration::from_secs(60 * 60),
            retain: Duration::from_secs(24 * 60 * 60),
            reply_limit: 1024 * 1024,
            at_most_once: false,
            replays_everything: false,
        }
    }

    /// How long a claim lives after its process has crashed: 15 seconds. It is renewed as long as the process lives, so it may well be
    /// shorter than the handler takes.
    ///
    /// # Errors
    /// If it is shorter than 100 milliseconds: a renewal has to fit into it.
    pub fn lease(mut self, lease: Duration) -> Result<Self, SettingError> {
        self.lease = lease;
        if lease < Self::SHORTEST_LEASE { Err(SettingError::LeaseTooShort) } else { Ok(self) }
    }

    /// How long a claim is renewed: an hour. Work that takes longer is taken for lost.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// How long the reply is kept, and an unknown outcome that is [held](Self::at_most_once): a day. Afterwards the same key runs again.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    /// How large a reply is kept: 1 MiB. Of a larger one it is only kept that there was one.
    #[must_use]
    pub fn reply_limit(mut self, bytes: usize) -> Self {
        self.reply_limit = bytes;
        self
    }

    /// Keeps and replays every answer of a handler, failures included, as Stripe does.
    #[must_use]
    pub fn replay_everything(mut self) -> Self {
        self.replays_everything = true;
        self
    }

    /// Whether this reply is kept: not if it is too large or cannot be written down.
    pub fn keeps(&self, reply: &Reply) -> bool {
        reply.size() <= self.reply_limit && reply.fits()
    }

    /// What is kept of a reply: all, or why nothing is.
    pub(crate) fn kept(&self, reply: Result<Reply, NoReply>) -> Result<Reply, NoReply> {
        reply.and_then(|reply| if self.keeps(&reply) { Ok(reply) } else { Err(NoReply::TooLarge) })
    }

    fn effect(&self, status: u16) -> Effect {
        match status {
            _ if self.replays_everything => Effect::Applied,
            408 | 500 | 501 | 503 if self.at_most_once => Effect::Unknown,
            401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::NotApplied,
            ..500 => Effect::Applied,
            500.. => Effect::Unknown,
        }
    }
}

impl Policy {
    /// A token that we issued is good for one use, on every route it is not bound away from.
    pub fn token() -> Self {
        Self::Token(TokenRules::new())
    }

    /// A key that the caller made names one submission.
    pub fn key(rules: KeyRules) -> Self {
        Self::Key(rules)
    }

    /// The same is taken once in a while.
    pub fn interval(rules: IntervalRules) -> Self {
        Self::Interval(rules)
    }

    /// What an answer of the handler says about the effect by its status, where nobody says it better.
    pub fn effect(&self, status: u16) -> Effect {
        match (self, status) {
            (Self::Key(rules), status) => rules.effect(status),
            (Self::Token(TokenRules { remember: Some(rules), .. }), _) if rules.replays_everything => Effect::Applied,
            (_, ..400) => Effect::Applied,
            (_, 400..=501 | 503) => Effect::NotApplied,
            (_, _) => Effect::Unknown,
        }
    }

    /// Whether an error of a type that only an extractor makes proves that the handler was not entered. A handler can construct such
    /// an error, so at most once asks for a better proof. Under a token or in an interval every 4xx counts as not applied anyway.
    pub(crate) fn believes_extractors(&self) -> bool {
        matches!(self, Self::Key(rules) if !rules.at_most_once)
    }

    /// What an error of the work says about the effect, where nobody says it better: the same as a response with status 500. It
    /// cannot be replayed, so [`replay_everything`](KeyRules::replay_everything) changes nothing of that.
    pub(crate) fn effect_of_failure(&self) -> Effect {
        match self {
            Self::Key(rules) if rules.at_most_once => Effect::Unknown,
            Self::Key(_) | Self::Token(_) | Self::Interval(_) => Effect::NotApplied,
        }
    }

    /// Whether an answer is kept for whoever comes later.
    pub(crate) fn keeps_replies(&self) -> bool {
        match self {
            Self::Key(_) => true,
            Self::Token(rules) => rules.remember.is_some(),
            Self::Interval(_) => false,
        }
    }

    /// Whether a submission runs although the store could not be asked.
    pub(crate) fn fails_open(&self) -> bool {
        matches!(self, Self::Interval(rules) if rules.fails_open)
    }

    /// Its name in metrics and logs.
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

    /// A column of the table, as text: `+` it happened, `-` it did not, `?` nobody can tell.
    fn column(policy: &Policy, statuses: &[u16]) -> String {
        let sign = |status: &u16| match policy.effect(*status) {
            Effect::Applied => '+',
            Effect::NotApplied => '-',
            Effect::Unknown => '?',
        };
        statuses.iter().map(sign).collect()
    }

    #[test]
    fn an_interval_of_no_time_is_none() {
        assert_eq!(IntervalRules::new().every(Duration::ZERO), Err(SettingError::IntervalTooShort));
        assert_eq!(IntervalRules::new().every(Duration::from_micros(999)), Err(SettingError::IntervalTooShort));
        let short = IntervalRules::new().every(Duration::from_millis(1)).unwrap();
        assert_eq!(short.claim().lease, Duration::from_millis(300));
    }

    #[test]
    fn lease_that_no_renewal_fits_into_is_an_error() {
        for rules in [KeyRules::at_most_once, KeyRules::retryable] {
            assert_eq!(rules().lease(Duration::from_millis(99)), Err(SettingError::LeaseTooShort));
            assert_eq!(rules().lease(Duration::from_millis(100)).unwrap().lease, Duration::from_millis(100));
        }
    }

    #[test]
    fn an_interval_is_kept_for_a_slow_handler_as_long_as_it_is_told_to_be() {
        assert_eq!(IntervalRules::new().claim().ceiling, Duration::from_secs(60 * 60));
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(IntervalRules::new().release_always().ceiling(day).claim().ceiling, day);
    }

    #[test]
    fn a_status_says_what_the_table_says() {
        let statuses = [200, 302, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 505, 599];
        let key = |rules| Policy::key(rules);
        assert_eq!(column(&Policy::token(), &statuses), "++-----------?-???");
        let remembered = |rules| Policy::Token(TokenRules::new().remember_by(rules));
        assert_eq!(
            column(&remembered(KeyRules::retryable()), &statuses),
            "++-----------?-???",
            "held, and a token's column"
        );
        assert_eq!(
            column(&remembered(KeyRules::retryable().replay_everything()), &statuses),
            "+".repeat(statuses.len())
        );
        assert_eq!(column(&Policy::interval(IntervalRules::new()), &statuses), "++-----------?-???");
        assert_eq!(column(&key(KeyRules::retryable()), &statuses), "+++--+-++----?-???");
        assert_eq!(column(&key(KeyRules::at_most_once()), &statuses), "+++--+?++--???????");
        assert_eq!(column(&key(KeyRules::retryable().replay_everything()), &statuses), "+".repeat(statuses.len()));
    }
}
