//! The background thread, which is independent of the application's threads.
//!
//! A handler that blocks its worker thread must not stall the connection to the store, the renewals or the sharing of the secret. These
//! tasks run on a thread of their own. A process has one such thread, started on first use.

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle};

static THREAD: LazyLock<Handle> = LazyLock::new(|| {
    // Checks timers after each task. By default, tokio checks them after 61 tasks. Each task may process a hundred replies of the store, so
    // a due renewal would wait for thousands of replies.
    let runtime = Builder::new_current_thread().event_interval(1).enable_all().build();
    let runtime = runtime.expect("the runtime of the background thread can be created");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("onceward".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the background thread can be started");
    handle
});

/// Runs a future to completion on the background thread.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    THREAD.spawn(future);
}
