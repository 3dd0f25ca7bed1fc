//! What all requests to the shop share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::actix::HiddenToken;
use onceward::{Binding, Guard, Rejection};
use onceward_api::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::visitor::Visitor;
use crate::visitor_accounts::{Tally, VisitorAccounts};

/// The most orders in flight: a slow one takes more than a second.
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
    /// A shop behind this guard, whose tokens its forms bring.
    pub fn new(guard: Guard) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        Self { guard, opened: Instant::now(), accounts: Mutex::new(VisitorAccounts::new()), permits }
    }

    /// The guard.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Lets a visitor order, for as long as what it gives is kept.
    ///
    /// # Errors
    /// If the visitor, or all of them, are too fast or too many.
    pub(crate) fn admit(&self, visitor: Visitor) -> Result<OwnedSemaphorePermit, Rejection> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit =
            permit.map_err(|_| Rejection::new(Code::Overloaded).detail("The demo is full. Try it in a moment."))?;
        match self.accounts().admit(visitor, self.now()) {
            Ok(()) => Ok(permit),
            Err(wait) => Err(Rejection::new(Code::RateLimited).detail("The demo takes it slower.").wait(wait)),
        }
    }

    /// A token for the page itself, unless too many pages are asked for, or the store cannot be asked: then a form without a
    /// script is told to reload.
    pub(crate) async fn hidden_token(&self) -> Option<HiddenToken> {
        self.accounts().admit_page(self.now()).ok()?;
        HiddenToken::issue(&self.guard, Binding::none()).await.ok()
    }

    /// What a visitor has come to so far.
    pub(crate) fn tally(&self, visitor: Visitor) -> Tally {
        self.accounts().tally(visitor)
    }

    /// Changes what a visitor has come to, and gives what it is now.
    pub(crate) fn count(&self, visitor: Visitor, count: impl FnOnce(&mut Tally)) -> Tally {
        let now = self.now();
        self.accounts().count(visitor, now, count)
    }

    /// Begins anew for a visitor.
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
    async fn no_more_than_so_many_orders_are_handled_at_once() {
        let (guard, _clock) = testing::guard();
        let shop = Shop::new(guard);
        let mut permits: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| shop.admit(Visitor::new()).unwrap()).collect();
        assert_eq!(shop.admit(Visitor::new()).unwrap_err().code(), Code::Overloaded);
        permits.pop();
        assert!(shop.admit(Visitor::new()).is_ok(), "who leaves makes room");
    }
}
