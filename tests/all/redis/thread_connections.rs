//! The connection that each worker has to itself: it shortens the way to Redis, and nothing else may change by it.

use std::time::Duration;

use onceward::Kind;
use onceward::Ticket;
use onceward::store::{Redis, Store as _};
use onceward_tests::client::{order, token};
use onceward_tests::faulty_tcp_proxy::Proxy;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::Shop;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(5);
/// How long a store waits for an answer whose thread is held up.
const TIMEOUT: Duration = Duration::from_millis(100);

fn ticket() -> Ticket {
    Ticket::of(Kind::Key, b"x")
}

/// The numbers of all connections but that which asks, oldest first.
fn connections(redis: &RedisServer) -> Vec<u64> {
    let list: String = redis.ask("CLIENT LIST");
    let ids = list.lines().filter(|line| !line.contains("cmd=client|list"));
    let mut ids: Vec<_> = ids.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Asks until this thread has a connection of its own beside the shared one.
async fn warm(store: &Redis, redis: &RedisServer) {
    let is_warm = || async {
        store.look(&ticket()).await.expect("the store answers");
        connections(redis).len() == 2
    };
    until("this thread has its own connection", SOON, is_warm).await;
}

#[expect(clippy::disallowed_methods, reason = "a thread that is held up is what is tested")]
fn hold_up() {
    std::thread::sleep(TIMEOUT * 3);
}

#[tokio::test]
async fn each_worker_soon_has_one_and_no_more() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let are_there = || async {
        token(shop.url()).await;
        connections(&redis).len() == 4
    };
    until("two workers and the background have theirs", SOON, are_there).await;
    let before = connections(&redis);
    for _ in 0..100 {
        let token = token(shop.url()).await;
        assert_eq!(order(shop.url(), &token, "a").await.said(), "200 executed");
    }
    assert_eq!(connections(&redis), before);
}

#[tokio::test]
async fn a_thread_that_was_held_up_beyond_the_store_s_time_still_gets_its_answer() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(TIMEOUT);
    warm(&store, &redis).await;
    let before = connections(&redis);
    // As tasks of the runtime, and as the local tasks that actix has its requests in.
    for _ in 0..3 {
        let own = store.clone();
        let asked = tokio::spawn(async move { own.look(&ticket()).await });
        tokio::task::yield_now().await;
        hold_up();
        asked.await.unwrap().expect("the answer has long been there");

        let (local, own) = (LocalSet::new(), store.clone());
        let asked = local.spawn_local(async move { own.look(&ticket()).await });
        local.spawn_local(async { hold_up() });
        local.await;
        asked.await.unwrap().expect("the answer has long been there");
    }
    assert_eq!(connections(&redis), before, "and no connection is blamed for it");
}

#[tokio::test]
async fn one_that_is_cut_off_is_made_anew() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    for _ in 0..3 {
        let before = connections(&redis);
        redis.ask::<i64>(&format!("CLIENT KILL ID {}", before[1]));
        let is_well = || async {
            // What is under way while it breaks may be lost.
            let _ = store.look(&ticket()).await;
            let now = connections(&redis);
            now.len() == 2 && !now.contains(&before[1])
        };
        until("there is another", SOON, is_well).await;
        store.look(&ticket()).await.expect("the store answers");
    }
}

#[tokio::test]
async fn a_server_that_takes_no_more_connections_is_asked_over_the_shared_one_and_not_stormed() {
    let redis = RedisServer::start_with(&["--maxclients", "1"]);
    let proxy = Proxy::before(redis.port()).await;
    let store = Redis::open(&proxy.url()).unwrap();
    let is_there = || async { store.look(&ticket()).await.is_ok() };
    until("the shared connection is there", SOON, is_there).await;
    let (accepted, begun) = (proxy.accepted(), Instant::now());
    let is_refused = || async {
        store.look(&ticket()).await.expect("the store answers");
        proxy.accepted() > accepted || accepted > 1
    };
    until("another connection is tried", SOON, is_refused).await;
    while begun.elapsed() < Duration::from_millis(400) {
        store.look(&ticket()).await.expect("the store answers");
    }
    assert!(proxy.accepted() <= accepted + 1, "{} connections", proxy.accepted());
}

#[test]
fn one_ends_with_the_runtime_that_drove_it() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    first.block_on(warm(&store, &redis));
    let before = connections(&redis);
    // The first one is there, but nobody drives it.
    second.block_on(async { store.look(&ticket()).await }).expect("the store answers");
    drop((first, second));
    runtime().block_on(async {
        store.look(&ticket()).await.expect("the store answers");
        let is_alone = || async { !connections(&redis).contains(&before[1]) };
        until("it is closed", SOON, is_alone).await;
        warm(&store, &redis).await;
    });
}

/// What is between here and there forgets a connection that nobody uses: the kernel is told to ask now and then.
#[tokio::test]
async fn connections_that_nobody_uses_are_kept_alive() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    let port = format!(":{:04X}", redis.port());
    // Of those that are established, whether a timer runs that is not the one for sending again.
    let are_kept = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields[2].ends_with(&port) && fields[3] == "01");
        ours.map(|fields| fields[5].starts_with("02:")).collect::<Vec<_>>()
    };
    warm(&store, &redis).await;
    let both_are = || async { are_kept() == [true, true] };
    until("the shared one and this thread's are", SOON, both_are).await;
}
