//! Clients that give up.

use futures_util::future::join_all;
use onceward_tests::client::send;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{LEASE, LONG, Stage};
use onceward_tests::key_routes::THEN;
use onceward_tests::polling::until;
use onceward_tests::shop::{ORDER, TAKES};

/// The time that the handler takes, in milliseconds.
const SLOW: u64 = 1_000;

/// The client leaves before the effect or after it.
pub(super) async fn run_of_a_lost_client_is_recorded_and_replayed(stack: Stack) {
    let stage = Stage::of(stack).lease(LEASE).open().await;
    join_all([(TAKES, "begun"), (THEN, THEN)].map(async |(moment, line)| {
        let submit = || stage.shop().submit("/orders", moment).header(ORDER, moment);
        let lost = tokio::spawn(submit().header(moment, SLOW).send());
        stage.recorded(line, 1).await;
        lost.abort();
        assert!(lost.await.expect_err("the client has left").is_cancelled());
        until("the response is replayed", LONG, || async {
            let answer = send(submit()).await;
            let said = answer.said();
            assert!(["409 in_progress", "201 replayed"].contains(&said.as_str()), "{moment}: {said}: {answer:?}");
            said == "201 replayed"
        })
        .await;
        assert_eq!(stage.ledger.count(moment), 1, "{moment}");
    }))
    .await;
}
