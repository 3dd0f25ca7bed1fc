//! Onceward makes a submission take effect once, however often it is sent: the double click, the impatient retry, the
//! proxy that asks twice, the message delivered again.
//!
//! # One route
//!
//! ```
//! # #[cfg(feature = "actix")] {
//! use actix_web::{App, HttpResponse, web};
//! use onceward::Guard;
//! use onceward::actix::{Protect, SubjectFrom, token_route};
//! use onceward::store::Memory;
//!
//! let guard = Guard::new(Memory::new());
//! let app = App::new()
//!     .service(token_route(&guard, SubjectFrom::anonymous()))
//!     .service(
//!         web::resource("/orders")
//!             .wrap(Protect::token(&guard, SubjectFrom::anonymous()))
//!             .route(web::post().to(HttpResponse::Created)),
//!     );
//! # let _ = app;
//! # }
//! ```
//!
//! # One table
//!
//! | policy | enter | it happened | it did not happen | a duplicate gets |
//! |---|---|---|---|---|
//! | **Token**: we issued it, one use | `take` finds it *issued* | it stays used | it is put back for the rest of its life | refused: *used* |
//! | **Token, remembered** | `swap` it for a claim that is held | `swap` the claim for the reply | `swap` it back | the first reply, or *in progress*, *outcome unknown*, *used* |
//! | **Key**: the caller made it | `insert` a claim for a lease | `swap` the claim for the reply | `remove` the claim | the first reply, or *in progress*, *reused*, *outcome unknown* |
//! | **Interval**: nobody made anything | `insert` a claim for the interval | left to expire | `remove` the claim | refused: *too soon* |
//!
//! What *happened* is read from the answer, unless the route or the handler says otherwise:
//!
//! | answer | Token, Interval | Key |
//! |---|---|---|
//! | below 400 | it happened | it happened |
//! | 401, 403, 408, 425, 429, 500, 501, 503, and any response made before the handler was entered ([`actix::entered()`]) | it did not | it did not |
//! | any other 4xx | it did not: the form is corrected, and sent again | it happened: an answer like any other |
//! | any other 5xx, a panic, a task that was lost | *unknown* | *unknown*; with [at most once](KeyRules::at_most_once) also 408, 500, 501, 503 |
//!
//! An `Err` of work under [`Guard::run`] counts like a 500, unless it is a [`Failure`] that says more.
//!
//! # One walk
//!
//! [`actix::Protect`] reads what a request asks into an [`Intent`]. [`Guard::check`] has its mint verify the token: a
//! forged, expired or misplaced one is refused without a word to the store. What is left is one question, used or not,
//! and one atomic step that answers it: [`Store::take`](store::Store::take), the delete whose result is the verdict.
//! The [`Verdict`] is to run, with a [`Pass`], to give a reply again, or to refuse. The pass is settled by the answer, before the answer is sent.
//!
//! Under a [`Key`] the one step is [`Store::insert`](store::Store::insert), of a claim that lives for a lease and is renewed on a
//! thread of the guard's own while the pass lives. Settling it swaps the claim for the [`Reply`], which is the verdict on every
//! later request, or removes it.
//!
//! The same works without any framework: [`Guard::check`] and [`Pass`] are all there is to it, and [`Guard::run`] is both.
//!
//! # Metrics
//!
//! What [`api::metric`] lists is told through the `metrics` facade, to the recorder that is installed when the guard is built;
//! [`Guard::report`] tells how things are at the moment. No label holds what a caller has sent.
//!
//! # Features
//!
//! - `actix` (on by default): [`actix::Protect`] and the rest of the middleware
//! - `redis`: [`store::Redis`], for more than one process
//! - `sql`: [`store::Sql`], on PostgreSQL and SQLite; and [`transaction`], for records that are committed with the business rows.
//!   The crate `onceward-patterns` has changes to rows of your own tables that may be requested twice
//! - `laws`: [`store::laws`], the tests that every store has to pass
#![warn(missing_docs)]

mod attempt;
mod audit;
mod backoff;
mod claim;
mod clock;
mod examination;
mod failure;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod inspection;
mod intent;
mod key;
mod metrics;
mod mint;
mod mode;
mod no_reply;
mod pass;
mod policy;
mod random;
mod record;
mod rejection;
mod renewal;
mod reply;
mod run;
mod run_id;
mod runtime;
mod salt;
#[cfg(test)]
mod schedules;
mod secret;
mod settlement;
mod shared_secret;
mod shutdown;
pub mod store;
pub mod testing;
mod ticket;
mod token;
#[cfg(feature = "sql")]
pub mod transaction;
mod waiting;
mod written;

#[cfg(feature = "actix")]
pub mod actix;

pub use onceward_api as api;

/// The version of redis-rs whose types are in the signatures of [`store::Redis`].
///
/// ```no_run
/// use onceward::redis::{Client, RedisResult};
/// use onceward::store::Redis;
///
/// # async fn open() -> RedisResult<()> {
/// let masters: Vec<(String, Client)> = Redis::masters("redis://127.0.0.1:6379").await?;
/// let connection = masters[0].1.get_multiplexed_async_connection().await?;
/// let store = Redis::over(connection);
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "redis")]
#[doc(no_inline)]
pub use ::redis;

/// The version of sqlx whose types are in the signatures of [`transaction`] and [`Guard::transact`].
///
/// ```no_run
/// use onceward::sqlx::PgPool;
/// use onceward::transaction::{ClaimError, TxVerdict, claim_in};
/// use onceward::{Intent, KeyRules};
///
/// # async fn claim(pool: &PgPool, intent: &Intent<'_>) -> Result<(), ClaimError> {
/// let mut transaction = pool.begin().await?;
/// let verdict: TxVerdict = claim_in(&mut transaction, &KeyRules::retryable(), intent).await?;
/// transaction.rollback().await?;
/// # let _ = verdict;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "sql")]
#[doc(no_inline)]
pub use ::sqlx;

pub use crate::attempt::{Attempt, BadAttempt};
pub use crate::clock::{Clock, ManualClock};
pub use crate::examination::Examined;
pub use crate::failure::{Failure, IntoFailure};
pub use crate::fingerprint::{BadPointer, Content, Fields, Fingerprint};
pub use crate::guard::{Guard, GuardBuilder, Released, Seen, Verdict};
pub use crate::inspection::{Inspected, Revoked};
pub use crate::intent::{Binding, Intent, Subject};
pub use crate::key::{BadKey, Key};
pub use crate::mode::Mode;
pub use crate::no_reply::NoReply;
pub use crate::pass::{Pass, Settled};
pub use crate::policy::{Effect, IntervalRules, KeyRules, Policy, TokenRules, ZeroInterval};
pub use crate::rejection::Rejection;
pub use crate::reply::Reply;
pub use crate::run::{RunError, RunOutcome};
pub use crate::run_id::RunId;
pub use crate::secret::{Secret, WeakSecret};
pub use crate::settlement::Resolved;
pub use crate::ticket::{BadTicket, Kind, Ticket};
pub use crate::token::Token;
pub use crate::written::SignedPass;

/// The examples of the README, run as tests.
#[cfg(all(doctest, feature = "actix", feature = "redis", feature = "sql"))]
#[doc = include_str!("../../README.md")]
struct Readme;
