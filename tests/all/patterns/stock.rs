//! Stock: the last item, repeated and concurrent purchases, and returns.

use std::time::Duration;

use onceward_patterns::{Answer, Change, PatternError, SqlConnection, Why};
use onceward_tests::database::Postgres;
use onceward_tests::polling::until;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::{RACERS, count, on_both, race, repeated, said};

/// R69: the key of a record has the buyer, the operation and the request id, so that two operations under one id do not collide.
const SHOP: &str = "CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over BIGINT NOT NULL, shelf BIGINT);
    INSERT INTO stock VALUES ('tea', 10, 1), ('last', 1, 1), ('pots', 5, 1);
    CREATE TABLE flow (buyer BIGINT NOT NULL, operation TEXT NOT NULL, request TEXT NOT NULL, sku TEXT, amount BIGINT,
        returned BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (buyer, operation, request))";

fn stock<C: SqlConnection>(sku: &'static str) -> Change<C>
where
    &'static str: sqlx::Encode<'static, C::Database> + sqlx::Type<C::Database>,
{
    Change::to("stock").key("sku", sku)
}

fn flow<C: SqlConnection>(buyer: i64, request: &'static str, sku: &'static str, amount: i64) -> Change<C>
where
    &'static str: sqlx::Encode<'static, C::Database> + sqlx::Type<C::Database>,
    i64: sqlx::Encode<'static, C::Database> + sqlx::Type<C::Database>,
{
    let who = Change::to("flow").key("buyer", buyer).key("operation", "buy").key("request", request);
    who.with("sku", sku).with("amount", amount)
}

on_both! {
    /// R70: the record is written before the update. R71: the same request with other data is `different`.
    async fn repeated_purchase_of_the_last_item_is_already_applied(SHOP => database) {
        let mut connection = database.connection().await;
        for (buyer, sku, amount, expected) in [
            (7, "last", 1, "applied"),
            (7, "last", 1, "already applied"),
            (8, "last", 1, "unmet"),
            (7, "tea", 1, "different"),
            (7, "last", 2, "different"),
        ] {
            let answer = stock(sku).take("left_over", amount, flow(buyer, "r", sku, amount), &mut connection).await.unwrap();
            assert_eq!(said(&answer), expected, "{buyer} {sku} {amount}");
        }
        assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'last'").await, 0);
        assert_eq!(database.number("SELECT count(*) FROM flow").await, 1, "a rejection leaves no record");
    }

    /// The naive code updates the stock first, then writes the record.
    async fn naive_record_after_the_stock_reports_sold_out(SHOP => database) {
        let mut connection = database.connection().await;
        let mut results = Vec::new();
        for _ in 0..2 {
            let take = "UPDATE stock SET left_over = left_over - 1 WHERE sku = 'last' AND left_over >= 1";
            if sqlx::query(take).execute(&mut connection).await.unwrap().rows_affected() == 0 {
                results.push("sold out");
                continue;
            }
            let record = "INSERT INTO flow (buyer, operation, request, sku, amount) VALUES (7, 'buy', 'r', 'last', 1)";
            sqlx::query(record).execute(&mut connection).await.unwrap();
            results.push("bought");
        }
        assert_eq!(results, ["bought", "sold out"], "the naive code reports a false result to the buyer");
    }

    /// R83: a conditional update by the row's own key. 16 buyers want 10 items, and each sends the request twice.
    async fn concurrent_purchases_never_oversell_or_repeat(SHOP => database) {
        let mut ready = Vec::new();
        for racer in 0..RACERS {
            ready.push((racer / 2, database.connection().await));
        }
        let answers = race(ready, |(buyer, mut connection)| async move {
            repeated!(stock("tea").take("left_over", 1, flow(buyer, "r", "tea", 1), &mut connection))
        })
        .await;
        let (sold, again) = (count(&answers, "applied"), count(&answers, "already applied"));
        assert_eq!((sold, sold + again + count(&answers, "unmet")), (10, 32));
        assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'tea'").await, 0);
        assert_eq!(database.number("SELECT count(*) FROM flow").await, 10);
        assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'pots'").await, 5);
    }

    /// The naive code reads the stock and writes one less.
    async fn naive_read_then_write_sells_one_item_twice(SHOP => database) {
        let (mut one, mut other) = (database.connection().await, database.connection().await);
        let look = "SELECT left_over FROM stock WHERE sku = 'last'";
        let seen: [i64; 2] = [
            sqlx::query_scalar(look).fetch_one(&mut one).await.unwrap(),
            sqlx::query_scalar(look).fetch_one(&mut other).await.unwrap(),
        ];
        let mut sold = 0;
        for (seen, connection) in seen.into_iter().zip([&mut one, &mut other]) {
            if seen >= 1 {
                let write = sqlx::query("UPDATE stock SET left_over = $1 WHERE sku = 'last'").bind(seen - 1);
                sold += write.execute(connection).await.unwrap().rows_affected();
            }
        }
        assert_eq!(sold, 2, "the naive code sells the last item twice");
    }

    async fn return_is_applied_once_and_can_be_sold_again(SHOP => database) {
        let mut connection = database.connection().await;
        let bought = stock("last").take("left_over", 1, flow(7, "r", "last", 1), &mut connection).await.unwrap();
        assert_eq!(said(&bought), "applied");
        let other = stock("last").give_back("left_over", 2, flow(7, "r", "last", 2), "returned", &mut connection).await.unwrap();
        assert_eq!(said(&other), "different", "the request took one");
        let none = stock("last").give_back("left_over", 1, flow(8, "r", "last", 1), "returned", &mut connection).await.unwrap();
        assert!(matches!(none, Answer::Rejected(Why::Missing(table)) if table == "flow"), "buyer 8 took nothing");

        let mut ready = Vec::new();
        for _ in 0..RACERS {
            ready.push(database.connection().await);
        }
        let answers = race(ready, |mut connection| async move {
            repeated!(stock("last").give_back("left_over", 1, flow(7, "r", "last", 1), "returned", &mut connection))
        })
        .await;
        assert_eq!((count(&answers, "applied"), count(&answers, "already applied")), (1, 31));
        assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'last'").await, 1);
        let next = stock("last").take("left_over", 1, flow(8, "r", "last", 1), &mut connection).await.unwrap();
        assert_eq!(said(&next), "applied");
    }

    async fn rejected_purchase_succeeds_with_more_stock(SHOP => database) {
        let mut connection = database.connection().await;
        let refused = stock("last").take("left_over", 3, flow(7, "r", "last", 3), &mut connection).await.unwrap();
        assert_eq!(refused.map(|row| row.get::<i64, _>("left_over")), Answer::Rejected(Why::Unmet(1)));
        database.execute("UPDATE stock SET left_over = 3 WHERE sku = 'last'").await;
        let taken = stock("last").take("left_over", 3, flow(7, "r", "last", 3), &mut connection).await.unwrap();
        assert_eq!(taken.map(|row| row.get::<String, _>("request")), Answer::Applied("r".to_owned()));
    }

    /// Both or neither: in the caller's transaction, or in its own.
    async fn record_and_stock_change_together(SHOP => database) {
        let mut connection = database.connection().await;
        let mut transaction = connection.begin_with(BEGIN).await.unwrap();
        let taken = stock("tea").take("left_over", 4, flow(7, "r", "tea", 4), &mut *transaction).await.unwrap();
        let refused = stock("tea").take("left_over", 9, flow(7, "r2", "tea", 9), &mut *transaction).await.unwrap();
        assert_eq!((said(&taken), said(&refused)), ("applied", "unmet"));
        let inside: i64 = sqlx::query_scalar("SELECT count(*) FROM flow").fetch_one(&mut *transaction).await.unwrap();
        assert_eq!(inside, 1, "the rejection removes only its own record");
        transaction.rollback().await.unwrap();
        assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'tea'").await, 10);
        assert_eq!(database.number("SELECT count(*) FROM flow").await, 0);

        let none = stock("cups").take("left_over", 1, flow(7, "r", "cups", 1), &mut connection).await.unwrap();
        assert!(matches!(none, Answer::Rejected(Why::Missing(table)) if table == "stock"));
        assert_eq!(database.number("SELECT count(*) FROM flow").await, 0);
    }

    /// R83: a key that matches several rows takes from none of them.
    async fn stock_key_must_match_one_row(SHOP => database) {
        let mut connection = database.connection().await;
        let shelf = Change::to("stock").key("shelf", 1_i64);
        let refused = shelf.take("left_over", 1, flow(7, "r", "tea", 1), &mut connection).await;
        assert!(matches!(refused, Err(PatternError::NotUnique { table, key }) if table == "stock" && key == "shelf"));
        assert_eq!(database.number("SELECT CAST(sum(left_over) AS BIGINT) FROM stock").await, 16);
        assert_eq!(database.number("SELECT count(*) FROM flow").await, 0);
        for amount in [0, -1, i64::MIN] {
            let refused = stock("tea").take("left_over", amount, flow(7, "r", "tea", 1), &mut connection).await;
            assert!(matches!(refused, Err(PatternError::Amount(given)) if given == amount));
        }
    }
}

/// PostgreSQL ends the connection after the record is written and before the stock is: the caller receives an error and may retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_lost_before_the_stock_update_leaves_nothing() {
    let database = Postgres::with(SHOP).await;
    let mut holder = database.connection().await;
    let mut lock = holder.begin().await.unwrap();
    sqlx::query("SELECT sku FROM stock WHERE sku = 'tea' FOR UPDATE").execute(&mut *lock).await.unwrap();

    let mut dying: PgConnection = database.connection().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut dying).await.unwrap();
    let take = async move { stock("tea").take("left_over", 1, flow(7, "r", "tea", 1), &mut dying).await.map(drop) };
    let take = tokio::spawn(take);
    let waiting = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'");
    until("it waits for the stock", Duration::from_secs(30), || async { database.number(&waiting).await == 1 }).await;
    database.execute(&format!("SELECT pg_terminate_backend({pid})")).await;
    let died = take.await.unwrap().unwrap_err();
    assert!(matches!(died, PatternError::Database(_)), "{died:?}");
    lock.rollback().await.unwrap();
    assert_eq!(database.number("SELECT count(*) FROM flow").await, 0);
    assert_eq!(database.number("SELECT left_over FROM stock WHERE sku = 'tea'").await, 10);

    for expected in ["applied", "already applied"] {
        let mut connection = database.connection().await;
        let answer = stock("tea").take("left_over", 1, flow(7, "r", "tea", 1), &mut connection).await.unwrap();
        assert_eq!(said(&answer), expected);
    }
}
