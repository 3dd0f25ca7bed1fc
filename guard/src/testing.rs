//! Helpers for the tests of applications that use a guard: a memory store, a clock that the test advances, and a store that fails.
//!
//! | to test | use |
//! |---|---|
//! | a duplicate, a corrected form, a replay | [`guard()`], in place of the guard of your `main` |
//! | an expired token, lease or retention | [`ManualClock::advance`], of the clock that [`guard()`] returns |
//! | an unavailable store: the 503 of your application | [`FailingStore::fail_not_executed`] |
//! | a lost reply of the store | [`FailingStore::fail_unknown`] |
//! | a handler that panics, or a task that is aborted | drop the [`Pass`](crate::Pass) |
//! | a process that is killed | a second guard on the same store, and [`FailingStore::fail_not_executed`] for the first |
//!
//! The guide `guide::testing` has a complete program for each.
//!
//! ```
//! use std::time::Duration;
//!
//! use onceward::api::Code;
//! use onceward::{Binding, Intent, Policy, Subject, Verdict, testing};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let (guard, clock) = testing::guard();
//! let token = guard.issue(Duration::from_secs(60), Binding::none()).await?;
//! clock.advance(Duration::from_secs(60));
//!
//! let late = Intent::new("POST /orders", Subject::anonymous()).credential(token.as_str());
//! let Verdict::Reject(rejection) = guard.check(&Policy::token(), &late).await? else { panic!("expired token accepted") };
//! assert_eq!(rejection.code(), Code::TokenExpired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod failing_store;

pub use self::failing_store::FailingStore;
use crate::clock::{Clock, ManualClock};
use crate::guard::Guard;
use crate::store::Memory;

/// Returns a guard on a memory store, and the clock of both, which stands still until the test advances it.
pub fn guard() -> (Guard, ManualClock) {
    let manual = ManualClock::new();
    let clock = Clock::from(&manual);
    (Guard::builder(Memory::with_clock(clock.clone())).clock(clock).build(), manual)
}
