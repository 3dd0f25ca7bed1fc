//! Records in the transaction of the business: one effect, at every isolation level, and the same answer for everybody.

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

/// A bank with the tables of Onceward beside its own.
async fn bank() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    server
}

fn guard() -> Guard {
    Guard::new(Memory::new())
}

/// Connections whose transactions run at this level.
async fn at_level(server: &PostgresServer, level: &'static str) -> PgPool {
    let options = server.url().parse::<sqlx::postgres::PgConnectOptions>().unwrap();
    let options = options.options([("default_transaction_isolation", level)]);
    let pool = PgPoolOptions::new().max_connections(2 * RACERS as u32).acquire_timeout(Duration::from_secs(60));
    pool.connect_with(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_32_racers_at_each_isolation_level_one_has_an_effect_and_all_get_its_answer() {
    let (server, guard) = (bank().await, guard());
    let mut paid = 0;
    for level in LEVELS {
        let pool = at_level(&server, level).await;
        for round in 0..5 {
            let start = Arc::new(Barrier::new(2 * RACERS));
            // Two payments at once, which meet at the balance.
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

/// What the articles warn of: both have looked before either has written.
#[tokio::test]
async fn whoever_looks_first_and_inserts_then_pays_twice() {
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

/// Begins, claims and gives both.
async fn claim(pool: &PgPool, intent: &Intent<'_>) -> (Transaction<'static, Postgres>, TxVerdict) {
    let mut transaction = pool.begin().await.unwrap();
    let entered = claim_in(&mut transaction, &KeyRules::retryable(), intent).await.unwrap();
    (transaction, entered)
}

fn claimed(entered: TxVerdict) -> TxClaim {
    let TxVerdict::Run(claimed) = entered else { panic!("it is free: {entered:?}") };
    claimed
}

#[tokio::test]
async fn what_is_rolled_back_is_free_and_what_is_committed_is_answered_again() {
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

    let TxVerdict::Done(Some(again)) = claim(&pool, &intent).await.1 else { panic!("it is done") };
    assert_eq!(again, reply);
    let other = intent.clone().fingerprint(Fingerprint::of_bytes(b"20 EUR"));
    let TxVerdict::Reject(rejection) = claim(&pool, &other).await.1 else { panic!("it is another request") };
    assert_eq!(rejection.code(), Code::KeyReused);
    for others in [Intent::new("refund", Subject::named("alice")), Intent::new("pay", Subject::named("bob"))] {
        drop(claimed(claim(&pool, &others.key(&key)).await.1));
    }
    let TxVerdict::Reject(rejection) = claim(&pool, &Intent::new("pay", Subject::anonymous())).await.1 else {
        panic!("there is no key")
    };
    assert_eq!(rejection.code(), Code::KeyMissing);
}

#[tokio::test]
async fn a_claim_without_an_answer_is_one_statement_and_says_only_that_it_was_done() {
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
    pay_once(&guard(), &pool, "with an answer").await.unwrap();
    assert_eq!(calls().await, 4, "a claim and its answer");
}

#[tokio::test]
async fn a_second_transaction_waits_for_the_first() {
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
async fn work_that_fails_is_rolled_back_and_may_be_done_again() {
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

/// One that has swallowed an error would be told that its commit went well, and nothing would have been committed.
#[tokio::test]
async fn work_that_swallows_an_error_of_the_database_is_not_taken_for_done() {
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
    assert!(error.contains("has failed before"), "{error}");
    assert_eq!(figures(&server).await, [0; 4]);
}

#[tokio::test]
async fn each_operation_has_a_validity_of_its_own() {
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
    until("it is over", Duration::from_secs(5), async || {
        matches!(pay_for(Duration::from_millis(50), "brief").await, RunOutcome::Executed(_))
    })
    .await;
    let over = "SELECT count(*) FROM onceward_records WHERE expires_at < clock_timestamp()";
    until("it is over again", Duration::from_secs(5), async || server.number(over).await == 1).await;
    let cleaning = tokio::spawn(async move { onceward::transaction::keep_clean(&pool).await });
    let left = async || server.number("SELECT count(*) FROM onceward_records").await;
    until("what is over is removed", Duration::from_secs(20), async || left().await == 1).await;
    cleaning.abort();
}

#[tokio::test]
async fn a_guard_that_does_not_enforce_runs_everything() {
    let server = bank().await;
    let pool = server.pool(4).await;
    for mode in [Mode::Off, Mode::Observe] {
        let guard = Guard::builder(Memory::new()).mode(mode).build();
        for _ in 0..2 {
            pay_once(&guard, &pool, &format!("{mode:?}")).await.unwrap();
        }
    }
    assert_eq!(figures(&server).await, [4, 2, 1, 4], "four payments, and one of them on record");
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
async fn of_32_racers_on_sqlite_one_has_an_effect_and_all_get_its_answer() {
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
async fn a_transaction_of_sqlite_that_read_before_others_wrote_is_to_be_begun_again() {
    let ((_folder, pool), guard) = (file().await, guard());
    let mut late = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM ledger").fetch_all(&mut *late).await.unwrap();
    pay_from_file(&guard, &pool, "k").await.unwrap();
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let error = claim_in(&mut late, &KeyRules::retryable(), &intent).await.unwrap_err();
    assert!(error.asks_for_a_repetition(), "{error}");
}
