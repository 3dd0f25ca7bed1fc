//! Edge cases of claims in a transaction: savepoints, slow transactions, wrapped errors, and guards that only observe.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::store::{Memory, Sql, StoreError};
use onceward::transaction::{ClaimError, TxHandle, TxVerdict, claim_in};
use onceward::{Fingerprint, Guard, Intent, Key, KeyRules, Mode, Reply, RunError, RunOutcome, Subject};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::polling::{outlast, until};
use onceward_tests::postgres::{PASSWORD, PostgresServer};
use onceward_tests::postgres_payments::{TABLES, figures, pay, pay_once};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Acquire as _, PgPool, Postgres, Sqlite};
use tokio::sync::Barrier;

const LONG: Duration = Duration::from_secs(10);
/// Lifetime of a record; the transaction takes longer.
const RETAIN: Duration = Duration::from_secs(2);

async fn bank() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    server
}

fn in_mode(mode: Mode) -> Guard {
    Guard::builder(Memory::new()).mode(mode).build()
}

#[tokio::test]
async fn claim_rolled_back_to_a_savepoint_overwrites_no_other() {
    let server = bank().await;
    let pool = server.pool(4).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let rules = KeyRules::retryable();

    let mut first = pool.begin().await.unwrap();
    let mut savepoint = first.begin().await.unwrap();
    let Ok(TxVerdict::Run(lost)) = claim_in(&mut savepoint, &rules, &intent).await else { panic!("a free key") };
    savepoint.rollback().await.unwrap();

    let mut second = pool.begin().await.unwrap();
    let Ok(TxVerdict::Run(kept)) = claim_in(&mut second, &rules, &intent).await else { panic!("free again") };
    pay(&mut second, "k").await.unwrap();
    kept.complete_in(&mut second, Reply::new(201, "of the second")).await.unwrap();
    second.commit().await.unwrap();

    let error = lost.complete_in(&mut first, Reply::new(201, "of the first")).await.unwrap_err();
    assert!(matches!(error, ClaimError::NotClaimed), "{error}");
    first.commit().await.unwrap();
    assert!(kept.was_committed(&pool).await.unwrap() && !lost.was_committed(&pool).await.unwrap());
    let again = claim_in(&mut pool.begin().await.unwrap(), &rules, &intent).await.unwrap();
    assert!(matches!(&again, TxVerdict::Done(Some(reply)) if &reply.body()[..] == b"of the second"), "{again:?}");
}

/// If the validity started at the claim, the record would have expired when the waiting transaction reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_longer_than_its_record_has_one_effect() {
    let (server, guard) = (bank().await, in_mode(Mode::Enforce));
    let (pool, rules) = (server.pool(4).await, KeyRules::retryable().retain(RETAIN));
    let slow = async || {
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let work = |mut transaction: TxHandle<Postgres>| async move {
            sqlx::query("SELECT pg_sleep(3)").execute(&mut *transaction).await?;
            pay(&mut transaction, "k").await
        };
        guard.transact(&pool, &rules, &intent, work).await.unwrap()
    };
    let (one, other) = tokio::join!(slow(), slow());
    let executed = [&one, &other].into_iter().filter(|ran| matches!(ran, RunOutcome::Executed(_))).count();
    assert_eq!((executed, figures(&server).await), (1, [1; 4]), "{one:?} {other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_transaction_longer_than_its_record_has_one_effect() {
    let (folder, guard) = (tempfile::tempdir().unwrap(), in_mode(Mode::Enforce));
    let address = format!("sqlite:{}", folder.path().join("bank.db").display());
    Sql::migrate(&address).await.unwrap();
    let pool = SqlitePoolOptions::new().max_connections(2).connect(&address).await.unwrap();
    let rules = KeyRules::retryable().retain(RETAIN);
    let slow = async || {
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let work = |transaction: TxHandle<Sqlite>| async move {
            outlast(RETAIN * 3 / 2).await;
            drop(transaction);
            Ok::<_, sqlx::Error>("paid".to_owned())
        };
        guard.transact(&pool, &rules, &intent, work).await.unwrap()
    };
    let (one, other) = tokio::join!(slow(), slow());
    assert!(matches!(
        (&one, &other),
        (RunOutcome::Executed(_), RunOutcome::Replayed(_)) | (RunOutcome::Replayed(_), RunOutcome::Executed(_))
    ));
}

/// Valid records are not read: the expiry bounds the index scan.
#[tokio::test]
async fn cleanup_does_not_read_valid_records() {
    let server = bank().await;
    server
        .execute(
            "INSERT INTO onceward_records SELECT 'live-' || n, 'x', now() + interval '1 hour' FROM generate_series(1, 20000) n;
            INSERT INTO onceward_records SELECT 'over-' || n, 'x', now() - interval '1 hour' FROM generate_series(1, 700) n",
        )
        .await;
    server.execute("VACUUM ANALYZE onceward_records").await;
    let read = "SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE relname = 'onceward_records'";
    let entries =
        "SELECT idx_tup_read::bigint FROM pg_stat_user_indexes WHERE indexrelname = 'onceward_records_expires_at'";
    let pool = server.pool(1).await;
    // Count only reads of the cleanup: the connection that filled the table reports its statistics when it closes.
    until("the inserts are counted", LONG, async || {
        server.number("SELECT n_tup_ins::bigint FROM pg_stat_user_tables WHERE relname = 'onceward_records'").await
            == 20_700
    })
    .await;
    let before = server.number(read).await + server.number(entries).await;
    let over = "SELECT count(*) FROM onceward_records WHERE name LIKE 'over-%' AND name IS NOT NULL";
    // The cleanup's connection reports its statistics when it is idle for a while or closed.
    let cleaning = tokio::spawn({
        let pool = pool.clone();
        async move { onceward::transaction::keep_clean(&pool).await }
    });
    until("the reads of the cleanup are counted", 3 * LONG, async || {
        server.number("SELECT n_tup_del::bigint FROM pg_stat_user_tables WHERE relname = 'onceward_records'").await
            == 700
    })
    .await;
    cleaning.abort();
    let cleaned = server.number(read).await + server.number(entries).await - before;
    assert!((700..10_000).contains(&cleaned), "{cleaned} rows and entries were read to remove 700");
    assert_eq!(server.number(over).await, 0);
}

/// A typical application error that wraps the database error.
#[derive(Debug)]
struct TransparentError(sqlx::Error);

impl std::fmt::Display for TransparentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Like `#[error(transparent)]`.
impl std::error::Error for TransparentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retryable_error_is_recognized_through_a_transparent_error() {
    let (server, guard) = (bank().await, in_mode(Mode::Enforce));
    let options = server.url().parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let options = options.options([("default_transaction_isolation", "serializable")]);
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
    let (both, tries) = (Barrier::new(2), AtomicUsize::new(0));
    let pays = async |name: &str| {
        let key = Key::new(name).unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let (both, tries) = (&both, &tries);
        let work = |mut transaction: TxHandle<Postgres>| async move {
            sqlx::query("SELECT balance FROM account").execute(&mut *transaction).await.map_err(TransparentError)?;
            if tries.fetch_add(1, Ordering::SeqCst) < 2 {
                both.wait().await;
            }
            pay(&mut transaction, name).await.map_err(TransparentError)
        };
        guard.transact(&pool, &KeyRules::retryable(), &intent, work).await.unwrap()
    };
    tokio::join!(pays("one"), pays("other"));
    assert_eq!(figures(&server).await, [2; 4]);
    assert!(tries.into_inner() > 2, "they conflicted on the balance, and one was retried");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commit_without_claim_is_unknown_and_not_repeated() {
    let server = bank().await;
    pay_once(&in_mode(Mode::Enforce), &server.pool(1).await, "k").await.unwrap();
    let proxy = Proxy::before(server.port()).await;
    let port = proxy.url().rsplit(':').next().unwrap().to_owned();
    let pool = PgPool::connect_lazy(&format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres")).unwrap();
    for (paid, mode) in [(2, Mode::Observe), (3, Mode::Off)] {
        proxy.next("COMMIT", TcpFault::LoseAnswer);
        let lost = pay_once(&in_mode(mode), &pool, "k").await;
        assert!(matches!(lost, Err(RunError::Store(StoreError::Unknown(_)))), "{mode:?}: {lost:?}");
        assert_eq!(figures(&server).await, [paid, 1, 1, paid], "{mode:?}");
    }
}

#[tokio::test]
async fn observing_guard_runs_despite_conflicts_and_counts_them() {
    let (server, guard) = (bank().await, in_mode(Mode::Observe));
    let pool = server.pool(2).await;
    let key = Key::new("k").unwrap();
    for content in ["10 EUR", "10 EUR", "20 EUR"] {
        let fingerprint = Fingerprint::of_bytes(content.as_bytes());
        let intent = Intent::new("pay", Subject::named("alice")).key(&key).fingerprint(fingerprint);
        let work = |mut transaction: TxHandle<Postgres>| async move { pay(&mut transaction, "k").await };
        guard.transact(&pool, &KeyRules::retryable(), &intent, work).await.unwrap();
    }
    assert_eq!(guard.would_have(), [("key_reused", 1), ("replayed", 1)].into());

    server.execute("DROP TABLE onceward_records").await;
    let ran = pay_once(&guard, &pool, "k").await.unwrap();
    assert!(matches!(ran, RunOutcome::Unprotected(_)), "{ran:?}");
    assert_eq!(server.number("SELECT balance FROM account").await, 4);
}

#[tokio::test]
async fn rolled_back_transaction_is_an_error_without_a_claim_too() {
    let server = bank().await;
    let pool = server.pool(2).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let swallow = |mut transaction: TxHandle<Postgres>| async move {
        pay(&mut transaction, "k").await?;
        let _ = sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await;
        Ok::<_, sqlx::Error>("paid".to_owned())
    };
    let error =
        in_mode(Mode::Off).transact(&pool, &KeyRules::retryable(), &intent, swallow).await.unwrap_err().to_string();
    assert!(error.contains("an earlier statement of this transaction failed"), "{error}");
    assert_eq!(figures(&server).await, [0; 4]);
}
