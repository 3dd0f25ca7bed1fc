//! Commits with a lost reply: commits still in flight, and commits checked after their record has expired.

use std::cell::Cell;
use std::time::Duration;

use onceward::api::Code;
use onceward::store::{Memory, Sql, StoreError};
use onceward::transaction::{ClaimError, TxClaim, TxHandle, TxVerdict, claim_in};
use onceward::{Guard, Intent, Key, KeyRules, Mode, Reply, RunError, RunOutcome, Subject};
use onceward_tests::faulty_tcp_proxy::{Delay, Proxy, TcpFault};
use onceward_tests::polling::until;
use onceward_tests::postgres::{PASSWORD, PostgresServer};
use onceward_tests::postgres_payments::{TABLES, figures, pay, pay_once};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Postgres};

const LONG: Duration = Duration::from_secs(20);
const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

async fn bank() -> PostgresServer {
    let server = PostgresServer::start();
    server.execute(TABLES).await;
    Sql::migrate(&server.url()).await.unwrap();
    server
}

fn guard() -> Guard {
    Guard::new(Memory::new())
}

/// Opens connections over this port with this setting.
fn over(port: u16, setting: (&'static str, &'static str)) -> PgPool {
    let address = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres");
    let options = address.parse::<PgConnectOptions>().unwrap().options([setting]);
    PgPoolOptions::new().max_connections(2).acquire_timeout(LONG).connect_lazy_with(options)
}

/// Claims, pays, and commits over a proxy that applies this fault to the commit.
async fn lose(pool: &PgPool, proxy: &Proxy, rules: &KeyRules, fate: TcpFault) -> TxClaim {
    let key = Key::new("by hand").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let mut transaction = pool.begin().await.unwrap();
    let Ok(TxVerdict::Run(claimed)) = claim_in(&mut transaction, rules, &intent).await else { panic!("a free key") };
    pay(&mut transaction, "by hand").await.unwrap();
    claimed.complete_in(&mut transaction, Reply::new(201, "paid")).await.unwrap();
    proxy.next("COMMIT", fate);
    transaction.commit().await.unwrap_err();
    claimed
}

/// A plain lookup would see nothing, and the caller would pay twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_waits_for_a_commit_in_flight() {
    let (server, guard) = (bank().await, guard());
    let mut paid = 0;
    for level in LEVELS {
        for arrives in [true, false] {
            let proxy = Proxy::before(server.port()).await;
            let pool = over(proxy.port(), ("default_transaction_isolation", level));
            proxy.next("COMMIT", TcpFault::Late);
            let (guard, payment) = (guard.clone(), format!("{level}-{arrives}"));
            let paying = tokio::spawn(async move { pay_once(&guard, &pool, &payment).await.unwrap() });
            until("the check waits for the commit", LONG, async || server.number(WAITING).await == 1).await;
            assert_eq!(figures(&server).await, [paid; 4], "{level}: a lookup does not see the commit");
            // The commit arrives late, or the database notices the lost connection and rolls back.
            if arrives {
                proxy.deliver()
            } else {
                proxy.lose_late()
            }
            paid += 1;
            let ran = paying.await.unwrap();
            assert_eq!(ran, RunOutcome::Executed(format!("paid {level}-{arrives}")));
            assert_eq!(figures(&server).await, [paid; 4], "{level}, {arrives}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_of_an_own_commit_waits_for_it() {
    let isolation = LEVELS.map(|level| ("default_transaction_isolation", level));
    for setting in isolation.into_iter().chain([("lock_timeout", "100ms")]) {
        let server = bank().await;
        let proxy = Proxy::before(server.port()).await;
        let pool = over(proxy.port(), isolation[0]);
        let claimed = lose(&pool, &proxy, &KeyRules::retryable(), TcpFault::Late).await;
        let asking = {
            let pool = over(server.port(), setting);
            tokio::spawn(async move { claimed.was_committed(&pool).await })
        };
        let since = "SELECT coalesce(max(extract(epoch FROM xact_start) * 1000000), 0)::bigint FROM pg_stat_activity
            WHERE wait_event_type = 'Lock'";
        let first = Cell::new(0);
        until("the check waits for the commit", LONG, async || {
            first.set(server.number(since).await);
            first.get() > 0
        })
        .await;
        assert_eq!(figures(&server).await, [0; 4], "a lookup does not see the commit");
        if setting.0 == "lock_timeout" {
            until("the check has timed out and is retried", LONG, async || server.number(since).await > first.get())
                .await;
        }
        proxy.deliver();
        assert!(asking.await.unwrap().unwrap(), "{setting:?}");
        assert_eq!(figures(&server).await, [1; 4]);
    }
}

/// An expired record looks like one that was never written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commit_with_expired_record_is_unknown_and_not_repeated() {
    let (server, guard) = (bank().await, guard());
    // Opening a new connection takes longer than the record is valid.
    let delay = Delay { connect: Duration::from_secs(1), ..Delay::default() };
    let proxy = Proxy::slowly_before(server.port(), delay).await;
    let pool = || over(proxy.port(), ("default_transaction_isolation", "read committed"));
    let rules = KeyRules::retryable().retain(Duration::from_millis(200));
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let work = |mut transaction: TxHandle<Postgres>| async move { pay(&mut transaction, "k").await };
    proxy.next("COMMIT", TcpFault::LoseAnswer);
    let lost = guard.transact(&pool(), &rules, &intent, work).await;
    assert!(matches!(lost, Err(RunError::Store(StoreError::Unknown(_)))), "{lost:?}");
    assert_eq!(server.number("SELECT balance FROM account").await, 1);

    let claimed = lose(&pool(), &proxy, &rules, TcpFault::LoseAnswer).await;
    let asked = claimed.was_committed(&pool()).await;
    assert!(matches!(asked, Err(ClaimError::Expired)), "{asked:?}");
    assert_eq!(server.number("SELECT balance FROM account").await, 2);
}

/// Otherwise each waiting transaction would hold a connection until the first ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_transaction_receives_in_progress_after_lock_timeout() {
    let server = bank().await;
    let pool = over(server.port(), ("lock_timeout", "100ms"));
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let mut first = pool.begin().await.unwrap();
    let Ok(TxVerdict::Run(claimed)) = claim_in(&mut first, &KeyRules::retryable(), &intent).await else {
        panic!("a free key")
    };

    let mut second = pool.begin().await.unwrap();
    let entered = claim_in(&mut second, &KeyRules::retryable(), &intent).await.unwrap();
    let TxVerdict::Reject(rejection) = entered else { panic!("the first transaction has the key: {entered:?}") };
    assert_eq!((rejection.code(), rejection.retry_after()), (Code::InProgress, Some(Duration::from_secs(1))));
    second.rollback().await.unwrap();
    let refused = pay_once(&guard(), &pool, "k").await.unwrap_err();
    assert!(matches!(&refused, RunError::Rejected(rejection) if rejection.code() == Code::InProgress), "{refused:?}");
    assert!(refused.is_temporary());

    let observing = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    assert_eq!(pay_once(&observing, &pool, "k").await.unwrap(), RunOutcome::Unprotected("paid k".to_owned()));
    assert_eq!(observing.would_have(), [("in_progress", 1)].into());

    claimed.complete_in(&mut first, Reply::new(200, "\"paid k\"")).await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(pay_once(&guard(), &pool, "k").await.unwrap(), RunOutcome::Replayed("paid k".to_owned()));
}
