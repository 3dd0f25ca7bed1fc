//! Records in the application's own transaction: one effect at every isolation level, and the same response for every duplicate.

use std::sync::Arc;
use std::time::Duration;

use onceward::api::Code;
use onceward::store::{Memory, Sql};
use onceward::transaction::{TxClaim, TxHandle, TxVerdict, claim_in};
use onceward::{Fingerprint, Guard, Intent, Key, KeyRules, Mode, Reply, RunError, RunOutcome, Subject};
use onceward_tests::polling::until;
use onceward_tests::postgres::PostgresServer;
use onceward_tests::postgres_payments::{TABLES, figures, pay, pay_once};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{PgPool, Postgres, Sqlite, Transaction};
use tokio::sync::Barrier;

const RACERS: usize = 32;
const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// Starts a bank with the tables of Onceward beside its own.
async fn bank() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    server
}

fn guard() -> Guard {
    Guard::new(Memory::new())
}

/// Opens connections with this isolation level.
async fn at_level(server: &PostgresServer, level: &'static str) -> PgPool {
    let options = server.url().parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let options = options.options([("default_transaction_isolation", level)]);
    let pool = PgPoolOptions::new().max_connections(2 * RACERS as u32).acquire_timeout(Duration::from_secs(60));
    pool.connect_with(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_32_racers_at_each_isolation_level_takes_effect() {
    let (server, guard) = (bank().await, guard());
    let mut paid = 0;
    for level in LEVELS {
        let pool = at_level(&server, level).await;
        for round in 0..5 {
            let start = Arc::new(Barrier::new(2 * RACERS));
            // Two concurrent payments that conflict on the balance.
            let racers: Vec<_> = (0..2 * RACERS)
                .map(|racer| {
                    let (guard, pool, start) = (guard.clone(), pool.clone(), Arc::clone(&start));
                    let payment = format!("{level}-{round}-{}", racer % 2);
                    tokio::spawn(async move {
                        start.wait().await;
                        (payment.clone(), pay_once(&guard, &pool, &payment).await)
                    })
                })
                .collect();
            let mut executed = 0;
            for racer in racers {
                let (payment, ran) = racer.await.unwrap();
                let ran = ran.unwrap_or_else(|error| panic!("{level}: {error}"));
                executed += usize::from(matches!(ran, RunOutcome::Executed(_)));
                assert_eq!(ran.into_value(), format!("paid {payment}"), "{level}");
            }
            paid += 2;
            assert_eq!((executed, figures(&server).await), (2, [paid; 4]), "{level}, round {round}");
        }
    }
}

/// The classic mistake: both transactions look before either writes.
#[tokio::test]
async fn naive_lookup_then_insert_pays_twice() {
    let server = bank().await;
    let pool = server.pool(2).await;
    sqlx::raw_sql("CREATE TABLE seen (payment text)").execute(&pool).await.unwrap();
    let looked = Barrier::new(2);
    let naive = async || {
        let mut transaction = pool.begin().await.unwrap();
        let seen = sqlx::query("SELECT payment FROM seen").fetch_optional(&mut *transaction).await.unwrap();
        looked.wait().await;
        if seen.is_none() {
            sqlx::query("INSERT INTO seen VALUES ('it')").execute(&mut *transaction).await.unwrap();
            pay(&mut transaction, "it").await.unwrap();
        }
        transaction.commit().await.unwrap();
    };
    tokio::join!(naive(), naive());
    assert_eq!(server.number("SELECT balance FROM account").await, 2);
}

/// Begins a transaction, claims in it, and returns both.
async fn claim(pool: &PgPool, intent: &Intent<'_>) -> (Transaction<'static, Postgres>, TxVerdict) {
    let mut transaction = pool.begin().await.unwrap();
    let entered = claim_in(&mut transaction, &KeyRules::retryable(), intent).await.unwrap();
    (transaction, entered)
}

fn claimed(entered: TxVerdict) -> TxClaim {
    let TxVerdict::Run(claimed) = entered else { panic!("the key is free: {entered:?}") };
    claimed
}

#[tokio::test]
async fn rollback_frees_the_key_and_commit_replays() {
    let server = bank().await;
    let pool = server.pool(4).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key).fingerprint(Fingerprint::of_bytes(b"10 EUR"));

    let (transaction, entered) = claim(&pool, &intent).await;
    let lost = claimed(entered);
    transaction.rollback().await.unwrap();
    assert!(!lost.was_committed(&pool).await.unwrap());

    let (mut transaction, entered) = claim(&pool, &intent).await;
    let kept = claimed(entered);
    let reply = Reply::new(201, "paid").header("location", "/payments/1");
    kept.complete_in(&mut transaction, reply.clone()).await.unwrap();
    transaction.commit().await.unwrap();
    assert!(kept.was_committed(&pool).await.unwrap() && !lost.was_committed(&pool).await.unwrap());

    let TxVerdict::Done(Some(again)) = claim(&pool, &intent).await.1 else { panic!("the payment is done") };
    assert_eq!(again, reply);
    let other = intent.clone().fingerprint(Fingerprint::of_bytes(b"20 EUR"));
    let TxVerdict::Reject(rejection) = claim(&pool, &other).await.1 else { panic!("the request differs") };
    assert_eq!(rejection.code(), Code::KeyReused);
    for others in [Intent::new("refund", Subject::named("alice")), Intent::new("pay", Subject::named("bob"))] {
        drop(claimed(claim(&pool, &others.key(&key)).await.1));
    }
    let TxVerdict::Reject(rejection) = claim(&pool, &Intent::new("pay", Subject::anonymous())).await.1 else {
        panic!("no key")
    };
    assert_eq!(rejection.code(), Code::KeyMissing);
}

#[tokio::test]
async fn claim_without_a_response_is_one_statement() {
    let server = PostgresServer::start_with(&["shared_preload_libraries=pg_stat_statements"]);
    server.execute(TABLES).await;
    server.execute("CREATE EXTENSION pg_stat_statements").await;
    Sql::migrate(&server.url()).await.unwrap();
    let pool = server.pool(4).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    server.execute("SELECT pg_stat_statements_reset()").await;
    let calls = async || {
        server.number("SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query LIKE '%onceward_records%' AND query NOT LIKE '%pg_stat%'").await
    };

    let (transaction, entered) = claim(&pool, &intent).await;
    drop(claimed(entered));
    transaction.commit().await.unwrap();
    assert_eq!(calls().await, 1, "a claim");
    assert!(matches!(claim(&pool, &intent).await.1, TxVerdict::Done(None)));
    assert_eq!(calls().await, 2, "a duplicate");
    pay_once(&guard(), &pool, "with a response").await.unwrap();
    assert_eq!(calls().await, 4, "a claim and its response");
}

#[tokio::test]
async fn second_transaction_waits_for_the_first() {
    let server = bank().await;
    let pool = server.pool(4).await;
    for is_committed in [true, false] {
        let key = Key::new(format!("k{is_committed}")).unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let (transaction, entered) = claim(&pool, &intent).await;
        drop(claimed(entered));
        let (second_pool, second_key) = (pool.clone(), key.clone());
        let second = tokio::spawn(async move {
            let intent = Intent::new("pay", Subject::named("alice")).key(&second_key);
            matches!(claim(&second_pool, &intent).await.1, TxVerdict::Run(_))
        });
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until("the second waits", Duration::from_secs(10), async || server.number(waits).await == 1).await;
        assert!(!second.is_finished());
        match is_committed {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        assert_eq!(second.await.unwrap(), !is_committed);
    }
}

#[tokio::test]
async fn failed_work_is_rolled_back_and_may_be_retried() {
    let (server, guard) = (bank().await, guard());
    let pool = server.pool(4).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let fail = |mut transaction: TxHandle<Postgres>| async move {
        pay(&mut transaction, "k").await?;
        Err::<String, _>(sqlx::Error::RowNotFound)
    };
    let failed = guard.transact(&pool, &KeyRules::retryable(), &intent, fail).await;
    assert!(matches!(failed, Err(RunError::Failed(sqlx::Error::RowNotFound))), "{failed:?}");
    assert_eq!(figures(&server).await, [0; 4]);
    assert_eq!(pay_once(&guard, &pool, "k").await.unwrap(), RunOutcome::Executed("paid k".to_owned()));
    assert_eq!(figures(&server).await, [1; 4]);
}

/// After a swallowed error, the commit would report success without committing anything.
#[tokio::test]
async fn swallowed_database_error_does_not_count_as_done() {
    let (server, guard) = (bank().await, guard());
    let pool = server.pool(4).await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let swallow = |mut transaction: TxHandle<Postgres>| async move {
        pay(&mut transaction, "k").await?;
        let _ = sqlx::query("SELECT 1 / 0").execute(&mut *transaction).await;
        Ok::<_, sqlx::Error>("paid".to_owned())
    };
    let error = guard.transact(&pool, &KeyRules::retryable(), &intent, swallow).await.unwrap_err().to_string();
    assert!(error.contains("an earlier statement of this transaction failed"), "{error}");
    assert_eq!(figures(&server).await, [0; 4]);
}

#[tokio::test]
async fn each_operation_has_its_own_retention() {
    let (server, guard) = (bank().await, guard());
    let pool = server.pool(4).await;
    let pay_for = async |life: Duration, name: &str| {
        let key = Key::new(name).unwrap();
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        let work = |mut transaction: TxHandle<Postgres>| async move { pay(&mut transaction, name).await };
        guard.transact(&pool, &KeyRules::retryable().retain(life), &intent, work).await.unwrap()
    };
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    for _ in 0..2 {
        pay_for(year, "kept").await;
    }
    let days = "SELECT floor(extract(epoch FROM expires_at - now()) / 86400)::bigint FROM onceward_records";
    assert_eq!((server.number(days).await, figures(&server).await), (364, [1; 4]));

    assert!(matches!(pay_for(Duration::from_millis(50), "brief").await, RunOutcome::Executed(_)));
    until("the record has expired", Duration::from_secs(5), async || {
        matches!(pay_for(Duration::from_millis(50), "brief").await, RunOutcome::Executed(_))
    })
    .await;
    let over = "SELECT count(*) FROM onceward_records WHERE expires_at < clock_timestamp()";
    until("the record has expired again", Duration::from_secs(5), async || server.number(over).await == 1).await;
    let cleaning = tokio::spawn(async move { onceward::transaction::keep_clean(&pool).await });
    let left = async || server.number("SELECT count(*) FROM onceward_records").await;
    until("the expired record is removed", Duration::from_secs(20), async || left().await == 1).await;
    cleaning.abort();
}

#[tokio::test]
async fn guard_without_enforcement_runs_everything() {
    let server = bank().await;
    let pool = server.pool(4).await;
    for mode in [Mode::Off, Mode::Observe] {
        let guard = Guard::builder(Memory::new()).mode(mode).build();
        for _ in 0..2 {
            pay_once(&guard, &pool, &format!("{mode:?}")).await.unwrap();
        }
    }
    assert_eq!(figures(&server).await, [4, 2, 1, 4], "four payments, one of them recorded");
}

async fn file() -> (tempfile::TempDir, SqlitePool) {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("bank.db").display());
    Sql::migrate(&address).await.unwrap();
    let pool = SqlitePoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(60));
    let pool = pool.connect(&address).await.unwrap();
    sqlx::raw_sql("CREATE TABLE ledger (payment TEXT)").execute(&pool).await.unwrap();
    (folder, pool)
}

async fn pay_from_file(
    guard: &Guard,
    pool: &SqlitePool,
    payment: &str,
) -> Result<RunOutcome<i64>, RunError<sqlx::Error>> {
    let key = Key::new(payment).unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let work = |mut transaction: TxHandle<Sqlite>| async move {
        sqlx::query("INSERT INTO ledger VALUES (?1)").bind(payment).execute(&mut *transaction).await?;
        sqlx::query_scalar("SELECT count(*) FROM ledger").fetch_one(&mut *transaction).await
    };
    guard.transact(pool, &KeyRules::retryable(), &intent, work).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_32_racers_on_sqlite_takes_effect() {
    let ((_folder, pool), guard) = (file().await, guard());
    for round in 0..5 {
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                let (guard, pool) = (guard.clone(), pool.clone());
                tokio::spawn(async move { pay_from_file(&guard, &pool, &format!("k{round}")).await.unwrap() })
            })
            .collect();
        let mut executed = 0;
        for racer in racers {
            let ran = racer.await.unwrap();
            executed += usize::from(matches!(ran, RunOutcome::Executed(_)));
            assert_eq!(ran.into_value(), round + 1);
        }
        assert_eq!(executed, 1);
    }
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM onceward_records").fetch_one(&pool).await.unwrap();
    assert_eq!(rows, 5);
}

#[tokio::test]
async fn sqlite_transaction_with_a_stale_read_is_retryable() {
    let ((_folder, pool), guard) = (file().await, guard());
    let mut late = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM ledger").fetch_all(&mut *late).await.unwrap();
    pay_from_file(&guard, &pool, "k").await.unwrap();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let error = claim_in(&mut late, &KeyRules::retryable(), &intent).await.unwrap_err();
    assert!(error.should_repeat(), "{error}");
}
