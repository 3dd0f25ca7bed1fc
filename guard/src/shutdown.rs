//! Graceful shutdown: waits for the work in flight before the process exits.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The state of a graceful shutdown, and the count of work in flight.
#[derive(Default)]
pub(crate) struct Shutdown {
    running: TaskTracker,
    is_shut: AtomicBool,
}

/// A token for work in flight, which delays the shutdown until it is dropped.
pub(crate) struct InFlight(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);

impl Shutdown {
    /// Registers new work. Returns `None` once `wait` has been called.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        // Count before the check, so that `wait` cannot miss the new work.
        let running = InFlight(self.running.token());
        (!self.is_shut.load(Ordering::SeqCst)).then_some(running)
    }

    pub(crate) fn begin_draining(&self) {
        self.running.close();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.running.is_closed()
    }

    /// Returns the amount of work in flight.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// Rejects new work, and waits until none is in flight.
    pub(crate) async fn wait(&self) {
        self.begin_draining();
        self.is_shut.store(true, Ordering::SeqCst);
        self.running.wait().await;
    }
}
