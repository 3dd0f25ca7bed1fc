//! Concurrent submissions to a handler with `#[once]`: one runs.

use onceward::Guard;
use onceward::store::Memory;
use onceward_tests::annotated_shop::Annotated;
use onceward_tests::client::{Answer, http, token, token_for};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::RedisServer;
use serde_json::json;
use tokio::task::JoinSet;

use crate::PEER;
use crate::tokens::races::tokens;

on_every_framework! {
    two_processes_on_one_redis_run_each_submission_once (threads),
    one_process_on_memory_runs_each_submission_once (threads),
}

const RACERS: usize = 32;
/// The handlers, with the header that names a submission. Three of them need none.
const HANDLERS: [(&str, Option<&str>); 9] = [
    ("orders", Some("onceward-token")),
    ("remembered", Some("onceward-token")),
    ("bound", Some("onceward-token")),
    ("payments", Some("idempotency-key")),
    ("retryable", Some("idempotency-key")),
    ("mine", Some("idempotency-key")),
    ("by-order", None),
    ("messages", None),
    ("remembered-messages", None),
];

/// Sends each submission many times, over these servers.
async fn race(urls: &[&str], ledger: &Ledger, rounds: usize) {
    let client = http();
    for (number, (path, header)) in (0..rounds).flat_map(|number| HANDLERS.map(|handler| (number, handler))) {
        let order = format!("{path}-{number}");
        let name = match header {
            Some("onceward-token") if path == "bound" => {
                token_for(urls[number % urls.len()], r#"{"action": "POST /bound"}"#).await
            }
            Some("onceward-token") => token(urls[number % urls.len()]).await,
            _ => order.clone(),
        };
        let mut racers = JoinSet::new();
        for racer in 0..RACERS {
            let request = client.post(format!("{}/{path}", urls[racer % urls.len()])).header("x-user", "alice");
            let request = header.into_iter().fold(request, |request, header| request.header(header, &name));
            let request = request.json(&json!({"order": {"id": order}}));
            racers.spawn(async move { Answer::of(request.send().await.expect("a response")).await });
        }
        let answers = racers.join_all().await;
        let executed = answers.iter().filter(|answer| answer.said() == "201 executed").count();
        let is_duplicate =
            |answer: &&Answer| ["token_used", "in_progress", "replayed", "too_soon"].contains(&answer.outcome.as_str());
        let duplicates = answers.iter().filter(is_duplicate).count();
        assert_eq!((executed, duplicates, ledger.count(&order)), (1, RACERS - 1, 1), "{order}: {answers:?}");
    }
}

async fn two_processes_on_one_redis_run_each_submission_once<F: Annotated>() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peers = [(); 2].map(|()| Peer::start(PEER, F::ANNOTATED_PEER, &redis.url(), &ledger));
    race(&peers.each_ref().map(|peer| peer.url.as_str()), &ledger, tokens(4)).await;
}

async fn one_process_on_memory_runs_each_submission_once<F: Annotated>() {
    let ledger = Ledger::new();
    let server = F::serve_annotated(&Guard::new(Memory::new()), &ledger);
    race(&[&server.url], &ledger, tokens(4)).await;
}
