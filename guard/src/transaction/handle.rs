use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::Transaction;

use super::Dialect;

/// A transaction that is lent to the work, which executes its statements in it and drops it. `transact` commits the transaction.
pub struct TxHandle<DB: Dialect> {
    transaction: Option<Transaction<'static, DB>>,
    returned: TxReturn<DB>,
}

/// Receives the transaction when the handle is dropped.
pub(super) struct TxReturn<DB: Dialect>(Arc<Mutex<Option<Transaction<'static, DB>>>>);

impl<DB: Dialect> TxHandle<DB> {
    pub(super) fn of(transaction: Transaction<'static, DB>) -> (Self, TxReturn<DB>) {
        let place = Arc::new(Mutex::new(None));
        (Self { transaction: Some(transaction), returned: TxReturn(Arc::clone(&place)) }, TxReturn(place))
    }
}

impl<DB: Dialect> TxReturn<DB> {
    /// Returns the transaction, unless the work still holds it.
    pub(super) fn take_back(&self) -> Option<Transaction<'static, DB>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<DB: Dialect> Deref for TxHandle<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.transaction.as_ref().expect("the handle holds its transaction until it is dropped")
    }
}

impl<DB: Dialect> DerefMut for TxHandle<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.transaction.as_mut().expect("the handle holds its transaction until it is dropped")
    }
}

impl<DB: Dialect> Drop for TxHandle<DB> {
    fn drop(&mut self) {
        *self.returned.0.lock().unwrap_or_else(PoisonError::into_inner) = self.transaction.take();
    }
}

impl<DB: Dialect> fmt::Debug for TxHandle<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxHandle").finish_non_exhaustive()
    }
}
