//! Concurrent submissions under one key: one runs, and all receive the same response.

use std::collections::HashSet;

use onceward_tests::client::{Answer, http};
use onceward_tests::key_routes::{KEY, Pair, buy};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::peer::Peer;
use onceward_tests::shop::ORDER;
use onceward_tests::web_framework::WebFramework;
use tokio::task::JoinSet;

use crate::PEER;
use crate::tokens::races::tokens;

on_every_framework! {
    two_processes_on_one_redis_run_each_key_once (threads),
    one_process_on_memory_runs_each_key_once (threads),
}

const RACERS: usize = 16;

/// Races for this number of keys on each path.
async fn race(urls: &[&str], ledger: &Ledger, keys: usize) {
    let client = http();
    for (number, path) in (0..keys).flat_map(|number| ["/keyed/orders", "/keyed/held"].map(|path| (number, path))) {
        let name = format!("{path}-{number}");
        let mut racers = JoinSet::new();
        for racer in 0..RACERS {
            let request = client.post(format!("{}{path}", urls[racer % urls.len()])).header(KEY, &name);
            let request = request.header(ORDER, &name);
            racers.spawn(async move { Answer::of(request.send().await.expect("a response")).await });
        }
        let answers = racers.join_all().await;
        let told = |outcome: &str| answers.iter().filter(|answer| answer.outcome == outcome).count();
        let duplicates = told("in_progress") + told("replayed");
        assert_eq!((told("executed"), duplicates), (1, RACERS - 1), "{name}: {answers:?}");
        let mut receipts: HashSet<_> =
            answers.into_iter().filter(|answer| answer.status == 200).map(|answer| answer.body).collect();
        receipts.insert(buy(urls[0], path, &name, &name).await.body);
        assert_eq!((receipts.len(), ledger.count(&name)), (1, 1), "{name}");
    }
}

async fn two_processes_on_one_redis_run_each_key_once<F: WebFramework>() {
    let keys = tokens(40);
    let pair = Pair::start(PEER, &F::peer("onceward")).await;
    race(&[pair.one(), pair.other()], &pair.ledger, keys).await;
    println!("{keys} keys, {RACERS} racers each, both policies, two processes on one Redis: one effect each");
}

async fn one_process_on_memory_runs_each_key_once<F: WebFramework>() {
    let (keys, ledger) = (tokens(40), Ledger::new());
    let peer = Peer::start(PEER, &F::peer("onceward"), "memory:", &ledger);
    race(&[&peer.url], &ledger, keys).await;
    println!("{keys} keys, {RACERS} racers each, both policies, on memory: one effect each");
}
