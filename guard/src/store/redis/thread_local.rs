//! One connection per worker thread, on threads that drive a single-threaded runtime.
//!
//! A command over the shared connection is sent by the background thread: two wake-ups per command, which cost more than
//! the command. So each worker opens a connection that it drives itself. The background thread has one too, so that a lease
//! renewal does not queue behind ten thousand other commands. The shared connection still decides whether the server is
//! reachable, and carries every command while a thread has no connection of its own.
//!
//! On one connection, without [batches](super::queue), a token costs 42 % more processor time of server and Redis (35 to 50 % in four
//! rounds), and a key 22 % (20 to 26 %), as `make bench-sending` shows.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::watch;

use super::breaker::Breaker;
use super::capabilities::{NativeCell, NativeCommands};
use super::connection::{LiveConnection, report};
use super::deadline::Deadline;
use super::driver::QueueDriver;
use super::queue::{CommandQueue, PendingResponse};
use super::request::Request;
use super::socket;

/// Pause after a failed connection attempt: the server may have reached its connection limit.
const PAUSE: Duration = Duration::from_secs(1);
/// Minimum age of the shared connection before a thread opens its own, so that a server that drops every connection is not flooded with
/// attempts.
const PROVEN: Duration = Duration::from_millis(100);

thread_local! {
    static HERE: RefCell<Vec<ThreadConnection>> = const { RefCell::new(Vec::new()) };
}

/// A connection that only this thread uses.
struct ThreadConnection {
    id: ConnectionId,
    runs_scripts: bool,
    native: Arc<NativeCell>,
    /// `None` while it is being opened.
    queue: Option<Arc<CommandQueue>>,
}

/// The shared connection that it stands in for, and the runtime that drives it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ConnectionId {
    /// The number of the shared connection, unique in this process.
    number: u64,
    runtime: Id,
}

/// Opens connections for threads, and sends commands over them.
pub(super) struct ThreadLocalConnector {
    /// The number of the newest connection that was found broken.
    pub(super) broken: watch::Sender<u64>,
    /// Dropped with the shared connection.
    pub(super) wanted: watch::Sender<()>,
    /// Counts responses and timeouts.
    pub(super) breaker: Arc<Breaker>,
}

impl ThreadLocalConnector {
    /// Sends a request over this thread's connection. Returns `None` if it has none; then starts to open one to the server of `live`.
    pub(super) fn ask(
        &self,
        number: u64,
        live: impl FnOnce() -> Option<Arc<LiveConnection>>,
        request: &Request<'_>,
        deadline: Deadline,
    ) -> Option<PendingResponse> {
        let (runtime, id) = this_thread(number)?;
        HERE.with_borrow_mut(|here| match here.iter().find(|own| own.id == id) {
            Some(own) => own.queue.as_ref()?.ask(request, deadline),
            None => {
                let shared = live().filter(|live| live.number == number)?;
                let (broken, wanted) = (self.broken.clone(), self.wanted.subscribe());
                runtime.spawn(keep(id, shared.client.clone(), broken, wanted, Arc::clone(&self.breaker)));
                let native = Arc::clone(&shared.native);
                here.push(ThreadConnection { id, runs_scripts: shared.runs_scripts, native, queue: None });
                None
            }
        })
    }
}

/// Returns whether the user of a connection may run scripts, and the native commands of its server, if this thread knows both.
pub(super) fn capabilities(number: u64) -> Option<(bool, NativeCommands)> {
    HERE.with_borrow(|here| {
        let own = here.iter().find(|own| own.id.number == number)?;
        own.native.known().map(|native| (own.runs_scripts, native))
    })
}

/// Returns the current runtime and the id of this thread's connection; `None` if the thread may not have one.
fn this_thread(number: u64) -> Option<(Handle, ConnectionId)> {
    let runtime = Handle::try_current().ok()?;
    // On a multi-threaded runtime a connection per thread saves no wake-up.
    let is_alone = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
    let id = ConnectionId { number, runtime: runtime.id() };
    is_alone.then_some((runtime, id))
}

/// Opens a connection, and closes it when the shared one breaks or is dropped.
async fn keep(
    id: ConnectionId,
    client: Client,
    broken: watch::Sender<u64>,
    mut wanted: watch::Receiver<()>,
    breaker: Arc<Breaker>,
) {
    let registration = Registration(id);
    let mut reports = broken.subscribe();
    let is_over = async {
        tokio::select! {
            _ = reports.wait_for(|broken| *broken >= id.number) => {}
            _ = wanted.changed() => {}
        }
    };
    let kept = async {
        tokio::time::sleep(PROVEN).await;
        match socket::open(&client).await {
            Ok(socket) => {
                let queue = Arc::default();
                let broken = broken.clone();
                let driver = QueueDriver::new(Arc::clone(&queue), socket, breaker, move || report(&broken, id.number));
                registration.fill(queue);
                tokio::spawn(driver.run());
                std::future::pending().await
            }
            Err(error) => {
                tracing::debug!(%error, "could not open a connection for this worker; it uses the shared one");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    tokio::select! {
        () = is_over => {}
        () = kept => {}
    }
}

/// An entry in this thread's list of connections, removed on drop, also when the runtime shuts down.
struct Registration(ConnectionId);

impl Registration {
    fn fill(&self, queue: Arc<CommandQueue>) {
        HERE.with_borrow_mut(|here| {
            here.iter_mut().filter(|own| own.id == self.0).for_each(|own| own.queue = Some(Arc::clone(&queue)));
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A thread that is ending has already dropped the list.
        let _ = HERE.try_with(|here| here.try_borrow_mut().map(|mut here| here.retain(|own| own.id != self.0)));
    }
}

impl Drop for ThreadConnection {
    /// Commands in flight are still answered.
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }
}
