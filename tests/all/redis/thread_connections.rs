//! The connection that each worker thread has to itself, and the one that the threads of multi-threaded runtimes have in common: they only
//! reduce CPU time and latency.

use std::future::poll_fn;
use std::time::Duration;

use onceward::Kind;
use onceward::Ticket;
use onceward::store::{Compared, Redis, Room, Store as _};
use onceward_tests::client::{order, token};
use onceward_tests::faulty_tcp_proxy::Proxy;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, command};
use onceward_tests::shop::Shop;
use onceward_tests::tls_redis::TlsRedis;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::LocalSet;
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(20);
/// Store timeout; the thread is blocked for longer.
const TIMEOUT: Duration = Duration::from_millis(100);

fn ticket() -> Ticket {
    Ticket::of(Kind::Key, b"x")
}

/// Returns the ids of all connections except the test's, oldest first.
fn connections(redis: &RedisServer) -> Vec<u64> {
    let list: String = redis.ask("CLIENT LIST");
    let ids = list.lines().filter(|line| !line.contains("cmd=client|list"));
    let mut ids: Vec<_> = ids.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Sends commands until this thread has its own connection beside the shared one.
async fn warm(store: &Redis, redis: &RedisServer) {
    // On a busy machine, connecting may take longer than a command may.
    let is_warm = || async { store.look(&ticket()).await.is_ok() && connections(redis).len() == 2 };
    until("this thread has its own connection", SOON, is_warm).await;
}

#[expect(clippy::disallowed_methods, reason = "the test blocks its thread on purpose")]
fn hold_up() {
    std::thread::sleep(TIMEOUT * 3);
}

#[tokio::test]
async fn each_worker_opens_exactly_one_connection() {
    let redis = RedisServer::start();
    let shop = Shop::on(Redis::open(&redis.url()).unwrap());
    let are_there = || async {
        token(shop.url()).await;
        connections(&redis).len() == 4
    };
    until("two workers and the background thread have connections", SOON, are_there).await;
    let before = connections(&redis);
    for _ in 0..100 {
        let token = token(shop.url()).await;
        assert_eq!(order(shop.url(), &token, "a").await.said(), "200 executed");
    }
    assert_eq!(connections(&redis), before);
}

#[tokio::test]
async fn blocked_thread_still_receives_its_reply() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(TIMEOUT);
    warm(&store, &redis).await;
    let before = connections(&redis);
    // As tasks of the runtime, and as local tasks, in which actix runs its requests.
    for _ in 0..3 {
        let own = store.clone();
        let asked = tokio::spawn(async move { own.look(&ticket()).await });
        tokio::task::yield_now().await;
        hold_up();
        asked.await.unwrap().expect("the reply has arrived");

        let (local, own) = (LocalSet::new(), store.clone());
        let asked = local.spawn_local(async move { own.look(&ticket()).await });
        local.spawn_local(async { hold_up() });
        local.await;
        asked.await.unwrap().expect("the reply has arrived");
    }
    assert_eq!(connections(&redis), before, "no connection is replaced");
}

#[tokio::test]
async fn reset_thread_connection_is_reopened() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    for _ in 0..3 {
        let before = connections(&redis);
        redis.ask::<i64>(&format!("CLIENT KILL ID {}", before[1]));
        let is_well = || async {
            // A command in flight may be lost.
            let _ = store.look(&ticket()).await;
            let now = connections(&redis);
            now.len() == 2 && !now.contains(&before[1])
        };
        until("the connection is reopened", SOON, is_well).await;
        store.look(&ticket()).await.expect("the store answers");
    }
}

#[tokio::test]
async fn connection_limit_falls_back_to_the_shared_connection() {
    let redis = RedisServer::start_with(&["--maxclients", "1"]);
    let proxy = Proxy::before(redis.port()).await;
    let store = Redis::open(&proxy.url()).unwrap();
    let is_there = || async { store.look(&ticket()).await.is_ok() };
    until("the shared connection is open", SOON, is_there).await;
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
fn thread_connection_ends_with_its_runtime() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    first.block_on(warm(&store, &redis));
    let before = connections(&redis);
    // The first connection is open, but no runtime drives it.
    second.block_on(async { store.look(&ticket()).await }).expect("the store answers");
    drop((first, second));
    runtime().block_on(async {
        store.look(&ticket()).await.expect("the store answers");
        let is_alone = || async { !connections(&redis).contains(&before[1]) };
        until("the connection is closed", SOON, is_alone).await;
        warm(&store, &redis).await;
    });
}

#[test]
fn thread_that_blocks_on_a_worker_leaves_no_connection_behind() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(SOON);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        warm(&store, &redis).await;
        for _ in 0..3 {
            let (own, worker) = (store.clone(), Handle::current());
            let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
            let thread = std::thread::spawn(move || {
                worker.block_on(async {
                    while stopped.try_recv().is_err() {
                        own.look(&ticket()).await.expect("the store answers");
                    }
                });
            });
            let is_there = || async { connections(&redis).len() == 3 };
            until("the blocking thread has a connection too", SOON, is_there).await;
            stop.send(()).unwrap();
            tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
            store.look(&ticket()).await.expect("the worker still has its connection");
        }
        let are_closed = || async { connections(&redis).len() == 2 };
        until("only the connections from before are left", SOON, are_closed).await;
    });
}

/// Sends this many commands at once, from tasks of the runtime.
async fn ask_from_tasks(store: &Redis, count: usize) {
    let asked: Vec<_> = (0..count)
        .map(|_| {
            let own = store.clone();
            tokio::spawn(async move { own.look(&ticket()).await })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap().expect("the store answers");
    }
}

fn multi_threaded() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

#[test]
fn multi_threaded_runtimes_share_one_connection_that_outlives_them() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(SOON);
    let first = multi_threaded();
    first.block_on(warm(&store, &redis));
    let before = connections(&redis);
    first.block_on(ask_from_tasks(&store, 200));
    let own = store.clone();
    let blocking = first.spawn_blocking(move || Handle::current().block_on(async { own.look(&ticket()).await }));
    first.block_on(blocking).unwrap().expect("the store answers");
    assert_eq!(connections(&redis), before, "one connection for all threads");
    drop(first);
    multi_threaded().block_on(ask_from_tasks(&store, 200));
    assert_eq!(connections(&redis), before, "another runtime uses the same connection");
    drop(store);
    let are_closed = || async { connections(&redis).is_empty() };
    multi_threaded().block_on(until("the connections are closed", SOON, are_closed));
}

/// The thread is blocked by the task that has just sent a command: a driver on that thread would be blocked too.
#[test]
fn blocked_thread_of_a_multi_threaded_runtime_stalls_no_other() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(TIMEOUT);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        warm(&store, &redis).await;
        let before = connections(&redis);
        for _ in 0..3 {
            let own = store.clone();
            let blocked = tokio::spawn(async move {
                let (ticket, mut is_held_up) = (ticket(), false);
                let mut asked = own.look(&ticket);
                poll_fn(|context| {
                    let polled = asked.as_mut().poll(context);
                    if !std::mem::replace(&mut is_held_up, true) {
                        hold_up();
                    }
                    polled
                })
                .await
            });
            while !blocked.is_finished() {
                let asked = Instant::now();
                store.look(&ticket()).await.expect("the store answers");
                assert!(asked.elapsed() < TIMEOUT, "{:?}", asked.elapsed());
            }
            blocked.await.unwrap().expect("the reply has arrived");
        }
        assert_eq!(connections(&redis), before, "no connection is replaced");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_common_connection_is_reopened() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    for _ in 0..3 {
        let before = connections(&redis);
        redis.ask::<i64>(&format!("CLIENT KILL ID {}", before[1]));
        let is_well = || async {
            // A command in flight may be lost.
            let _ = store.look(&ticket()).await;
            let now = connections(&redis);
            now.len() == 2 && !now.contains(&before[1])
        };
        until("the connection is reopened", SOON, is_well).await;
        ask_from_tasks(&store, 10).await;
    }
}

/// Were its own connection refused, a thread would silently use the shared one.
#[tokio::test]
async fn thread_connection_logs_in_with_password_user_database_and_socket_file() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let redis = RedisServer::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    redis.ask::<()>("ACL SETUSER shop on >right-canary ~* &* +@all");
    let port = redis.port();
    let addresses = [
        format!("redis://shop:right-canary@127.0.0.1:{port}"),
        format!("redis://shop:right-canary@localhost:{port}/3"),
        format!("unix://{}", socket.display()),
        format!("unix://{}?user=shop&pass=right-canary&db=2", socket.display()),
    ];
    for address in addresses {
        let store = Redis::open(&address).unwrap();
        store.insert(&ticket(), b"1", SOON, Room::Free).await.expect("the store answers");
        warm(&store, &redis).await;
        assert_eq!(store.look(&ticket()).await.unwrap().as_deref(), Some(&b"1"[..]), "{address}: in the same database");
        assert_eq!(store.remove(&ticket(), b"1", None).await.unwrap(), Compared::Done, "{address}");
        drop(store);
        let are_closed = || async { connections(&redis).is_empty() };
        until("the connections are closed", SOON, are_closed).await;
    }
}

#[tokio::test]
async fn each_worker_opens_a_connection_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let redis = TlsRedis::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    let address = format!("rediss://{}", redis.host());
    let mut start = command(&["--listen", "127.0.0.1:0", "--log", "json", "--store", &address]);
    start.env("SSL_CERT_FILE", redis.authority());
    let service = OncewardServer::spawn(start);
    let mut connection = redis::Client::open(format!("unix://{}", socket.display())).unwrap().get_connection().unwrap();
    let mut count = || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
        list.lines().filter(|line| line.contains("addr=127.0.0.1:")).count()
    };
    let begun = Instant::now();
    while count() < 3 {
        token(&service.url).await;
        assert!(begun.elapsed() < SOON, "the shared connection, and one of a worker and of the background thread");
    }
}

/// Firewalls and NAT drop idle connections, so TCP keepalive is enabled.
#[tokio::test]
async fn idle_connections_use_tcp_keepalive() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    let port = format!(":{:04X}", redis.port());
    // Counts established connections with a keepalive timer, not a retransmission timer.
    let are_kept = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields[2].ends_with(&port) && fields[3] == "01");
        ours.map(|fields| fields[5].starts_with("02:")).collect::<Vec<_>>()
    };
    warm(&store, &redis).await;
    let both_are = || async { are_kept() == [true, true] };
    until("both connections have a keepalive timer", SOON, both_are).await;
}
