//! The background thread, which is independent of the application's threads.
//!
//! A handler that blocks its worker must not stall the connection to the store, or the sharing of the secret. These tasks run on a thread
//! that runs nothing else. The process has one, started on first use.

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle};

static THREAD: LazyLock<Handle> = LazyLock::new(|| {
    // Checks timers after each task. The default is after 61 tasks, each of which may process a hundred replies of the store, so that a due
    // renewal would wait for thousands of them.
    let runtime = Builder::new_current_thread().event_interval(1).enable_all().build();
    let runtime = runtime.expect("a runtime for the background thread");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("onceward".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the background thread");
    handle
});

/// Runs a future to completion on the background thread.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    THREAD.spawn(future);
}
