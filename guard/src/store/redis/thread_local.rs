//! One connection per worker thread, on threads that drive a single-threaded runtime.
//!
//! A command over the shared connection is sent by the background thread: two wake-ups per command, which cost more than
//! the command. So each worker opens a connection that it drives itself. The background thread has one too, so that a lease
//! renewal does not queue behind ten thousand other commands. The shared connection still decides whether the server is
//! reachable, and carries every command while a thread has no connection of its own.
//!
//! On one shared connection, without [batches](super::queue), a token costs 72 % more CPU time of server and Redis (32 to 122 % in five
//! rounds), and a key 35 % (16 to 54 %), as `make bench-sending` shows.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
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
    slot: Arc<QueueSlot>,
}

/// The queue of a connection, shared with the task that opens and keeps it. That task may run on another thread: a thread that blocks on
/// the runtime of a worker has a connection too, which the worker drives.
#[derive(Default)]
struct QueueSlot {
    /// Empty while the connection is being opened.
    queue: OnceLock<Arc<CommandQueue>>,
    /// The thread or the task has ended.
    is_closed: AtomicBool,
}

impl QueueSlot {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn fill(&self, queue: Arc<CommandQueue>) {
        let queue = self.queue.get_or_init(|| queue);
        // The thread may have ended while the connection was being opened.
        if self.is_closed() {
            queue.close();
        }
    }

    /// Accepts no more commands. Those in flight are still answered.
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        if let Some(queue) = self.queue.get() {
            queue.close();
        }
    }
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
            Some(own) if !own.slot.is_closed() => own.slot.queue.get()?.ask(request, deadline),
            _ => {
                here.retain(|own| !own.slot.is_closed());
                let shared = live().filter(|live| live.number == number)?;
                let (broken, wanted) = (self.broken.clone(), self.wanted.subscribe());
                let (native, slot) = (Arc::clone(&shared.native), Arc::<QueueSlot>::default());
                let registration = Registration(Arc::clone(&slot));
                runtime.spawn(keep(
                    number,
                    registration,
                    shared.client.clone(),
                    broken,
                    wanted,
                    Arc::clone(&self.breaker),
                ));
                here.push(ThreadConnection { id, runs_scripts: shared.runs_scripts, native, slot });
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
    number: u64,
    registration: Registration,
    client: Client,
    broken: watch::Sender<u64>,
    mut wanted: watch::Receiver<()>,
    breaker: Arc<Breaker>,
) {
    let mut reports = broken.subscribe();
    let is_over = async {
        tokio::select! {
            _ = reports.wait_for(|broken| *broken >= number) => {}
            _ = wanted.changed() => {}
        }
    };
    let kept = async {
        tokio::time::sleep(PROVEN).await;
        match socket::open(&client).await {
            Ok(socket) => {
                let queue = Arc::default();
                let broken = broken.clone();
                let driver = QueueDriver::new(Arc::clone(&queue), socket, breaker, move || report(&broken, number));
                registration.0.fill(queue);
                // A task of its own: after the end of this one, it still answers the commands in flight.
                let _ = tokio::spawn(driver.run()).await;
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

/// The task that keeps a connection. When it ends, also because its runtime shuts down, the thread may open another connection.
struct Registration(Arc<QueueSlot>);

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for ThreadConnection {
    /// The thread has ended, or the task that keeps the connection has.
    fn drop(&mut self) {
        self.slot.close();
    }
}
