//! Clients that give up.

use std::time::Duration;

use onceward_tests::client::{http, send};
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::key_routes::{KEY, THEN};
use onceward_tests::polling::until;
use onceward_tests::shop::TAKES;

/// The time after which the client closes its connection.
const PATIENCE: Duration = Duration::from_millis(300);
/// The time that the handler takes, in milliseconds.
const SLOW: u64 = 1_200;

/// The client leaves before the effect or after it.
pub(super) async fn run_of_a_lost_client_is_recorded_and_replayed(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    for (at, moment) in [TAKES, THEN].into_iter().enumerate() {
        let url = format!("{}/orders", stage.shop().url);
        let request = || http().post(&url).header(KEY, moment).body("tea");
        let lost = request().header(moment, SLOW).timeout(PATIENCE).send().await;
        assert!(lost.expect_err("the client has left").is_timeout());
        until("the response is replayed", LONG, || async {
            let answer = send(request()).await;
            let said = answer.said();
            assert!(["409 in_progress", "201 replayed"].contains(&said.as_str()), "{moment}: {answer:?}");
            said == "201 replayed"
        })
        .await;
        assert_eq!(stage.ledger.count("order"), at + 1, "{moment}");
    }
}
