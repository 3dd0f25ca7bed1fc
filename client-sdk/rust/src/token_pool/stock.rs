//! Tokens in stock: plain data; the caller passes the time.
//!
//! A token's age counts from before it was requested, on this machine's monotonic clock, and its lifetime is the server's `expires_in`:
//! dates are never compared, so that clocks may differ.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::token::Token;

/// The lifetime assumed for a token that came without one.
const ASSUMED_LIFETIME: Duration = Duration::from_secs(30);

/// Tokens, ordered by when they have to be replaced.
#[derive(Debug, Default)]
pub(crate) struct TokenStock {
    tokens: VecDeque<PooledToken>,
    /// The shortest lifetime the server has given so far.
    shortest_lifetime: Option<Duration>,
}

#[derive(Debug)]
struct PooledToken {
    token: Token,
    /// From then on it is valid but not fresh: another is fetched in its place.
    renew_at: Instant,
    /// Until then it may be sent.
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

    /// The number of tokens that need no replacement yet.
    pub(crate) fn fresh(&self, now: Instant) -> usize {
        // Mostly all of them are fresh, and then so is the first.
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

    /// Inserts a token that came with a response, without a lifetime: half of the shortest one seen is assumed, and little if none was.
    pub(crate) fn insert_unrequested(&mut self, token: Token, now: Instant) {
        let lifetime =
            self.shortest_lifetime.map_or(ASSUMED_LIFETIME, |lifetime| lifetime / 2).min(10 * ASSUMED_LIFETIME);
        self.insert_sorted(token, now, lifetime);
    }

    fn insert_sorted(&mut self, token: Token, requested: Instant, lifetime: Duration) {
        // The request takes time to reach the guard.
        let margin = (lifetime / 4).min(Duration::from_secs(5));
        let pooled =
            PooledToken { token, renew_at: requested + lifetime * 2 / 3, valid_until: requested + (lifetime - margin) };
        let at = self.tokens.partition_point(|other| other.renew_at <= pooled.renew_at);
        self.tokens.insert(at, pooled);
    }

    /// Discards all tokens: the server rejected one of them for a reason that holds for the others.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn token(name: &str) -> Token {
        Token::new(name.as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn the_oldest_that_is_good_goes_first_and_the_others_are_forgotten() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("late"), now, 3 * MINUTE);
        stock.insert(token("early"), now, MINUTE);
        stock.insert(token("middle"), now, 2 * MINUTE);
        assert_eq!(stock.take(now), Some(token("early")));
        assert_eq!(stock.take(now + 2 * MINUTE), Some(token("late")), "the middle one is too old by then");
        assert_eq!(stock.take(now + 2 * MINUTE), None);
    }

    #[tokio::test]
    async fn a_token_is_replaced_before_it_is_too_old_to_be_sent() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("a"), now, 30 * MINUTE);
        assert_eq!(stock.fresh(now + 19 * MINUTE), 1);
        assert_eq!(stock.fresh(now + 21 * MINUTE), 0);
        assert!(stock.take(now + 29 * MINUTE).is_some());
        stock.insert(token("a"), now, 30 * MINUTE);
        assert!(stock.take(now + 30 * MINUTE - Duration::from_secs(4)).is_none());
    }

    #[tokio::test]
    async fn a_token_of_a_second_is_good_for_most_of_it() {
        let (mut stock, now) = (TokenStock::default(), Instant::now());
        stock.insert(token("a"), now, Duration::from_secs(1));
        assert!(stock.take(now + Duration::from_millis(700)).is_some());
    }

    #[tokio::test]
    async fn a_token_of_unknown_life_is_not_trusted_for_long() {
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
