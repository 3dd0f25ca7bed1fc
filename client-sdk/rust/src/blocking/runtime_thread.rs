//! The thread that runs the async client.

use std::future::Future;
use std::thread::{self, JoinHandle};
use std::{io, panic};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime. Dropping it stops the runtime and ends the thread.
pub(super) struct RuntimeThread {
    runtime: Handle,
    /// Dropping it stops the runtime.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the operating system refuses a thread or the runtime's resources.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("onceward-client".to_owned()).spawn(move || {
            // An error says that the sender was dropped, which ends the runtime.
            let _ = runtime.block_on(stopped);
            // Without waiting for a DNS lookup in flight.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs a future on the thread, and waits for its result.
    ///
    /// # Panics
    /// If the current thread drives an async runtime: then the future is not started. If the future panics.
    #[track_caller]
    pub(super) fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        match self.runtime.block_on(async { tokio::spawn(future).await }) {
            Ok(output) => output,
            Err(error) => match error.try_into_panic() {
                Ok(reason) => panic::resume_unwind(reason),
                Err(_) => unreachable!("the runtime runs as long as this object"),
            },
        }
    }
}

impl Drop for RuntimeThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // It cannot have panicked: tasks catch their panics.
            let _ = thread.join();
        }
    }
}
