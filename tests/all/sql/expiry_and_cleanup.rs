//! What a store on a database does by itself, and what the database's clock decides.

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
/// Patient, because others are busy on the same two cores.
const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

/// Whoever deletes takes half a second over it.
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

/// The time that a verb has is not the time that a batch needs, on a table that is large or a disk that is busy.
#[tokio::test]
async fn removing_has_a_time_of_its_own() {
    let server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    server.execute(SLOW).await;
    let fill = "INSERT INTO onceward_records SELECT 'over-' || n, 'x', now() - interval '1 day' FROM generate_series(1, 700) n";
    server.execute(fill).await;
    let store = Sql::open(&server.url()).await.unwrap();
    until("all of it is removed", LONG, async || server.number(OVER).await == 0).await;
    drop(store);
}

/// One store that is open all the time, and has more to remove than it ever gets done here.
#[tokio::test]
async fn a_store_that_is_open_learns_of_another_epoch_whatever_it_has_to_remove() {
    for database in TestDatabase::both().await {
        if let TestDatabase::Postgres(database) = &database {
            database.execute(SLOW).await;
        }
        database.fill("over", 100_000, -1).await;
        let store = Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let guard = Guard::new(store.clone());
        let token: Token = guard.issue(MINUTE * 10, Binding::none()).await.unwrap();
        database.begin_epoch().await;
        let known = || store.epoch(&Ticket::of(Kind::Token, b"any")).unwrap() == [1, 2, 3, 4, 5, 6, 7, 8];
        until("the epoch is seen", LONG, async || known()).await;
        if matches!(database, TestDatabase::Postgres(_)) {
            assert!(database.number(OVER).await > 0, "it was busy all the time");
        }
        let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
        let Ok(Verdict::Reject(rejection)) = guard.check(&Policy::token(), &intent).await else {
            panic!("it is stale")
        };
        assert_eq!(rejection.code(), Code::TokenStale, "{}", database.url());
    }
}

/// However wrong the application's clock is.
#[tokio::test]
async fn how_long_a_record_lives_is_told_by_the_clock_of_the_database() {
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
        // A token's record outlives it by a minute.
        for (kind, life) in [("token", 11 * MINUTE), ("key", DAY)] {
            let left = database.left();
            let left =
                database.number(&format!("SELECT {left} FROM onceward_records WHERE name LIKE '%:{kind}:%'")).await;
            let life = life.as_millis() as i64;
            assert!((life - 30_000..=life).contains(&left), "{kind} at {}: {left} of {life}", database.url());
        }
    }
}

/// Whoever wrote his own time would write what is over, or what never ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_laws_hold_on_a_database_whose_clock_is_wrong() {
    for days in [1, -1] {
        let server = PostgresServer::start_ahead(days * DAY.as_secs() as i64);
        // The system wrote down when this file was made.
        let ahead = "SELECT round(extract(epoch FROM clock_timestamp() - (pg_stat_file('PG_VERSION')).modification) / 86400)::bigint";
        assert_eq!(server.number(ahead).await, days);
        Sql::migrate(&server.url()).await.unwrap();
        let store = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
        Laws::of(store).rounds(2).short(Duration::from_secs(1)).hold().await;
    }
}
