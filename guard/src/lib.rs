//! Makes a submission take effect once, however often it is sent.
//!
//! A user clicks twice, a client retries after a timeout, a proxy resends a request, a queue delivers a message again. Each copy looks like
//! a new request, so the handler runs again: two orders, two payments. A [`Guard`] decides each request before its handler runs. The first
//! one runs. A duplicate receives the stored response of the first, or is rejected with a code that states why. With a [`store`] outside of
//! the process, such as Redis, this holds across processes and restarts.
//!
//! # Quick start
//!
//! A client fetches a token and sends it with the form. The route accepts each token once. On axum:
//!
//! ```
//! # #[cfg(feature = "axum")] {
//! use axum::Router;
//! use axum::routing::post;
//! use onceward::Guard;
//! use onceward::axum::{Protect, SubjectFrom, entered, token_route};
//! use onceward::store::Memory;
//!
//! async fn place_order() -> &'static str {
//!     "ordered"
//! }
//!
//! let guard = Guard::new(Memory::new());
//! let protect = Protect::token(&guard, SubjectFrom::anonymous());
//! let app: Router = Router::new()
//!     .merge(token_route(&guard, SubjectFrom::anonymous()))
//!     .route("/orders", post(entered(place_order)).layer(protect));
//! # let _ = app;
//! # }
//! ```
//!
//! On actix-web:
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
//! For a client that sends an `Idempotency-Key`, use [`Protect::key`](http::Protect::key). For more than one process, replace `Memory` with
//! [`store::Redis`] or [`store::Sql`]. Without a framework, [`Guard::run`] runs any function once. It is built on [`Guard::check`], whose
//! verdict to run contains a [`Pass`].
//!
//! # Guides
//!
//! [`guide`] has a page per task, each with complete examples: [concepts](guide::concepts), [actix-web](guide::actix),
//! [axum](guide::axum), [keys](guide::keys), [intervals](guide::intervals), [jobs](guide::jobs), [transactions](guide::transactions),
//! [stores](guide::stores), [graceful shutdown](guide::shutdown), [testing](guide::testing).
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
//! The response determines whether a run took effect, unless the handler or the route states it:
//!
//! | response | token, interval | key |
//! |---|---|---|
//! | below 400 | applied | applied: stored and replayed |
//! | 401, 403, 408, 425, 429, 500, 501, 503, and any response created before the handler was called (`entered` of [`actix`](actix::entered()) and [`axum`](axum::entered())) | not applied | not applied; [at most once](KeyRules::at_most_once), 408, 500, 501 and 503 are unknown |
//! | other 4xx | not applied: the user corrects the form and sends it again | applied: a business response, stored and replayed |
//! | other 5xx, a panic, an aborted task | unknown: the token stays used | unknown: the claim waits for its lease, or for [`Guard::settle`] |
//!
//! An `Err` of work under [`Guard::run`] counts like a 500, unless it is a [`Failure`] that states the effect. The guard never guesses an
//! *unknown* outcome.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | [token](Token) | a signed text that a guard issues; it is valid for one use |
//! | [key](Key) | a text that the client chooses for one submission, the same in every retry |
//! | [subject](Subject) | the identity that sends the request: a user id, a client address, or anonymous |
//! | action | the operation, such as `POST /orders` |
//! | [fingerprint](Fingerprint) | a digest of the content of a request |
//! | [intent](Intent) | what a request asks for: subject, action, fingerprint, and the token or key |
//! | [policy](Policy) | the rule by which a guard recognises a duplicate |
//! | [verdict](Verdict) | run, replay or reject |
//! | [pass](Pass) | the permission to run, settled once by the effect of the run |
//! | [effect](Effect) | applied, not applied or unknown |
//! | claim | the record of a run in flight |
//! | lease | the time to live of a claim, 15 seconds by default; the guard renews it while the run is in flight |
//! | [reply](Reply) | a stored response |
//! | retention | the time to live of a reply, a day by default |
//! | [ticket](Ticket) | the name of a record in the store |
//! | [epoch](store::Epoch) | one uninterrupted life of the store's data |
//! | [attempt](Attempt) | one try at redeeming a token or claiming a key, named by a trusted caller |
//! | [at most once](KeyRules::at_most_once) | after a crash the outcome is unknown until it is settled, or until the retention has passed |
//! | [retryable](KeyRules::retryable) | a crash frees the key after its lease, so that the handler may run again |
//!
//! # Metrics
//!
//! The guard records the metrics in [`api::metric`] through the `metrics` facade, with the recorder that is installed when the guard is
//! built. [`Guard::report`] sets the gauges. No label contains data that a client sent.
//!
//! # Audit log
//!
//! The guard logs each step of a claim (claimed, completed, released, unknown, refused, lost …) as a `tracing` event at level INFO, with
//! the target `onceward::event` and the action, ticket and run. No event contains a token or a key. Write these events as JSON lines to a
//! file of their own: after a crash, `onceward audit FILE` finds in them the runs whose outcome is unknown. `onceward` is the program of the
//! service: `cargo install --path server` in a clone of the repository.
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
//! This needs the feature `json` of `tracing-subscriber`. A filter of WARN or ERROR for this target turns the audit log off.
//!
//! # Testing
//!
//! [`testing`] has a guard on a memory store with a clock that the test advances, and a store that fails on request.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! - `actix`: [`actix::Protect`], middleware for actix-web 4
//! - `axum`: [`axum::Protect`], a layer for axum 0.8, with a token route, extractors and a graceful shutdown
//! - `tower`: [`tower::Protect`], the same layer for any tower or hyper service
//! - `macros`: the attribute `#[once]` for handlers of [actix-web](actix::once) and [axum](axum::once)
//! - `redis`: [`store::Redis`], for more than one process
//! - `sql`: [`store::Sql`], on PostgreSQL and SQLite; and [`transaction`], for records that are committed with the rows of the application.
//!   The crate `onceward-patterns` has idempotent changes to rows of your own tables
//! - `laws`: [`store::laws`], the tests that every store has to pass
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod attempt;
mod audit;
mod backoff;
mod binding;
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
#[cfg(any(doc, doctest))]
pub mod guide;
#[allow(dead_code, unused_imports, reason = "each adapter, which is a feature of its own, uses a part of it")]
pub mod http;
mod intent;
mod key;
mod language;
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
#[allow(dead_code, reason = "each adapter, which serves, is a feature of its own")]
mod signals;
// A module of the library only to reach its internals; the file is with the tests.
#[cfg(test)]
#[path = "../tests/simulator/schedules.rs"]
mod simulator;
mod snapshot;
pub mod store;
mod subject;
pub mod testing;
mod thread_number;
mod ticket;
mod token;
#[cfg(feature = "sql")]
pub mod transaction;
mod verdict;
mod waiters;
mod warning_limit;

#[cfg(feature = "actix")]
pub mod actix;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "tower")]
pub mod tower;

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
pub use crate::binding::Binding;
pub use crate::clock::{Clock, ManualClock};
pub use crate::effect::Effect;
pub use crate::failure::{Failure, IntoFailure};
pub use crate::fingerprint::{BadPointer, Content, Fields, Fingerprint};
pub use crate::guard::{Guard, GuardBuilder, IssueError, Revocation};
pub use crate::intent::Intent;
pub use crate::key::{BadKey, Key};
pub use crate::language::{Language, Languages, PageLabels, PageText, Texts, Wording};
pub use crate::mode::Mode;
pub use crate::pass::Pass;
pub use crate::pass::signed::SignedPass;
pub use crate::policy::{IntervalRules, KeyRules, Policy, SettingError, TokenRules};
pub use crate::rejection::Rejection;
pub use crate::reply::{NoReply, Reply};
pub use crate::run::{RunError, RunOutcome};
pub use crate::run_id::RunId;
pub use crate::settled::Settled;
pub use crate::signals::stop_on_signal;
pub use crate::snapshot::{RecordState, Snapshot, TokenInfo};
pub use crate::subject::Subject;
pub use crate::ticket::{BadTicket, Kind, Ticket};
pub use crate::token::Token;
pub use crate::token::secret::{Secret, WeakSecret};
pub use crate::verdict::Verdict;
pub use crate::warning_limit::{WarningLimit, WarningLimits};
