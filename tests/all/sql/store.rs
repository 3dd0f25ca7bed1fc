//! The store on real databases: PostgreSQL and SQLite.

use std::time::Duration;

use onceward::api::Code;
use onceward::store::laws::Laws;
use onceward::store::{Compared, MigrationOutcome, Room, Sql, Store as _, StoreError};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, Policy, Subject, Ticket, Token, Verdict};
use onceward_tests::database::TestDatabase;
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::polling::until;
use onceward_tests::postgres::{PASSWORD, PostgresServer};
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
/// Patient, because the laws race on two cores with everything else.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for what is quick, where something is waited for in vain.
const GIVE_UP: Duration = Duration::from_secs(2);
/// How long a record lives whose end a law waits for.
const SHORT: Duration = Duration::from_secs(1);

/// A server with the tables, and its address.
async fn postgres() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    let url = server.url();
    assert_eq!(Sql::migrate(&url).await.unwrap(), MigrationOutcome::Made);
    (server, url)
}

/// A file with the tables, and its address.
async fn sqlite() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    assert_eq!(Sql::migrate(&url).await.unwrap(), MigrationOutcome::Made);
    (folder, url)
}

/// Both of them, each in a new database.
async fn both() -> [(Box<dyn std::any::Any>, String); 2] {
    let ((server, at_server), (folder, at_folder)) = (postgres().await, sqlite().await);
    [(Box::new(server), at_server), (Box::new(folder), at_folder)]
}

fn ticket(name: &str) -> Ticket {
    Ticket::of(Kind::Key, name.as_bytes())
}

#[tokio::test]
async fn a_database_that_was_killed_has_what_was_committed() {
    let mut server = PostgresServer::start_with(&["fsync=on"]);
    server.execute("CREATE TABLE kept (id bigint); INSERT INTO kept VALUES (7)").await;
    server.kill();
    server.restart();
    assert_eq!(server.number("SELECT id FROM kept").await, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_laws_hold_on_postgresql() {
    let (_server, url) = postgres().await;
    Laws::of(Sql::open_within(&url, PATIENCE).await.unwrap()).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_laws_hold_on_sqlite() {
    let (_folder, url) = sqlite().await;
    Laws::of(Sql::open_within(&url, PATIENCE).await.unwrap()).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_laws_hold_where_the_database_would_rather_be_serializable() {
    let server = PostgresServer::start_with(&["default_transaction_isolation=serializable"]);
    Sql::migrate(&server.url()).await.unwrap();
    let store = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
    Laws::of(store).rounds(5).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_inserts_over_what_has_expired_exactly_one_wins() {
    for (_kept, url) in both().await {
        // Two stores, as of two processes.
        let stores = [Sql::open_within(&url, PATIENCE).await.unwrap(), Sql::open_within(&url, PATIENCE).await.unwrap()];
        for round in 0..10 {
            let ticket = ticket(&format!("{round}"));
            stores[0].insert(&ticket, b"over", Duration::from_millis(1), Room::Free).await.unwrap();
            until("it is over", PATIENCE, async || stores[0].look(&ticket).await.unwrap().is_none()).await;
            let racers: Vec<_> = (0..32_u8)
                .map(|racer| {
                    let store = stores[usize::from(racer) % 2].clone();
                    tokio::spawn(async move { store.insert(&ticket, &[racer], MINUTE, Room::Free).await.unwrap() })
                })
                .collect();
            let mut found = Vec::new();
            for racer in racers {
                found.extend(racer.await.unwrap());
            }
            let there = stores[1].look(&ticket).await.unwrap().unwrap();
            assert_eq!(found, vec![there; 31], "{url}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_unknown_whether_or_not_it_was_carried_out() {
    let (server, _) = postgres().await;
    let proxy = Proxy::before(server.port()).await;
    let url = server.url().replace(&server.port().to_string(), proxy.url().rsplit(':').next().unwrap());
    let store = Sql::open_within(&url, GIVE_UP).await.unwrap();
    for (name, fate, is_there) in [
        ("answer", TcpFault::LoseAnswer, true),
        ("request", TcpFault::LoseRequest, false),
        ("silence", TcpFault::SwallowAnswer, true),
    ] {
        // Known to the connection, so that the next message is the statement itself.
        store.insert(&ticket(&format!("{name} before")), b"x", MINUTE, Room::Free).await.unwrap();
        proxy.next("onceward:key", fate);
        let error = store.insert(&ticket(name), b"x", MINUTE, Room::Free).await.unwrap_err();
        assert!(matches!(error, StoreError::Unknown(_)), "{name}: {error}");
        let direct = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
        assert_eq!(direct.look(&ticket(name)).await.unwrap().is_some(), is_there, "{name}");
        assert_eq!(store.look(&ticket("before")).await.unwrap(), None, "{name}: the next one is answered");
    }
    assert_eq!(proxy.struck(), 3);
}

#[tokio::test]
async fn what_waits_for_a_lock_too_long_has_certainly_changed_nothing() {
    let (server, url) = postgres().await;
    let store = Sql::open_within(&url, GIVE_UP).await.unwrap();
    store.insert(&ticket("held"), b"x", MINUTE, Room::Free).await.unwrap();
    let pool = server.pool(1).await;
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("SELECT * FROM onceward_records FOR UPDATE").fetch_all(&mut *lock).await.unwrap();
    let error = store.swap(&ticket("held"), b"x", b"y", MINUTE, Room::Free, None).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
    assert!(error.to_string().contains("statement timeout"), "{error}");
    drop(lock);
    until("the lock is gone", PATIENCE, async || {
        store
            .swap(&ticket("held"), b"x", b"y", MINUTE, Room::Free, None)
            .await
            .is_ok_and(|swapped| swapped == Compared::Done)
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_the_file_too_long_has_certainly_changed_nothing() {
    let (_folder, url) = sqlite().await;
    let store = Sql::open_within(&url, GIVE_UP).await.unwrap();
    // Its cleaner has had its turn when this is answered, and does not wait for the file before us.
    store.insert(&ticket("before"), b"x", MINUTE, Room::Free).await.unwrap();
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let lock = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.insert(&ticket("held"), b"x", MINUTE, Room::Free).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(store.insert(&ticket("held"), b"x", MINUTE, Room::Free).await.unwrap(), None);
}

/// There is more to remove than is removed in a moment.
#[tokio::test]
async fn a_store_that_is_dropped_stops_removing_what_has_expired() {
    let (server, url) = postgres().await;
    let fill =
        "INSERT INTO onceward_records SELECT n::text, 'x', now() - interval '1 hour' FROM generate_series(1, 100000) n";
    server.execute(fill).await;
    let left = async || server.number("SELECT count(*) FROM onceward_records").await;
    let store = Sql::open_within(&url, PATIENCE).await.unwrap();
    until("it has begun", PATIENCE, async || left().await < 100_000).await;
    drop(store);
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onceward'";
    until("its connections are closed", PATIENCE, async || server.number(connections).await == 0).await;
    assert!(left().await > 0, "it was dropped before all was removed");
}

#[tokio::test]
async fn a_database_that_is_away_has_done_nothing_and_is_found_again() {
    let (mut server, url) = postgres().await;
    let store = Sql::open_within(&url, PATIENCE).await.unwrap();
    store.insert(&ticket("kept"), b"x", MINUTE, Room::Free).await.unwrap();
    server.kill();
    // What was sent over a connection that had not noticed is unknown; what could not be sent is not.
    let certain = async || matches!(store.look(&ticket("kept")).await, Err(StoreError::NotExecuted(_)));
    until("it is known to be away", PATIENCE, certain).await;
    assert!(certain().await && certain().await);
    server.restart();
    until("it is found again", PATIENCE, async || store.look(&ticket("kept")).await.is_ok()).await;
    assert_eq!(store.look(&ticket("kept")).await.unwrap().as_deref(), Some(&b"x"[..]));
}

#[tokio::test]
async fn a_token_is_good_for_every_guard_on_the_database_and_outlives_them() {
    for (_kept, url) in both().await {
        let open = async || Guard::new(Sql::open_within(&url, PATIENCE).await.unwrap());
        let (first, second) = (open().await, open().await);
        let issue = async |guard: &Guard| guard.issue(MINUTE, Binding::none()).await.unwrap();
        let (one, other) = (issue(&first).await, issue(&second).await);
        drop((first, second));
        let third = open().await;
        for token in [&one, &other] {
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            let Ok(Verdict::Run(pass)) = third.check(&Policy::token(), &intent).await else { panic!("a good token") };
            pass.complete(None).await.unwrap();
            let Ok(Verdict::Reject(rejection)) = open().await.check(&Policy::token(), &intent).await else {
                panic!("a used token")
            };
            assert_eq!(rejection.code(), Code::TokenUsed);
        }
    }
}

/// Whoever restores a backup gives it another epoch.
#[tokio::test]
async fn a_token_of_another_epoch_is_stale_and_not_used() {
    for database in TestDatabase::both().await {
        let secret = onceward::Secret::random();
        let store = async || Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let open = async || Guard::builder(store().await).secret(secret.clone()).build();
        let token = open().await.issue(MINUTE, Binding::none()).await.unwrap();
        database.begin_epoch().await;
        assert_eq!(refused(&open().await, &token).await, Code::TokenStale, "{}", database.url());
    }
}

/// What a token is refused for.
async fn refused(guard: &Guard, token: &Token) -> Code {
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    let Ok(Verdict::Reject(rejection)) = guard.check(&Policy::token(), &intent).await else { panic!("it is refused") };
    rejection.code()
}

#[tokio::test]
async fn a_thread_that_is_blocked_does_not_stop_renewals() {
    const LEASE: Duration = Duration::from_millis(1500);
    for (_kept, url) in both().await {
        let open = async || Guard::new(Sql::open_within(&url, PATIENCE).await.unwrap());
        let (first, second) = (open().await, open().await);
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::retryable().lease(LEASE).unwrap());
        let Ok(Verdict::Run(pass)) = first.check(&policy, &intent).await else { panic!("a free key") };
        #[expect(clippy::disallowed_methods, reason = "to block the thread is the point")]
        std::thread::sleep(LEASE * 8 / 3);
        let Ok(Verdict::Reject(rejection)) = second.check(&policy, &intent).await else { panic!("it still runs") };
        assert_eq!(rejection.code(), Code::InProgress);
        pass.release().await.unwrap();
    }
}

#[tokio::test]
async fn what_has_expired_is_removed_and_what_has_not_is_not() {
    for database in TestDatabase::both().await {
        database.fill("old", 1700, -1).await;
        database.fill("new", 300, 1).await;
        let store = Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let count = async || database.number("SELECT count(*) FROM onceward_records").await;
        until("all that is over is removed", PATIENCE, async || count().await == 300).await;
        store.insert(&ticket("one more"), b"x", MINUTE, Room::Free).await.unwrap();
        assert_eq!(count().await, 301, "{}", database.url());
    }
}

#[tokio::test]
async fn a_password_is_in_no_error() {
    let (server, url) = postgres().await;
    let store = Sql::open(&url).await.unwrap();
    let wrong = url.replace(PASSWORD, "canary-password");
    let unreadable = wrong.replace(&server.port().to_string(), "port");
    let errors = [Sql::open(&wrong).await.unwrap_err(), Sql::open(&unreadable).await.unwrap_err()];
    for text in errors.iter().map(|error| format!("{error} {error:?}")).chain([format!("{store:?}")]) {
        assert!(!text.contains("canary") && !text.contains(PASSWORD), "{text}");
    }
    assert!(errors[0].to_string().contains("password authentication failed"), "{}", errors[0]);
}
