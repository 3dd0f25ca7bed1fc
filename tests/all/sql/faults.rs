//! The application, the database and the network between them fail during a transaction: the counts of ledger entries, records and
//! effects still match the payments.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use onceward::store::{Memory, Sql};
use onceward::{Guard, RunOutcome};
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::polling::until;
use onceward_tests::postgres::{PASSWORD, PostgresServer};
use onceward_tests::postgres_payments::{TABLES, figures, pay_once};
use onceward_tests::sqlite_payments;
use onceward_tests::stopping_proxy::{Stop, StoppingProxy};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::PEER;

/// Number of client messages in one payment over a new connection: the startup, and one or two per statement.
const MESSAGES: usize = 16;

/// Returns the number of kills; `make faults` sets more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn times(usual: usize) -> usize {
    std::env::var("SQL_FAULTS").map_or(usual, |faults| faults.parse().expect("SQL_FAULTS is a number"))
}

async fn bank(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start_with(settings);
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    server
}

/// Returns the address of the bank with this port.
fn over(port: u16) -> String {
    format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres?application_name=payer")
}

/// Opens one connection over this port, like an application that has just started.
async fn one_over(port: u16) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(20));
    pool.connect_lazy(&over(port)).unwrap()
}

/// Returns the place of a kill: before and after every message in turn.
fn place(time: usize) -> (usize, Stop) {
    (time / 2 % MESSAGES, if time.is_multiple_of(2) { Stop::Before } else { Stop::After })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_killed_between_statements_pays_at_most_once() {
    let (server, guard) = (bank(&[]).await, Guard::new(Memory::new()));
    let (proxy, pool) = (StoppingProxy::before(server.port()).await, server.pool(4).await);
    let (times, mut killed, mut had_paid, mut time) = (times(2 * MESSAGES), 0, 0, 0);
    // Some payments have fewer messages.
    while killed < times {
        let (message, stop) = place(time);
        let payment = format!("payment-{time}");
        time += 1;
        proxy.stop_after(message, stop);
        let mut payer = Command::new(PEER)
            .args(["payer", &over(proxy.port()), &payment])
            .stdout(Stdio::null())
            .spawn()
            .expect("the payer starts");
        let mut has_ended = false;
        until("the payer is stopped or ends", Duration::from_secs(60), || {
            has_ended = payer.try_wait().unwrap().is_some();
            std::future::ready(has_ended || proxy.is_stopped())
        })
        .await;
        payer.kill().and_then(|()| payer.wait()).expect("the payer can be killed");
        killed += usize::from(!has_ended);
        proxy.cut();
        let ran = pay_once(&guard, &pool, &payment).await.unwrap();
        had_paid += usize::from(matches!(ran, RunOutcome::Replayed(_)));
        assert_eq!(ran.into_value(), format!("paid {payment}"));
        assert_eq!(figures(&server).await, [time as i64; 4], "{message} {stop:?}");
        assert!(time < 3 * times + MESSAGES, "too few kills: {killed} of {time}");
    }
    assert!(0 < had_paid && had_paid < time, "not killed both before and after the commit: {had_paid} of {time}");
    println!("killed the application {killed} times; it had paid in {had_paid} of {time} payments");
}

/// Kills before the first statement, after it, or while the application stores its response and commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_application_killed_between_statements_pays_at_most_once() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("bank.db").display());
    Sql::migrate(&address).await.unwrap();
    let pool = sqlx::SqlitePool::connect(&address).await.unwrap();
    sqlx::raw_sql(sqlite_payments::TABLE).execute(&pool).await.unwrap();
    let (times, mut had_paid) = (times(16), 0);
    for time in 0..times {
        let payment = format!("payment-{time}");
        let mut payer = Command::new(PEER)
            .args(["payer", &address, &payment])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the payer starts");
        let mut input = payer.stdin.take().unwrap();
        let mut said = BufReader::new(payer.stdout.take().unwrap()).lines();
        for step in 0..=time % 4 {
            let is_last = step == 2;
            // The third step stores the response and commits, and is killed at a random moment; the fourth is after it.
            if is_last && time % 4 == 2 {
                tokio::time::sleep(Duration::from_micros(200 * (time as u64 / 4 % 40))).await;
                break;
            }
            assert_eq!(said.next().unwrap().unwrap(), if is_last { "paid" } else { "next" });
            if is_last {
                break;
            }
            if step < time % 4 {
                writeln!(input).unwrap();
            }
        }
        payer.kill().and_then(|()| payer.wait()).expect("the payer can be killed");
        let ran = sqlite_payments::pay_step_by_step(&pool, &payment, || Ok(())).await.unwrap();
        had_paid += usize::from(matches!(ran, RunOutcome::Replayed(_)));
        assert_eq!(ran.into_value(), format!("paid {payment}"));
        assert_eq!(sqlite_payments::figures(&pool).await, [time as i64 + 1; 3], "{payment}");
    }
    assert!(0 < had_paid && had_paid < times, "not killed both before and after the commit: {had_paid} of {times}");
    println!("killed the application on SQLite {times} times; it had paid {had_paid} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_backend_killed_between_statements_pays_at_most_once() {
    let (server, guard) = (bank(&["fsync=on"]).await, Guard::new(Memory::new()));
    let proxy = StoppingProxy::before(server.port()).await;
    let (times, mut killed, mut executed, mut time) = (times(2 * MESSAGES), 0, 0, 0);
    // Some payments have fewer messages, and at the first message there is no backend process yet.
    while killed < times {
        let (message, stop) = place(time);
        let payment = format!("payment-{time}");
        time += 1;
        let pool = one_over(proxy.port()).await;
        proxy.stop_after(message, stop);
        let paying = tokio::spawn({
            let (guard, pool, payment) = (guard.clone(), pool.clone(), payment.clone());
            async move { pay_once(&guard, &pool, &payment).await }
        });
        proxy.stopped_or(|| paying.is_finished()).await;
        if proxy.is_stopped() {
            let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'payer'";
            killed += server.number(kill).await as usize;
        }
        proxy.cut();
        // The outcome is known, or the payment has certainly failed; either way a retry is the same payment.
        if let Ok(ran) = paying.await.unwrap() {
            assert!(matches!(ran, RunOutcome::Executed(_)), "no other caller has paid: {ran:?}");
            executed += 1;
        }
        let ran = pay_once(&guard, &server.pool(2).await, &payment).await.unwrap();
        assert_eq!(ran.into_value(), format!("paid {payment}"));
        assert_eq!(figures(&server).await, [time as i64; 4], "{message} {stop:?}");
        assert!(time < 3 * times + MESSAGES, "too few kills: {killed} of {time}");
    }
    println!("killed {killed} backends; {executed} of {time} payments still succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_crash_during_payments_makes_each_at_most_once() {
    let (mut server, guard) = (bank(&["fsync=on"]).await, Guard::new(Memory::new()));
    let crashes = times(3).min(10);
    let (mut succeeded, mut failed) = (0, 0);
    for crash in 0..crashes {
        let paying: Vec<_> = (0..20)
            .map(|payment| {
                let (guard, url) = (guard.clone(), server.url());
                tokio::spawn(async move {
                    let pool = PgPool::connect_lazy(&url).unwrap();
                    pay_once(&guard, &pool, &format!("payment-{crash}-{payment}")).await
                })
            })
            .collect();
        let begun = format!("SELECT count(*) FROM ledger WHERE payment LIKE 'payment-{crash}-%'");
        until("the first have paid", Duration::from_secs(20), async || server.number(&begun).await > 0).await;
        server.kill();
        server.restart();
        for (payment, paying) in paying.into_iter().enumerate() {
            let first = paying.await.unwrap();
            succeeded += usize::from(first.is_ok());
            failed += usize::from(first.is_err());
            let name = format!("payment-{crash}-{payment}");
            let again = pay_once(&guard, &server.pool(2).await, &name).await.unwrap();
            assert!(first.is_err() || matches!(again, RunOutcome::Replayed(_)), "paid: {first:?} {again:?}");
        }
        assert_eq!(figures(&server).await, [20 * (crash as i64 + 1); 4]);
    }
    assert!(succeeded > 0 && failed > 0, "not crashed during payments: {succeeded} had paid, {failed} had not");
}

/// The reply to a commit is lost, or the commit itself. The payer still learns the outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commit_reply_causes_no_double_and_no_false_duplicate() {
    let (server, guard) = (bank(&[]).await, Guard::new(Memory::new()));
    let proxy = Proxy::before(server.port()).await;
    let port = proxy.url().rsplit(':').next().unwrap().parse().unwrap();
    let pool = one_over(port).await;
    // Five replies are lost for each lost commit: 1,000 and 200 in `make faults`.
    let answers = times(8) * 5;
    let times = answers / 5 * 6;
    for time in 0..times {
        let fate = if time % 6 == 5 { TcpFault::LoseRequest } else { TcpFault::LoseAnswer };
        proxy.next("COMMIT", fate);
        let payment = format!("payment-{time}");
        let ran = pay_once(&guard, &pool, &payment).await.unwrap();
        assert_eq!(ran, RunOutcome::Executed(format!("paid {payment}")), "{fate:?}");
    }
    assert_eq!(proxy.struck(), times);
    assert_eq!(figures(&server).await, [times as i64; 4]);
    println!(
        "{answers} replies to a commit were lost, and {} commits: {times} payments, each made once",
        times - answers
    );
}
