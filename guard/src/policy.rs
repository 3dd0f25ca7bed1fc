//! A policy is a row of the table: how a request enters, and what its answer says about the effect.

use std::time::Duration;

/// How a submission is told from its repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// A token that we issued is good for one use.
    Token {
        /// Accept only a token that was issued for this action, and for this caller where there is one.
        bound: bool,
    },
    /// A key that the caller made names one submission, and its first answer is given again.
    Key(KeyRules),
}

/// Whether the submission took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did; a duplicate must not.
    Happened,
    /// It did not, and may be sent again.
    DidNotHappen,
    /// Nobody can tell, so nothing is given back.
    Unknown,
}

/// What holds for a key: how long its claim and its reply live, and what becomes of a run that nobody can tell the end of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRules {
    pub(crate) lease: Duration,
    pub(crate) ceiling: Duration,
    pub(crate) retain: Duration,
    pub(crate) reply_limit: usize,
    pub(crate) hold: bool,
    pub(crate) replays_everything: bool,
}

impl KeyRules {
    /// The shortest lease: a renewal has to fit into it, and a store that is busy for a moment.
    const SHORTEST_LEASE: Duration = Duration::from_millis(100);

    /// A lease of 15 seconds, renewed for an hour at most, and a reply of up to 1 MiB that is kept for a day.
    pub fn new() -> Self {
        Self {
            lease: Duration::from_secs(15),
            ceiling: Duration::from_secs(60 * 60),
            retain: Duration::from_secs(24 * 60 * 60),
            reply_limit: 1024 * 1024,
            hold: false,
            replays_everything: false,
        }
    }

    /// How long a claim lives whose owner has died: 15 seconds. It is renewed as long as its owner lives, so it may well be
    /// shorter than the work takes. Less than 100 milliseconds counts as that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Self::SHORTEST_LEASE);
        self
    }

    /// How long a claim is renewed: an hour. Work that takes longer is taken for lost.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// How long the reply is kept: a day. Afterwards the same key runs again.
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

    /// Never runs again before it is known how the first run ended: a claim whose owner has died stays, and a duplicate is
    /// told that the outcome is unknown, until somebody [settles](crate::Guard::settle) it.
    #[must_use]
    pub fn hold(mut self) -> Self {
        self.hold = true;
        self
    }

    /// Keeps and replays every answer of a handler, failures included, as Stripe does.
    #[must_use]
    pub fn replay_everything(mut self) -> Self {
        self.replays_everything = true;
        self
    }

    fn effect(&self, status: u16) -> Effect {
        match status {
            _ if self.replays_everything => Effect::Happened,
            408 | 500 | 501 | 503 if self.hold => Effect::Unknown,
            401 | 403 | 408 | 425 | 429 | 500 | 501 | 503 => Effect::DidNotHappen,
            ..500 => Effect::Happened,
            500.. => Effect::Unknown,
        }
    }
}

impl Default for KeyRules {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy {
    /// A token that we issued is good for one use, on every route it is not bound away from.
    pub fn token() -> Self {
        Self::Token { bound: false }
    }

    /// A key that the caller made names one submission.
    pub fn key(rules: KeyRules) -> Self {
        Self::Key(rules)
    }

    /// Accepts only tokens that were issued for this action, and for this caller where there is one.
    #[must_use]
    pub fn bound(self) -> Self {
        match self {
            Self::Token { .. } => Self::Token { bound: true },
            other => other,
        }
    }

    /// What an answer of the handler says about the effect by its status, where nobody says it better.
    pub fn effect(&self, status: u16) -> Effect {
        match (self, status) {
            (Self::Key(rules), status) => rules.effect(status),
            (Self::Token { .. }, ..400) => Effect::Happened,
            (Self::Token { .. }, 400..=501 | 503) => Effect::DidNotHappen,
            (Self::Token { .. }, _) => Effect::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The column of the table for keys, as text: `+` it happened, `-` it did not, `?` nobody can tell.
    fn column(policy: &Policy, statuses: &[u16]) -> String {
        let sign = |status: &u16| match policy.effect(*status) {
            Effect::Happened => '+',
            Effect::DidNotHappen => '-',
            Effect::Unknown => '?',
        };
        statuses.iter().map(sign).collect()
    }

    #[test]
    fn a_status_says_what_the_table_says() {
        let statuses = [200, 302, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 501, 502, 503, 504, 505, 599];
        let key = |rules| Policy::key(rules);
        assert_eq!(column(&Policy::token(), &statuses), "++-----------?-???");
        assert_eq!(column(&key(KeyRules::new()), &statuses), "+++--+-++----?-???");
        assert_eq!(column(&key(KeyRules::new().hold()), &statuses), "+++--+?++--???????");
        assert_eq!(column(&key(KeyRules::new().replay_everything()), &statuses), "+".repeat(statuses.len()));
    }
}
