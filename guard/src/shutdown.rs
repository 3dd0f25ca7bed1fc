//! Waiting for everything that runs, before the process ends.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Counts what runs.
#[derive(Default)]
pub(crate) struct Shutdown {
    running: TaskTracker,
    is_shut: AtomicBool,
}

/// Something runs as long as this lives.
pub(crate) struct InFlight(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);

impl Shutdown {
    /// Counts one more, unless the door is shut.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        // Counted first and asked afterwards, so that `wait` cannot miss it.
        let running = InFlight(self.running.token());
        (!self.is_shut.load(Ordering::SeqCst)).then_some(running)
    }

    pub(crate) fn begin_draining(&self) {
        self.running.close();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.running.is_closed()
    }

    /// How much runs.
    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// Shuts the door, and waits until nothing runs.
    pub(crate) async fn wait(&self) {
        self.begin_draining();
        self.is_shut.store(true, Ordering::SeqCst);
        self.running.wait().await;
    }
}
