//! Waiting for everything that runs, before the process ends.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Counts what runs.
#[derive(Default)]
pub(crate) struct Drain {
    running: TaskTracker,
    drained: AtomicBool,
}

/// Something runs as long as this lives.
pub(crate) struct Running(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);

impl Drain {
    /// Counts one more, unless everything was waited for already.
    pub(crate) fn begin(&self) -> Option<Running> {
        // Counted first and asked afterwards, so that `wait` cannot miss it.
        let running = Running(self.running.token());
        (!self.drained.load(Ordering::SeqCst)).then_some(running)
    }

    pub(crate) fn begin_draining(&self) {
        self.running.close();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.running.is_closed()
    }

    /// Waits until nothing runs, twice: for what comes in while it waits, and then, with the door shut, for the last.
    pub(crate) async fn wait(&self) {
        self.begin_draining();
        self.running.wait().await;
        self.drained.store(true, Ordering::SeqCst);
        self.running.wait().await;
    }
}
