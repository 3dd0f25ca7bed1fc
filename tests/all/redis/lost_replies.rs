//! Thousands of lost replies, flushed scripts, connections that all break at once, and a frozen store: on one Redis and on a
//! cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onceward::store::Redis;
use onceward::{Attempt, Binding, Guard, Intent, Key, KeyRules, Policy, Subject, TokenRules, Verdict};
use onceward_api::Code;
use onceward_tests::client::{ask_token, http, token};
use onceward_tests::concurrent_orders::flood;
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::{CompareCommands, RedisServer};
use onceward_tests::verdict_tally::{Presentation, Tally, TokenOutcome, present, redeem, times};
use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Client, Cmd, Pipeline, RedisFuture, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::PEER;
use crate::redis::epochs::BACK;
use crate::redis::faults::{IN_TIME, is_bounded};

const MINUTE: Duration = Duration::from_secs(60);
/// Long compared with the pauses in which claims cannot be renewed.
const LEASE: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(10);

/// A store of either kind, behind proxies.
enum Bed {
    Single(RedisServer, Proxy),
    Cluster(RedisCluster),
    /// One Redis, over the application's connections, which repeat a lost command this many times.
    Application(RedisServer, Proxy, u32),
}

/// An application's connection that repeats a command with a lost reply this many times.
#[derive(Clone)]
struct ApplicationConnection {
    manager: ConnectionManager,
    repeats: u32,
}

impl ConnectionLike for ApplicationConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let mut answer = self.manager.req_packed_command(command).await;
            for _ in 0..self.repeats {
                match answer {
                    Err(error) if error.is_io_error() => answer = self.manager.req_packed_command(command).await,
                    _ => break,
                }
            }
            answer
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut answer = self.manager.req_packed_commands(commands, offset, count).await;
            for _ in 0..self.repeats {
                match answer {
                    Err(error) if error.is_io_error() => {
                        answer = self.manager.req_packed_commands(commands, offset, count).await;
                    }
                    _ => break,
                }
            }
            answer
        })
    }

    fn get_db(&self) -> i64 {
        self.manager.get_db()
    }
}

impl Bed {
    async fn single() -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        Self::Single(redis, proxy)
    }

    async fn application(repeats: u32) -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        Self::Application(redis, proxy, repeats)
    }

    async fn cluster() -> Self {
        Self::Cluster(RedisCluster::start().await)
    }

    fn address(&self) -> String {
        match self {
            Self::Single(_, proxy) | Self::Application(_, proxy, _) => proxy.url(),
            Self::Cluster(cluster) => cluster.address(),
        }
    }

    async fn guard(&self) -> Guard {
        Guard::new(match self {
            Self::Application(_, proxy, repeats) => {
                let manager = Client::open(proxy.url()).unwrap().get_connection_manager().await.unwrap();
                Redis::over(ApplicationConnection { manager, repeats: *repeats })
            }
            _ => Redis::open(&self.address()).expect("an address"),
        })
    }

    fn proxies(&self) -> Vec<&Proxy> {
        match self {
            Self::Single(_, proxy) | Self::Application(_, proxy, _) => vec![proxy],
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.proxy).collect(),
        }
    }

    fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Single(redis, _) | Self::Application(redis, ..) => vec![redis],
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.server).collect(),
        }
    }

    fn commands(&self) -> CompareCommands {
        self.servers()[0].compare_commands()
    }

    fn struck(&self) -> usize {
        self.proxies().iter().map(|proxy| proxy.struck()).sum()
    }

    /// Runs every caller until this many replies to such commands are lost.
    async fn lose(&self, answers: usize, to: &str, call: impl AsyncCaller) {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        // Each caller has its own connections: a connection that breaks is reopened only after backoff.
        for _ in 0..times(12, 48) {
            let (guard, is_over, call) = (self.guard().await, Arc::clone(&is_over), call.clone());
            callers.spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    call.once(&guard).await;
                }
            });
        }
        let before = self.struck();
        self.proxies().iter().for_each(|proxy| proxy.often(to, TcpFault::LoseAnswer, 2));
        let limit = Duration::from_secs(900);
        tokio::select! {
            () = until("enough replies are lost", limit, || async { self.struck() - before >= answers }) => {}
            Some(ended) = callers.join_next() => panic!("a caller has ended too early: {ended:?}"),
        }
        self.proxies().iter().for_each(|proxy| proxy.relent());
        is_over.store(true, Ordering::SeqCst);
        callers.join_all().await;
    }
}

/// An operation that a caller repeats.
trait AsyncCaller: Clone + Send + Sync + 'static {
    fn once(&self, guard: &Guard) -> impl Future<Output = ()> + Send;
}

/// Issues a token as soon as the store answers.
async fn issued(guard: &Guard) -> String {
    let begun = Instant::now();
    loop {
        match guard.issue(MINUTE, Binding::none()).await {
            Ok(token) => return token.as_str().to_owned(),
            Err(error) => assert!(begun.elapsed() < MINUTE, "{error}"),
        }
        sleep(MOMENT).await;
    }
}

/// Redeems plain tokens, each three times.
#[derive(Clone, Default)]
struct PlainTokenCaller(Arc<Tally>);

impl AsyncCaller for PlainTokenCaller {
    async fn once(&self, guard: &Guard) {
        let token = issued(guard).await;
        for _ in 0..3 {
            self.0.note(&token, redeem(guard, &token).await);
        }
    }
}

/// Redeems tokens with an attempt, and retries until the result is known.
#[derive(Clone, Default)]
struct AttemptCaller {
    accepted: Arc<AtomicUsize>,
}

impl AsyncCaller for AttemptCaller {
    async fn once(&self, guard: &Guard) {
        let token = issued(guard).await;
        assert_eq!(answered(guard, &token, "first").await, TokenOutcome::Accepted, "no other caller has the token");
        assert_eq!(answered(guard, &token, "second").await, TokenOutcome::Used, "the first attempt has it");
        self.accepted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Redeems until the store answers.
async fn answered(guard: &Guard, token: &str, attempt: &str) -> TokenOutcome {
    let how = Presentation::Attempt(Attempt::new(attempt).expect("a name"));
    let begun = Instant::now();
    loop {
        match present(guard, token, &how).await {
            told @ (TokenOutcome::Unknown | TokenOutcome::NotExecuted) => {
                assert!(begun.elapsed() < MINUTE, "still {told:?}")
            }
            told => return told,
        }
        sleep(MOMENT).await;
    }
}

/// Runs under a key or with a remembered token, retries until the result is known, and then sends a duplicate.
#[derive(Clone)]
struct RecordCaller {
    by_key: bool,
    runs: Arc<AtomicUsize>,
}

impl AsyncCaller for RecordCaller {
    async fn once(&self, guard: &Guard) {
        let key = Key::of_parts([uuid::Uuid::new_v4().to_string()]).expect("a key");
        let token = if self.by_key { String::new() } else { issued(guard).await };
        let rules = KeyRules::at_most_once().lease(LEASE).unwrap();
        let (policy, intent) = if self.by_key {
            (Policy::key(rules), Intent::new("a", Subject::anonymous()).key(&key))
        } else {
            let policy = Policy::Token(TokenRules::new().remember_by(rules));
            (policy, Intent::new("a", Subject::anonymous()).credential(&token))
        };
        let mut runs = 0;
        for _ in 0..2 {
            runs += usize::from(ran(guard, &policy, &intent).await);
        }
        assert_eq!(runs, 1, "by key: {}", self.by_key);
        self.runs.fetch_add(1, Ordering::SeqCst);
    }
}

/// Retries until the run is executed or reported as executed.
async fn ran(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> bool {
    let begun = Instant::now();
    loop {
        match guard.check(policy, intent).await {
            Ok(Verdict::Run(pass)) => {
                // A completion that failed is retried in the background.
                let _ = pass.complete(None).await;
                return true;
            }
            Ok(Verdict::Reject(rejection)) => match rejection.code() {
                Code::InProgress if begun.elapsed() < MINUTE => sleep(MOMENT).await,
                // The owner could not renew for a whole lease and keeps retrying, so the outcome may still change.
                Code::OutcomeUnknown if begun.elapsed() < MINUTE => sleep(MOMENT).await,
                // Executed, without a stored response.
                Code::ReplyNotKept => return false,
                other => panic!("no other caller has it, and the verdict is {other:?}"),
            },
            Ok(Verdict::Replay(_)) => return false,
            Err(error) => {
                assert!(begun.elapsed() < MINUTE, "{error}");
                sleep(MOMENT).await;
            }
        }
    }
}

/// Runs every kind of caller on one store.
async fn losing(bed: Bed, name: &str) {
    let (answers, plain, named) = (times(60, 2_500), PlainTokenCaller::default(), AttemptCaller::default());
    let commands = bed.commands();
    bed.lose(answers, commands.remove, plain.clone()).await;
    plain.0.is_clean();
    assert!(plain.0.count(TokenOutcome::Unknown) > 0 && plain.0.count(TokenOutcome::Accepted) > 0, "{}", plain.0);
    bed.lose(answers, commands.swap_word(), named.clone()).await;
    let recorded = [false, true].map(|by_key| RecordCaller { by_key, runs: Arc::default() });
    for recorded in &recorded {
        bed.lose(answers, commands.swap_word(), recorded.clone()).await;
    }
    let runs = recorded.each_ref().map(|recorded| recorded.runs.load(Ordering::SeqCst));
    let accepted = named.accepted.load(Ordering::SeqCst);
    println!(
        "{name}, {} replies lost: plain {}; {accepted} attempts, {} remembered tokens and {} keys, once each",
        bed.struck(),
        plain.0,
        runs[0],
        runs[1]
    );
    assert!(accepted > 0 && runs.iter().all(|runs| *runs > 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_replies_cause_no_double_and_no_false_duplicate() {
    losing(Bed::single().await, "one Redis").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_cluster_replies_cause_no_double_and_no_false_duplicate() {
    losing(Bed::cluster().await, "a cluster").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_replies_over_application_connection_cause_no_double() {
    losing(Bed::application(0).await, "one Redis, over the application's connection").await;
}

/// A connection must not repeat commands by itself; this shows that the test above would notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn self_repeating_connection_causes_false_duplicates() {
    let (bed, plain) = (Bed::application(3).await, PlainTokenCaller::default());
    bed.lose(times(60, 500), bed.commands().remove, plain.clone()).await;
    println!("over a connection that repeats: {}", plain.0);
    assert!(plain.0.used_without_acceptance() > 0, "{}", plain.0);
    assert_eq!(plain.0.doubles(), 0, "{}", plain.0);
}

/// Every policy that needs a script, while the scripts are flushed constantly.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flushed_scripts_under_load_cause_no_failure() {
    for bed in [Bed::single().await, Bed::cluster().await] {
        let is_over = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicUsize::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let guard = Guard::new(Redis::open(&bed.address()).unwrap().timeout(Duration::from_secs(5)));
            let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
            callers.spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
                    assert_eq!(present(&guard, token.as_str(), &Presentation::by(1)).await, TokenOutcome::Accepted);
                    let key = Key::of_parts([token.as_str()]).unwrap();
                    let intent = Intent::new("a", Subject::anonymous()).key(&key);
                    let verdict = guard.check(&Policy::key(KeyRules::at_most_once()), &intent).await.unwrap();
                    let Verdict::Run(pass) = verdict else { panic!("a new key runs: {verdict:?}") };
                    pass.complete(None).await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let flushes = times(200, 2_000);
        for _ in 0..flushes {
            for server in bed.servers() {
                server.ask::<()>("SCRIPT FLUSH");
            }
            sleep(Duration::from_millis(2)).await;
        }
        is_over.store(true, Ordering::SeqCst);
        callers.join_all().await;
        println!("{flushes} script flushes: {} runs of each policy, no failure", done.load(Ordering::SeqCst));
        assert!(done.load(Ordering::SeqCst) > 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn connections_reopen_after_all_break_at_once() {
    for bed in [Bed::single().await, Bed::cluster().await] {
        let (guard, tally) = (bed.guard().await, Arc::new(Tally::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (guard, tally, is_over) = (guard.clone(), Arc::clone(&tally), Arc::clone(&is_over));
            callers.spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let token = issued(&guard).await;
                    for _ in 0..2 {
                        tally.note(&token, redeem(&guard, &token).await);
                    }
                }
            });
        }
        let resets = times(5, 100);
        for _ in 0..resets {
            bed.proxies().iter().for_each(|proxy| proxy.reset());
            let begun = Instant::now();
            let gets_through = || async {
                let token = issued(&guard).await;
                tally.note(&token, redeem(&guard, &token).await) == TokenOutcome::Accepted
            };
            until("a new token is accepted", BACK, gets_through).await;
            assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
        }
        is_over.store(true, Ordering::SeqCst);
        callers.join_all().await;
        println!("{resets} resets of all connections: {tally}");
        tally.is_clean();
    }
}

/// Every node of a cluster is frozen, as on a suspended machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn frozen_cluster_bounds_waiting_and_memory() {
    let (bed, ledger) = (Bed::cluster().await, Ledger::new());
    let peer = Peer::start(PEER, "patient", &bed.address(), &ledger);
    let mut tokens = Vec::new();
    until("the cluster is found", BACK, || async { ask_token(&peer.url, "").await.status == 201 }).await;
    for _ in 0..100 {
        tokens.push(token(&peer.url).await);
    }
    let client = http();
    let refused = async || {
        for (answer, took) in flood(&client, &peer.url, &tokens).await {
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(took < IN_TIME, "{took:?}");
        }
    };
    bed.servers().iter().for_each(|server| server.freeze());
    for _ in 0..3 {
        refused().await;
    }
    // Each takes the store timeout of one second.
    let (before, rounds) = (peer.memory(), times(5, 20));
    for _ in 0..rounds {
        refused().await;
    }
    let grown = peer.memory().saturating_sub(before);
    bed.servers().iter().for_each(|server| server.thaw());
    is_bounded(grown, rounds * tokens.len());
    if let Bed::Cluster(cluster) = &bed {
        cluster.settled().await;
    }
    until("a token is issued again", BACK, || async { ask_token(&peer.url, "").await.status == 201 }).await;
    assert!(ledger.runs().is_empty(), "no handler ran without a reply of the store");
}
