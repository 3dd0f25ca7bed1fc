//! Tokens in stock: plain data, which is told what time it is.
//!
//! Ages are counted from before a token was asked for, on this machine's steady clock, with the life that the server
//! gave it in seconds: dates are never compared, so that it does not matter whose clock is off.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::token::Token;

/// What a token is taken to live if nobody has said so.
const SHORT: Duration = Duration::from_secs(30);

/// Tokens, those first that have to be replaced first.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    held: VecDeque<Held>,
    /// The shortest life that the server has given so far.
    life: Option<Duration>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    /// From then on it is good, and counted as if it were not: another is fetched in its place.
    renew_at: Instant,
    /// Until then it is sent.
    until: Instant,
}

impl Stock {
    /// Takes one that is still good.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Token> {
        while let Some(held) = self.held.pop_front() {
            if now < held.until {
                return Some(held.token);
            }
        }
        None
    }

    /// How many will be good for a while.
    pub(crate) fn fresh(&self, now: Instant) -> usize {
        // Mostly all of them are, and then a look at the first one tells.
        if self.held.front().is_none_or(|held| now < held.renew_at) {
            return self.held.len();
        }
        self.held.len() - self.held.partition_point(|held| held.renew_at <= now)
    }

    /// Puts one in that was asked for at `asked`, with this life.
    pub(crate) fn put(&mut self, token: Token, asked: Instant, life: Duration) {
        self.life = Some(self.life.map_or(life, |shortest| shortest.min(life)));
        self.hold(token, asked, life);
    }

    /// Puts one in that came with an answer. How long it lives was not said: at least half as long as the others, and not
    /// long if there are none.
    pub(crate) fn put_unasked(&mut self, token: Token, now: Instant) {
        let life = self.life.map_or(SHORT, |life| life / 2).min(10 * SHORT);
        self.hold(token, now, life);
    }

    fn hold(&mut self, token: Token, asked: Instant, life: Duration) {
        // The way there takes time, and so does a queue before the guard.
        let margin = (life / 4).min(Duration::from_secs(5));
        let held = Held { token, renew_at: asked + life * 2 / 3, until: asked + (life - margin) };
        let at = self.held.partition_point(|other| other.renew_at <= held.renew_at);
        self.held.insert(at, held);
    }

    /// Forgets all: the server has refused one of them for a reason that holds for the others.
    pub(crate) fn clear(&mut self) {
        self.held.clear();
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
        let (mut stock, now) = (Stock::default(), Instant::now());
        stock.put(token("late"), now, 3 * MINUTE);
        stock.put(token("early"), now, MINUTE);
        stock.put(token("middle"), now, 2 * MINUTE);
        assert_eq!(stock.take(now), Some(token("early")));
        assert_eq!(stock.take(now + 2 * MINUTE), Some(token("late")), "the middle one is too old by then");
        assert_eq!(stock.take(now + 2 * MINUTE), None);
    }

    #[tokio::test]
    async fn a_token_is_replaced_before_it_is_too_old_to_be_sent() {
        let (mut stock, now) = (Stock::default(), Instant::now());
        stock.put(token("a"), now, 30 * MINUTE);
        assert_eq!(stock.fresh(now + 19 * MINUTE), 1);
        assert_eq!(stock.fresh(now + 21 * MINUTE), 0);
        assert!(stock.take(now + 29 * MINUTE).is_some());
        stock.put(token("a"), now, 30 * MINUTE);
        assert!(stock.take(now + 30 * MINUTE - Duration::from_secs(4)).is_none());
    }

    #[tokio::test]
    async fn a_token_of_a_second_is_good_for_most_of_it() {
        let (mut stock, now) = (Stock::default(), Instant::now());
        stock.put(token("a"), now, Duration::from_secs(1));
        assert!(stock.take(now + Duration::from_millis(700)).is_some());
    }

    #[tokio::test]
    async fn a_token_of_unknown_life_is_not_trusted_for_long() {
        let (mut stock, now) = (Stock::default(), Instant::now());
        stock.put_unasked(token("a"), now);
        assert!(stock.take(now + SHORT).is_none());
        stock.put(token("b"), now, Duration::from_secs(8));
        stock.take(now);
        stock.put_unasked(token("c"), now);
        assert!(stock.take(now + Duration::from_secs(4)).is_none());
        stock.put_unasked(token("d"), now);
        assert!(stock.take(now + Duration::from_secs(2)).is_some());
    }
}
