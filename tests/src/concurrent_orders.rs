//! Concurrent orders, one for each token, with the latency of each response.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Answer;

/// Sends one order for each of these tokens, all concurrently.
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
            (Answer::of(request.send().await.expect("a response")).await, begun.elapsed())
        });
    }
    answers.join_all().await
}
