//! Records in the transaction of your application, committed together with its rows.
//!
//! If the effect and its record are in different stores, a crash can leave one without the other. Here both are rows of one database,
//! written in one commit. [`Guard::transact`](crate::Guard::transact) runs the whole transaction:
//!
//! ```
//! use onceward::store::{Memory, Sql};
//! use onceward::transaction::TxHandle;
//! use onceward::{Guard, Intent, Key, KeyRules, RunOutcome, Subject};
//! use sqlx::SqlitePool;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! # let folder = std::env::temp_dir().join(format!("onceward-{}", uuid::Uuid::new_v4()));
//! let address = format!("sqlite:{}", folder.display());
//! Sql::migrate(&address).await?;
//! let pool = SqlitePool::connect(&address).await?;
//! sqlx::raw_sql("CREATE TABLE orders (item TEXT)").execute(&pool).await?;
//!
//! let guard = Guard::new(Memory::new());
//! let key = Key::new("order-4711")?;
//! let intent = Intent::new("place order", Subject::named("alice")).key(&key);
//! let order = |mut transaction: TxHandle<sqlx::Sqlite>| async move {
//!     sqlx::query("INSERT INTO orders VALUES ('book')").execute(&mut *transaction).await?;
//!     Ok::<_, sqlx::Error>("ordered".to_owned())
//! };
//! let rules = KeyRules::retryable();
//! assert_eq!(guard.transact(&pool, &rules, &intent, order).await?, RunOutcome::Executed("ordered".to_owned()));
//! assert_eq!(guard.transact(&pool, &rules, &intent, order).await?, RunOutcome::Replayed("ordered".to_owned()));
//! # std::fs::remove_file(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Inside of your own transaction, claim with [`claim_in`]. It inserts a row under a name that is unique over subject, action and key, so a
//! second transaction waits for the first. If the first is rolled back, the second continues. If the first is committed, the second
//! receives its reply.
//!
//! # Cost
//!
//! [`claim_in`] takes one statement, also for a duplicate, or two if it had to wait for the first transaction. Storing a reply
//! ([`TxClaim::complete_in`]) takes another; omit it if duplicates can derive the reply or do not need it. On SQLite, both also read the
//! clock in the database file, and a duplicate takes one more statement.
//!
//! A transaction that waits for the first holds a connection of the connection pool until the first ends. On PostgreSQL set `lock_timeout`,
//! as an option of the connection or for the role: after this timeout, the waiting transaction is rejected as
//! [in progress](crate::api::Code::InProgress), and must be rolled back.
//!
//! # Record names
//!
//! The name of a record depends on subject, action and key only. Two applications that share the tables of Onceward receive each other's
//! replies if all three are equal. Give each application its own schema, or prefix its actions with its name. The prefix of a
//! [`Sql`](crate::store::Sql) store is not part of the name.
//!
//! # Retention
//!
//! A record lives for [`retain`](crate::KeyRules::retain), from minutes to a year, which each operation sets itself. An expired record
//! counts as absent. It is removed by [`keep_clean`], or by a [`Sql`](crate::store::Sql) store on the same database.
//!
//! The retention also limits the time in which you can look up the outcome of a commit whose reply was lost. Set it to at least a minute.
//!
//! The retention starts when the reply is written, at the end of the transaction. Without a reply it starts with the claim. In that case
//! set it longer than the transaction takes: otherwise a duplicate that has waited for the commit finds the record expired, and runs.

mod claim;
mod error;
mod handle;
pub(crate) mod run;

use sqlx::{Pool, Transaction};

pub use self::claim::{TxClaim, TxVerdict};
pub use self::error::ClaimError;
pub use self::handle::TxHandle;
use crate::intent::Intent;
use crate::policy::KeyRules;
pub use crate::store::sql::Dialect;

/// Claims an intent in a transaction. Of all transactions that claim the same intent, one is committed.
///
/// Claim before any other statement of the transaction, so that a duplicate does no work that it then discards. On SQLite begin the
/// transaction with `BEGIN IMMEDIATE`.
///
/// ```no_run
/// use onceward::transaction::{TxVerdict, claim_in};
/// use onceward::{Intent, Key, KeyRules, Reply, Subject};
///
/// # async fn pay(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let key = Key::of_parts(["billing", "4711"])?;
/// let intent = Intent::new("pay", Subject::named("alice")).key(&key);
/// let mut transaction = pool.begin().await?;
/// match claim_in(&mut transaction, &KeyRules::retryable(), &intent).await? {
///     TxVerdict::Run(claimed) => {
///         sqlx::query("INSERT INTO payments VALUES (4711)").execute(&mut *transaction).await?;
///         claimed.complete_in(&mut transaction, Reply::new(201, "paid")).await?;
///         transaction.commit().await?;
///     }
///     TxVerdict::Done(reply) => println!("paid before: {reply:?}"),
///     TxVerdict::Reject(rejection) => println!("{}", rejection.code()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the database rejects the claim. After [`ClaimError::RetryTransaction`], repeat the whole transaction.
///
/// # Cancel safety
///
/// Dropping this future leaves the claim open: roll the transaction back.
pub async fn claim_in<DB: Dialect>(
    transaction: &mut Transaction<'_, DB>,
    rules: &KeyRules,
    intent: &Intent<'_>,
) -> Result<TxVerdict, ClaimError> {
    match TxClaim::of(rules, intent) {
        Ok(claimed) => claimed.enter(transaction).await,
        Err(rejection) => Ok(TxVerdict::Reject(rejection)),
    }
}

/// Removes expired records in small batches, for as long as it is polled. Run it in a separate task:
///
/// ```no_run
/// # async fn begin(pool: sqlx::PgPool) {
/// tokio::spawn(async move { onceward::transaction::keep_clean(&pool).await });
/// # }
/// ```
///
/// # Cancel safety
///
/// Cancel safe: dropping this future stops the removal.
pub async fn keep_clean<DB: Dialect>(pool: &Pool<DB>) {
    crate::store::sql::keep_clean(pool).await;
}
