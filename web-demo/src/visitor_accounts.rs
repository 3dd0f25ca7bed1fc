//! The accounts of the visitors: the counts of their orders and outcomes, and their rate. The number of accounts is limited.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::rate_limit::{Bucket, RateLimit};
use crate::visitor::Visitor;

/// The most accounts. A further visitor replaces the one who was away longest.
const MAX_VISITORS: usize = 2_000;

/// The rate of one visitor: a person who clicks fast, and a few scripts.
const PER_VISITOR: RateLimit = RateLimit { burst: 60.0, per_second: 10.0 };
/// The rate of all visitors together: the service has other work.
const TOTAL: RateLimit = RateLimit { burst: 300.0, per_second: 100.0 };

/// The accounts of all visitors.
#[derive(Debug)]
pub(crate) struct VisitorAccounts {
    accounts: HashMap<Visitor, VisitorAccount>,
    bucket: Bucket,
    pages: Bucket,
    limit: usize,
}

#[derive(Debug)]
struct VisitorAccount {
    tally: Tally,
    bucket: Bucket,
    seen: Duration,
}

/// The counts a visitor is shown.
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

impl VisitorAccounts {
    /// No accounts.
    pub(crate) fn new() -> Self {
        let full = Bucket::full(TOTAL, Duration::ZERO);
        Self { accounts: HashMap::new(), bucket: full, pages: full, limit: MAX_VISITORS }
    }

    /// Admits a request of a visitor, or returns how long to wait. A visitor who is not admitted gets no account.
    pub(crate) fn admit(&mut self, visitor: Visitor, now: Duration) -> Result<(), Duration> {
        if let Some(account) = self.accounts.get_mut(&visitor) {
            account.bucket.take(PER_VISITOR, now)?;
        }
        self.bucket.take(TOTAL, now)?;
        self.account(visitor, now).seen = now;
        Ok(())
    }

    /// Admits a request for the page, whose visitor may not have an account yet.
    pub(crate) fn admit_page(&mut self, now: Duration) -> Result<(), Duration> {
        self.pages.take(TOTAL, now)
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

    fn account(&mut self, visitor: Visitor, now: Duration) -> &mut VisitorAccount {
        if self.accounts.len() >= self.limit && !self.accounts.contains_key(&visitor) {
            let longest_away =
                self.accounts.iter().min_by_key(|(_, account)| account.seen).map(|(visitor, _)| *visitor);
            if let Some(longest_away) = longest_away {
                self.accounts.remove(&longest_away);
            }
        }
        let new = || VisitorAccount { tally: Tally::default(), bucket: Bucket::full(PER_VISITOR, now), seen: now };
        self.accounts.entry(visitor).or_insert_with(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn one_more_visitor_takes_the_place_of_whoever_was_away_longest() {
        let mut accounts = VisitorAccounts { limit: 2, ..VisitorAccounts::new() };
        let [first, second, third] = [Visitor::new(), Visitor::new(), Visitor::new()];
        for (visitor, at) in [(first, 1), (second, 2), (first, 3)] {
            accounts.admit(visitor, Duration::from_secs(at)).unwrap();
            accounts.count(visitor, Duration::from_secs(at), |tally| tally.guarded += 1);
        }
        accounts.admit(third, Duration::from_secs(4)).unwrap();
        assert_eq!(accounts.accounts.len(), 2);
        assert_eq!((accounts.tally(first).guarded, accounts.tally(second).guarded), (2, 0));
    }

    #[test]
    fn a_visitor_who_is_too_fast_is_held_up_and_the_others_are_not() {
        let mut accounts = VisitorAccounts::new();
        let [fast, slow] = [Visitor::new(), Visitor::new()];
        let admitted = (0..200).filter(|_| accounts.admit(fast, NOW).is_ok()).count();
        assert_eq!(admitted, PER_VISITOR.burst as usize + 1, "the first comes before there is an account");
        assert!(accounts.admit(slow, NOW).is_ok());
        assert!(accounts.admit(fast, NOW + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn all_together_are_held_up_and_then_nobody_is_written_down() {
        let mut accounts = VisitorAccounts::new();
        let admitted = (0..1000).filter(|_| accounts.admit(Visitor::new(), NOW).is_ok()).count();
        assert_eq!((admitted, accounts.accounts.len()), (TOTAL.burst as usize, TOTAL.burst as usize));
    }
}
