//! One thread for what must go on whatever the application's own threads are doing.
//!
//! A handler that blocks its worker must not stop the connection to the store, nor the secret from being shared. So
//! these run here, on a thread that runs nothing else. There is one for the process, begun when it is first needed.

use std::future::Future;
use std::sync::LazyLock;

#[cfg(feature = "redis")]
use tokio::runtime::Id;
use tokio::runtime::{Builder, Handle};

static THREAD: LazyLock<Handle> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime for the background thread");
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

/// What its thread is told from others by.
#[cfg(feature = "redis")]
pub(crate) fn id() -> Id {
    THREAD.id()
}
