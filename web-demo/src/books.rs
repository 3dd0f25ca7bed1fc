//! What each visitor has ordered, and how they were answered. Only numbers are kept, of so many visitors and no more.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::pace::{Bucket, Pace};
use crate::visitor::Visitor;

/// How many visitors are counted one by one. One more takes the place of whoever was away longest.
const VISITORS: usize = 2_000;

/// What a person with a quick finger can do, and a few scripts.
const EACH: Pace = Pace { burst: 60.0, per_second: 10.0 };
/// What all of them together can do: the service has other things to do.
const ALL: Pace = Pace { burst: 300.0, per_second: 100.0 };

/// The account of every visitor.
#[derive(Debug)]
pub(crate) struct Books {
    accounts: HashMap<Visitor, Account>,
    pace: Bucket,
    pages: Bucket,
    most: usize,
}

#[derive(Debug)]
struct Account {
    tally: Tally,
    pace: Bucket,
    seen: Duration,
}

/// What a visitor is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Orders placed with the guarded form.
    pub(crate) guarded: u64,
    /// Orders placed with the other.
    pub(crate) unguarded: u64,
    /// Answers of the guarded counters: the handler ran and succeeded.
    pub(crate) executed: u64,
    /// The first answer again.
    pub(crate) replayed: u64,
    /// Nothing ran.
    pub(crate) refused: u64,
    /// The handler ran and failed.
    pub(crate) failed: u64,
}

impl Books {
    /// Empty ones.
    pub(crate) fn new() -> Self {
        let full = Bucket::full(ALL, Duration::ZERO);
        Self { accounts: HashMap::new(), pace: full, pages: full, most: VISITORS }
    }

    /// Lets a visitor in, or says how long to wait. Nobody is written down who is not let in.
    pub(crate) fn admit(&mut self, visitor: Visitor, now: Duration) -> Result<(), Duration> {
        if let Some(account) = self.accounts.get_mut(&visitor) {
            account.pace.take(EACH, now)?;
        }
        self.pace.take(ALL, now)?;
        self.account(visitor, now).seen = now;
        Ok(())
    }

    /// Lets somebody see the page who may be nobody yet.
    pub(crate) fn admit_page(&mut self, now: Duration) -> Result<(), Duration> {
        self.pages.take(ALL, now)
    }

    /// What a visitor has come to so far.
    pub(crate) fn tally(&self, visitor: Visitor) -> Tally {
        self.accounts.get(&visitor).map(|account| account.tally).unwrap_or_default()
    }

    /// Changes what a visitor has come to, and gives what it is now.
    pub(crate) fn count(&mut self, visitor: Visitor, now: Duration, count: impl FnOnce(&mut Tally)) -> Tally {
        let tally = &mut self.account(visitor, now).tally;
        count(tally);
        *tally
    }

    /// Strikes out what a visitor has come to; how fast they have been is not forgotten.
    pub(crate) fn forget(&mut self, visitor: Visitor) {
        if let Some(account) = self.accounts.get_mut(&visitor) {
            account.tally = Tally::default();
        }
    }

    fn account(&mut self, visitor: Visitor, now: Duration) -> &mut Account {
        if self.accounts.len() >= self.most && !self.accounts.contains_key(&visitor) {
            let longest_away =
                self.accounts.iter().min_by_key(|(_, account)| account.seen).map(|(visitor, _)| *visitor);
            if let Some(longest_away) = longest_away {
                self.accounts.remove(&longest_away);
            }
        }
        let new = || Account { tally: Tally::default(), pace: Bucket::full(EACH, now), seen: now };
        self.accounts.entry(visitor).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn one_more_visitor_takes_the_place_of_whoever_was_away_longest() {
        let mut books = Books { most: 2, ..Books::new() };
        let [first, second, third] = [Visitor::new(), Visitor::new(), Visitor::new()];
        for (visitor, at) in [(first, 1), (second, 2), (first, 3)] {
            books.admit(visitor, Duration::from_secs(at)).unwrap();
            books.count(visitor, Duration::from_secs(at), |tally| tally.guarded += 1);
        }
        books.admit(third, Duration::from_secs(4)).unwrap();
        assert_eq!(books.accounts.len(), 2);
        assert_eq!((books.tally(first).guarded, books.tally(second).guarded), (2, 0));
    }

    #[test]
    fn a_visitor_who_is_too_fast_is_held_up_and_the_others_are_not() {
        let mut books = Books::new();
        let [fast, slow] = [Visitor::new(), Visitor::new()];
        let admitted = (0..200).filter(|_| books.admit(fast, NOW).is_ok()).count();
        assert_eq!(admitted, EACH.burst as usize + 1, "the first comes before there is an account");
        assert!(books.admit(slow, NOW).is_ok());
        assert!(books.admit(fast, NOW + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn all_together_are_held_up_and_then_nobody_is_written_down() {
        let mut books = Books::new();
        let admitted = (0..1000).filter(|_| books.admit(Visitor::new(), NOW).is_ok()).count();
        assert_eq!((admitted, books.accounts.len()), (ALL.burst as usize, ALL.burst as usize));
    }
}
