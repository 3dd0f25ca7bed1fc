//! The state that all requests to the shop share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::actix::HiddenToken;
use onceward::{Binding, Guard, Language, Rejection};
use onceward_api::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::visitor::Visitor;
use crate::visitor_accounts::{Tally, VisitorAccounts};

/// Maximum number of orders in flight: a slow one takes more than a second.
const MAX_IN_FLIGHT: usize = 200;

/// The shop: its guard and the accounts of its visitors.
#[derive(Debug)]
pub struct Shop {
    guard: Guard,
    opened: Instant,
    accounts: Mutex<VisitorAccounts>,
    permits: Arc<Semaphore>,
}

impl Shop {
    /// Creates a shop with this guard, which issues the tokens of its forms.
    pub fn new(guard: Guard) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        Self { guard, opened: Instant::now(), accounts: Mutex::new(VisitorAccounts::new()), permits }
    }

    /// The guard.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Admits an order of a visitor. The permit counts as one order in flight until it is dropped.
    ///
    /// # Errors
    /// If too many orders are in flight, or the rate limit of the visitor or of all visitors is exceeded.
    pub(crate) fn admit(&self, visitor: Visitor) -> Result<OwnedSemaphorePermit, Rejection> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Rejection::new(Code::Overloaded)
                .detail("The demo has too many orders in flight. Try again in a moment.")
                .detail_in(Language::SIMPLIFIED_CHINESE, "演示中正在处理的订单过多，请稍后再试。")
        })?;
        match self.accounts().admit(visitor, self.now()) {
            Ok(()) => Ok(permit),
            Err(wait) => Err(Rejection::new(Code::RateLimited)
                .detail("The rate limit of the demo is exceeded.")
                .detail_in(Language::SIMPLIFIED_CHINESE, "超出了演示的速率限制。")
                .wait(wait)),
        }
    }

    /// Issues a token for the page. Returns `None` if the rate limit for pages is exceeded or the store is unavailable: then a form without
    /// JavaScript is rejected.
    pub(crate) async fn hidden_token(&self) -> Option<HiddenToken> {
        self.accounts().admit_page(self.now()).ok()?;
        HiddenToken::issue(&self.guard, Binding::none()).await.ok()
    }

    /// The counts of a visitor.
    pub(crate) fn tally(&self, visitor: Visitor) -> Tally {
        self.accounts().tally(visitor)
    }

    /// Updates the counts of a visitor, and returns them.
    pub(crate) fn count(&self, visitor: Visitor, count: impl FnOnce(&mut Tally)) -> Tally {
        let now = self.now();
        self.accounts().count(visitor, now, count)
    }

    /// Resets the counts of a visitor.
    pub(crate) fn forget(&self, visitor: Visitor) {
        self.accounts().forget(visitor);
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn accounts(&self) -> MutexGuard<'_, VisitorAccounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use onceward::testing;

    use super::*;

    #[tokio::test]
    async fn concurrent_orders_are_limited() {
        let (guard, _clock) = testing::guard();
        let shop = Shop::new(guard);
        let mut permits: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| shop.admit(Visitor::new()).unwrap()).collect();
        assert_eq!(shop.admit(Visitor::new()).unwrap_err().code(), Code::Overloaded);
        permits.pop();
        assert!(shop.admit(Visitor::new()).is_ok(), "a dropped permit makes room");
    }
}
