//! Graceful shutdown: waits for the work in flight before the process exits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::thread_number;

/// Number of counters. Each thread uses one of them, so that threads seldom write to the same memory.
const COUNTERS: usize = 16;

/// The state of a graceful shutdown, and the count of work in flight.
pub(crate) struct Shutdown {
    counters: [Arc<Counter>; COUNTERS],
    state: Arc<ShutdownState>,
}

#[derive(Default)]
struct ShutdownState {
    is_draining: AtomicBool,
    is_shut: AtomicBool,
    /// Notified when work ends after the shutdown has begun.
    ended: Notify,
}

/// The work in flight that some of the threads have begun. It fills two cache lines, which a processor fetches together.
#[repr(align(128))]
struct Counter {
    count: AtomicUsize,
    state: Arc<ShutdownState>,
}

/// A token for work in flight, which delays the shutdown until it is dropped.
pub(crate) struct InFlight(Arc<Counter>);

impl Default for Shutdown {
    fn default() -> Self {
        let state = Arc::<ShutdownState>::default();
        let counter = |_| Arc::new(Counter { count: AtomicUsize::new(0), state: Arc::clone(&state) });
        Self { counters: std::array::from_fn(counter), state }
    }
}

impl Shutdown {
    /// Registers new work. Returns `None` once `wait` has been called.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        let counter = &self.counters[thread_number::current() % COUNTERS];
        // Count before the check, so that `wait` cannot miss the new work.
        counter.count.fetch_add(1, Ordering::SeqCst);
        let running = InFlight(Arc::clone(counter));
        (!self.state.is_shut.load(Ordering::SeqCst)).then_some(running)
    }

    pub(crate) fn begin_draining(&self) {
        self.state.is_draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.is_draining.load(Ordering::Relaxed)
    }

    /// Returns the amount of work in flight.
    pub(crate) fn count(&self) -> usize {
        self.counters.iter().map(|counter| counter.count.load(Ordering::SeqCst)).sum()
    }

    /// Rejects new work, and waits until none is in flight.
    pub(crate) async fn wait(&self) {
        self.begin_draining();
        self.state.is_shut.store(true, Ordering::SeqCst);
        loop {
            // Created before the count, so that work that ends in between is not missed.
            let ended = self.state.ended.notified();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        if self.0.state.is_shut.load(Ordering::SeqCst) {
            self.0.state.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn wait_ends_when_the_work_of_every_thread_has_ended() {
        let shutdown = Arc::new(Shutdown::default());
        let here = shutdown.begin();
        let there = std::thread::scope(|scope| scope.spawn(|| shutdown.begin()).join().unwrap());
        assert!(here.is_some() && there.is_some() && shutdown.count() == 2);
        let waiting = tokio::spawn({
            let shutdown = Arc::clone(&shutdown);
            async move { shutdown.wait().await }
        });
        while !shutdown.is_draining() {
            tokio::task::yield_now().await;
        }
        assert!(shutdown.begin().is_none(), "new work is rejected");
        drop(here);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && shutdown.count() == 1);
        std::thread::spawn(move || drop(there)).join().unwrap();
        timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
        assert_eq!(shutdown.count(), 0);
    }

    /// Work is either counted before the shutdown, or rejected: it never begins after `wait` has ended.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_work_is_in_flight_after_the_wait() {
        for _ in 0..200 {
            let shutdown = Arc::new(Shutdown::default());
            let is_over = Arc::new(AtomicBool::new(false));
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (shutdown, is_over) = (Arc::clone(&shutdown), Arc::clone(&is_over));
                    tokio::task::spawn_blocking(move || {
                        while let Some(running) = shutdown.begin() {
                            assert!(!is_over.load(Ordering::SeqCst), "work began after the shutdown");
                            drop(running);
                        }
                    })
                })
                .collect();
            timeout(Duration::from_secs(10), shutdown.wait()).await.unwrap();
            is_over.store(true, Ordering::SeqCst);
            for worker in workers {
                worker.await.unwrap();
            }
        }
    }
}
