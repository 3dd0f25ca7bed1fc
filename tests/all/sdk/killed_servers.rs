//! The Rust SDK against the real service, a guarded application in another process and a real Redis, each of them killed and
//! restarted while submissions are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_client::{Client, OnUnknown, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, smooth};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::{ORDER, TAKES};
use tokio::task::JoinSet;

use crate::PEER;

/// Number of concurrent submitters.
const CALLERS: usize = 12;
/// Number of responses required between two kills.
const BETWEEN: usize = 20;

/// The processes that are killed, behind fixed addresses.
struct Stage {
    redis: RedisServer,
    ledger: Ledger,
    service: OncewardServer,
    peer: Peer,
    to_service: FaultyHttpProxy,
    to_peer: FaultyHttpProxy,
}

impl Stage {
    async fn set() -> Self {
        // A Redis that persists every acknowledged write.
        let redis = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
        let ledger = Ledger::new();
        let service = serve(&redis);
        let peer = Peer::start(PEER, "onceward", &redis.url(), &ledger);
        let to_service = FaultyHttpProxy::to(&service.url, smooth).await;
        let to_peer = FaultyHttpProxy::to(&peer.url, smooth).await;
        Self { redis, ledger, service, peer, to_service, to_peer }
    }

    fn kill_peer(&mut self) {
        self.peer.kill();
        self.peer = Peer::start(PEER, "onceward", &self.redis.url(), &self.ledger);
        self.to_peer.lead_to(&self.peer.url);
    }

    fn kill_service(&mut self) {
        // Dropping the server kills it.
        self.service = serve(&self.redis);
        self.to_service.lead_to(&self.service.url);
    }

    fn kill_redis(&mut self) {
        self.redis.kill();
        self.redis.restart();
    }

    /// Returns a client for tokens of the service, and one for keys.
    fn clients(&self) -> [Client; 2] {
        let limits = RetryLimits::new()
            .attempts(12)
            .attempt_timeout(Duration::from_secs(3))
            .backoff(Duration::from_millis(20), Duration::from_millis(500));
        let builder = || Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits);
        let tokens = builder().tokens_from(&self.to_service.url).send_tokens_to(&self.to_peer.url);
        [tokens.on_unknown(OnUnknown::Look).build().unwrap(), builder().with_keys().build().unwrap()]
    }
}

fn serve(redis: &RedisServer) -> OncewardServer {
    OncewardServer::start(&["--store", &redis.url(), "--rate-limit", "off", "--rate-limit-total", "off"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_take_effect_once_despite_killed_servers() {
    let mut stage = Stage::set().await;
    let [tokens, keys] = stage.clients();
    let (stop, number, answered) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let kinds = [("/orders", &tokens), ("/remembered/orders", &tokens), ("/keyed/held", &keys)];
        let (path, client) = kinds[caller % kinds.len()];
        let (url, client) = (format!("{}{path}", stage.to_peer.url), client.clone());
        let (stop, number, answered) = (Arc::clone(&stop), Arc::clone(&number), Arc::clone(&answered));
        callers.spawn(async move {
            let mut ends = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let order = format!("{path}#{}", number.fetch_add(1, Ordering::SeqCst));
                let end = client.post(&url).header(ORDER, &order).header(TAKES, 5).body(order.clone()).send().await;
                answered.fetch_add(usize::from(end.is_ok()), Ordering::SeqCst);
                ends.push((order, end));
            }
            ends
        });
    }
    let kills: [fn(&mut Stage); 3] = [Stage::kill_peer, Stage::kill_service, Stage::kill_redis];
    for kill in kills.into_iter().cycle().take(6) {
        let before = answered.load(Ordering::SeqCst);
        until("submissions succeed again", Duration::from_secs(60), || async {
            answered.load(Ordering::SeqCst) >= before + BETWEEN
        })
        .await;
        kill(&mut stage);
    }
    let before = answered.load(Ordering::SeqCst);
    until("submissions succeed after the last kill", Duration::from_secs(60), || async {
        answered.load(Ordering::SeqCst) >= before + BETWEEN
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    let ends: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    judge(&stage.ledger, &ends);
}

/// Asserts that no order took effect twice, and that each result is true.
fn judge(ledger: &Ledger, ends: &[(String, Result<onceward_client::Response, onceward_client::Error>)]) {
    let mut effects = std::collections::HashMap::<String, usize>::new();
    ledger.runs().into_iter().for_each(|run| *effects.entry(run).or_default() += 1);
    let (mut answered, mut unknown, mut certain) = (0, 0, 0);
    for (order, end) in ends {
        let ran = effects.get(order).copied().unwrap_or(0);
        assert!(ran <= 1, "{order} took effect {ran} times: {end:?}");
        match end {
            Ok(answer) if answer.status().is_success() => {
                answered += 1;
                assert_eq!(ran, 1, "{order} was answered: {answer:?}");
            }
            Ok(answer) => panic!("{order}: {answer:?}"),
            Err(error) if error.is_unknown() => unknown += 1,
            Err(error) => {
                certain += 1;
                assert!(ran == 0 && !error.is_duplicate(), "{order} ran {ran} times: {error:?}");
            }
        }
    }
    println!("{} submissions: {answered} answered, {unknown} unknown, {certain} certainly not", ends.len());
    assert!(answered > ends.len() / 2, "most are answered");
}
