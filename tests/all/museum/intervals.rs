//! Museum row about intervals.

use std::time::Duration;

use onceward_tests::client::send;
use onceward_tests::flawed::Flaw;
use onceward_tests::interval_routes::{HALF, plainly};
use tokio::time::Instant;

use super::{Implementation, ScenarioResult, Stage, ensure};

/// Duplicates are sent continuously: the next one runs when half a second has passed, and not before.
async fn sub_second_interval_scenario(of: Implementation) -> ScenarioResult {
    let stage = Stage::set(of).await;
    let ask = async || send(plainly(stage.url(), "/spaced/half", "effect")).await;
    let begun = Instant::now();
    assert_eq!(ask().await.status, 200);
    let answered = Instant::now();
    let mut refused = 0;
    loop {
        let asked = Instant::now();
        let again = ask().await;
        if again.status == 200 {
            // The claim was not made before the request was sent, so the interval cannot expire earlier.
            ensure(begun.elapsed() >= HALF, || format!("it ran again after {:?}", begun.elapsed()))?;
            break;
        }
        assert_eq!(again.said(), "409 too_soon");
        refused += 1;
        let is_overdue = asked > answered + HALF + Duration::from_millis(100);
        ensure(!is_overdue, || format!("still rejected {:?} after the first response", answered.elapsed()))?;
    }
    assert!(refused > 0, "no duplicate was rejected");
    ensure(stage.ledger.count("effect") == 2, || format!("{} effects", stage.ledger.count("effect")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_second_interval() {
    sub_second_interval_scenario(Implementation::Onceward).await.unwrap();
    sub_second_interval_scenario(Implementation::Another(Flaw::SubSecondInterval)).await.unwrap_err();
}
