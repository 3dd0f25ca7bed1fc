//! Unusable databases and transactions: each error names the next step.

use std::sync::LazyLock;
use std::time::Duration;

use onceward::store::{Memory, MigrationOutcome, Sql, SqlError};
use onceward::transaction::{ClaimError, TxVerdict, claim_in};
use onceward::{Guard, Intent, Key, KeyRules, Reply, RunError, Subject};
use onceward_tests::client::Answer;
use onceward_tests::command_output::said as said_by;
use onceward_tests::database::{Postgres, Sqlite, TestDatabase};
use onceward_tests::postgres::{PASSWORD, PostgresServer};
use onceward_tests::postgres_payments::{TABLES, pay_once};
use onceward_tests::service::{OncewardServer, command};
use onceward_tests::service_calls::post;
use serde_json::json;
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::Instant;

use crate::keys::audit_log::LOG;

/// Returns the errors of opening and of claiming, which are the same.
async fn said(server: &PostgresServer) -> [String; 2] {
    let opened = Sql::open(&server.url()).await.unwrap_err().to_string();
    let claimed = match pay_once(&Guard::new(Memory::new()), &server.pool(1).await, "k").await {
        Err(RunError::Store(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    [opened, claimed]
}

#[tokio::test]
async fn missing_migration_names_the_command() {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    let place = format!("127.0.0.1:{}/postgres", server.port());
    for (text, login) in said(&server).await.iter().zip(["postgres:PASSWORD", "postgres"]) {
        let command = format!("`onceward migrate --store postgres://{login}@{place}`");
        assert!(text.contains(&command) && text.contains("missing from this database"), "{text}");
        assert!(!text.contains(PASSWORD), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("none.db").display());
    let text = Sql::open(&address).await.unwrap_err().to_string();
    assert!(text.contains(&format!("`onceward migrate --store {address}`")), "{text}");
    assert!(!folder.path().join("none.db").exists(), "the check creates no file");
    let pool = SqlitePool::connect(&format!("{address}?mode=rwc")).await.unwrap();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::anonymous()).key(&key);
    let error = claim_in(&mut pool.begin().await.unwrap(), &KeyRules::retryable(), &intent).await.unwrap_err();
    assert!(matches!(error, ClaimError::Tables(SqlError::NotMigrated { .. })), "{error}");
    assert!(error.to_string().contains("`onceward migrate --store sqlite:…` or `Sql::migrate`"), "{error}");
}

#[tokio::test]
async fn foreign_table_of_the_same_name_is_left_alone() {
    for theirs in [
        "CREATE TABLE onceward_records (id bigint)",
        "CREATE TABLE onceward_records (name text, value text, expires_at timestamptz)",
        "CREATE TABLE onceward_records (name text, value bytea, expires_at timestamptz)",
    ] {
        let server = PostgresServer::start();
        server.execute(TABLES).await;
        server.execute(theirs).await;
        server
            .execute(
                "CREATE TABLE onceward_schema (version integer, reign bytea);
                INSERT INTO onceward_schema VALUES (1, decode('0102030405060708', 'hex'))",
            )
            .await;
        let claimed = pay_once(&Guard::new(Memory::new()), &server.pool(1).await, "k").await.unwrap_err().to_string();
        assert!(claimed.contains("do not have the schema of this version"), "{theirs}: {claimed}");
        for error in [Sql::open(&server.url()).await.map(drop), Sql::migrate(&server.url()).await.map(drop)] {
            assert!(matches!(error, Err(SqlError::OtherShape(_))), "{theirs}: {error:?}");
        }
        assert_eq!(server.number("SELECT count(*) FROM ledger").await, 0);
    }
    let server = PostgresServer::start();
    server.execute("CREATE TABLE onceward_records (id bigint)").await;
    let error = Sql::migrate(&server.url()).await.unwrap_err();
    assert!(matches!(error, SqlError::OtherShape(_)), "{error}");
    assert_eq!(server.number("SELECT count(*) FROM pg_tables WHERE tablename = 'onceward_schema'").await, 0);
}

/// The table has the columns of ours, so the cleanup would delete from it.
#[tokio::test]
async fn table_without_the_schema_table_is_left_alone() {
    for database in TestDatabase::both().await {
        database.execute("DROP TABLE onceward_schema").await;
        database.fill("theirs", 3, -1).await;
        let error = Sql::migrate(&database.url()).await.unwrap_err();
        assert!(error.to_string().contains("without onceward_schema"), "{error}");
        assert!(matches!(Sql::open(&database.url()).await, Err(SqlError::NotMigrated { .. })));
        assert_eq!(database.number("SELECT count(*) FROM onceward_records").await, 3);
    }
}

#[tokio::test]
async fn sqlite_file_with_other_column_types_is_left_alone() {
    for theirs in [
        "name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, expires_at INTEGER NOT NULL",
        "name TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, expires_at TEXT NOT NULL",
        "name TEXT NOT NULL, value BLOB NOT NULL, expires_at INTEGER NOT NULL",
        "name TEXT NOT NULL, value BLOB NOT NULL, expires_at INTEGER NOT NULL, PRIMARY KEY (name, value)",
    ] {
        let [_, database] = TestDatabase::both().await;
        database.execute(&format!("DROP TABLE onceward_records; CREATE TABLE onceward_records ({theirs})")).await;
        for error in [Sql::open(&database.url()).await.map(drop), Sql::migrate(&database.url()).await.map(drop)] {
            assert!(matches!(error, Err(SqlError::OtherShape(_))), "{theirs}: {error:?}");
        }
    }
}

/// The database is reachable, so waiting would not help.
#[tokio::test]
async fn rejecting_database_is_not_reported_as_unreachable() {
    let server = PostgresServer::start();
    server.execute("CREATE ROLE poor LOGIN PASSWORD 'poor'").await;
    let url = server.url();
    let read_only = format!("{url}?options[default_transaction_read_only]=on");
    let denied = url.replace(PASSWORD, "wrong");
    for (address, says, fix) in [
        (&denied, "password authentication failed", "the user and the password"),
        (&server.url_of("none"), "database \"none\" does not exist", "CREATE DATABASE"),
        (&url.replace("postgres:correct-horse", "poor:poor"), "permission denied for schema public", "grant this user"),
        (&read_only, "read-only transaction", "name the primary"),
    ] {
        let error = Sql::migrate(address).await.unwrap_err();
        assert!(matches!(error, SqlError::Rejected { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(says) && text.contains(fix) && !text.contains("reach"), "{text}");
    }
    let unknown = url.replace("postgres:correct-horse", "stranger:correct-horse");
    for (address, says) in [
        (denied, "rejects the user name or the password"),
        (unknown, "rejects the user name or the password"),
        (server.url_of("none"), "has no database none"),
    ] {
        let mut service = command(&["--listen", "127.0.0.1:0", "--store", &address, "--wait-for", "1h"]);
        let begun = Instant::now();
        let (code, text) = said_by(&service.output().unwrap());
        assert_eq!((code, text.matches(says).count(), text.lines().count()), (1, 1, 1), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(60), "the service does not wait for it");
    }
}

#[tokio::test]
async fn tables_of_a_later_version_are_not_touched() {
    let server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    server.execute("UPDATE onceward_schema SET version = 2").await;
    for error in [Sql::open(&server.url()).await.unwrap_err(), Sql::migrate(&server.url()).await.unwrap_err()] {
        assert!(error.to_string().contains("they have version 2, and this version needs 1"), "{error}");
    }
}

#[tokio::test]
async fn migration_is_repeatable_and_concurrent() {
    for database in [TestDatabase::Postgres(Postgres::with("").await), TestDatabase::Sqlite(Sqlite::with("").await)] {
        let urls: Vec<_> = (0..8).map(|_| database.url()).collect();
        let migrating = urls.iter().map(|url| Sql::migrate(url));
        for migrated in futures_util::future::join_all(migrating).await {
            migrated.unwrap();
        }
        assert_eq!(Sql::migrate(&database.url()).await.unwrap(), MigrationOutcome::Current);
        // Also with the printed statements.
        database.execute(Sql::migration(&database.url()).unwrap()).await;
        assert_eq!(database.number("SELECT count(*) FROM onceward_schema").await, 1);
    }
}

#[tokio::test]
async fn address_of_another_database_is_rejected_with_an_example() {
    for wrong in
        ["", "mysql://root@127.0.0.1/shop", "mariadb://x", "127.0.0.1", "sqlite:", "sqlite::memory:", "redis://x"]
    {
        let error = Sql::open(wrong).await.unwrap_err().to_string();
        assert!(error.contains("postgres://user@host/database or sqlite:"), "{wrong}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "this is not a database, and too long to look like an empty one".repeat(20)).unwrap();
    let error = Sql::open(&format!("sqlite:{}", text.display())).await.unwrap_err().to_string();
    assert!(error.contains("is not a SQLite database"), "{error}");
}

#[test]
fn sqlite_address_without_a_file_is_rejected() {
    for wrong in [
        "sqlite::memory:",
        "sqlite://:memory:",
        "sqlite::memory:?cache=shared",
        "sqlite://:memory:?cache=shared",
        "sqlite:%3Amemory%3A",
        "sqlite:shop.db?mode=memory",
        "sqlite:shop.db?cache=shared&mode=%6Demory",
        "sqlite:?mode=rwc",
    ] {
        let error = Sql::check_address(wrong).unwrap_err().to_string();
        assert!(error.contains("SQLite needs a file"), "{wrong}: {error}");
    }
    Sql::check_address("sqlite:shop.db?mode=rwc&cache=private").unwrap();
}

/// The driver would log the parameter with its value, which may be a secret under a misspelled name.
#[test]
fn unknown_parameter_is_rejected_without_its_value() {
    for wrong in [
        "postgres://shop@127.0.0.1/shop?passwort=hunter2",
        "postgres://shop@127.0.0.1/shop?sslmode=disable&hunter2",
        "postgres://shop@127.0.0.1/shop?options_hunter2=hunter2",
        "sqlite:shop.db?key=hunter2",
        "sqlite:shop.db?hunter2=1",
    ] {
        let error = Sql::check_address(wrong).unwrap_err();
        assert!(error.to_string().contains("a parameter that is none of"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let right =
        "postgres://shop:hunter2@127.0.0.1/shop?sslmode=disable&application_name=shop&options[search_path]=shop";
    Sql::check_address(right).unwrap();
}

#[tokio::test]
async fn failed_transaction_is_reported() {
    let server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    let pool = server.pool(2).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::anonymous()).key(&key);
    let mut failed = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 / 0").execute(&mut *failed).await.unwrap_err();
    let error = claim_in(&mut failed, &KeyRules::retryable(), &intent).await.unwrap_err();
    assert!(matches!(error, ClaimError::FailedAlready) && error.to_string().contains("roll it back"), "{error}");
    drop(failed);

    let mut first = pool.begin().await.unwrap();
    let Ok(TxVerdict::Run(claimed)) = claim_in(&mut first, &KeyRules::retryable(), &intent).await else {
        panic!("a free key")
    };
    first.rollback().await.unwrap();
    let mut second = pool.begin().await.unwrap();
    let error = claimed.complete_in(&mut second, Reply::new(200, "")).await.unwrap_err();
    assert!(error.to_string().contains("in the transaction that inserted it"), "{error}");
}

#[tokio::test]
async fn record_of_a_later_version_does_not_run() {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    let (guard, pool) = (Guard::new(Memory::new()), server.pool(2).await);
    pay_once(&guard, &pool, "k").await.unwrap();
    server.execute("UPDATE onceward_records SET value = set_byte(value, 0, 99)").await;
    let error = pay_once(&guard, &pool, "k").await.unwrap_err().to_string();
    assert!(error.contains("a record that this version does not know"), "{error}");
    assert_eq!(server.number("SELECT balance FROM account").await, 1);
}

#[tokio::test]
async fn key_of_10_kb_is_rejected_without_a_query() {
    let long = "k".repeat(10 * 1024);
    assert!(Key::new(long.clone()).unwrap_err().to_string().contains("1 to 255 characters"));
    assert!(Key::of_parts([long.as_str(), "x"]).unwrap_err().to_string().contains("1024 bytes"));
    let server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    let service = OncewardServer::start(&["--store", &server.url()]);
    let asked = json!({"key": long, "action": "POST /payments", "subject": "alice"});
    let refused: Answer = post(&service.url, "/claim", &asked).await;
    assert_eq!(refused.said(), "400 key_malformed");
    assert!(refused.problem().detail.contains("255"), "{}", refused.problem().detail);
}

#[tokio::test]
async fn transaction_without_tables_logs_the_command_once() {
    LazyLock::force(&LOG);
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let (guard, key) = (Guard::new(Memory::new()), Key::new("k").unwrap());
    let action = format!("pay-{}", uuid::Uuid::new_v4());
    let intent = Intent::new(&action, Subject::anonymous()).key(&key);
    for _ in 0..3 {
        let work = |_| async { Ok::<_, sqlx::Error>(()) };
        let paid = guard.transact(&pool, &KeyRules::retryable(), &intent, work).await;
        assert!(matches!(paid, Err(RunError::Store(_))), "{paid:?}");
    }
    let lines = LOG.lines("onceward::transaction::run", &action);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert_eq!(line["level"], "ERROR");
    let error = line["fields"]["error"].as_str().unwrap();
    let command = format!("`onceward migrate --store sqlite:{}`", folder.path().join("shop.db").display());
    assert!(error.contains(&command) && error.contains("`Sql::migrate`"), "{error}");
}
