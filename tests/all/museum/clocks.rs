//! Museum row about clocks.

use std::time::Duration;

use onceward::store::Sql;
use onceward_tests::client::send;
use onceward_tests::database::Sqlite;
use onceward_tests::flawed::WallClockLayer;
use onceward_tests::key_routes::under;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;
use onceward_tests::wall_clock::WallClock;

use super::{ScenarioResult, ensure};
use crate::PEER;

/// The wall clock jumps by more than a lease while a handler runs, and a duplicate arrives: one effect.
async fn jumped_clock_scenario(kind: &str) -> ScenarioResult {
    let (file, clock, ledger) = (Sqlite::with("").await, WallClock::new(), Ledger::new());
    Sql::migrate(&file.url()).await.unwrap();
    let peer = Peer::start_by(&clock, PEER, kind, &file.url(), &ledger);
    let ask = || tokio::spawn(send(under(&peer.url, "/keyed/patient", "k", "effect").header(TAKES, 1_500)));
    let first = ask();
    until("it has begun", Duration::from_secs(20), || async { ledger.count("begun") == 1 }).await;
    clock.jump(20);
    let again = ask().await.unwrap();
    assert_eq!(first.await.unwrap().said(), "200 executed");
    ensure(ledger.count("effect") == 1, || {
        format!("the duplicate received {}, and there are two effects", again.said())
    })?;
    assert_eq!(again.said(), "409 in_progress");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jumped_clock() {
    jumped_clock_scenario("onceward").await.unwrap();
    jumped_clock_scenario(WallClockLayer::NAME).await.unwrap_err();
}
