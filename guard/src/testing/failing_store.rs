//! A store that fails on demand.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::store::{Admission, Bytes, Compared, Epoch, Room, Store, StoreError, async_trait};
use crate::ticket::Ticket;

/// A store for tests that forwards every verb to another store, and fails on demand. Clones share the fault: give one clone to the guard,
/// and keep the other.
///
/// ```
/// use onceward::store::{Memory, StoreError};
/// use onceward::testing::FailingStore;
/// use onceward::{Binding, Guard, Intent, Policy, Subject, Verdict};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let store = FailingStore::new(Memory::new());
/// let guard = Guard::new(store.clone());
/// let token = guard.issue(guard.token_ttl(), Binding::none()).await?;
/// let order = Intent::new("POST /orders", Subject::anonymous()).credential(token.as_str());
///
/// store.fail_not_executed();
/// assert!(matches!(guard.check(&Policy::token(), &order).await, Err(StoreError::NotExecuted(_))));
/// store.recover();
/// let Verdict::Run(pass) = guard.check(&Policy::token(), &order).await? else { panic!("the token was not used") };
/// pass.complete(None).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct FailingStore {
    store: Arc<dyn Store>,
    fault: Arc<Mutex<Option<Fault>>>,
}

/// The error of every verb.
#[derive(Clone, Copy)]
enum Fault {
    NotExecuted,
    Unknown,
}

impl FailingStore {
    /// Wraps `store`. It fails once a `fail_…` method is called.
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), fault: Arc::default() }
    }

    /// Fails every verb from now on, without executing it: [`StoreError::NotExecuted`], as if the store were unreachable.
    pub fn fail_not_executed(&self) {
        self.set(Some(Fault::NotExecuted));
    }

    /// Executes every verb from now on, and loses its reply: [`StoreError::Unknown`], as if the connection broke in between.
    pub fn fail_unknown(&self) {
        self.set(Some(Fault::Unknown));
    }

    /// Ends the failure. All records of the wrapped store are still there.
    pub fn recover(&self) {
        self.set(None);
    }

    fn set(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    async fn reply<T>(&self, verb: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let fault = *self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            None => verb.await,
            Some(Fault::NotExecuted) => Err(StoreError::not_executed("the test made the store fail")),
            Some(Fault::Unknown) => {
                verb.await?;
                Err(StoreError::unknown("the test made the store lose its reply"))
            }
        }
    }
}

#[async_trait]
impl Store for FailingStore {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        self.reply(self.store.insert(ticket, value, ttl, room)).await
    }

    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        self.reply(self.store.swap(ticket, held, value, ttl, room, epoch)).await
    }

    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.reply(self.store.remove(ticket, held, epoch)).await
    }

    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.reply(self.store.look(ticket)).await
    }

    fn epoch(&self, ticket: &Ticket) -> Option<Epoch> {
        self.store.epoch(ticket)
    }

    async fn ask_epoch(&self, ticket: &Ticket) -> Result<Epoch, StoreError> {
        self.reply(self.store.ask_epoch(ticket)).await
    }

    fn admission(&self, ticket: &Ticket) -> Admission {
        self.store.admission(ticket)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.reply(self.store.ping()).await
    }

    async fn reconnected(&self) {
        self.store.reconnected().await;
    }

    fn report(&self) {
        self.store.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Memory;

    const MINUTE: Duration = Duration::from_secs(60);

    fn ticket() -> Ticket {
        Ticket::of_ping()
    }

    /// Returns for each verb `None` if it succeeds, and otherwise true if it was certainly not executed.
    async fn errors(store: &FailingStore) -> [Option<bool>; 6] {
        fn kind<T>(result: Result<T, StoreError>) -> Option<bool> {
            result.err().map(|error| matches!(error, StoreError::NotExecuted(_)))
        }
        [
            kind(store.look(&ticket()).await),
            kind(store.insert(&ticket(), b"a", MINUTE, Room::Free).await),
            kind(store.swap(&ticket(), b"a", b"b", MINUTE, Room::Free, None).await),
            kind(store.remove(&ticket(), b"b", None).await),
            kind(store.ask_epoch(&ticket()).await),
            kind(store.ping().await),
        ]
    }

    #[tokio::test]
    async fn every_verb_fails_until_the_store_recovers() {
        let store = FailingStore::new(Memory::new());
        assert_eq!(errors(&store).await, [None; 6]);
        store.clone().fail_not_executed();
        assert_eq!(errors(&store).await, [Some(true); 6]);
        store.clone().fail_unknown();
        assert_eq!(errors(&store).await, [Some(false); 6]);
        store.clone().recover();
        assert_eq!(errors(&store).await, [None; 6]);
    }

    #[tokio::test]
    async fn unknown_verb_is_executed_and_the_other_is_not() {
        let store = FailingStore::new(Memory::new());
        store.fail_not_executed();
        assert!(store.insert(&ticket(), b"a", MINUTE, Room::Free).await.is_err());
        store.recover();
        assert_eq!(store.look(&ticket()).await.unwrap(), None);
        store.fail_unknown();
        assert!(store.insert(&ticket(), b"a", MINUTE, Room::Free).await.is_err());
        store.recover();
        assert_eq!(store.look(&ticket()).await.unwrap().as_deref(), Some(&b"a"[..]));
    }
}
