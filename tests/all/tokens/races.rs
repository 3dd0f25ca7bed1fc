//! Concurrent submissions of one token: one is accepted.
//!
//! The race inside one process, without HTTP, runs once: it tests the engine, not an adapter.

use std::sync::Arc;
use std::time::Duration;

use onceward::store::Memory;
use onceward::{Binding, Guard, Intent, Policy, Subject, Verdict};
use onceward_tests::client::{Answer, http, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::ORDER;
use onceward_tests::web_framework::WebFramework;
use tokio::task::JoinSet;

use crate::PEER;

on_every_framework! {
    two_processes_on_one_redis_accept_each_token_once (threads),
    one_process_on_memory_accepts_each_token_once_over_http (threads),
}

const RACERS: usize = 32;
/// Number of tokens that are raced for concurrently.
const ABREAST: usize = 4;

/// Returns the number of tokens or keys; `make races` sets many more than `make test`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
pub(crate) fn tokens(usual: usize) -> usize {
    std::env::var("RACES").map_or(usual, |races| races.parse().expect("RACES is a number"))
}

/// Races for `tokens` over these servers. Returns an error unless each order ran once and one racer of each was accepted.
pub(crate) async fn race(urls: &[String], ledger: &Ledger, tokens: usize) -> Result<(), String> {
    let client = http();
    for first in (0..tokens).step_by(ABREAST) {
        let mut racers = JoinSet::new();
        for number in first..tokens.min(first + ABREAST) {
            let token = token(&urls[number % urls.len()]).await;
            for racer in 0..RACERS {
                let request = client
                    .post(format!("{}/orders", urls[racer % urls.len()]))
                    .header(onceward_api::header::TOKEN, &token)
                    .header(ORDER, number.to_string());
                racers
                    .spawn(async move { (number, Answer::of(request.send().await.expect("a response")).await.status) });
            }
        }
        let answers = racers.join_all().await;
        for number in first..tokens.min(first + ABREAST) {
            let told = |status| answers.iter().filter(|answer| **answer == (number, status)).count();
            if (told(200), told(409)) != (1, RACERS - 1) {
                return Err(format!("token {number}: {} accepted, {} rejected of {RACERS}", told(200), told(409)));
            }
        }
    }
    let mut runs = ledger.runs();
    runs.sort_unstable_by_key(|run| run.parse::<usize>().expect("a number"));
    let expected: Vec<_> = (0..tokens).map(|number| number.to_string()).collect();
    if runs == expected { Ok(()) } else { Err(format!("{} effects of {tokens} tokens", runs.len())) }
}

async fn two_processes_on_one_redis_accept_each_token_once<F: WebFramework>() {
    let tokens = tokens(200);
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peers = [(); 2].map(|()| Peer::start(PEER, &F::peer("onceward"), &redis.url(), &ledger));
    let urls = peers.each_ref().map(|peer| peer.url.clone());
    race(&urls, &ledger, tokens).await.unwrap();
    println!("{tokens} tokens, {RACERS} racers each, two processes on one Redis: {tokens} accepted");
}

async fn one_process_on_memory_accepts_each_token_once_over_http<F: WebFramework>() {
    let tokens = tokens(100);
    let ledger = Ledger::new();
    let peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    race(std::slice::from_ref(&peer.url), &ledger, tokens).await.unwrap();
    println!("{tokens} tokens, {RACERS} racers each, over HTTP on memory: {tokens} accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_store_accepts_each_token_once() {
    let tokens = tokens(2_000);
    let guard = Guard::new(Memory::new());
    for _ in 0..tokens {
        let token = Arc::new(guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap());
        let start = Arc::new(tokio::sync::Barrier::new(RACERS));
        let mut racers = JoinSet::new();
        for _ in 0..RACERS {
            let (guard, token, start) = (guard.clone(), Arc::clone(&token), Arc::clone(&start));
            racers.spawn(async move {
                let intent = Intent::new("a", Subject::anonymous()).credential(token.as_str());
                start.wait().await;
                match guard.check(&Policy::token(), &intent).await.unwrap() {
                    Verdict::Run(pass) => {
                        pass.complete(None).await.unwrap();
                        true
                    }
                    _ => false,
                }
            });
        }
        assert_eq!(racers.join_all().await.into_iter().filter(|accepted| *accepted).count(), 1);
    }
    println!("{tokens} tokens, {RACERS} racers each, in memory: {tokens} accepted");
}
