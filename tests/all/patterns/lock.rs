//! The recipe with `SELECT … FOR UPDATE`, and what it costs.

use std::time::Duration;

use onceward_tests::database::{Postgres, Sqlite};
use onceward_tests::polling::until;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection};

use super::{RACERS, race};

const ORDERS: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL);
    INSERT INTO orders VALUES (7, 0), (8, 0)";
const LONG: Duration = Duration::from_secs(30);

/// Reads, and writes one more.
async fn count_up(connection: &mut PgConnection, look: &'static str) {
    let mut transaction = connection.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(look).fetch_one(&mut *transaction).await.unwrap();
    let write = sqlx::query("UPDATE orders SET paid = $1 WHERE id = 7").bind(seen + 1);
    write.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

/// R82: one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_32_that_look_with_a_lock_none_writes_over_another() {
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

/// What is usually written: the same without the lock.
#[tokio::test]
async fn to_look_without_a_lock_loses_what_another_wrote() {
    let database = Postgres::with(ORDERS).await;
    let (mut one, mut other) = (database.connection().await, database.connection().await);
    let look = "SELECT paid FROM orders WHERE id = 7";
    let mut first = one.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(look).fetch_one(&mut *first).await.unwrap();
    count_up(&mut other, look).await;
    let write = sqlx::query("UPDATE orders SET paid = $1 WHERE id = 7").bind(seen + 1);
    write.execute(&mut *first).await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(database.number(look).await, 1, "of two payments one is left");
}

/// R51: each that waits for a lock has a connection in his hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_for_long_leaves_no_connection_for_anybody_else() {
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
    assert!(matches!(another, Err(sqlx::Error::PoolTimedOut)), "who wants another row gets no connection: {another:?}");
    holder.commit().await.unwrap();
    waits.await.unwrap().unwrap();
}

/// SQLite: the whole database is the lock, taken at the begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_begin_immediate_is_the_lock() {
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
