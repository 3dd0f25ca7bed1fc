//! Idempotent changes to rows of your own tables: typed helpers for PostgreSQL and SQLite.
//!
//! A [`Change`] identifies a row by its key and sets its columns; the verb that ends the call decides how a repetition is recognised. A
//! verb runs on a connection or, as `&mut *transaction`, within your transaction, and returns an [`Answer`]: *applied*, *already applied*
//! with the existing row, or *rejected* with the reason.
//!
//! ```no_run
//! use onceward_patterns::{Answer, Change};
//! use sqlx::{PgPool, Row as _};
//!
//! # async fn pay(pool: PgPool) -> Result<String, Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! let payment = Change::to("payments").key("order_no", "4711").with("cents", 900_i64);
//! let message = match payment.insert_once(&mut *transaction).await? {
//!     Answer::Applied(row) => format!("paid, receipt {}", row.get::<i64, _>("receipt")),
//!     Answer::AlreadyApplied(row) => format!("already paid, receipt {}", row.get::<i64, _>("receipt")),
//!     Answer::Rejected(_) => "this order was paid with another amount".to_owned(),
//! };
//! transaction.commit().await?;
//! # Ok(message)
//! # }
//! ```
//!
//! # Verbs
//!
//! | verb | use it for | a repetition is recognised by |
//! |---|---|---|
//! | [`insert_once`](Change::insert_once) | one row per business event: a payment, an order | the key, with the same content |
//! | [`query_first`](Change::query_first) | numbered messages of a sender, with many repetitions | the key (source and seq), with the same content |
//! | [`upsert`](Change::upsert) | the current state of something; the last write wins | the content |
//! | [`newer`](Change::newer), [`upsert_newer`](Change::upsert_newer) | messages with a version that the sender assigns, in any order | the version, with the same content |
//! | [`at_version`](Change::at_version) | an edit of a version that the caller has read (compare-and-swap) | the next version, with the same content |
//! | [`change_status`](Change::change_status) | a transition between two statuses | the target status, with the same data |
//! | [`forward`](Change::forward), [`upsert_forward`](Change::upsert_forward) | statuses with an order, and messages in any order | the target status, with the same data |
//! | [`take`](Change::take), [`give_back`](Change::give_back) | stock, quotas, balances | the record of the request |
//! | [`delete`](Change::delete) | a deletion with a mark, of a version that the caller has read | mark and next version |
//!
//! In each verb one statement decides, also with concurrent requests; only if it changed nothing, the row is read to find the reason. The
//! row in an [`Answer`] has all columns, as sqlx returns them.
//!
//! # Isolation levels
//!
//! Every isolation level is supported. Above READ COMMITTED, and on SQLite, the database may report a conflict with a concurrent
//! transaction: the verb returns [`PatternError::Again`], and you retry the whole transaction. On SQLite start with `begin_with("BEGIN
//! IMMEDIATE")`: the transaction then waits at its start and does not fail later.
//!
//! # Pessimistic locking
//!
//! If a decision needs more than one condition, read the row with a lock, decide, and write:
//!
//! ```no_run
//! # async fn ship(pool: sqlx::PgPool) -> Result<(), sqlx::Error> {
//! let mut transaction = pool.begin().await?;
//! let order = "SELECT status FROM orders WHERE id = $1 FOR UPDATE";
//! let status: String = sqlx::query_scalar(order).bind(7_i64).fetch_one(&mut *transaction).await?;
//! if status == "paid" {
//!     // No other transaction gets here with this order before the commit.
//!     sqlx::query("UPDATE orders SET status = 'shipped' WHERE id = $1").bind(7_i64).execute(&mut *transaction).await?;
//! }
//! transaction.commit().await
//! # }
//! ```
//!
//! The cost: other transactions that need the row wait, and each occupies a connection of the pool, so that one slow transaction can block
//! requests for all other rows. Without a primary or unique key it locks more rows than intended. Do nothing slow between the lock and the
//! commit, call no other service, and set `lock_timeout`. SQLite has no such lock and needs none: `BEGIN IMMEDIATE` excludes other writers.

#![warn(missing_docs)]

mod answer;
mod apply;
mod change;
mod connection;
mod delete;
mod error;
mod insert;
mod name;
mod statement;
mod status;
mod stock;
mod version;

/// The version of sqlx whose types are in the signatures of this crate.
///
/// ```no_run
/// use onceward_patterns::sqlx::PgConnection;
/// use onceward_patterns::{Change, PatternError};
///
/// # async fn ship(connection: &mut PgConnection) -> Result<(), PatternError> {
/// let answer = Change::to("orders").key("id", 7_i64).with("status", "shipped").upsert(connection).await?;
/// assert!(answer.is_done());
/// # Ok(())
/// # }
/// ```
#[doc(no_inline)]
pub use ::sqlx;

pub use answer::{Answer, Why};
pub use change::Change;
pub use connection::{RowOf, SqlConnection};
pub use error::PatternError;

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
