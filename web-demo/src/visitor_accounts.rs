//! The accounts of the visitors: the counts of their orders and outcomes, and their rate limits. The number of accounts is limited.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::rate_limit::{Bucket, RateLimit};
use crate::visitor::Visitor;

/// Maximum number of accounts. A further visitor replaces the one who has been idle the longest.
const MAX_VISITORS: usize = 2_000;

/// The rate limit of one visitor: enough for fast clicks and a few scripts.
const PER_VISITOR: RateLimit = RateLimit { burst: 60.0, per_second: 10.0 };
/// The rate limit of all visitors together: the service has other work.
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

/// The counts that a visitor sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Orders placed with the guarded form.
    pub(crate) guarded: u64,
    /// Orders placed with the unguarded form.
    pub(crate) unguarded: u64,
    /// Requests of the guarded form whose handler succeeded.
    pub(crate) executed: u64,
    /// Requests that received the stored response.
    pub(crate) replayed: u64,
    /// Requests that were rejected: nothing ran.
    pub(crate) refused: u64,
    /// Requests whose handler failed.
    pub(crate) failed: u64,
}

impl VisitorAccounts {
    /// Creates an empty set of accounts.
    pub(crate) fn new() -> Self {
        let full = Bucket::full(TOTAL, Duration::ZERO);
        Self { accounts: HashMap::new(), bucket: full, pages: full, limit: MAX_VISITORS }
    }

    /// Admits a request of a visitor, or returns the time to wait. A visitor who is not admitted gets no account.
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

    /// The counts of a visitor.
    pub(crate) fn tally(&self, visitor: Visitor) -> Tally {
        self.accounts.get(&visitor).map(|account| account.tally).unwrap_or_default()
    }

    /// Updates the counts of a visitor, and returns them.
    pub(crate) fn count(&mut self, visitor: Visitor, now: Duration, count: impl FnOnce(&mut Tally)) -> Tally {
        let tally = &mut self.account(visitor, now).tally;
        count(tally);
        *tally
    }

    /// Resets the counts of a visitor. Their rate limit is not reset.
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
    fn new_visitor_replaces_the_longest_idle_one() {
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
    fn rate_limit_of_one_visitor_spares_the_others() {
        let mut accounts = VisitorAccounts::new();
        let [fast, slow] = [Visitor::new(), Visitor::new()];
        let admitted = (0..200).filter(|_| accounts.admit(fast, NOW).is_ok()).count();
        assert_eq!(admitted, PER_VISITOR.burst as usize + 1, "the first request has no account yet");
        assert!(accounts.admit(slow, NOW).is_ok());
        assert!(accounts.admit(fast, NOW + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn total_rate_limit_adds_no_accounts() {
        let mut accounts = VisitorAccounts::new();
        let admitted = (0..1000).filter(|_| accounts.admit(Visitor::new(), NOW).is_ok()).count();
        assert_eq!((admitted, accounts.accounts.len()), (TOTAL.burst as usize, TOTAL.burst as usize));
    }
}
