//! One thread for what must go on whatever the application's own threads are doing.
//!
//! A handler that blocks its worker must not stop the connection to the store, nor the secret from being shared. So
//! these run here, on a thread that runs nothing else. There is one for the process, begun when it is first needed.

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle};

static THREAD: LazyLock<Handle> = LazyLock::new(|| {
    // The clock is looked at after each step. By default that is done after 61, each of which may carry a hundred answers of
    // the store, and a renewal that is due would wait for thousands of them.
    let runtime = Builder::new_current_thread().event_interval(1).enable_all().build();
    let runtime = runtime.expect("a runtime for the background thread");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("onceward".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .expect("the background thread");
    handle
});

/// Runs a future to its end on the background thread.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    THREAD.spawn(future);
}
