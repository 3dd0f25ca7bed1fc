//! The recipe with `SELECT … FOR UPDATE`, and its cost.

use std::time::Duration;

use onceward_tests::database::{Postgres, Sqlite};
use onceward_tests::polling::until;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection};

use super::{RACERS, race};

const ORDERS: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL);
    INSERT INTO orders VALUES (7, 0), (8, 0)";
const LONG: Duration = Duration::from_secs(30);

/// Reads the number and writes it plus one.
async fn count_up(connection: &mut PgConnection, look: &'static str) {
    let mut transaction = connection.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(look).fetch_one(&mut *transaction).await.unwrap();
    let write = sqlx::query("UPDATE orders SET paid = $1 WHERE id = 7").bind(seen + 1);
    write.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

/// R82: the lock serializes the transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_with_a_lock_lose_nothing() {
    let database = Postgres::with(ORDERS).await;
    let mut ready = Vec::new();
    for _ in 0..RACERS {
        ready.push(database.connection().await);
    }
    race(ready, |mut connection| async move {
        count_up(&mut connection, "SELECT paid FROM orders WHERE id = 7 FOR UPDATE").await;
    })
    .await;
    assert_eq!(database.number("SELECT paid FROM orders WHERE id = 7").await, RACERS);
}

/// The naive code: the same without the lock.
#[tokio::test]
async fn naive_update_without_a_lock_loses_a_write() {
    let database = Postgres::with(ORDERS).await;
    let (mut one, mut other) = (database.connection().await, database.connection().await);
    let look = "SELECT paid FROM orders WHERE id = 7";
    let mut first = one.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(look).fetch_one(&mut *first).await.unwrap();
    count_up(&mut other, look).await;
    let write = sqlx::query("UPDATE orders SET paid = $1 WHERE id = 7").bind(seen + 1);
    write.execute(&mut *first).await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(database.number(look).await, 1, "one of two payments is lost");
}

/// R51: every transaction that waits for a lock occupies a connection of the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lock_exhausts_the_connection_pool() {
    let database = Postgres::with(ORDERS).await;
    let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(3));
    let pool = pool.connect(database.url()).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    let lock = "SELECT paid FROM orders WHERE id = 7 FOR UPDATE";
    sqlx::query(lock).execute(&mut *holder).await.unwrap();
    let waits = tokio::spawn({
        let pool = pool.clone();
        async move { sqlx::query(lock).execute(&pool).await }
    });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    until("the second waits for the lock", LONG, || async { database.number(waiting).await == 1 }).await;
    let another = sqlx::query("SELECT paid FROM orders WHERE id = 8").execute(&pool).await;
    assert!(
        matches!(another, Err(sqlx::Error::PoolTimedOut)),
        "a query on another row gets no connection: {another:?}"
    );
    holder.commit().await.unwrap();
    waits.await.unwrap().unwrap();
}

/// In SQLite, `BEGIN IMMEDIATE` locks the whole database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_begin_immediate_is_the_lock() {
    let database = Sqlite::with(ORDERS).await;
    let mut ready = Vec::new();
    for _ in 0..RACERS {
        ready.push(database.connection().await);
    }
    race(ready, |mut connection| async move {
        let mut transaction = connection.begin_with(Sqlite::BEGIN).await.unwrap();
        let look = sqlx::query_scalar("SELECT paid FROM orders WHERE id = 7");
        let seen: i64 = look.fetch_one(&mut *transaction).await.unwrap();
        let write = sqlx::query("UPDATE orders SET paid = $1 WHERE id = 7").bind(seen + 1);
        write.execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
    })
    .await;
    assert_eq!(database.number("SELECT paid FROM orders WHERE id = 7").await, RACERS);
}
