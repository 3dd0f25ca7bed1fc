//! Changes to rows of your own tables that may be requested twice: small typed helpers for PostgreSQL and SQLite.
//!
//! A [`Change`] names a row by its key and says what is to be in it; the verb that ends it says how a repetition is
//! recognised. Each works on a connection or, as `&mut *transaction`, within your transaction, and gives an [`Answer`]:
//! *applied*, *already applied* with the earlier result, or *refused*, and why.
//!
//! ```no_run
//! use onceward_patterns::{Answer, Change};
//! use sqlx::{PgPool, Row as _};
//!
//! # async fn pay(pool: PgPool) -> Result<String, Box<dyn std::error::Error>> {
//! let mut transaction = pool.begin().await?;
//! let payment = Change::to("payments").key("order_no", "4711").with("cents", 900_i64);
//! let said = match payment.insert_once(&mut *transaction).await? {
//!     Answer::Applied(row) => format!("paid, with receipt {}", row.get::<i64, _>("receipt")),
//!     Answer::AlreadyApplied(row) => format!("paid before, with receipt {}", row.get::<i64, _>("receipt")),
//!     Answer::Rejected(_) => "this order was paid with another amount".to_owned(),
//! };
//! transaction.commit().await?;
//! # Ok(said)
//! # }
//! ```
//!
//! | the row has | verb | a repetition is known by |
//! |---|---|---|
//! | a key that means one business event | [`insert_once`](Change::insert_once) | its key, and the same content |
//! | a sender that numbers its messages | [`query_first`](Change::query_first) | source and seq |
//! | a key, and the last word counts | [`upsert`](Change::upsert) | its content |
//! | a version that the sender counts | [`newer`](Change::newer), [`upsert_newer`](Change::upsert_newer) | the version |
//! | a version that the reader has seen | [`at_version`](Change::at_version) | the next version, with the same content |
//! | a status | [`change_status`](Change::change_status) | the target, with the same data |
//! | a status on a way with an order | [`forward`](Change::forward), [`upsert_forward`](Change::upsert_forward) | the target, with the same data |
//! | something to be counted down | [`take`](Change::take), [`give_back`](Change::give_back) | the record of the request |
//! | an end | [`delete`](Change::delete) | mark and version |
//!
//! One statement decides in each of them, whoever else is at it; only where it changed nothing is the row looked at, to say
//! why. The row in an answer has every column, as sqlx gives it.
//!
//! # Isolation
//!
//! Any level will do. Above READ COMMITTED, and on SQLite, the database may answer that another transaction was in the
//! way: [`PatternError::Again`], and the whole transaction is repeated. On SQLite begin with
//! `begin_with("BEGIN IMMEDIATE")`, so that a transaction waits at its beginning and does not fail in its middle.
//!
//! # Looking with a lock
//!
//! Where a decision needs more than one condition can say, read the row with a lock, decide, and write:
//!
//! ```no_run
//! # async fn ship(pool: sqlx::PgPool) -> Result<(), sqlx::Error> {
//! let mut transaction = pool.begin().await?;
//! let order = "SELECT status FROM orders WHERE id = $1 FOR UPDATE";
//! let status: String = sqlx::query_scalar(order).bind(7_i64).fetch_one(&mut *transaction).await?;
//! if status == "paid" {
//!     // Nobody else gets here with this order before the commit.
//!     sqlx::query("UPDATE orders SET status = 'shipped' WHERE id = $1").bind(7_i64).execute(&mut *transaction).await?;
//! }
//! transaction.commit().await
//! # }
//! ```
//!
//! It costs: everybody else who wants the row waits, each with a connection of the pool in his hand, so that a slow holder of
//! one row can stop requests for all others; without a primary or unique key it locks more than was meant. Do nothing slow
//! between the lock and the commit, call nobody, and set `lock_timeout`. SQLite has no such lock and needs none: `BEGIN
//! IMMEDIATE` keeps every other writer out.

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
