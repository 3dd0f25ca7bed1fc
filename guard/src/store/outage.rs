//! Detects outages of the store, and logs when each begins and ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::StoreError;
use crate::clock::Clock;
use crate::warning_limit::{WarningLimit, WarningLimits};

/// Time without a failed command until the store counts as back, in milliseconds. A cluster that has lost one node still replies to most
/// commands.
const QUIET: u64 = 1_000;

/// The state of the store as the commands of one guard see it.
///
/// Without an outage, a reply costs one relaxed atomic load. The warnings of an outage are limited, so that an outage does not
/// fill the log.
#[derive(Debug)]
pub(super) struct Outage {
    /// True if `ongoing` is set.
    is_on: AtomicBool,
    ongoing: Mutex<Option<CurrentOutage>>,
    away: WarningLimit,
    rejections: WarningLimits,
    clock: Clock,
}

/// An ongoing outage.
#[derive(Debug, Clone, Copy)]
struct CurrentOutage {
    since: u64,
    /// Time of the first reply since the last failure.
    answered_at: Option<u64>,
    requests: u64,
    /// True if its begin was logged. An outage shortly after the last warning may end before the next warning is due.
    is_logged: bool,
}

/// An outage that has ended.
#[derive(Debug, PartialEq, Eq)]
struct Recovery {
    away_ms: u64,
    failed_requests: u64,
}

impl Outage {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            ongoing: Mutex::new(None),
            away: WarningLimit::new(clock.clone()),
            rejections: WarningLimits::new(clock.clone()),
            clock,
        }
    }

    /// Records a reply to a command.
    pub(super) fn answered(&self) {
        if self.is_on.load(Ordering::Relaxed)
            && let Some(Recovery { away_ms, failed_requests }) = self.recover()
        {
            tracing::info!(away_ms, failed_requests, "the store answers again");
        }
    }

    /// Records that a command failed, and logs a warning if the store does not reply. [`request_failed`](Self::request_failed) logs an
    /// error reply of the store.
    pub(super) fn failed(&self, error: &StoreError) {
        if !error.is_away() {
            self.answered();
        } else if let Some(suppressed) = self.begin_or_go_on() {
            tracing::warn!(%error, suppressed, "the store does not answer; requests that need it are rejected");
        }
    }

    /// Counts a failed request. Logs the error, unless it belongs to an outage.
    pub(super) fn request_failed(&self, error: &StoreError) {
        let is_counted = error.is_away() && self.count_request();
        if !is_counted {
            self.reject(error);
        }
    }

    /// Logs an error of a background step, unless it belongs to an outage.
    pub(super) fn step_failed(&self, error: &StoreError) {
        if !(error.is_away() && self.is_on.load(Ordering::Relaxed)) {
            self.reject(error);
        }
    }

    fn reject(&self, error: &StoreError) {
        if let Some(suppressed) = self.rejections.admit(&error.to_string()) {
            tracing::warn!(%error, suppressed, "the store answers, but a command failed");
        }
    }

    /// Returns how many warnings were suppressed, if one is to be logged now.
    fn begin_or_go_on(&self) -> Option<u64> {
        let now = self.clock.steady();
        let mut ongoing = self.ongoing();
        let begun = CurrentOutage { since: now, answered_at: None, requests: 0, is_logged: false };
        let outage = ongoing.get_or_insert(begun);
        self.is_on.store(true, Ordering::Relaxed);
        let suppressed = self.away.admit();
        outage.answered_at = None;
        outage.is_logged |= suppressed.is_some();
        suppressed
    }

    fn count_request(&self) -> bool {
        self.ongoing().as_mut().map(|outage| outage.requests += 1).is_some()
    }

    /// Ends the outage if no command has failed for a while. Returns it if its begin was logged.
    fn recover(&self) -> Option<Recovery> {
        let now = self.clock.steady();
        let mut ongoing = self.ongoing();
        let outage = ongoing.as_mut()?;
        let answered_at = *outage.answered_at.get_or_insert(now);
        if now < answered_at.saturating_add(QUIET) {
            return None;
        }
        let CurrentOutage { since, requests, is_logged, .. } = *outage;
        *ongoing = None;
        self.is_on.store(false, Ordering::Relaxed);
        is_logged.then_some(Recovery { away_ms: answered_at.saturating_sub(since), failed_requests: requests })
    }

    fn ongoing(&self) -> MutexGuard<'_, Option<CurrentOutage>> {
        self.ongoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::StoreFull;

    fn outage() -> (Outage, ManualClock) {
        let clock = ManualClock::new();
        (Outage::new((&clock).into()), clock)
    }

    fn away() -> StoreError {
        StoreError::unknown("no connection")
    }

    #[test]
    fn first_failure_is_logged_and_then_one_every_ten_seconds() {
        let (outage, clock) = outage();
        let mut logged = Vec::new();
        for _ in 0..25 {
            logged.extend(outage.begin_or_go_on());
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(logged, [0, 9, 9]);
    }

    #[test]
    fn recovery_logs_outage_duration_and_failed_requests() {
        let (outage, clock) = outage();
        assert_eq!(outage.recover(), None, "it was not away");
        for _ in 0..3 {
            outage.failed(&away());
            outage.request_failed(&away());
            clock.advance(Duration::from_secs(2));
        }
        assert_eq!(outage.recover(), None, "it has only just answered");
        clock.advance(Duration::from_secs(1));
        assert_eq!(outage.recover(), Some(Recovery { away_ms: 6_000, failed_requests: 3 }));
        assert_eq!(outage.recover(), None, "it is over");
    }

    #[test]
    fn store_that_answers_some_commands_is_still_out() {
        let (outage, clock) = outage();
        for _ in 0..100 {
            outage.failed(&away());
            assert_eq!(outage.recover(), None);
            clock.advance(Duration::from_millis(500));
            assert_eq!(outage.recover(), None);
            clock.advance(Duration::from_millis(400));
        }
        clock.advance(Duration::from_millis(100));
        assert_eq!(outage.recover(), Some(Recovery { away_ms: 89_100, failed_requests: 0 }));
    }

    #[test]
    fn outage_without_a_logged_start_ends_silently() {
        let (outage, clock) = outage();
        let pass = |outage: &Outage| {
            outage.failed(&away());
            outage.answered();
            clock.advance(Duration::from_secs(1));
            outage.recover().is_some()
        };
        assert_eq!((pass(&outage), pass(&outage)), (true, false));
        clock.advance(WarningLimit::EVERY);
        assert!(pass(&outage));
    }

    #[test]
    fn full_store_is_no_outage() {
        let (outage, clock) = outage();
        let full = || StoreError::not_executed(StoreFull::new("full".to_owned()));
        outage.failed(&full());
        assert!(!outage.is_on.load(Ordering::Relaxed));
        outage.request_failed(&full());
        assert_eq!(outage.rejections.admit(&full().to_string()), None, "it was logged, and is limited");
        outage.failed(&away());
        outage.failed(&full());
        clock.advance(Duration::from_secs(1));
        outage.failed(&full());
        assert!(!outage.is_on.load(Ordering::Relaxed), "a store that says it is full answers");
    }

    #[test]
    fn request_that_failed_without_an_outage_is_logged() {
        let (outage, _clock) = outage();
        let error = StoreError::not_executed("too many claims");
        outage.request_failed(&error);
        assert_eq!(outage.rejections.admit(&error.to_string()), None);
        assert_eq!(outage.away.admit(), Some(0));
    }
}
