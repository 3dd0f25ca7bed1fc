//! The wall clock of a machine jumps while processes on it share a SQLite file: neither too soon nor too late is anything over.

use std::process::{Command, Stdio};
use std::time::Duration;

use onceward::store::{Sql, Store as _};
use onceward::{Kind, Ticket};
use onceward_tests::client::send;
use onceward_tests::database::Sqlite;
use onceward_tests::keyed::under;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::piggy_bank::TABLE;
use onceward_tests::shop::TAKES;
use onceward_tests::spaced::plainly;
use onceward_tests::wait::until;
use onceward_tests::wall_clock::WallClock;

use crate::PEER;

const LONG: Duration = Duration::from_secs(20);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;
/// How many milliseconds a handler takes during which the clock jumps.
const SLOW: u64 = 2_000;

/// A process on a file, and its wall clock.
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
        until("a handler has begun", LONG, || async { self.ledger.count("begun") == runs }).await;
    }
}

#[tokio::test]
async fn key_stays_claimed_while_its_handler_runs_and_the_wall_clock_jumps() {
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
async fn lock_stays_held_while_its_handler_runs_and_the_wall_clock_jumps() {
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

/// A process that is started again, or another one on the same machine, may have read the time from elsewhere.
#[tokio::test]
async fn process_whose_wall_clock_is_days_ahead_runs_nothing_again_and_removes_nothing() {
    let bed = Bed::new().await;
    let ahead = WallClock::new();
    ahead.jump(2 * DAY);
    let other = Peer::start_by(&ahead, PEER, "onceward", &bed.file.url(), &bed.ledger);
    let ask = |peer: &Peer| under(&peer.url, "/keyed/patient", "key", "order").header(TAKES, SLOW);
    let first = tokio::spawn(send(ask(&bed.peer)));
    bed.begun(1).await;
    assert_eq!(send(ask(&other)).await.said(), "409 in_progress");
    assert_eq!(first.await.unwrap().said(), "200 executed");
    // What is removed is removed at the start of a process, and every few seconds.
    let third = Peer::start_by(&ahead, PEER, "onceward", &bed.file.url(), &bed.ledger);
    for peer in [&other, &third, &bed.peer] {
        assert_eq!(send(ask(peer)).await.said(), "200 replayed");
    }
    assert_eq!(bed.ledger.count("order"), 1);
}

#[tokio::test]
async fn interval_is_over_in_time_although_the_wall_clock_went_back() {
    let bed = Bed::new().await;
    let ask = || send(plainly(&bed.peer.url, "/spaced/second", "order"));
    assert_eq!(ask().await.said(), "200 executed");
    bed.clock.jump(-HOUR);
    until("the second is over", LONG, || async { ask().await.said() == "200 executed" }).await;
    assert_eq!(bed.ledger.count("order"), 2);
}

#[tokio::test]
async fn what_was_paid_in_a_transaction_is_not_paid_again_by_a_process_whose_wall_clock_is_days_ahead() {
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

/// The law of every store, on a file that was last used before the machine was started again.
#[tokio::test]
async fn record_outlives_a_restart_of_the_machine_by_what_the_wall_clock_says() {
    let file = Sqlite::with("").await;
    Sql::migrate(&file.url()).await.unwrap();
    let (ticket, another) = (Ticket::of(Kind::Key, b"one"), Ticket::of(Kind::Key, b"another"));
    let open = async || Sql::open_within(&file.url(), LONG).await.unwrap();
    open().await.insert(&ticket, b"x", MINUTE).await.unwrap();
    // Half a minute passes while the machine is off; its boot clock begins at zero again.
    let reboot = async |seconds: i64| {
        let moved = format!("UPDATE onceward_clock SET boot = 'the boot before', wall_ms = wall_ms - {seconds} * 1000");
        file.execute(&moved).await;
    };
    reboot(30).await;
    let store = open().await;
    assert_eq!(store.look(&ticket).await.unwrap().as_deref(), Some(&b"x"[..]));
    store.insert(&another, b"y", MINUTE).await.unwrap();
    reboot(31).await;
    let store = open().await;
    assert_eq!(store.look(&ticket).await.unwrap(), None, "61 seconds have passed");
    assert!(store.look(&another).await.unwrap().is_some(), "31 seconds have passed");
    // A machine whose battery is empty starts in the past: no time has passed, and none is taken back.
    reboot(-DAY).await;
    let store = open().await;
    assert!(store.look(&another).await.unwrap().is_some());
    assert_eq!(store.insert(&ticket, b"z", MINUTE).await.unwrap(), None, "what was over is still over");
}
