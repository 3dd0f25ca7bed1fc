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
/// A long timeout, because the laws share two cores with other tests.
const PATIENCE: Duration = Duration::from_secs(10);
/// A short timeout, for commands that are expected to time out.
const GIVE_UP: Duration = Duration::from_secs(2);
/// Lifetime of a record whose expiry a law waits for.
const SHORT: Duration = Duration::from_secs(1);

/// Starts a server with the tables and returns its address.
async fn postgres() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    let url = server.url();
    assert_eq!(Sql::migrate(&url).await.unwrap(), MigrationOutcome::Made);
    (server, url)
}

/// Creates a file with the tables and returns its address.
async fn sqlite() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    assert_eq!(Sql::migrate(&url).await.unwrap(), MigrationOutcome::Made);
    (folder, url)
}

/// Returns both stores, each with a new database.
async fn both() -> [(Box<dyn std::any::Any>, String); 2] {
    let ((server, at_server), (folder, at_folder)) = (postgres().await, sqlite().await);
    [(Box::new(server), at_server), (Box::new(folder), at_folder)]
}

fn ticket(name: &str) -> Ticket {
    Ticket::of(Kind::Key, name.as_bytes())
}

#[tokio::test]
async fn killed_database_keeps_committed_records() {
    let mut server = PostgresServer::start_with(&["fsync=on"]);
    server.execute("CREATE TABLE kept (id bigint); INSERT INTO kept VALUES (7)").await;
    server.kill();
    server.restart();
    assert_eq!(server.number("SELECT id FROM kept").await, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_postgresql() {
    let (_server, url) = postgres().await;
    Laws::of(Sql::open_within(&url, PATIENCE).await.unwrap()).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_on_sqlite() {
    let (_folder, url) = sqlite().await;
    Laws::of(Sql::open_within(&url, PATIENCE).await.unwrap()).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_with_a_serializable_default() {
    let server = PostgresServer::start_with(&["default_transaction_isolation=serializable"]);
    Sql::migrate(&server.url()).await.unwrap();
    let store = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
    Laws::of(store).rounds(5).short(SHORT).hold().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_inserts_over_an_expired_record_wins() {
    for (_kept, url) in both().await {
        // Two stores stand for two processes.
        let stores = [Sql::open_within(&url, PATIENCE).await.unwrap(), Sql::open_within(&url, PATIENCE).await.unwrap()];
        for round in 0..10 {
            let ticket = ticket(&format!("{round}"));
            stores[0].insert(&ticket, b"over", Duration::from_millis(1), Room::Free).await.unwrap();
            until("the record has expired", PATIENCE, async || stores[0].look(&ticket).await.unwrap().is_none()).await;
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
async fn lost_reply_is_unknown_whether_or_not_executed() {
    let (server, _) = postgres().await;
    let proxy = Proxy::before(server.port()).await;
    let url = server.url().replace(&server.port().to_string(), proxy.url().rsplit(':').next().unwrap());
    let store = Sql::open_within(&url, GIVE_UP).await.unwrap();
    for (name, fate, is_there) in [
        ("answer", TcpFault::LoseAnswer, true),
        ("request", TcpFault::LoseRequest, false),
        ("silence", TcpFault::SwallowAnswer, true),
    ] {
        // Prepared on the connection, so that the next message is the statement itself.
        store.insert(&ticket(&format!("{name} before")), b"x", MINUTE, Room::Free).await.unwrap();
        proxy.next("onceward:key", fate);
        let error = store.insert(&ticket(name), b"x", MINUTE, Room::Free).await.unwrap_err();
        assert!(matches!(error, StoreError::Unknown(_)), "{name}: {error}");
        let direct = Sql::open_within(&server.url(), PATIENCE).await.unwrap();
        assert_eq!(direct.look(&ticket(name)).await.unwrap().is_some(), is_there, "{name}");
        assert_eq!(store.look(&ticket("before")).await.unwrap(), None, "{name}: the next command works");
    }
    assert_eq!(proxy.struck(), 3);
}

#[tokio::test]
async fn lock_timeout_means_not_executed() {
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
    until("the lock is released", PATIENCE, async || {
        store
            .swap(&ticket("held"), b"x", b"y", MINUTE, Room::Free, None)
            .await
            .is_ok_and(|swapped| swapped == Compared::Done)
    })
    .await;
}

#[tokio::test]
async fn busy_sqlite_file_means_not_executed() {
    let (_folder, url) = sqlite().await;
    let store = Sql::open_within(&url, GIVE_UP).await.unwrap();
    // The cleanup has run by now, and does not compete for the file.
    store.insert(&ticket("before"), b"x", MINUTE, Room::Free).await.unwrap();
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let lock = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.insert(&ticket("held"), b"x", MINUTE, Room::Free).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)), "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(store.insert(&ticket("held"), b"x", MINUTE, Room::Free).await.unwrap(), None);
}

/// There is more to remove than one batch.
#[tokio::test]
async fn dropped_store_stops_its_cleanup() {
    let (server, url) = postgres().await;
    let fill =
        "INSERT INTO onceward_records SELECT n::text, 'x', now() - interval '1 hour' FROM generate_series(1, 100000) n";
    server.execute(fill).await;
    let left = async || server.number("SELECT count(*) FROM onceward_records").await;
    let store = Sql::open_within(&url, PATIENCE).await.unwrap();
    until("the cleanup has started", PATIENCE, async || left().await < 100_000).await;
    drop(store);
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onceward'";
    until("its connections are closed", PATIENCE, async || server.number(connections).await == 0).await;
    assert!(left().await > 0, "the store was dropped before all was removed");
}

#[tokio::test]
async fn unavailable_database_executes_nothing_and_is_reconnected() {
    let (mut server, url) = postgres().await;
    let store = Sql::open_within(&url, PATIENCE).await.unwrap();
    store.insert(&ticket("kept"), b"x", MINUTE, Room::Free).await.unwrap();
    server.kill();
    // A command sent on a connection that broke unnoticed is unknown; one that could not be sent is not executed.
    let certain = async || matches!(store.look(&ticket("kept")).await, Err(StoreError::NotExecuted(_)));
    until("the database is known to be down", PATIENCE, certain).await;
    assert!(certain().await && certain().await);
    server.restart();
    until("the database is reconnected", PATIENCE, async || store.look(&ticket("kept")).await.is_ok()).await;
    assert_eq!(store.look(&ticket("kept")).await.unwrap().as_deref(), Some(&b"x"[..]));
}

#[tokio::test]
async fn token_is_valid_for_every_guard_on_the_database() {
    for (_kept, url) in both().await {
        let open = async || Guard::new(Sql::open_within(&url, PATIENCE).await.unwrap());
        let (first, second) = (open().await, open().await);
        let issue = async |guard: &Guard| guard.issue(MINUTE, Binding::none()).await.unwrap();
        let (one, other) = (issue(&first).await, issue(&second).await);
        drop((first, second));
        let third = open().await;
        for token in [&one, &other] {
            let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
            let Ok(Verdict::Run(pass)) = third.check(&Policy::token(), &intent).await else { panic!("valid token") };
            pass.complete(None).await.unwrap();
            let Ok(Verdict::Reject(rejection)) = open().await.check(&Policy::token(), &intent).await else {
                panic!("used token")
            };
            assert_eq!(rejection.code(), Code::TokenUsed);
        }
    }
}

/// An operator who restores a backup sets a new epoch.
#[tokio::test]
async fn token_of_another_epoch_is_stale_not_used() {
    for database in TestDatabase::both().await {
        let secret = onceward::Secret::random();
        let store = async || Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let open = async || Guard::builder(store().await).secret(secret.clone()).build();
        let token = open().await.issue(MINUTE, Binding::none()).await.unwrap();
        database.begin_epoch().await;
        assert_eq!(refused(&open().await, &token).await, Code::TokenStale, "{}", database.url());
    }
}

/// Returns the code with which a token is rejected.
async fn refused(guard: &Guard, token: &Token) -> Code {
    let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
    let Ok(Verdict::Reject(rejection)) = guard.check(&Policy::token(), &intent).await else { panic!("rejected") };
    rejection.code()
}

#[tokio::test]
async fn blocked_thread_does_not_stop_renewals() {
    const LEASE: Duration = Duration::from_millis(1500);
    for (_kept, url) in both().await {
        let open = async || Guard::new(Sql::open_within(&url, PATIENCE).await.unwrap());
        let (first, second) = (open().await, open().await);
        let key = Key::new("k").unwrap();
        let intent = Intent::new("pay", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::retryable().lease(LEASE).unwrap());
        let Ok(Verdict::Run(pass)) = first.check(&policy, &intent).await else { panic!("a free key") };
        #[expect(clippy::disallowed_methods, reason = "the test blocks its thread on purpose")]
        std::thread::sleep(LEASE * 8 / 3);
        let Ok(Verdict::Reject(rejection)) = second.check(&policy, &intent).await else { panic!("in flight") };
        assert_eq!(rejection.code(), Code::InProgress);
        pass.release().await.unwrap();
    }
}

#[tokio::test]
async fn cleanup_removes_only_expired_records() {
    for database in TestDatabase::both().await {
        database.fill("old", 1700, -1).await;
        database.fill("new", 300, 1).await;
        let store = Sql::open_within(&database.url(), PATIENCE).await.unwrap();
        let count = async || database.number("SELECT count(*) FROM onceward_records").await;
        until("all expired are removed", PATIENCE, async || count().await == 300).await;
        store.insert(&ticket("one more"), b"x", MINUTE, Room::Free).await.unwrap();
        assert_eq!(count().await, 301, "{}", database.url());
    }
}

#[tokio::test]
async fn errors_never_show_a_password() {
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
