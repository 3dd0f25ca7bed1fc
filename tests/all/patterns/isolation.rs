//! Every isolation level: one effect, and a transaction with a conflict must be retried.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::store::{Memory, Sql, StoreError};
use onceward::transaction::TxHandle;
use onceward::{Guard, Intent, Key, KeyRules, RunError, RunOutcome, Subject};
use onceward_patterns::{Answer, Change, PatternError};
use onceward_tests::database::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Transaction};

use super::{RACERS, race, repeated, said};

const SHOP: &str =
    "CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over BIGINT); INSERT INTO stock VALUES ('tea', 1000), ('pots', 1000);
    CREATE TABLE flow (request TEXT PRIMARY KEY)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_takes_apply_once_at_every_isolation_level() {
    let database = Postgres::with(SHOP).await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let mut ready = Vec::new();
        for _ in 0..RACERS {
            ready.push(database.connection().await);
        }
        let said = race(ready, move |mut connection| async move {
            repeated!(async {
                let mut transaction = connection.begin().await.unwrap();
                let isolation = format!("SET TRANSACTION ISOLATION LEVEL {level}");
                sqlx::raw_sql(sqlx::AssertSqlSafe(isolation)).execute(&mut *transaction).await.unwrap();
                let flow = Change::to("flow").key("request", level);
                let tea = Change::to("stock").key("sku", "tea");
                let answer = tea.take("left_over", 1, flow, &mut *transaction).await?;
                // The commit can report a conflict too.
                transaction.commit().await.map_err(PatternError::again)?;
                Ok(said(&answer))
            })
        })
        .await;
        assert_eq!(said.iter().filter(|said| **said == "applied").count(), 1, "{level}");
        assert_eq!(said.iter().filter(|said| **said == "already applied").count(), 31, "{level}");
    }
    assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'tea'").await, 997);
    assert_eq!(database.number("SELECT count(*) FROM flow").await, 3);
}

/// Above READ COMMITTED, a transaction does not see rows that were committed since it began, and must not guess.
#[tokio::test]
async fn conflict_with_an_invisible_row_is_temporary() {
    let database = Postgres::with(SHOP).await;
    let (mut one, mut other) = (database.connection().await, database.connection().await);
    let flow = || Change::to("flow").key("request", "r");
    let mut late = one.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    sqlx::query("SELECT count(*) FROM flow").execute(&mut *late).await.unwrap();
    assert!(matches!(flow().insert_once(&mut other).await.unwrap(), Answer::Applied(_)));
    let refused = flow().insert_once(&mut *late).await.map(drop).unwrap_err();
    assert!(matches!(&refused, PatternError::Again(_)) && refused.is_temporary(), "{refused:?}");
    late.rollback().await.unwrap();
    assert!(matches!(flow().insert_once(&mut one).await.unwrap(), Answer::AlreadyApplied(_)));
}

/// Takes one item, and rolls back if that fails, like a caller of the pattern.
async fn take(mut all: Transaction<'_, sqlx::Postgres>, sku: &str, request: &str) -> Result<(), PatternError> {
    let flow = Change::to("flow").key("request", request);
    let taken = Change::to("stock").key("sku", sku).take("left_over", 1, flow, &mut *all).await;
    match &taken {
        Ok(_) => all.commit().await.unwrap(),
        Err(_) => all.rollback().await.unwrap(),
    }
    taken.map(|answer| assert_eq!(said(&answer), "applied"))
}

/// A deadlock: the database aborts one of two transactions, and the other continues.
#[tokio::test]
async fn deadlock_aborts_one_transaction_with_a_temporary_error() {
    let database = Postgres::with(SHOP).await;
    let (mut one, mut other) = (database.connection().await, database.connection().await);
    let (mut one, mut other) = (one.begin().await.unwrap(), other.begin().await.unwrap());
    for (all, sku) in [(&mut one, "tea"), (&mut other, "pots")] {
        let lock = sqlx::query("UPDATE stock SET left_over = left_over - 1 WHERE sku = $1").bind(sku);
        lock.execute(&mut **all).await.unwrap();
    }
    let ends = tokio::join!(take(one, "pots", "1"), take(other, "tea", "2"));
    let (lucky, parted) = if ends.0.is_ok() { ends } else { (ends.1, ends.0) };
    lucky.unwrap();
    let parted = parted.unwrap_err();
    assert!(parted.is_temporary(), "{parted:?}");
    assert_eq!(database.number("SELECT count(*) FROM flow").await, 1);
    assert_eq!(database.number("SELECT CAST(sum(left_over) AS BIGINT) FROM stock").await, 1_998);
}

/// In SQLite, a transaction that has read cannot write after another commit, and waiting does not help.
#[tokio::test]
async fn sqlite_transaction_with_a_stale_read_is_temporary() {
    let database = onceward_tests::database::Sqlite::with(SHOP).await;
    let (mut one, mut other) = (database.connection().await, database.connection().await);
    let flow = || Change::to("flow").key("request", "r");
    let mut late = one.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM flow").execute(&mut *late).await.unwrap();
    assert!(matches!(flow().insert_once(&mut other).await.unwrap(), Answer::Applied(_)));
    let refused = flow().insert_once(&mut *late).await.map(drop).unwrap_err();
    assert!(refused.is_temporary(), "{refused:?}");
}

/// An error of an application that has a pattern's error as its cause.
#[derive(Debug)]
struct OrderError(PatternError);

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("could not record the order")
    }
}

impl Error for OrderError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transact_retries_a_temporary_pattern_error() {
    let database = Postgres::with(SHOP).await;
    Sql::migrate(database.url()).await.unwrap();
    let options: PgConnectOptions = database.url().parse().unwrap();
    let options = options.options([("default_transaction_isolation", "repeatable read")]);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let (guard, tries) = (Guard::new(Memory::new()), AtomicUsize::new(0));
    let key = Key::new("order-1").unwrap();
    let intent = Intent::new("order", Subject::named("alice")).key(&key);
    let flow = || Change::to("flow").key("request", "order-1");
    let work = async |mut transaction: TxHandle<sqlx::Postgres>| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => {
            sqlx::query("SELECT count(*) FROM flow").execute(&mut *transaction).await.unwrap();
            // Committed by another transaction after this one has its snapshot.
            assert!(flow().insert_once(&mut database.connection().await).await.unwrap().is_done());
            flow().insert_once(&mut *transaction).await.map(|answer| said(&answer).to_owned()).map_err(OrderError)
        }
        1 => Err(OrderError(PatternError::again(sqlx::Error::RowNotFound))),
        _ => flow().insert_once(&mut *transaction).await.map(|answer| said(&answer).to_owned()).map_err(OrderError),
    };
    let outcome = guard.transact(&pool, &KeyRules::retryable(), &intent, work).await.unwrap();
    assert!(matches!(&outcome, RunOutcome::Executed(said) if said == "already applied"), "{outcome:?}");
    assert_eq!(tries.load(Ordering::Relaxed), 3);
}

/// A conflict in another store is not a conflict of this transaction.
#[tokio::test]
async fn transact_does_not_retry_an_error_of_another_store() {
    let database = Postgres::with(SHOP).await;
    Sql::migrate(database.url()).await.unwrap();
    let pool = PgPoolOptions::new().connect(database.url()).await.unwrap();
    let (guard, tries) = (Guard::new(Memory::new()), AtomicUsize::new(0));
    let intent = |key| Intent::new("order", Subject::named("alice")).key(key);
    let store_error = || StoreError::not_executed(PatternError::again(sqlx::Error::RowNotFound));
    let (one, other) = (Key::new("order-1").unwrap(), Key::new("order-2").unwrap());
    let work = async |_: TxHandle<sqlx::Postgres>| -> Result<(), StoreError> {
        tries.fetch_add(1, Ordering::Relaxed);
        Err(store_error())
    };
    guard.transact(&pool, &KeyRules::retryable(), &intent(&one), work).await.unwrap_err();
    let nested = async |_: TxHandle<sqlx::Postgres>| -> Result<(), RunError<std::io::Error>> {
        tries.fetch_add(1, Ordering::Relaxed);
        Err(RunError::Store(store_error()))
    };
    guard.transact(&pool, &KeyRules::retryable(), &intent(&other), nested).await.unwrap_err();
    assert_eq!(tries.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn transact_does_not_retry_other_pattern_errors() {
    let database = Postgres::with(SHOP).await;
    Sql::migrate(database.url()).await.unwrap();
    let pool = PgPoolOptions::new().connect(database.url()).await.unwrap();
    let (guard, tries) = (Guard::new(Memory::new()), AtomicUsize::new(0));
    let key = Key::new("order-1").unwrap();
    let intent = Intent::new("order", Subject::named("alice")).key(&key);
    let work = async |_: TxHandle<sqlx::Postgres>| -> Result<(), OrderError> {
        tries.fetch_add(1, Ordering::Relaxed);
        Err(OrderError(PatternError::Database(sqlx::Error::RowNotFound)))
    };
    guard.transact(&pool, &KeyRules::retryable(), &intent, work).await.unwrap_err();
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}
