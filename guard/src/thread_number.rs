//! The number of the current thread, by which threads choose one of several counters or queues, so that they seldom write to the same
//! memory.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of this thread, in the order in which threads have called this.
pub(crate) fn current() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that is ending has no number any more.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_keeps_its_own_number() {
        let other = std::thread::scope(|scope| scope.spawn(|| (current(), current())).join().unwrap());
        assert_eq!(other.0, other.1);
        assert_ne!(current(), other.0);
    }
}
