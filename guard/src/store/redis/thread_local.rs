//! The connections with [batches](super::queue): one per thread that drives a single-threaded runtime, and one for the threads of all
//! multi-threaded runtimes.
//!
//! A command over the shared connection is sent by the background thread: two wake-ups per command, which cost more than
//! the command. So each worker opens a connection that it drives itself. The background thread has one too, so that a lease
//! renewal does not queue behind ten thousand other commands. The shared connection still decides whether the server is
//! reachable, and carries every command while a thread has no connection of its own.
//!
//! The threads of multi-threaded runtimes have one connection in common. The background thread drives it, where a handler that blocks its
//! thread cannot stall it: tokio runs a task that a worker has just woken on that worker, and no other worker can take it over. Batches
//! share the wake-ups under load.
//!
//! On the shared connection, without [batches](super::queue), a token costs 72 % more CPU time of server and Redis (32 to 122 % in five
//! rounds), and a key 35 % (16 to 54 %), as `make bench-sending` shows. On axum, a token costs 36 % more than on the common connection (34
//! to 75 % in three rounds), and a key 15 % (13 to 84 %).

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
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
use crate::runtime;

/// Pause after a failed connection attempt: the server may have reached its connection limit.
const PAUSE: Duration = Duration::from_secs(1);
/// Minimum age of the shared connection before a thread opens its own, so that a server that drops every connection is not flooded with
/// attempts.
const PROVEN: Duration = Duration::from_millis(100);

thread_local! {
    static HERE: RefCell<Vec<ThreadConnection>> = const { RefCell::new(Vec::new()) };
}

/// A connection that this thread uses.
struct ThreadConnection {
    id: ConnectionId,
    runs_scripts: bool,
    native: Arc<NativeCell>,
    slot: Arc<QueueSlot>,
}

/// The queue of a connection, shared with the task that opens and keeps it. That task may run on another thread: the background thread, or
/// a worker, if a thread that blocks on the runtime of that worker uses the connection.
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
    driver: DriverId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DriverId {
    /// A single-threaded runtime: only this thread uses the connection.
    Own(Id),
    /// The background thread: the threads of all multi-threaded runtimes use the connection.
    Background,
}

/// Opens connections for threads, and sends commands over them.
pub(super) struct ThreadLocalConnector {
    /// The number of the newest connection that was found broken.
    pub(super) broken: watch::Sender<u64>,
    /// Dropped with the shared connection.
    wanted: watch::Sender<()>,
    /// Counts responses and timeouts.
    breaker: Arc<Breaker>,
    /// The connection that the background thread drives.
    common: Mutex<Option<CommonConnection>>,
}

/// The connection of the threads of all multi-threaded runtimes.
struct CommonConnection {
    /// The number of the shared connection that it stands in for.
    number: u64,
    slot: Arc<QueueSlot>,
}

impl ThreadLocalConnector {
    /// Creates a connector that reports broken connections here.
    pub(super) fn new(broken: watch::Sender<u64>, breaker: Arc<Breaker>) -> Self {
        Self { broken, wanted: watch::Sender::new(()), breaker, common: Mutex::default() }
    }

    /// Sends a request over this thread's connection. Returns `None` if it has none; then starts to open one to the server of `live`.
    pub(super) fn ask(
        &self,
        number: u64,
        live: impl FnOnce() -> Option<Arc<LiveConnection>>,
        request: &Request<'_>,
        deadline: Deadline,
    ) -> Option<PendingResponse> {
        let id = ConnectionId { number, driver: this_driver()? };
        HERE.with_borrow_mut(|here| match here.iter().find(|own| own.id == id) {
            Some(own) if !own.slot.is_closed() => own.slot.queue.get()?.ask(request, deadline),
            _ => {
                here.retain(|own| !own.slot.is_closed());
                let shared = live().filter(|live| live.number == number)?;
                let slot = match id.driver {
                    DriverId::Own(_) => self.open(&shared, |task| drop(tokio::spawn(task))),
                    DriverId::Background => self.common(&shared),
                };
                let native = Arc::clone(&shared.native);
                here.push(ThreadConnection { id, runs_scripts: shared.runs_scripts, native, slot });
                None
            }
        })
    }

    /// Returns the connection that the background thread drives; starts to open one if there is none.
    fn common(&self, shared: &LiveConnection) -> Arc<QueueSlot> {
        let mut common = self.common.lock().unwrap_or_else(PoisonError::into_inner);
        match &*common {
            Some(open) if open.number == shared.number && !open.slot.is_closed() => Arc::clone(&open.slot),
            _ => {
                let slot = self.open(shared, runtime::spawn);
                *common = Some(CommonConnection { number: shared.number, slot: Arc::clone(&slot) });
                slot
            }
        }
    }

    /// Starts to open a connection to the server of `shared`, in a task that `spawn` runs.
    fn open(&self, shared: &LiveConnection, spawn: impl FnOnce(BoxFuture<'static, ()>)) -> Arc<QueueSlot> {
        let slot = Arc::<QueueSlot>::default();
        let (broken, wanted) = (self.broken.clone(), self.wanted.subscribe());
        let (registration, breaker) = (Registration(Arc::clone(&slot)), Arc::clone(&self.breaker));
        spawn(Box::pin(keep(shared.number, registration, shared.client.clone(), broken, wanted, breaker)));
        slot
    }
}

/// Returns whether the user of a connection may run scripts, and the native commands of its server, if this thread knows both.
pub(super) fn capabilities(number: u64) -> Option<(bool, NativeCommands)> {
    HERE.with_borrow(|here| {
        let own = here.iter().find(|own| own.id.number == number)?;
        own.native.known().map(|native| (own.runs_scripts, native))
    })
}

/// Returns the runtime that drives the connection of this thread; `None` outside of a runtime.
fn this_driver() -> Option<DriverId> {
    let runtime = Handle::try_current().ok()?;
    Some(match runtime.runtime_flavor() {
        RuntimeFlavor::CurrentThread => DriverId::Own(runtime.id()),
        _ => DriverId::Background,
    })
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
    /// The thread has ended, or the task that keeps the connection has. Other threads may still use a common connection.
    fn drop(&mut self) {
        if let DriverId::Own(_) = self.id.driver {
            self.slot.close();
        }
    }
}
