//! Clock jumps. On SQLite no record expires early or late when the wall clock is changed; PostgreSQL uses its own clock.

use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::{MigrationOutcome, Room, Sql, SqlError, Store as _};
use onceward::transaction::{ClaimError, claim_in};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Kind, Policy, Subject, Ticket, Verdict};
use onceward_tests::client::send;
use onceward_tests::command_output::said;
use onceward_tests::database::Sqlite;
use onceward_tests::interval_routes::plainly;
use onceward_tests::key_routes::under;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::postgres::PostgresServer;
use onceward_tests::service::run;
use onceward_tests::shop::TAKES;
use onceward_tests::sqlite_payments::TABLE;
use onceward_tests::verdict_tally::{Presentation, Tally, TokenOutcome, present};
use onceward_tests::wall_clock::WallClock;

use crate::PEER;

const LONG: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;
/// Duration in milliseconds of the handler during which the clock jumps.
const SLOW: u64 = 2_000;

/// A process on a SQLite file, with a wall clock that the test sets.
struct Bed {
    file: Sqlite,
    clock: WallClock,
    ledger: Ledger,
    peer: Peer,
}

impl Bed {
    async fn new() -> Self {
        let (file, clock, ledger) = (Sqlite::with("").await, WallClock::new(), Ledger::new());
        Sql::migrate(&file.url()).await.unwrap();
        let peer = Peer::start_by(&clock, PEER, "onceward", &file.url(), &ledger);
        Self { file, clock, ledger, peer }
    }

    async fn begun(&self, runs: usize) {
        until("a handler has started", LONG, || async { self.ledger.count("begun") == runs }).await;
    }
}

#[tokio::test]
async fn key_stays_claimed_when_the_wall_clock_jumps() {
    let bed = Bed::new().await;
    for (at, jump) in [20, DAY, -HOUR].into_iter().enumerate() {
        let (key, order) = (format!("key-{jump}"), format!("order-{jump}"));
        let ask = || under(&bed.peer.url, "/keyed/patient", &key, &order).header(TAKES, SLOW);
        let first = tokio::spawn(send(ask()));
        bed.begun(at + 1).await;
        bed.clock.jump(jump);
        assert_eq!(send(ask()).await.said(), "409 in_progress", "{jump} s");
        assert_eq!(first.await.unwrap().said(), "200 executed");
        assert_eq!(send(ask()).await.said(), "200 replayed", "{jump} s");
        assert_eq!(bed.ledger.count(&order), 1, "{jump} s");
        bed.clock.jump(0);
    }
}

#[tokio::test]
async fn lock_stays_held_when_the_wall_clock_jumps() {
    let bed = Bed::new().await;
    let ask = |order: &str| plainly(&bed.peer.url, "/spaced/locked/7", order);
    let first = tokio::spawn(send(ask("first").header(TAKES, SLOW)));
    bed.begun(1).await;
    bed.clock.jump(20);
    assert_eq!(send(ask("beside")).await.said(), "429 locked");
    assert_eq!(first.await.unwrap().said(), "200 executed");
    assert_eq!(bed.ledger.count("beside"), 0);
    assert_eq!(send(ask("after")).await.said(), "200 executed");
}

/// A restarted process, or another one on the same machine, may see a different wall clock.
#[tokio::test]
async fn process_with_clock_ahead_reruns_and_removes_nothing() {
    let bed = Bed::new().await;
    let ahead = WallClock::new();
    ahead.jump(2 * DAY);
    let other = Peer::start_by(&ahead, PEER, "onceward", &bed.file.url(), &bed.ledger);
    let ask = |peer: &Peer| under(&peer.url, "/keyed/patient", "key", "order").header(TAKES, SLOW);
    let first = tokio::spawn(send(ask(&bed.peer)));
    bed.begun(1).await;
    assert_eq!(send(ask(&other)).await.said(), "409 in_progress");
    assert_eq!(first.await.unwrap().said(), "200 executed");
    // A process removes expired records at its start and every few seconds.
    let third = Peer::start_by(&ahead, PEER, "onceward", &bed.file.url(), &bed.ledger);
    for peer in [&other, &third, &bed.peer] {
        assert_eq!(send(ask(peer)).await.said(), "200 replayed");
    }
    assert_eq!(bed.ledger.count("order"), 1);
}

#[tokio::test]
async fn interval_ends_in_time_after_the_clock_went_back() {
    let bed = Bed::new().await;
    let ask = || send(plainly(&bed.peer.url, "/spaced/second", "order"));
    assert_eq!(ask().await.said(), "200 executed");
    bed.clock.jump(-HOUR);
    until("the interval of a second has ended", LONG, || async { ask().await.said() == "200 executed" }).await;
    assert_eq!(bed.ledger.count("order"), 2);
}

#[tokio::test]
async fn transaction_is_not_repeated_by_process_with_clock_ahead() {
    let file = Sqlite::with(TABLE).await;
    Sql::migrate(&file.url()).await.unwrap();
    let clock = WallClock::new();
    for jump in [0, 2 * DAY, -2 * DAY] {
        clock.jump(jump);
        let mut payer = Command::new(PEER);
        clock.set(payer.args(["payer", &file.url(), "payment"]).stdin(Stdio::null()).stdout(Stdio::null()));
        assert!(payer.status().unwrap().success());
        assert_eq!(file.number("SELECT count(*) FROM ledger").await, 1, "{jump} s");
    }
}

#[tokio::test]
async fn record_expires_by_the_wall_clock_across_a_reboot() {
    let file = Sqlite::with("").await;
    Sql::migrate(&file.url()).await.unwrap();
    let (ticket, another) = (Ticket::of(Kind::Key, b"one"), Ticket::of(Kind::Key, b"another"));
    let open = async || Sql::open_within(&file.url(), LONG).await.unwrap();
    open().await.insert(&ticket, b"x", MINUTE, Room::Free).await.unwrap();
    // Half a minute passes while the machine is off; its boot clock restarts at zero.
    let reboot = async |seconds: i64| {
        let moved = format!("UPDATE onceward_clock SET boot = 'the boot before', wall_ms = wall_ms - {seconds} * 1000");
        file.execute(&moved).await;
    };
    reboot(30).await;
    let store = open().await;
    assert_eq!(store.look(&ticket).await.unwrap().as_deref(), Some(&b"x"[..]));
    store.insert(&another, b"y", MINUTE, Room::Free).await.unwrap();
    reboot(31).await;
    let store = open().await;
    assert_eq!(store.look(&ticket).await.unwrap(), None, "61 seconds have passed");
    assert!(store.look(&another).await.unwrap().is_some(), "31 seconds have passed");
    // A machine with an empty clock battery boots in the past: no time has passed, and time does not go back.
    reboot(-DAY).await;
    let store = open().await;
    assert!(store.look(&another).await.unwrap().is_some());
    assert_eq!(store.insert(&ticket, b"z", MINUTE, Room::Free).await.unwrap(), None, "an expired record stays expired");
}

/// Creates a file in the format of schema version 1: it has no clock, and its records expire by the wall clock.
async fn file_of_the_first_version() -> Sqlite {
    let file = Sqlite::with("").await;
    Sql::migrate(&file.url()).await.unwrap();
    let store = Sql::open_within(&file.url(), LONG).await.unwrap();
    store.insert(&Ticket::of(Kind::Key, b"kept"), b"x", MINUTE, Room::Free).await.unwrap();
    file.execute("DROP TABLE onceward_clock; UPDATE onceward_schema SET version = 1").await;
    file
}

#[tokio::test]
async fn file_of_schema_version_1_is_rejected_with_the_migrate_command() {
    let file = file_of_the_first_version().await;
    let key = Key::new("k").unwrap();
    let intent = Intent::new("pay", Subject::anonymous()).key(&key);
    let pool = sqlx::SqlitePool::connect(&file.url()).await.unwrap();
    let claimed = claim_in(&mut pool.begin().await.unwrap(), &KeyRules::retryable(), &intent).await;
    let Err(ClaimError::Tables(claimed)) = claimed else { panic!("the file has no clock: {claimed:?}") };
    for error in [Sql::open(&file.url()).await.unwrap_err(), claimed] {
        assert!(matches!(error, SqlError::Outdated { found: 1, needed: 2, .. }), "{error}");
        assert!(error.to_string().contains("onceward migrate --store"), "{error}");
    }
    for arguments in [&["check", "--store"][..], &["--listen", "127.0.0.1:0", "--store"]] {
        let (code, text) = said(&run(&[arguments, &[&file.url()]].concat()));
        assert!(code == 1 && text.contains("onceward migrate --store"), "{code} {text}");
    }
    let (code, text) = said(&run(&["migrate", "--store", &file.url()]));
    assert!(code == 0 && text.contains("updated the tables"), "{code} {text}");
    let (code, text) = said(&run(&["check", "--store", &file.url()]));
    assert!(code == 0 && text.contains("Fit for use"), "{code} {text}");
}

#[tokio::test]
async fn file_of_schema_version_1_keeps_its_records_when_migrated() {
    let kept = async |file: &Sqlite| {
        let store = Sql::open_within(&file.url(), LONG).await.unwrap();
        store.look(&Ticket::of(Kind::Key, b"kept")).await.unwrap().as_deref() == Some(&b"x"[..])
    };
    let file = file_of_the_first_version().await;
    let urls = [(); 4].map(|()| file.url());
    let migrated = join_all(urls.iter().map(|url| Sql::migrate(url))).await;
    assert!(migrated.iter().any(|migrated| matches!(migrated, Ok(MigrationOutcome::Updated))), "{migrated:?}");
    assert!(migrated.iter().all(Result::is_ok), "{migrated:?}");
    assert_eq!(Sql::migrate(&file.url()).await.unwrap(), MigrationOutcome::Current);
    assert!(kept(&file).await);
    // The same with the printed statements.
    let file = file_of_the_first_version().await;
    for _ in 0..2 {
        file.execute(Sql::migration(&file.url()).unwrap()).await;
        assert!(kept(&file).await);
    }
    file.execute("UPDATE onceward_schema SET version = 3").await;
    for error in [Sql::open(&file.url()).await.unwrap_err(), Sql::migrate(&file.url()).await.unwrap_err()] {
        assert!(error.to_string().contains("they have version 3, and this version needs 2"), "{error}");
    }
}

/// Documents a limit: PostgreSQL expires records by its own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_clock_jump_expires_records_but_accepts_no_token_twice() {
    let server = PostgresServer::start_leaping();
    Sql::migrate(&server.url()).await.unwrap();
    let guard = Guard::new(Sql::open_within(&server.url(), LONG).await.unwrap());
    let (tally, key) = (Tally::default(), Key::new("k").unwrap());
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    let policy = Policy::key(KeyRules::at_most_once());
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key") };
    pass.complete(None).await.unwrap();
    let mut tokens = Vec::new();
    for number in 0..6 {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap().as_str().to_owned();
        if number < 3 {
            assert_eq!(
                tally.note(&token, present(&guard, &token, &Presentation::by(number)).await),
                TokenOutcome::Accepted
            );
        }
        tokens.push(token);
    }
    server.leap();
    for (number, token) in tokens.iter().enumerate() {
        let told = tally.note(token, present(&guard, token, &Presentation::by(number)).await);
        assert_eq!(told, TokenOutcome::Used, "{number}: its record has expired");
    }
    assert_eq!((tally.count(TokenOutcome::Accepted), tally.doubles()), (3, 0), "{tally}");
    let again = guard.check(&policy, &intent).await.unwrap();
    assert!(matches!(again, Verdict::Run(_)), "{again:?}");
}
