//! The number of SQL statements of each change.

use onceward_patterns::Change;
use onceward_tests::database::Postgres;
use sqlx::{PgConnection, Row as _};

use super::said;

const SHOP: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, version BIGINT, deleted BOOLEAN);
    INSERT INTO orders VALUES (1, 'created', 1), (2, 'created', 1), (3, 'created', 1), (4, 'created', 1);
    CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over BIGINT); INSERT INTO stock VALUES ('tea', 10);
    CREATE TABLE flow (request TEXT PRIMARY KEY, returned BOOLEAN)";
const WAY: [&str; 2] = ["created", "paid"];

/// Returns the number of statements that the database has executed on this connection since the last call, by its own count.
/// Statements that begin or end a transaction do not count.
async fn sent(on: &mut PgConnection, before: &mut i64) -> i64 {
    let count = "SELECT CAST(coalesce(sum(generic_plans + custom_plans), 0) AS BIGINT) FROM pg_prepared_statements";
    let all: i64 = sqlx::raw_sql(count).fetch_one(on).await.unwrap().get(0);
    all - std::mem::replace(before, all)
}

#[tokio::test]
async fn change_is_one_statement_and_repetition_two() {
    let database = Postgres::with(SHOP).await;
    let mut on = database.connection().await;
    let mut before = 0;
    let order = |id: i64| Change::<PgConnection>::to("orders").key("id", id);
    let flow = || Change::<PgConnection>::to("flow").key("request", "r");
    let tea = || Change::<PgConnection>::to("stock").key("sku", "tea");
    for (turn, one, look) in [("applied", 1, 2), ("already applied", 2, 1)] {
        let answer = order(8).insert_once(&mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "insert_once");
        let answer = order(9).query_first(&mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, look), "query_first");
        let answer = order(7).with("status", "x").upsert(&mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "upsert");
        let answer = order(1).newer("version", 2, &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "newer");
        let answer = order(2).at_version("version", 1, &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "at_version");
        let answer = order(3).change_status("status", "created", "paid", &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "change_status");
        let answer = order(4).forward("status", &WAY, "paid", &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "forward");
        let answer = order(4).delete("deleted", "version", 1, &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, one), "delete");
        // Writes the record and the stock; or tries the record, and reads it.
        let answer = tea().take("left_over", 1, flow(), &mut on).await.unwrap();
        assert_eq!((said(&answer), sent(&mut on, &mut before).await), (turn, 2), "take");
    }
}
