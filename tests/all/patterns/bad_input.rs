//! An invalid change is an error that says what to do, and changes nothing.

use std::error::Error as _;

use onceward_patterns::{Change, PatternError};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::{Connection as _, PgConnection, Row as _};

use super::{on_both, repeated, said};

const ORDERS: &str =
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT, \"group\" TEXT, total INTEGER, version INTEGER);
    INSERT INTO orders VALUES (7, 'open', 'a', 1, 1), (8, 'open', 'a', 1, 1)";

on_both! {
    /// D16: text from a client was put into the statement. Values are always bound, and an invalid table or column name is
    /// rejected at every place.
    async fn d16_client_text_never_becomes_sql(ORDERS => database) {
        let mut connection = database.connection().await;
        let evil = ["'; DROP TABLE orders; --", "\" OR 1 = 1 --", "$1", "open' OR '1' = '1", "\\", "?1", "x\u{2019}y"];
        for (number, text) in evil.into_iter().enumerate() {
            let id = 100 + number as i64;
            let row = Change::to("orders").key("id", id).with("status", text).with("group", text);
            assert_eq!(said(&row.insert_once(&mut connection).await.unwrap()), "applied");
            let moved = Change::to("orders").key("id", id).with("group", "b").change_status("status", text, "open", &mut connection).await.unwrap();
            assert_eq!(said(&moved), "applied", "{text}");
            let back = Change::to("orders").key("id", id).forward("status", &["open", text], text, &mut connection).await.unwrap();
            assert_eq!(back.row().unwrap().get::<String, _>("status"), text);
        }
        assert_eq!(database.number("SELECT count(*) FROM orders").await, 2 + evil.len() as i64);

        for text in evil {
            let name = |refused: Result<(), PatternError>| matches!(refused, Err(PatternError::Name(name)) if name == text);
            let at = |table: &str, key: &str, with: &str, note: &str| {
                Change::<Connection>::to(table).key(key, 7_i64).with(with, "x").noting(note, "y")
            };
            assert!(name(at(text, "id", "status", "group").upsert(&mut connection).await.map(drop)));
            assert!(name(at("orders", text, "status", "group").insert_once(&mut connection).await.map(drop)));
            assert!(name(at("orders", "id", text, "group").query_first(&mut connection).await.map(drop)));
            assert!(name(at("orders", "id", "status", text).upsert(&mut connection).await.map(drop)));
            let row = || Change::<Connection>::to("orders").key("id", 7_i64);
            assert!(name(row().newer(text, 1, &mut connection).await.map(drop)));
            assert!(name(row().at_version(text, 1, &mut connection).await.map(drop)));
            assert!(name(row().change_status(text, "open", "paid", &mut connection).await.map(drop)));
            assert!(name(row().forward(text, &["open"], "open", &mut connection).await.map(drop)));
            assert!(name(row().delete(text, "version", 1, &mut connection).await.map(drop)));
            assert!(name(row().delete("status", text, 1, &mut connection).await.map(drop)));
            assert!(name(row().take(text, 1, row(), &mut connection).await.map(drop)));
            assert!(name(row().give_back("total", 1, row(), text, &mut connection).await.map(drop)));
        }
        assert_eq!(database.text("SELECT status FROM orders WHERE id = 7").await, "open");
    }

    async fn invalid_change_names_what_is_missing(ORDERS => database) {
        let mut connection = database.connection().await;
        let row = || Change::<Connection>::to("orders").key("id", 7_i64);
        for (refused, expected) in [
            (Change::to("orders").with("status", "x").upsert(&mut connection).await, "call key(column, value)"),
            (row().upsert(&mut connection).await, "sets no column"),
            (row().with("status", "x").with("status", "y").upsert(&mut connection).await, "status is set twice"),
            (row().with("version", 3_i64).newer("version", 3, &mut connection).await, "version is set twice"),
            (row().key("status", None::<String>).insert_once(&mut connection).await, "the key status is NULL"),
            (row().change_status("status", "open", "open", &mut connection).await, "invalid target status"),
            (row().forward("status", &["open"], "paid", &mut connection).await, "invalid target status"),
            (row().take("total", 0, row(), &mut connection).await, "0 is not a valid amount"),
            (Change::to("orders").key("status", "open").insert_once(&mut connection).await, "CREATE UNIQUE INDEX ON orders (status)"),
            (
                Change::to("orders").key("status", "open").with("group", "b").at_version("version", 1, &mut connection).await,
                "orders has more than one row with this status",
            ),
        ] {
            let error = refused.map(drop).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 'open' AND \"group\" = 'a' AND version = 1").await, 2);
    }

    /// SQLite treats an unknown quoted name as a string, so a condition on it would silently be false.
    async fn unknown_table_or_column_is_an_error(ORDERS => database) {
        let mut connection = database.connection().await;
        let row = || Change::<Connection>::to("orders").key("id", 7_i64);
        for refused in [
            Change::to("order_s").key("id", 7_i64).insert_once(&mut connection).await,
            Change::to("orders").key("idd", 7_i64).with("status", "x").at_version("version", 1, &mut connection).await,
            row().with("statu", "x").insert_once(&mut connection).await,
            row().change_status("statu", "open", "paid", &mut connection).await,
            row().newer("versio", 3, &mut connection).await,
            row().delete("delete", "version", 1, &mut connection).await,
            row().take("tota", 1, Change::to("orders").key("id", 9_i64), &mut connection).await,
        ] {
            let refused = refused.map(drop).unwrap_err();
            assert!(matches!(&refused, PatternError::Database(_)), "{refused:?}");
            assert!(!refused.is_temporary());
        }
        assert_eq!(database.number("SELECT count(*) FROM orders").await, 2);
    }

    /// sqlx caches a prepared statement by its text, with the types of its first execution.
    async fn statement_with_other_value_types_is_prepared_again(ORDERS => database) {
        let mut connection = database.connection().await;
        let row = || Change::<Connection>::to("orders").key("id", 7_i64);
        for _ in 0..2 {
            assert_eq!(said(&row().with("total", 1_i64).insert_once(&mut connection).await.unwrap()), "already applied");
            assert_eq!(said(&row().with("total", 1_i32).insert_once(&mut connection).await.unwrap()), "already applied");
            assert_eq!(said(&row().with("total", Some(1_i16)).insert_once(&mut connection).await.unwrap()), "already applied");
            assert_eq!(said(&row().with("total", None::<i64>).insert_once(&mut connection).await.unwrap()), "different");
            let noting = row().with("total", 1_i64).noting("group", "z").insert_once(&mut connection).await.unwrap();
            assert_eq!(said(&noting), "already applied", "a parameter of the insert alone");
        }
    }

    /// A prepared statement has the columns that its table had at that time.
    async fn altered_table_is_prepared_again(ORDERS => database) {
        let mut connection = database.connection().await;
        let row = || Change::<Connection>::to("orders").key("id", 7_i64).with("total", 1_i64);
        assert_eq!(said(&row().insert_once(&mut connection).await.unwrap()), "already applied");
        database.execute("ALTER TABLE orders ADD COLUMN note TEXT DEFAULT '2'").await;
        let again = repeated!(async {
            let mut transaction = connection.begin_with(BEGIN).await.unwrap();
            let answer = row().insert_once(&mut *transaction).await?;
            transaction.commit().await.unwrap();
            Ok(answer)
        });
        assert_eq!(said(&again), "already applied");
        assert_eq!(again.row().unwrap().get::<String, _>("note"), "2");
    }

    /// Columns narrower than the bound values, and reserved words as column names.
    async fn narrow_columns_and_reserved_words_are_supported(ORDERS => database) {
        let mut connection = database.connection().await;
        let row = |total: i64| Change::<Connection>::to("orders").key("id", 7_i64).with("total", total).with("group", "select");
        assert_eq!(said(&row(5).newer("version", 2, &mut connection).await.unwrap()), "applied");
        assert_eq!(said(&row(5).newer("version", 2, &mut connection).await.unwrap()), "already applied");
        assert_eq!(said(&row(6).at_version("version", 2, &mut connection).await.unwrap()), "applied");
        assert_eq!(said(&row(6).at_version("version", 2, &mut connection).await.unwrap()), "already applied");
    }
}

/// After an error, PostgreSQL rejects all further statements of a transaction.
#[tokio::test]
async fn aborted_transaction_must_be_rolled_back() {
    let database = onceward_tests::database::Postgres::with(ORDERS).await;
    let mut connection = database.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await.unwrap_err();
    let row = Change::<PgConnection>::to("orders").key("id", 9_i64);
    let refused = row.insert_once(&mut *transaction).await.map(drop).unwrap_err();
    assert!(!refused.is_temporary());
    assert!(refused.to_string().contains("roll back"), "{refused}");
    let cause = refused.source().unwrap().to_string();
    assert!(cause.contains("current transaction is aborted"), "{cause}");
}

/// PostgreSQL rejects a key that is too long for an index, and nothing is truncated.
#[tokio::test]
async fn key_too_long_for_the_index_is_rejected() {
    let database = onceward_tests::database::Postgres::with("CREATE TABLE long (name TEXT PRIMARY KEY)").await;
    let mut connection = database.connection().await;
    let name: String = std::iter::repeat_with(fastrand::alphanumeric).take(10_000).collect();
    let row = Change::<PgConnection>::to("long").key("name", name);
    let refused = row.insert_once(&mut connection).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("index row"), "{refused}");
    assert_eq!(database.number("SELECT count(*) FROM long").await, 0);
}

/// A table in another schema.
#[tokio::test]
async fn table_may_have_a_schema() {
    let database = onceward_tests::database::Postgres::with(
        "CREATE SCHEMA shop; CREATE TABLE shop.orders (id BIGINT PRIMARY KEY)",
    )
    .await;
    let mut connection = database.connection().await;
    let order = || Change::<PgConnection>::to("shop.orders").key("id", 7_i64);
    assert_eq!(said(&order().insert_once(&mut connection).await.unwrap()), "applied");
    assert_eq!(said(&order().insert_once(&mut connection).await.unwrap()), "already applied");
}

/// A value for a column of type json.
struct Json(&'static str);

impl sqlx::Type<sqlx::Postgres> for Json {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("json")
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for Json {
    fn encode_by_ref(&self, to: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        to.extend(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

/// A type without an equality operator, and a value that the column rounds.
#[tokio::test]
async fn value_is_compared_as_the_column_stores_it() {
    let tables = "CREATE TABLE prices (id BIGINT PRIMARY KEY, price REAL, said JSON);
        INSERT INTO prices VALUES (7, 0.1, '{}')";
    let database = onceward_tests::database::Postgres::with(tables).await;
    let mut connection = database.connection().await;
    let row = || Change::<PgConnection>::to("prices").key("id", 7_i64);
    assert_eq!(said(&row().with("price", 0.1_f32).insert_once(&mut connection).await.unwrap()), "already applied");
    assert_eq!(said(&row().with("price", 0.1_f64).insert_once(&mut connection).await.unwrap()), "different");
    let refused = row().with("said", Json("{}")).insert_once(&mut connection).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("operator does not exist: json"), "{refused}");
    assert_eq!(said(&row().noting("said", Json("{}")).insert_once(&mut connection).await.unwrap()), "already applied");
}
