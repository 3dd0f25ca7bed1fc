//! What all requests to the shop share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::actix::HiddenToken;
use onceward::{Binding, Guard, Rejection};
use onceward_api::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::books::{Books, Tally};
use crate::visitor::Visitor;

/// How many orders are handled at once: a slow one holds its place for more than a second.
const AT_ONCE: usize = 200;

/// The shop: its guard and its books.
#[derive(Debug)]
pub struct Shop {
    guard: Guard,
    opened: Instant,
    books: Mutex<Books>,
    places: Arc<Semaphore>,
}

impl Shop {
    /// A shop behind this guard, whose tokens its forms bring.
    pub fn new(guard: Guard) -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { guard, opened: Instant::now(), books: Mutex::new(Books::new()), places }
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
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place =
            place.map_err(|_| Rejection::new(Code::Overloaded).detail("The demo is full. Try it in a moment."))?;
        match self.books().admit(visitor, self.now()) {
            Ok(()) => Ok(place),
            Err(wait) => Err(Rejection::new(Code::RateLimited).detail("The demo takes it slower.").wait(wait)),
        }
    }

    /// A token for the page itself, unless too many pages are asked for, or the store cannot be asked: then a form without a
    /// script is told to reload.
    pub(crate) async fn hidden_token(&self) -> Option<HiddenToken> {
        self.books().admit_page(self.now()).ok()?;
        HiddenToken::issue(&self.guard, Binding::none()).await.ok()
    }

    /// What a visitor has come to so far.
    pub(crate) fn tally(&self, visitor: Visitor) -> Tally {
        self.books().tally(visitor)
    }

    /// Changes what a visitor has come to, and gives what it is now.
    pub(crate) fn count(&self, visitor: Visitor, count: impl FnOnce(&mut Tally)) -> Tally {
        let now = self.now();
        self.books().count(visitor, now, count)
    }

    /// Begins anew for a visitor.
    pub(crate) fn forget(&self, visitor: Visitor) {
        self.books().forget(visitor);
    }

    fn now(&self) -> Duration {
        self.opened.elapsed()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut places: Vec<_> = (0..AT_ONCE).map(|_| shop.admit(Visitor::new()).unwrap()).collect();
        assert_eq!(shop.admit(Visitor::new()).unwrap_err().code(), Code::Overloaded);
        places.pop();
        assert!(shop.admit(Visitor::new()).is_ok(), "who leaves makes room");
    }
}
