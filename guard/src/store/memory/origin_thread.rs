//! The thread that created a memory store.

use std::any::Any;
use std::sync::Arc;
use std::thread::{self, Thread, ThreadId};

use super::Memory;

/// The thread that created a memory store. No two stores share a value.
#[derive(Debug)]
pub(crate) struct OriginThread(ThreadId);

impl OriginThread {
    /// Returns the current thread, for a store that is being created.
    pub(super) fn here() -> Arc<Self> {
        Arc::new(Self(thread::current().id()))
    }

    /// Returns the origin of a store, if it is a memory store.
    pub(crate) fn of(store: &dyn Any) -> Option<Arc<Self>> {
        let shared = || store.downcast_ref::<Arc<Memory>>().map(Arc::as_ref);
        store.downcast_ref::<Memory>().or_else(shared).map(|memory| Arc::clone(&memory.origin))
    }

    /// Returns whether `thread` created the store.
    #[allow(dead_code, reason = "used by adapters that start workers, each behind a feature")]
    pub(crate) fn is_on(&self, thread: &Thread) -> bool {
        self.0 == thread.id()
    }
}
