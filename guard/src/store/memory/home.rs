//! The thread that has made a memory store.

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, Thread, ThreadId};

use super::Memory;

/// The thread that has made a memory store. Each store has one of its own.
#[derive(Debug)]
pub(crate) struct Home(ThreadId);

impl Home {
    /// Of a store that is made now.
    pub(super) fn here() -> Arc<Self> {
        Arc::new(Self(thread::current().id()))
    }

    /// The home of a store, if that is in memory.
    pub(crate) fn of(store: &dyn Any) -> Option<Arc<Self>> {
        let shared = || store.downcast_ref::<Arc<Memory>>().map(Arc::as_ref);
        store.downcast_ref::<Memory>().or_else(shared).map(|memory| Arc::clone(&memory.home))
    }

    /// Whether this thread has made the store.
    #[allow(dead_code, reason = "asked by adapters that start workers, each of which is a feature")]
    pub(crate) fn is_on(&self, thread: &Thread) -> bool {
        self.0 == thread.id()
    }
}
