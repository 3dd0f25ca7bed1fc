use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::Transaction;

use super::Dialect;

/// A transaction that is lent to some work, which does what it does in it and drops it. It is committed by the lender.
pub struct Lent<DB: Dialect> {
    transaction: Option<Transaction<'static, DB>>,
    lender: Lender<DB>,
}

/// Where it comes back to.
pub(super) struct Lender<DB: Dialect>(Arc<Mutex<Option<Transaction<'static, DB>>>>);

impl<DB: Dialect> Lent<DB> {
    pub(super) fn of(transaction: Transaction<'static, DB>) -> (Self, Lender<DB>) {
        let place = Arc::new(Mutex::new(None));
        (Self { transaction: Some(transaction), lender: Lender(Arc::clone(&place)) }, Lender(place))
    }
}

impl<DB: Dialect> Lender<DB> {
    /// The transaction, unless somebody still has it.
    pub(super) fn take_back(&self) -> Option<Transaction<'static, DB>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<DB: Dialect> Deref for Lent<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.transaction.as_ref().expect("it is there until it is dropped")
    }
}

impl<DB: Dialect> DerefMut for Lent<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.transaction.as_mut().expect("it is there until it is dropped")
    }
}

impl<DB: Dialect> Drop for Lent<DB> {
    fn drop(&mut self) {
        *self.lender.0.lock().unwrap_or_else(PoisonError::into_inner) = self.transaction.take();
    }
}

impl<DB: Dialect> fmt::Debug for Lent<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}
