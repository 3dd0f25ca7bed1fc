//! A connection of the asking thread's own, where that thread drives its runtime alone.
//!
//! What a worker asks over the shared connection goes through the background thread and back: two wake-ups for each
//! command, which cost more than the command. So each worker soon has a connection that it drives itself. So has the
//! background thread, for a renewal may not stand in a queue behind ten thousand other commands. It only shortens the way:
//! the shared one says whether the server is there, and carries everything whenever there is none here.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::watch;

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::link::Question;
use super::own::{connect, report};
use super::turn::{Answer, Turn};

/// How long nothing is tried after a connection could not be made: the server may take no more of them.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the shared connection has to last before it is worth a second one: a server that breaks them all is not to be
/// stormed.
const PROVEN: Duration = Duration::from_millis(100);

thread_local! {
    static HERE: RefCell<Vec<Near>> = const { RefCell::new(Vec::new()) };
}

struct Near {
    of: Of,
    /// None while it is being made.
    connection: Option<MultiplexedConnection>,
    /// What is asked over it at the moment.
    turn: Arc<Turn>,
}

/// What it stands in for, and who drives it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Of {
    /// The number of the shared connection, which no other in this process has.
    number: u64,
    runtime: Id,
}

/// What is needed to make one.
pub(super) struct Way {
    /// Is told the number of the newest connection that somebody has found broken.
    pub(super) broken: watch::Sender<u64>,
    /// Ends with whoever needs the connection.
    pub(super) wanted: watch::Sender<()>,
    /// Counts how commands end.
    pub(super) breaker: Arc<Breaker>,
}

impl Way {
    /// Asks over the connection of this thread that stands in for this shared one, if there is one already; otherwise gives the
    /// question back. If there is none and may be one, it is begun.
    pub(super) fn ask(
        &self,
        number: u64,
        client: &Client,
        question: Question,
        deadline: Deadline,
    ) -> Result<Answer, Question> {
        let Ok(runtime) = Handle::try_current() else { return Err(question) };
        // Several threads that drive one runtime would wake each other just the same.
        if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return Err(question);
        }
        let of = Of { number, runtime: runtime.id() };
        HERE.with_borrow_mut(|here| match here.iter_mut().find(|near| near.of == of) {
            Some(near) => match &near.connection {
                Some(connection) => near.turn.ask(question, deadline).or_else(|question| {
                    near.turn = Turn::new();
                    let answer = near.turn.ask(question, deadline)?;
                    let broken = self.broken.clone();
                    let carried = near.turn.carried(Arc::clone(&self.breaker));
                    let carried = carried.carry(connection.clone(), move || report(&broken, number));
                    runtime.spawn(carried);
                    Ok(answer)
                }),
                None => Err(question),
            },
            None => {
                here.push(Near { of, connection: None, turn: Turn::over() });
                runtime.spawn(keep(of, client.clone(), self.broken.clone(), self.wanted.subscribe()));
                Err(question)
            }
        })
    }
}

/// Makes a connection, and drops it when the shared one is over or nobody wants it any more.
async fn keep(of: Of, client: Client, broken: watch::Sender<u64>, mut wanted: watch::Receiver<()>) {
    let place = Place(of);
    let mut reports = broken.subscribe();
    let is_over = async {
        tokio::select! {
            _ = reports.wait_for(|broken| *broken >= of.number) => {}
            _ = wanted.changed() => {}
        }
    };
    let kept = async {
        tokio::time::sleep(PROVEN).await;
        match connect(&client, of.number, &broken).await {
            Ok(connection) => {
                place.fill(connection);
                std::future::pending().await
            }
            Err(error) => {
                tracing::debug!(%error, "a worker has no connection of its own");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    tokio::select! {
        () = is_over => {}
        () = kept => {}
    }
}

/// A place among the connections of this thread, until it is dropped: also when the runtime ends.
struct Place(Of);

impl Place {
    fn fill(&self, connection: MultiplexedConnection) {
        HERE.with_borrow_mut(|here| {
            here.iter_mut()
                .filter(|near| near.of == self.0)
                .for_each(|near| near.connection = Some(connection.clone()));
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A thread that is ending has dropped them all already.
        let _ = HERE.try_with(|here| here.try_borrow_mut().map(|mut here| here.retain(|near| near.of != self.0)));
    }
}
