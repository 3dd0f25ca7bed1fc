//! Rows about intervals.

use std::time::Duration;

use onceward_tests::client::send;
use onceward_tests::flawed::Flaw;
use onceward_tests::interval_routes::{HALF, plainly};
use tokio::time::Instant;

use super::{Implementation, Stage, StoryResult, told};

/// The same is sent again all the time: not before half a second is over does it run again, and then it does.
async fn the_story_of_sub_second_interval(of: Implementation) -> StoryResult {
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
            // Nothing was claimed before it was asked for, so it cannot be over before this.
            told(begun.elapsed() >= HALF, || format!("it ran again after {:?}", begun.elapsed()))?;
            break;
        }
        assert_eq!(again.said(), "409 too_soon");
        refused += 1;
        let is_overdue = asked > answered + HALF + Duration::from_millis(100);
        told(!is_overdue, || format!("it was still refused {:?} after it was answered", answered.elapsed()))?;
    }
    assert!(refused > 0, "it was asked for again {refused} times");
    told(stage.ledger.count("effect") == 2, || format!("{} effects", stage.ledger.count("effect")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_second_interval() {
    the_story_of_sub_second_interval(Implementation::Onceward).await.unwrap();
    the_story_of_sub_second_interval(Implementation::Another(Flaw::SubSecondInterval)).await.unwrap_err();
}
