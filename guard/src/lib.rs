//! Onceward makes a submission take effect once, however often it is sent: a double click, an impatient retry, a proxy that resends, a
//! message that is delivered again.
//!
//! # Quick start
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
//! Without a framework, [`Guard::run`] runs any function once, and [`Guard::check`] with a [`Pass`] is what it is made of.
//!
//! # Policies
//!
//! | policy | who creates the id | the first request | a duplicate receives | after a run that was not applied |
//! |---|---|---|---|---|
//! | **token** | Onceward issues it | redeems the token and runs | 409 `token_used` | the token is valid again |
//! | **token, remembered** | Onceward issues it | redeems the token, runs, stores the response | the stored response; `in_progress`, `outcome_unknown` | the token is valid again |
//! | **key** | the client (`Idempotency-Key`, or a business id) | claims the key, runs, stores the response | the stored response; `in_progress`, `key_reused`, `outcome_unknown` | the key is free again |
//! | **interval** | derived from subject and content | claims the interval and runs | 409 `too_soon`; 429 `locked` of a lock | the interval is free again |
//!
//! Whether a run took effect is read from its response, unless the handler or the route says otherwise:
//!
//! | response | token, interval | key |
//! |---|---|---|
//! | below 400 | applied | applied: stored and replayed |
//! | 401, 403, 408, 425, 429, 500, 501, 503, and any response made before the handler was called ([`actix::entered()`]) | not applied | not applied; [at most once](KeyRules::at_most_once), 408, 500, 501 and 503 are unknown |
//! | other 4xx | not applied: the user corrects the form and sends it again | applied: a business answer, stored and replayed |
//! | other 5xx, a panic, an aborted task | unknown: the token stays used | unknown: the claim waits for its lease, or for [`Guard::settle`] |
//!
//! An `Err` of work under [`Guard::run`] counts like a 500, unless it is a [`Failure`] that says more. *Unknown* is never guessed into yes
//! or no.
//!
//! # Glossary
//!
//! - *Subject* (who asks), *action* (which operation) and *fingerprint* (digest of the content) make up an [`Intent`].
//! - A [`Verdict`] is to run, to replay or to reject. A [`Pass`] is the permission to run, settled once by its [`Effect`].
//! - A *claim* is the record of a run in flight; it lives for a *lease*, and is renewed while the run lives. A [`Reply`] is a stored response;
//!   it lives for its *retention*.
//! - A [`Ticket`] names a record in the store. An [*epoch*](store::Epoch) is one uninterrupted life of the store's data.
//! - *At most once*: after a crash the outcome is unknown until it is settled. *Retryable*: a crash frees the key after its lease, so that the
//!   handler may run again.
//!
//! # Metrics
//!
//! What [`api::metric`] lists is counted through the `metrics` facade, by the recorder that is installed when the guard is built;
//! [`Guard::report`] sets the gauges. No label holds what a client has sent.
//!
//! # Audit log
//!
//! Each step of a claim (claimed, completed, released, unknown, refused, lost …) is an event of `tracing` at level INFO, with the target
//! `onceward::event`, its action, ticket and run. No token and no key is in it. Keep these events as JSON lines, apart from your other logs:
//! after a crash, `onceward audit FILE` finds in them the runs whose outcome is unknown.
//!
//! ```no_run
//! use std::fs::OpenOptions;
//! use std::sync::Arc;
//!
//! use tracing_subscriber::filter::{LevelFilter, Targets};
//! use tracing_subscriber::fmt::layer;
//! use tracing_subscriber::prelude::*;
//!
//! let file = OpenOptions::new().create(true).append(true).open("onceward-events.log")?;
//! let events = Targets::new().with_target("onceward::event", LevelFilter::INFO);
//! tracing_subscriber::registry()
//!     .with(layer().json().with_writer(Arc::new(file)).with_filter(events))
//!     .with(layer().with_filter(LevelFilter::INFO)) // your own log
//!     .init();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It needs the feature `json` of `tracing-subscriber`. A filter of WARN or ERROR for this target turns the audit log off.
//!
//! # Testing
//!
//! [`testing`] has a guard on memory with a clock to advance, and a store that fails.
//!
//! # Features
//!
//! - `actix` (on by default): [`actix::Protect`] and the rest of the middleware
//! - `redis`: [`store::Redis`], for more than one process
//! - `sql`: [`store::Sql`], on PostgreSQL and SQLite; and [`transaction`], for records that are committed with the rows of the application.
//!   The crate `onceward-patterns` has changes to rows of your own tables that may be requested twice
//! - `laws`: [`store::laws`], the tests that every store has to pass
#![warn(missing_docs)]

mod attempt;
mod audit;
mod backoff;
mod claim;
mod clock;
mod digest;
mod effect;
mod engine;
mod epoch;
mod failure;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
#[allow(dead_code, unused_imports, reason = "each adapter, which is a feature of its own, uses a part of it")]
pub mod http;
mod intent;
mod key;
mod metrics;
mod mode;
mod open_claims;
mod pass;
mod policy;
mod random;
mod record;
mod redemption;
mod rejection;
mod renewal;
mod reply;
mod run;
mod run_id;
mod runtime;
mod settled;
mod shared_secret;
mod shutdown;
// Part of the library only to reach its internals; it lives with the tests.
#[cfg(test)]
#[path = "../tests/simulator/schedules.rs"]
mod simulator;
mod snapshot;
pub mod store;
pub mod testing;
mod ticket;
mod token;
#[cfg(feature = "sql")]
pub mod transaction;
mod verdict;
mod waiters;
mod warning_limit;

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
pub use crate::effect::Effect;
pub use crate::failure::{Failure, IntoFailure};
pub use crate::fingerprint::{BadPointer, Content, Fields, Fingerprint};
pub use crate::guard::{Guard, GuardBuilder, IssueError, Revocation};
pub use crate::intent::{Binding, Intent, Subject};
pub use crate::key::{BadKey, Key};
pub use crate::mode::Mode;
pub use crate::pass::Pass;
pub use crate::pass::signed::SignedPass;
pub use crate::policy::{IntervalRules, KeyRules, Policy, SettingError, TokenRules};
pub use crate::rejection::Rejection;
pub use crate::reply::{NoReply, Reply};
pub use crate::run::{RunError, RunOutcome};
pub use crate::run_id::RunId;
pub use crate::settled::Settled;
pub use crate::snapshot::{RecordState, Snapshot, TokenInfo};
pub use crate::ticket::{BadTicket, Kind, Ticket};
pub use crate::token::Token;
pub use crate::token::secret::{Secret, WeakSecret};
pub use crate::verdict::Verdict;
pub use crate::warning_limit::{WarningLimit, WarningLimits};

/// The examples of the page about logs, run as tests.
#[cfg(all(doctest, feature = "actix"))]
#[doc = include_str!("../../docs/logging.md")]
struct LoggingPage;

/// The examples of the README, run as tests.
#[cfg(all(doctest, feature = "actix", feature = "redis", feature = "sql"))]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The examples of the page about tests, run as tests.
#[cfg(all(doctest, feature = "actix"))]
#[doc = include_str!("../../docs/testing.md")]
struct TestingPage;
