//! Helpers for the tests of applications that use a guard: a memory store, and a clock that the test advances.
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
//! let Verdict::Reject(rejection) = guard.check(&Policy::token(), &late).await? else { panic!("it is too late") };
//! assert_eq!(rejection.code(), Code::TokenExpired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use crate::clock::{Clock, ManualClock};
use crate::guard::Guard;
use crate::store::Memory;

/// Returns a guard on a memory store, and the clock of both, which stands still until the test advances it.
pub fn guard() -> (Guard, ManualClock) {
    let manual = ManualClock::new();
    let clock = Clock::from(&manual);
    (Guard::builder(Memory::with_clock(clock.clone())).clock(clock).build(), manual)
}
