//! A circuit breaker for one server: while most commands time out, new work is rejected at once.
//!
//! It counts timeouts only, not an unreachable server or an error reply. Settlements and renewals bypass it, so it never stops work
//! that has begun. One probe at a time detects that the server answers in time again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::deadline::Deadline;
use super::error::TransportError;
use crate::clock::Clock;
use crate::store::Admission;

/// The number of timeouts before the breaker opens: a single slow command is not significant.
const TIMEOUTS: u32 = 5;
/// The minimum time of counting before the breaker opens, in milliseconds: a server that stalls briefly answers all pending commands at
/// once afterwards. It must not exceed the time until the commands that were in flight at the first timeout have timed out too, since
/// the connection is reopened after that.
const COUNTED: u64 = 100;
/// The time after which counting restarts, in milliseconds.
const FORGOTTEN: u64 = 5_000;
/// The number of consecutive responses that close the breaker.
const ANSWERS: u32 = 3;

/// The state of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    /// No command has timed out.
    Closed,
    /// A command has timed out; responses and timeouts are counted from then on.
    Counting { since: u64, answers: u32, timeouts: u32 },
    /// Most commands have timed out. The next probe may be sent at `probe_at`; `answers` counts consecutive responses.
    Open { probe_at: u64, answers: u32 },
}

impl BreakerState {
    /// Records a response in time. Usually no command has timed out, and nothing is counted.
    fn answered(self, now: u64) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Counting { since, .. } if now >= since + FORGOTTEN => Self::Closed,
            Self::Counting { since, answers, timeouts } => Self::Counting { since, answers: answers + 1, timeouts },
            Self::Open { answers, .. } if answers + 1 >= ANSWERS => Self::Closed,
            Self::Open { answers, .. } => Self::Open { probe_at: now, answers: answers + 1 },
        }
    }

    /// Records a timeout.
    fn timed_out(self, now: u64) -> Self {
        match self {
            Self::Open { probe_at, .. } => Self::Open { probe_at, answers: 0 },
            Self::Counting { since, answers, timeouts } if now < since + FORGOTTEN => {
                let timeouts = timeouts + 1;
                let is_enough = now >= since + COUNTED && timeouts >= TIMEOUTS && timeouts > answers;
                if is_enough {
                    Self::Open { probe_at: now, answers: 0 }
                } else {
                    Self::Counting { since, answers, timeouts }
                }
            }
            Self::Closed | Self::Counting { .. } => Self::Counting { since: now, answers: 0, timeouts: 1 },
        }
    }

    /// Decides whether new work may begin. A probe may take `timeout` before the next one is admitted.
    fn admit(self, now: u64, timeout: u64) -> (Self, Admission) {
        match self {
            Self::Open { probe_at, answers } if now >= probe_at => {
                (Self::Open { probe_at: now + timeout.max(1), answers }, Admission::Probe)
            }
            Self::Open { .. } => (self, Admission::Reject),
            Self::Closed | Self::Counting { .. } => (self, Admission::Accept),
        }
    }

    fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// The circuit breaker of one server.
#[derive(Debug)]
pub(super) struct Breaker {
    state: Mutex<BreakerState>,
    /// True if the state is not `Closed`. Avoids locking while a server has no timeouts.
    is_busy: AtomicBool,
    is_open: AtomicBool,
    clock: Clock,
    /// The name of the server in the log.
    server: String,
}

impl Breaker {
    /// Creates a closed breaker for a server.
    pub(super) fn new(server: impl Into<String>) -> Self {
        Self {
            state: Mutex::new(BreakerState::Closed),
            is_busy: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            clock: Clock::system(),
            server: server.into(),
        }
    }

    /// Returns whether new work is rejected.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Decides whether new work may begin, for a caller with this timeout.
    pub(super) fn admit(&self, timeout: Duration) -> Admission {
        if !self.is_open() {
            return Admission::Accept;
        }
        let mut state = self.state();
        let (next, admission) = state.admit(self.clock.steady(), timeout.as_millis() as u64);
        *state = next;
        admission
    }

    /// Records a response in time.
    pub(super) fn answered(&self) {
        if self.is_busy.load(Ordering::Relaxed) {
            self.change(BreakerState::answered);
        }
    }

    /// Records a timeout.
    pub(super) fn timed_out(&self) {
        self.change(BreakerState::timed_out);
    }

    /// Records the result of a command. A timeout of a command that was sent late does not count.
    pub(super) async fn note<T>(
        &self,
        deadline: Deadline,
        answer: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, TransportError> {
        let sent = Instant::now();
        let answer = answer.await;
        match &answer {
            Err(TransportError::TimedOut(_)) if !deadline.was_hurried(sent) => self.timed_out(),
            Err(error) if !error.is_answer() => {}
            _ => self.answered(),
        }
        answer
    }

    fn change(&self, change: impl FnOnce(BreakerState, u64) -> BreakerState) {
        let mut state = self.state();
        let before = *state;
        *state = change(before, self.clock.steady());
        self.is_busy.store(*state != BreakerState::Closed, Ordering::Relaxed);
        self.is_open.store(state.is_open(), Ordering::Relaxed);
        match (before.is_open(), state.is_open()) {
            (false, true) => {
                tracing::warn!(
                    server = self.server,
                    "most commands to this Redis time out; rejecting new work until it replies in time"
                );
            }
            (true, false) => {
                tracing::warn!(server = self.server, "this Redis replies in time again; accepting new work")
            }
            (true, true) | (false, false) => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands in turn, one each millisecond from this time on: `x` times out, `.` is answered.
    fn after(state: BreakerState, from: u64, commands: &str) -> BreakerState {
        let each = |(state, now), command| match command {
            'x' => (BreakerState::timed_out(state, now), now + 1),
            _ => (BreakerState::answered(state, now), now + 1),
        };
        commands.chars().fold((state, from), each).0
    }

    fn open() -> BreakerState {
        let state = after(after(BreakerState::Closed, 0, "x"), COUNTED, &"x".repeat(TIMEOUTS as usize));
        assert!(state.is_open());
        state
    }

    #[test]
    fn few_slow_commands_do_not_open_the_breaker() {
        for few in ["x", "xxxx", "x.x", "...x"] {
            assert!(!after(after(BreakerState::Closed, 0, few), COUNTED, "").is_open(), "{few}");
        }
        let few = "x".repeat(TIMEOUTS as usize - 1);
        assert!(!after(BreakerState::Closed, 0, &few).is_open());
    }

    #[test]
    fn short_stall_does_not_open_the_breaker() {
        let burst = after(BreakerState::Closed, 0, &"x".repeat(50));
        assert!(!burst.is_open(), "they have not been counted for long enough");
        let answered = after(burst, 50, &".".repeat(100));
        assert!(!after(answered, COUNTED, "x").is_open(), "most were answered");
    }

    #[test]
    fn breaker_opens_when_most_commands_time_out() {
        let some = after(BreakerState::Closed, 0, &"x..".repeat(200));
        assert!(!some.is_open());
        let most = after(BreakerState::Closed, 0, &"xx.".repeat(200));
        assert!(most.is_open());
    }

    #[test]
    fn timeouts_far_apart_do_not_add_up() {
        let mut state = BreakerState::Closed;
        for at in 0..20 {
            state = after(state, at * FORGOTTEN, "x");
            assert!(!state.is_open());
        }
        assert_eq!(after(state, 20 * FORGOTTEN, "."), BreakerState::Closed);
    }

    #[test]
    fn open_breaker_admits_one_probe_at_a_time() {
        let (state, first) = open().admit(1_000, 250);
        assert_eq!(first, Admission::Probe);
        for now in 1_000..1_250 {
            assert_eq!(state.admit(now, 250).1, Admission::Reject, "{now}");
        }
        assert_eq!(state.admit(1_250, 250).1, Admission::Probe, "the first has timed out");
        assert_eq!(BreakerState::Closed.admit(1_000, 250).1, Admission::Accept);
        assert_eq!(after(BreakerState::Closed, 1_000, "x").admit(1_001, 250).1, Admission::Accept);
    }

    #[test]
    fn consecutive_replies_close_the_breaker() {
        let mut state = open();
        for at in 0..u64::from(ANSWERS) {
            assert!(state.is_open());
            let (next, admission) = state.admit(1_000 + at, 250);
            assert_eq!(admission, Admission::Probe);
            state = after(next, 1_000 + at, ".");
        }
        assert_eq!(state, BreakerState::Closed);
        assert!(after(open(), 1_000, "..x..x..").is_open(), "some are answered, and most are not");
    }

    #[test]
    fn breaker_admits_work_by_its_counts() {
        let breaker = Breaker::new("a test");
        let timeout = Duration::from_secs(60);
        breaker.answered();
        assert_eq!((breaker.is_open(), breaker.admit(timeout)), (false, Admission::Accept));
        breaker.timed_out();
        *breaker.state() = BreakerState::Open { probe_at: 0, answers: 0 };
        breaker.timed_out();
        assert_eq!((breaker.admit(timeout), breaker.admit(timeout)), (Admission::Probe, Admission::Reject));
        (0..ANSWERS).for_each(|_| breaker.answered());
        assert_eq!((breaker.is_open(), breaker.admit(timeout)), (false, Admission::Accept));
    }
}
