//! The tokens in stock. The caller passes the current time.
//!
//! The age of a token counts from its request, on the monotonic clock of this machine, and its lifetime is the server's `expires_in`. Dates
//! are never compared, so the clocks of client and server may differ.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::token::Token;

/// Assumed lifetime of a token that came without one.
const ASSUMED_LIFETIME: Duration = Duration::from_secs(30);

/// Tokens, ordered by the time of their renewal.
#[derive(Debug, Default)]
pub(crate) struct TokenStock {
    tokens: VecDeque<PooledToken>,
    /// The shortest lifetime that the server has sent so far.
    shortest_lifetime: Option<Duration>,
}

#[derive(Debug)]
struct PooledToken {
    token: Token,
    /// The time from which the token is valid but not fresh: the pool fetches a replacement.
    renew_at: Instant,
    /// The time until which the token may be sent.
    valid_until: Instant,
}

impl TokenStock {
    /// Takes a token that is still valid.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Token> {
        while let Some(pooled) = self.tokens.pop_front() {
            if now < pooled.valid_until {
                return Some(pooled.token);
            }
        }
        None
    }

    /// The number of tokens that need no renewal yet.
    pub(crate) fn fresh(&self, now: Instant) -> usize {
        // Usually all tokens are fresh: checking the first one is enough.
        if self.tokens.front().is_none_or(|pooled| now < pooled.renew_at) {
            return self.tokens.len();
        }
        self.tokens.len() - self.tokens.partition_point(|pooled| pooled.renew_at <= now)
    }

    /// Inserts a token that was requested at `requested`, with this lifetime.
    pub(crate) fn insert(&mut self, token: Token, requested: Instant, lifetime: Duration) {
        self.shortest_lifetime = Some(self.shortest_lifetime.map_or(lifetime, |shortest| shortest.min(lifetime)));
        self.insert_sorted(token, requested, lifetime);
    }

    /// Inserts a token that came with a response, without a lifetime. Half of the shortest known lifetime is assumed, or
    /// `ASSUMED_LIFETIME`.
    pub(crate) fn insert_unrequested(&mut self, token: Token, now: Instant) {
        let lifetime =
            self.shortest_lifetime.map_or(ASSUMED_LIFETIME, |lifetime| lifetime / 2).min(10 * ASSUMED_LIFETIME);
        self.insert_sorted(token, now, lifetime);
    }

    fn insert_sorted(&mut self, token: Token, requested: Instant, lifetime: Duration) {
        // Allow for the time that the request takes to reach the guard.
        let margin = (lifetime / 4).min(Duration::from_secs(5));
        let pooled =
            PooledToken { token, renew_at: requested + lifetime * 2 / 3, valid_until: requested + (lifetime - margin) };
        let at = self.tokens.partition_point(|other| other.renew_at <= pooled.renew_at);
        self.tokens.insert(at, pooled);
    }

    /// Discards all tokens: the server rejected one of them for a reason that applies to all.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn token(name: &str) -> Token {
        Token::new(name.to_owned().into()).unwrap()
    }

    #[tokio::test]
    async fn oldest_usable_token_is_taken_and_older_ones_dropped() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("late"), now, 3 * MINUTE);
        stock.insert(token("early"), now, MINUTE);
        stock.insert(token("middle"), now, 2 * MINUTE);
        assert_eq!(stock.take(now), Some(token("early")));
        assert_eq!(stock.take(now + 2 * MINUTE), Some(token("late")), "the middle one has expired");
        assert_eq!(stock.take(now + 2 * MINUTE), None);
    }

    #[tokio::test]
    async fn token_is_replaced_before_it_expires() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("a"), now, 30 * MINUTE);
        assert_eq!(stock.fresh(now + 19 * MINUTE), 1);
        assert_eq!(stock.fresh(now + 21 * MINUTE), 0);
        assert!(stock.take(now + 29 * MINUTE).is_some());
        stock.insert(token("a"), now, 30 * MINUTE);
        assert!(stock.take(now + 30 * MINUTE - Duration::from_secs(4)).is_none());
    }

    #[tokio::test]
    async fn one_second_token_is_usable_for_most_of_it() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("a"), now, Duration::from_secs(1));
        assert!(stock.take(now + Duration::from_millis(700)).is_some());
    }

    #[tokio::test]
    async fn token_without_known_expiry_is_dropped_early() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert_unrequested(token("a"), now);
        assert!(stock.take(now + ASSUMED_LIFETIME).is_none());
        stock.insert(token("b"), now, Duration::from_secs(8));
        stock.take(now);
        stock.insert_unrequested(token("c"), now);
        assert!(stock.take(now + Duration::from_secs(4)).is_none());
        stock.insert_unrequested(token("d"), now);
        assert!(stock.take(now + Duration::from_secs(2)).is_some());
    }
}
