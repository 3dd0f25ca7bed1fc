//! Records in the transaction of the business: committed with its rows, or not at all.
//!
//! Between an effect and a record in another place there is always a moment at which a crash leaves one without the other. Here
//! both are rows of one database and one commit. [`Guard::transact`](crate::Guard::transact) does all of it:
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
//! Whoever has a transaction already claims in it with [`claim_in`]. The row is inserted first, under a name that is unique over subject,
//! action and key, so that a second transaction waits for the first: if that is rolled back the second goes on, and if it is
//! committed the second gets its answer.
//!
//! # What it costs
//!
//! [`claim_in`] is one statement, of a duplicate too, unless it had to wait for the first, when it is two. Keeping an answer is another one
//! ([`TxClaim::complete_in`]); who can make it up beforehand, or does not need it, does without. On SQLite each of the two also asks
//! for the time of the file.
//!
//! Whoever waits for the first holds a connection of the pool meanwhile, and waits for as long as the first takes. On PostgreSQL set
//! `lock_timeout`, as an option of the connection or for the role: whoever has waited for that long is refused as
//! [in progress](crate::api::Code::InProgress), and his transaction is to be rolled back.
//!
//! # What names a record
//!
//! Subject, action and key, and nothing else: two applications whose tables of Onceward are the same get each other's answers, if all
//! three are the same. Give each a schema of its own, or let its actions begin with its name. The prefix of a
//! [`Sql`](crate::store::Sql) store is not in it.
//!
//! # How long a record lives
//!
//! For [`retain`](crate::KeyRules::retain), from minutes to a year, each operation as it wants. What has expired is as good as absent, and
//! is removed by [`keep_clean`], or by a [`Sql`](crate::store::Sql) store on the same database.
//!
//! It also is how long it can be found out what became of a commit whose answer was lost: let it be a minute at least.
//!
//! It runs from when the answer is written, at the end of the transaction. Of a claim whose answer is never written it runs from the claim:
//! then let it be longer than the transaction takes, or a duplicate that has waited for the commit finds it over, and goes on.

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

/// Claims what is asked in a transaction: of all transactions that do so, one is committed.
///
/// Do this first, before anything that the transaction is about, so that a duplicate does not do it and then throw it away. On SQLite begin
/// it with `BEGIN IMMEDIATE`.
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
/// If the database does not take it. After [`ClaimError::RetryTransaction`] the whole transaction is to be begun again.
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

/// Removes what has expired for as long as it is polled, a few rows at a time. Run it in a task of its own:
///
/// ```no_run
/// # async fn begin(pool: sqlx::PgPool) {
/// tokio::spawn(async move { onceward::transaction::keep_clean(&pool).await });
/// # }
/// ```
pub async fn keep_clean<DB: Dialect>(pool: &Pool<DB>) {
    crate::store::sql::keep_clean(pool).await;
}
