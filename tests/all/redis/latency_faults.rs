//! Redis replies after the timeout: retries do not add load, new work is rejected, and runs in flight are settled once Redis replies in
//! time again.

use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::{Admission, Redis, Store as _};
use onceward::{
    Guard, Intent, IntervalRules, Key, KeyRules, Kind, Policy, Reply, RunOutcome, Subject, Ticket, Verdict,
};
use onceward_tests::client::{Answer, send};
use onceward_tests::faulty_tcp_proxy::Proxy;
use onceward_tests::key_routes::{KEY, PATIENT};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::{Monitor, RedisServer};
use onceward_tests::shop::{ORDER, TAKES};
use onceward_tests::verdict_tally::times;
use reqwest::{Client, RequestBuilder};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::PEER;

/// Delay of each reply; the timeout is 250 ms.
const LATE: Duration = Duration::from_millis(600);
/// Period in which commands are counted.
const COUNTED: Duration = Duration::from_secs(1);
/// New keys per second.
const A_SECOND: usize = 233;
/// The routes that receive them in turn: one retryable, one at most once.
const ROUTES: [&str; 2] = ["/keyed/patient", "/keyed/held/patient"];
const LONG: Duration = Duration::from_secs(20);
/// Number of keys that run before replies are late.
const WARM: usize = 20;

/// A peer behind a proxy that delays replies.
struct DelayedPeer {
    redis: RedisServer,
    proxy: Proxy,
    ledger: Ledger,
    peer: Peer,
    monitor: Monitor,
    client: Client,
}

impl DelayedPeer {
    /// Starts the peer without delays, and warms it up.
    async fn start() -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::before(redis.port()).await;
        let ledger = Ledger::new();
        let peer = Peer::start(PEER, "onceward", &proxy.url(), &ledger);
        let monitor = redis.monitor();
        // One connection per request: an idle connection that the server closes would look like a lost response.
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
        let slow = Self { redis, proxy, ledger, peer, monitor, client };
        for number in 0..WARM {
            slow.buy(ROUTES[number % 2], &format!("warm-{number}"), "warm").await;
        }
        slow
    }

    /// Sends a second's worth of new keys.
    async fn send_new(&self, second: usize, answers: &mut JoinSet<Answer>) {
        let mut ticks = interval(Duration::from_secs(1) / A_SECOND as u32);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for number in 0..A_SECOND {
            ticks.tick().await;
            let (path, key) = named(second, number);
            answers.spawn(send(self.under(path, &key, &key)));
        }
    }

    fn under(&self, path: &str, key: &str, order: &str) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.peer.url)).header(KEY, key).header(ORDER, order)
    }

    /// Submits until a response arrives: two busy cores may exceed a timeout too.
    async fn buy(&self, path: &str, key: &str, order: &str) -> Answer {
        let limit = Instant::now() + LONG;
        loop {
            let answer = send(self.under(path, key, order)).await;
            // A run that could not renew for a whole lease has an unknown outcome until its completion is stored.
            let is_temporary =
                ["503 store_unavailable", "409 in_progress", "409 outcome_unknown"].contains(&answer.said().as_str());
            if !is_temporary {
                assert_eq!(answer.status, 200, "{answer:?}");
                return answer;
            }
            assert!(Instant::now() < limit, "{answer:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn commands(&self) -> usize {
        self.monitor.commands().len()
    }

    /// Counts the claims, without the records of ended runs.
    fn claims(&self, ended: usize) -> usize {
        self.redis.keys().iter().filter(|name| name.contains(":key:")).count().saturating_sub(ended)
    }
}

fn named(second: usize, number: usize) -> (&'static str, String) {
    (ROUTES[number % 2], format!("order-{second}-{number}"))
}

/// Replies are 600 ms late, with about 233 new keys a second. Also prints the commands per second and the memory growth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_redis_gets_no_retry_storm_and_keys_run_once() {
    let slow = DelayedPeer::start().await;
    let seconds = times(8, 96);
    let (mut answers, mut each_second, mut before) = (JoinSet::new(), Vec::new(), slow.commands());
    let memory = slow.peer.memory();
    slow.proxy.slow_down(LATE);
    for second in 0..seconds {
        slow.send_new(second, &mut answers).await;
        let commands = slow.commands();
        each_second.push(commands - before);
        before = commands;
    }
    let told: Vec<_> = answers.join_all().await.iter().map(Answer::said).collect();
    // The first requests may have started before replies were late.
    let (ran, rejected): (Vec<_>, Vec<_>) = told.into_iter().partition(|said| said.starts_with("200 "));
    assert!(rejected.iter().all(|said| said == "503 store_unavailable"), "{rejected:?}");
    let grown = slow.peer.memory().saturating_sub(memory);
    println!("commands per second while replies are late: {each_second:?}; {grown} bytes more");

    slow.proxy.slow_down(Duration::ZERO);
    let (mut after, recovered) = (Vec::new(), slow.commands());
    let ended = WARM + ran.len();
    for _ in 0..20 {
        let before = slow.commands();
        sleep(COUNTED).await;
        after.push(slow.commands() - before);
        if slow.claims(ended) == 0 && after.len() as u64 > PATIENT.as_secs() + 1 {
            break;
        }
    }
    println!("commands per second after recovery: {after:?}");
    assert_eq!(slow.claims(ended), 0, "all claims are settled, removed or expired");
    let requests = seconds * A_SECOND;
    let (slowly, quickly) = (each_second.iter().sum::<usize>(), slow.commands() - recovered);
    assert!(slowly <= requests / 2, "{slowly} commands for {requests} requests without a timely reply");
    assert!(quickly <= requests / 2, "{quickly} commands to clear up after {requests} requests");

    let all = (0..seconds.min(8)).flat_map(|second| (0..A_SECOND).map(move |number| named(second, number)));
    let all: Vec<_> = all.collect();
    for some in all.chunks(16) {
        join_all(some.iter().map(|(path, key)| slow.buy(path, key, key))).await;
    }
    let runs = slow.ledger.runs();
    for (_, key) in &all {
        assert_eq!(runs.iter().filter(|run| *run == key).count(), 1, "{key}");
    }
}

/// New work is rejected meanwhile; runs in flight are renewed and settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_ending_while_redis_is_slow_is_stored_later() {
    let slow = DelayedPeer::start().await;
    let runs = ROUTES.map(|path| send(slow.under(path, "begun", "effect").header(TAKES, 1_500)));
    let runs = tokio::spawn(join_all(runs));
    until("both handlers have started", LONG, || async { slow.ledger.count("begun") == 2 }).await;
    slow.proxy.slow_down(LATE);
    let mut answers = JoinSet::new();
    for second in 0..3 {
        slow.send_new(second, &mut answers).await;
    }
    let runs: Vec<Answer> = runs.await.unwrap();
    assert!(runs.iter().all(|run| run.said() == "200 unprotected"), "{runs:?}");
    answers.join_all().await;
    slow.proxy.slow_down(Duration::ZERO);
    for (path, run) in ROUTES.iter().zip(runs) {
        let again = slow.buy(path, "begun", "effect").await;
        assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &run.body));
    }
    assert_eq!(slow.ledger.count("effect"), 2);
}

/// Looks up these tickets concurrently.
async fn look_for(store: &Redis, tickets: &[Ticket]) {
    let mut looks = JoinSet::new();
    for ticket in tickets.iter().copied().cycle().take(40) {
        let store = store.clone();
        looks.spawn(async move { store.look(&ticket).await.is_ok() });
        sleep(Duration::from_millis(10)).await;
    }
    looks.join_all().await;
}

/// Looks up these tickets until most commands time out and the breaker opens.
async fn time_out(store: &Redis, tickets: &[Ticket]) {
    until("the breaker rejects new work", LONG, || async {
        look_for(store, tickets).await;
        tickets.iter().all(|ticket| store.admission(ticket) != Admission::Accept)
    })
    .await;
}

fn tickets() -> Vec<Ticket> {
    (0..30_u8).map(|number| Ticket::of(Kind::Key, &[number])).collect()
}

#[tokio::test]
async fn breaker_rejects_new_work_without_commands_until_redis_recovers() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(redis.port()).await;
    let store = Redis::open(&proxy.url()).unwrap().timeout(LATE);
    let guard = Guard::new(store.clone());
    let key = |name: &str| Key::new(name).unwrap();
    let policy = Policy::key(KeyRules::retryable());
    let check = async |name: &str| {
        let key = key(name);
        guard.check(&policy, &Intent::new("pay", Subject::anonymous()).key(&key)).await
    };
    let Ok(Verdict::Run(pass)) = check("before").await else { panic!("a free key") };
    let tickets = tickets();
    for ticket in &tickets {
        store.look(ticket).await.unwrap();
    }
    assert!(tickets.iter().all(|ticket| store.admission(ticket) == Admission::Accept), "Redis replies in time");

    proxy.slow_down(LATE * 2);
    time_out(&store, &tickets).await;
    let monitor = redis.monitor();
    // One probe at a time: a lookup.
    for number in 0..200 {
        assert!(check(&format!("new-{number}")).await.is_err());
    }
    let sent = monitor.commands();
    assert!(!sent.iter().any(|command| command.starts_with("\"SET\"")), "no new claim is sent: {sent:?}");
    let open = Policy::interval(IntervalRules::new().every(Duration::from_secs(60)).unwrap().fail_open());
    let known = key("job");
    let ran =
        guard.run(&open, &Intent::new("job", Subject::anonymous()).key(&known), async || Ok::<_, String>(1)).await;
    assert!(matches!(ran, Ok(RunOutcome::Unprotected(_))), "{ran:?}");
    // A run in flight may still be settled.
    assert!(pass.complete(Some(Reply::new(200, "paid"))).await.is_err(), "its reply is late too");

    proxy.slow_down(Duration::ZERO);
    until("new work is accepted", LONG, || async { matches!(check("after").await, Ok(Verdict::Run(_))) }).await;
    let replayed = || async { matches!(check("before").await, Ok(Verdict::Replay(_))) };
    until("the first response is stored", LONG, replayed).await;
    assert!(tickets.iter().all(|ticket| store.admission(ticket) == Admission::Accept));
}

#[tokio::test]
async fn breaker_of_one_node_spares_the_others() {
    let cluster = RedisCluster::start().await;
    let store = Redis::open(&cluster.address()).unwrap().timeout(Duration::from_millis(200));
    let tickets = tickets();
    until("all nodes answer", LONG, || async {
        join_all(tickets.iter().map(|ticket| store.look(ticket))).await.iter().all(Result::is_ok)
    })
    .await;
    let is_of_first = |ticket: &Ticket| cluster.slot(&ticket.name("onceward")) < 5_461;
    let (frozen, others): (Vec<Ticket>, Vec<Ticket>) = tickets.iter().partition(|ticket| is_of_first(ticket));
    assert!(frozen.len() > 5 && !others.is_empty());
    let replica = cluster.replica_of(0);
    // A frozen node accepts no new connection, so nothing times out after the first connection is closed.
    until("only the breaker of the frozen node is open", LONG * 2, || async {
        cluster.nodes[replica].server.freeze();
        cluster.nodes[0].server.freeze();
        look_for(&store, &frozen).await;
        let is_open = |ticket: &Ticket| store.admission(ticket) == Admission::Accept;
        let (slow, well) = (frozen.iter().any(is_open), others.iter().all(is_open));
        cluster.nodes[0].server.thaw();
        cluster.nodes[replica].server.thaw();
        assert!(well, "the other nodes reply in time");
        cluster.settled().await;
        !slow
    })
    .await;
    until("the breaker accepts work again", LONG, || async {
        join_all(tickets.iter().map(|ticket| store.look(ticket))).await;
        tickets.iter().all(|ticket| store.admission(ticket) == Admission::Accept)
    })
    .await;
}
