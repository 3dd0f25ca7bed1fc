//! Everybody at once: an order with each token, and how long each had to wait for its answer.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Answer;

/// Sends an order with each of these tokens, all at the same time.
pub async fn flood(client: &reqwest::Client, url: &str, tokens: &[String]) -> Vec<(Answer, Duration)> {
    let mut answers = JoinSet::new();
    for token in tokens {
        let request = client
            .post(format!("{url}/orders"))
            .header(onceward_api::header::TOKEN, token)
            .header("x-order", token)
            .timeout(Duration::from_secs(20));
        answers.spawn(async move {
            let begun = Instant::now();
            (Answer::of(request.send().await.expect("an answer")).await, begun.elapsed())
        });
    }
    answers.join_all().await
}
