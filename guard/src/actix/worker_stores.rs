//! Detects workers that each build their own memory store: every worker thread of a server builds its own application.

use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, Thread};

use crate::guard::Guard;
use crate::mode::Mode;
use crate::store::OriginThread;

/// The name prefixes of worker threads: in a tokio runtime, and in an actix system.
const NAMES: [&str; 2] = ["actix-server worker ", "actix-rt|system:"];

/// A worker, identified by the name of its thread: `actix-server worker 1`, `actix-rt|system:0|arbiter:1`.
#[derive(Debug, PartialEq, Eq)]
struct Worker {
    group: String,
    number: usize,
}

impl Worker {
    fn of(thread: &Thread) -> Option<Self> {
        let name = thread.name().filter(|name| NAMES.iter().any(|known| name.starts_with(known)))?;
        let (group, number) = name.rsplit_once([' ', ':'])?;
        Some(Self { group: group.to_owned(), number: number.parse().ok()? })
    }
}

/// A memory store that a worker has built, and the code location that uses it.
struct Used {
    home: Weak<OriginThread>,
    worker: Worker,
    place: &'static Location<'static>,
}

impl Used {
    /// Returns whether another worker has built another store for the same location. Servers that a process starts one after the other
    /// have workers with the same numbers, and servers in several runtimes have workers in other groups.
    fn competes_with(&self, other: &Self) -> bool {
        self.place == other.place
            && self.worker.group == other.worker.group
            && self.worker.number != other.worker.number
            && !self.home.ptr_eq(&other.home)
    }
}

static IN_USE: Mutex<Vec<Used>> = Mutex::new(Vec::new());

/// Asserts that the memory store of a guard is shared by all workers of its server.
///
/// # Panics
/// If this worker has built the store, and another worker has built one for the same location.
#[track_caller]
pub(super) fn assert_shared(guard: &Guard) {
    if guard.mode() == Mode::Off {
        return;
    }
    let here = thread::current();
    let (Some(home), Some(worker)) = (guard.origin_thread().filter(|home| home.is_on(&here)), Worker::of(&here)) else {
        return;
    };
    let used = Used { home: Arc::downgrade(home), worker, place: Location::caller() };
    let is_shared = {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|other| other.home.strong_count() > 0);
        let is_shared = !in_use.iter().any(|other| used.competes_with(other));
        in_use.push(used);
        is_shared
    };
    assert!(
        is_shared,
        "every worker of this server builds its own memory store, so a duplicate may run in another worker; \
         build the guard before `HttpServer::new` and move a clone into the closure"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str) -> Option<Worker> {
        let handle = thread::Builder::new().name(name.to_owned()).spawn(|| Worker::of(&thread::current())).unwrap();
        handle.join().unwrap()
    }

    #[test]
    fn worker_is_identified_by_its_thread_name() {
        let expected = |group: &str, number| Some(Worker { group: group.to_owned(), number });
        assert_eq!(worker("actix-server worker 3"), expected("actix-server worker", 3));
        assert_eq!(worker("actix-rt|system:2|arbiter:11"), expected("actix-rt|system:2|arbiter", 11));
        for other in ["main", "tokio-runtime-worker", "actix-server acceptor", "actix-server worker x", "my worker 1"] {
            assert_eq!(worker(other), None, "{other}");
        }
    }
}
