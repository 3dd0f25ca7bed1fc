//! A master with replicas and Sentinels: the store follows each failover, and a used token is not accepted again by a replica that has
//! not seen its use.

use std::time::Duration;

use onceward::store::{Redis, Room, Store as _, StoreError};
use onceward::{Binding, Guard, Kind, Secret, Ticket};
use onceward_tests::client::{http, send};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::sentinels::{NAME, Sentinel, Sentinels};
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::verdict_tally::{Tally, redeem, times};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::redis::epochs::{BACK, GuardPair};

const MINUTE: Duration = Duration::from_secs(60);
/// Number of tokens outstanding at the fault.
const TOKENS: usize = 10;

/// Waits until every replica is in sync with the master.
fn is_everywhere(all: &Sentinels, master: usize) {
    let mut connection = all.nodes[master].server.connection();
    redis::cmd("SET").arg("mark").arg(1).exec(&mut connection).unwrap();
    let seen: usize = redis::cmd("WAIT").arg(2).arg(10_000).query(&mut connection).unwrap();
    assert_eq!(seen, 2, "both replicas are in sync");
}

async fn issues(guard: &Guard) -> bool {
    guard.issue(MINUTE, Binding::none()).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn used_token_stays_used_after_a_sentinel_failover() {
    let mut all = Sentinels::start().await;
    let mut both = GuardPair::on(&all.address());
    let mut master = 0;
    for _ in 0..times(1, 30) {
        both.issue(TOKENS).await;
        is_everywhere(&all, master);
        all.nodes[master].cut_off().await;
        both.everybody(2).join_all().await;
        all.nodes[master].server.kill();
        let promoted = all.promoted_after(master).await;
        until("the replica is promoted", MINUTE, || async { all.nodes[promoted].is_master() }).await;
        both.is_back().await;
        both.everybody(2).join_all().await;
        all.rejoin(master, promoted).await;
        master = promoted;
    }
    both.judge("failovers");
}

/// Guards with one secret on both sides of a split brain, and a tally of their verdicts together.
struct SplitBrain {
    secret: Secret,
    is_pinned: bool,
    tally: Tally,
    tokens: Vec<String>,
}

impl SplitBrain {
    fn new(is_pinned: bool) -> Self {
        Self { secret: Secret::random(), is_pinned, tally: Tally::default(), tokens: Vec::new() }
    }

    fn guard(&self, address: &str) -> Guard {
        let store = Redis::open(address).expect("an address");
        let store = if self.is_pinned { store.prefix("pinned") } else { store.prefix("unpinned").unpinned() };
        Guard::builder(store).secret(self.secret.clone()).build()
    }

    async fn issue(&mut self, guard: &Guard) {
        for _ in 0..TOKENS {
            if let Ok(token) = guard.issue(MINUTE, Binding::none()).await {
                self.tokens.push(token.as_str().to_owned());
            }
        }
    }

    async fn redeem_on_both_sides(&self, inside: &Guard, outside: &Guard) {
        for token in &self.tokens {
            let (one, other) = tokio::join!(redeem(inside, token), redeem(outside, token));
            self.tally.note(token, one);
            self.tally.note(token, other);
        }
    }
}

/// Split brain: the old master still serves its clients, while the Sentinels have promoted a replica.
async fn split(all: &mut Sentinels, long: Duration) -> [Tally; 2] {
    let master = all.master();
    let mut splits = [SplitBrain::new(true), SplitBrain::new(false)];
    let insides = splits.each_ref().map(|split| split.guard(&all.nodes[master].proxy.url()));
    for (split, inside) in splits.iter_mut().zip(&insides) {
        until("it issues", BACK, || issues(inside)).await;
        split.issue(inside).await;
    }
    is_everywhere(all, master);
    all.nodes[master].cut_off().await;
    let promoted = all.promoted_after(master).await;
    until("the replica is promoted", MINUTE, || async { all.nodes[promoted].is_master() }).await;
    // A new store asks the Sentinels.
    let outsides = splits.each_ref().map(|split| split.guard(&all.address()));
    let since = Instant::now();
    while since.elapsed() < long {
        for ((split, inside), outside) in splits.iter_mut().zip(&insides).zip(&outsides) {
            until("the new master is found", BACK, || issues(outside)).await;
            split.issue(inside).await;
            split.issue(outside).await;
            split.redeem_on_both_sides(inside, outside).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
    all.rejoin(master, promoted).await;
    for ((split, inside), outside) in splits.iter().zip(&insides).zip(&outsides) {
        split.redeem_on_both_sides(inside, outside).await;
    }
    splits.map(|split| split.tally)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn split_brain_accepts_no_token_on_both_sides() {
    let mut all = Sentinels::start().await;
    let long = Duration::from_millis(times(500, 5_000) as u64);
    for _ in 0..times(1, 10) {
        let [pinned, unpinned] = split(&mut all, long).await;
        println!("a split of {long:?}: {pinned}; without the epoch {} doubles", unpinned.doubles());
        pinned.is_clean();
        assert!(unpinned.doubles() > 0, "the split caused no doubles, so the test proves nothing: {unpinned}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_follows_failover_from_live_frozen_or_killed_master() {
    let mut all = Sentinels::start().await;
    let guard = Guard::new(Redis::open(&all.address()).unwrap());
    until("the master is found", BACK, || issues(&guard)).await;

    // A manual failover: the former master stays up and refuses writes.
    let promoted = all.fail_over().await;
    until("the former one is a replica", MINUTE, || async { !all.nodes[0].is_master() }).await;
    until("the store follows the manual failover", BACK, || issues(&guard)).await;
    all.rejoin(0, promoted).await;

    // The master freezes, with its connections open.
    all.nodes[promoted].server.freeze();
    let next = all.promoted_after(promoted).await;
    until("the replica is promoted", MINUTE, || async { all.nodes[next].is_master() }).await;
    until("the store follows the failover from the frozen master", BACK, || issues(&guard)).await;
    all.nodes[promoted].server.thaw();
    all.rejoin(promoted, next).await;
    assert!(issues(&guard).await);

    // The master is killed and a Sentinel freezes, as if the machine of both were lost.
    all.nodes[next].server.kill();
    all.sentinels[2].freeze();
    let last = all.promoted_after(next).await;
    until("the replica is promoted", MINUTE, || async { all.nodes[last].is_master() }).await;
    until("the store follows the failover from the killed master", BACK, || issues(&guard)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stale_or_silent_sentinel_is_skipped() {
    let all = Sentinels::start().await;
    // A Sentinel that missed the last failover: the server it names is a replica now.
    let replica = RedisServer::start();
    let stale = Sentinel::start(replica.port(), 2);
    replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    let silent = Sentinel::start(all.nodes[0].proxy.port(), 2);
    silent.freeze();
    let absent = format!("127.0.0.1:{}", free_port());
    for first in [stale.host(), silent.host(), absent] {
        let address = all.address().replace("://", &format!("://{first},"));
        let guard = Guard::new(Redis::open(&address).unwrap());
        until("the master is found", Duration::from_secs(5), || issues(&guard)).await;
    }
    // A Sentinel that was partitioned before the last failover: the server it names still acts as master.
    let former = RedisServer::start();
    let cut_off = Sentinel::start(former.port(), 2);
    all.fail_over().await;
    let address = all.address().replace("://", &format!("://{},", cut_off.host()));
    let guard = Guard::new(Redis::open(&address).unwrap());
    until("the master is found", Duration::from_secs(5), || issues(&guard)).await;
    assert_eq!((cut_off.named(), former.keys().len()), (Some(former.port()), 0));
    assert_eq!(stale.named(), Some(replica.port()), "the stale Sentinel still names it");
    assert_eq!(replica.keys(), [""; 0]);
    // Without another master the store is unavailable: lookups check the role, so they do not read from a replica.
    let lost = Redis::open(&format!("redis+sentinel://{}/{NAME}", stale.host())).unwrap();
    let looked = lost.look(&Ticket::of(Kind::Key, b"x")).await;
    assert!(matches!(&looked, Err(StoreError::NotExecuted(why)) if why.to_string().contains("replica")), "{looked:?}");
    assert!(!issues(&Guard::new(lost)).await);
    silent.thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn database_number_follows_the_master_name() {
    let all = Sentinels::start().await;
    let store = Redis::open(&format!("{}/3", all.address())).unwrap();
    let ticket = Ticket::of(Kind::Key, b"x");
    until("the master is found", BACK, || async { store.insert(&ticket, b"x", MINUTE, Room::Free).await.is_ok() })
        .await;
    let spaces: String = all.nodes[0].server.ask("INFO keyspace");
    assert!(spaces.contains("db3:keys=1"), "{spaces}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn service_follows_a_sentinel_failover() {
    let mut all = Sentinels::start().await;
    let service = OncewardServer::start(&["--store", &all.address()]);
    let once = async || {
        let issued = send(http().post(format!("{}/token", service.url))).await;
        let Ok(issued) = serde_json::from_slice::<serde_json::Value>(&issued.body) else { return false };
        let request = http().post(format!("{}/token/redeem", service.url)).json(&json!({ "token": issued["token"] }));
        send(request).await.status == 200
    };
    assert!(once().await);
    let output = run(&["check", "--store", &all.address()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    all.nodes[0].server.kill();
    let promoted = all.promoted_after(0).await;
    until("the replica is promoted", MINUTE, || async { all.nodes[promoted].is_master() }).await;
    until("the service is back", BACK, &once).await;
    all.rejoin(0, promoted).await;
}
