//! Background cleanup of a database store, and expiry by the clock of the database.

use std::time::Duration;

use onceward::api::Code;
use onceward::store::laws::Laws;
use onceward::store::{Sql, Store as _};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, ManualClock, Policy, Subject, Ticket, Token, Verdict};
use onceward_tests::database::TestDatabase;
use onceward_tests::policy_walkthrough::every_policy;
use onceward_tests::polling::until;
use onceward_tests::postgres::PostgresServer;
use onceward_tests::shop::Shop;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A long timeout, because other tests share the two cores.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

/// A trigger that makes each delete take half a second.
const SLOW: &str = "CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON onceward_records FOR EACH STATEMENT EXECUTE FUNCTION take_time()";
const OVER: &str = "SELECT count(*) FROM onceward_records WHERE name LIKE 'over-%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_holds_on_a_database() {
    for database in TestDatabase::both().await {
        every_policy(&Shop::on(Sql::open_within(&database.url(), PATIENCE).await.unwrap())).await;
    }
}

/// A cleanup batch may take longer than the timeout of a verb, on a large table or a busy disk.
#[tokio::test]
async fn cleanup_has_its_own_timeout() {
    let server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    server.execute(SLOW).await;
    let fill = "INSERT INTO onceward_records SELECT 'over-' || n, 'x', now() - interval '1 day' FROM generate_series(1, 700) n";
    server.execute(fill).await;
    let store = Sql::open(&server.url()).await.unwrap();
    until("all expired are removed", LONG, async || server.number(OVER).await == 0).await;
    drop(store);
}

/// A store that stays open, with more to remove than it can finish here.
#[tokio::test]
async fn open_store_sees_a_new_epoch_during_cleanup() {
    for database in TestDatabase::both().await {
        if let TestDatabase::Postgres(database) = &database {
            database.execute(SLOW).await;
        }
        database.fill("over", 100_000, -1).await;
        let store = Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let guard = Guard::new(store.clone());
        let token: Token = guard.issue(MINUTE * 10, Binding::none()).await.unwrap();
        let epoch = || store.epoch(&Ticket::of(Kind::Token, b"any")).unwrap();
        let before = epoch();
        database.begin_epoch().await;
        until("the epoch is seen", LONG, async || epoch() != before).await;
        if matches!(database, TestDatabase::Postgres(_)) {
            assert!(database.number(OVER).await > 0, "the cleanup was busy all the time");
        }
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        let Ok(Verdict::Reject(rejection)) = guard.check(&Policy::token(), &intent).await else {
            panic!("stale token")
        };
        assert_eq!(rejection.code(), Code::TokenStale, "{}", database.url());
    }
}

/// The application's clock does not matter.
#[tokio::test]
async fn record_expiry_uses_the_database_clock() {
    for database in TestDatabase::both().await {
        let clock = ManualClock::new();
        clock.advance(400 * DAY);
        let store = Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let guard = Guard::builder(store).clock((&clock).into()).build();
        guard.issue(10 * MINUTE, Binding::none()).await.unwrap();
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::retryable().retain(DAY));
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a free key") };
        pass.complete(None).await.unwrap();
        // The record of a token outlives the token by a minute.
        for (kind, life) in [("token", 11 * MINUTE), ("key", DAY)] {
            let left = database.left();
            let left =
                database.number(&format!("SELECT {left} FROM onceward_records WHERE name LIKE '%:{kind}:%'")).await;
            let life = life.as_millis() as i64;
            assert!((life - 30_000..=life).contains(&left), "{kind} at {}: {left} of {life}", database.url());
        }
    }
}

/// An expiry computed by the application's clock would be in the past or far in the future.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_a_database_with_a_wrong_clock() {
    for days in [1, -1] {
        let server = PostgresServer::start_ahead(days * DAY.as_secs() as i64);
        // The creation time of this file shows the real time.
        let ahead = "SELECT round(extract(epoch FROM clock_timestamp() - (pg_stat_file('PG_VERSION')).modification) / 86400)::bigint";
        assert_eq!(server.number(ahead).await, days);
        Sql::migrate(&server.url()).await.unwrap();
        let store = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
        Laws::of(store).rounds(2).short(Duration::from_secs(1)).hold().await;
    }
}
