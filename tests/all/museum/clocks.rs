//! Rows about clocks.

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

use super::{StoryResult, told};
use crate::PEER;

/// The wall clock jumps further than a lease while a handler runs, and the same is sent again: one effect.
async fn the_story_of_jumped_clock(kind: &str) -> StoryResult {
    let (file, clock, ledger) = (Sqlite::with("").await, WallClock::new(), Ledger::new());
    Sql::migrate(&file.url()).await.unwrap();
    let peer = Peer::start_by(&clock, PEER, kind, &file.url(), &ledger);
    let ask = || tokio::spawn(send(under(&peer.url, "/keyed/patient", "k", "effect").header(TAKES, 1_500)));
    let first = ask();
    until("it has begun", Duration::from_secs(20), || async { ledger.count("begun") == 1 }).await;
    clock.jump(20);
    let again = ask().await.unwrap();
    assert_eq!(first.await.unwrap().said(), "200 executed");
    told(ledger.count("effect") == 1, || format!("the second was told {}, and there are two effects", again.said()))?;
    assert_eq!(again.said(), "409 in_progress");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jumped_clock() {
    the_story_of_jumped_clock("onceward").await.unwrap();
    the_story_of_jumped_clock(WallClockLayer::NAME).await.unwrap_err();
}
