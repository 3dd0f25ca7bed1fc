//! The clusters, Sentinels, proxies and certificates of the harness behave as the tests assume.

use std::process::Command;
use std::time::Duration;

use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::sentinels::Sentinels;
use onceward_tests::tls_redis::{Authority, TlsRedis};

use crate::PEER;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cluster_moves_slots_and_loses_unreplicated_writes() {
    let mut cluster = RedisCluster::start().await;
    assert_eq!(cluster.masters(), [0, 1, 2]);
    let slot = cluster.slot("a");
    let owner = usize::from(slot / 5_461).min(2);
    let (other, third) = ((owner + 1) % 3, (owner + 2) % 3);
    cluster.nodes[owner].server.ask::<()>("SET a 1");

    let mut moving = cluster.moving(owner, other);
    moving.begin(slot);
    assert_eq!((moving.carry(slot, 10), moving.carry(slot, 10)), (1, 0));
    let redirected = |number: usize| {
        let answer: redis::RedisResult<String> =
            redis::cmd("GET").arg("a").query(&mut cluster.nodes[number].server.connection());
        answer.unwrap_err().code().unwrap_or_default().to_owned()
    };
    assert_eq!((redirected(owner), redirected(other)), ("ASK".to_owned(), "MOVED".to_owned()));
    moving.end(slot);
    assert_eq!(cluster.nodes[other].server.ask::<i64>("GET a"), 1);
    assert_eq!((redirected(owner), redirected(third)), ("MOVED".to_owned(), "MOVED".to_owned()));

    let replica = cluster.replica_of(other);
    assert_eq!(cluster.nodes[other].server.ask::<i64>("WAIT 1 10000"), 1, "the replica has the moved key");
    cluster.nodes[other].cut_off().await;
    cluster.nodes[other].server.ask::<()>("SET a 2");
    cluster.nodes[other].server.kill();
    until("its replica takes over", LONG, || async { cluster.nodes[replica].is_master() }).await;
    assert_eq!(cluster.nodes[replica].server.ask::<i64>("GET a"), 1, "the replica does not have the second write");
    cluster.nodes[other].proxy.mend();
    cluster.nodes[other].server.restart();
    cluster.settled().await;
    assert!(!cluster.nodes[other].is_master());
    cluster.fail_over(other).await;
    assert_eq!(cluster.nodes[other].server.ask::<i64>("GET a"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sentinel_failover_leaves_the_old_master_writable() {
    let mut all = Sentinels::start().await;
    let client = redis::Client::open(all.nodes[0].proxy.url()).unwrap();
    // `WAIT` waits only for writes of its own connection.
    let mut connection = client.get_connection().unwrap();
    redis::cmd("SET").arg("a").arg(1).exec(&mut connection).unwrap();
    redis::cmd("WAIT").arg(2).arg(0).exec(&mut connection).unwrap();
    all.nodes[0].cut_off().await;
    let promoted = all.promoted_after(0).await;
    redis::cmd("SET").arg("a").arg(2).exec(&mut client.get_connection().unwrap()).unwrap();
    until("the new one is master", LONG, || async { all.nodes[promoted].is_master() }).await;
    assert!(all.nodes[0].is_master(), "split brain: both are masters");
    assert_eq!(all.nodes[promoted].server.ask::<i64>("GET a"), 1);
    all.rejoin(0, promoted).await;
    assert_eq!(all.nodes[0].server.ask::<i64>("GET a"), 1, "its writes during the split are lost");

    all.nodes[promoted].server.kill();
    let next = all.promoted_after(promoted).await;
    all.rejoin(promoted, next).await;
    let last = all.fail_over().await;
    assert_ne!(last, next);
    all.rejoin(next, last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_breaks_all_connections_at_once() {
    let redis = RedisServer::start();
    let proxy = onceward_tests::faulty_tcp_proxy::Proxy::before(redis.port()).await;
    let mut connections: Vec<_> =
        (0..3).map(|_| redis::Client::open(proxy.url()).unwrap().get_connection().unwrap()).collect();
    proxy.reset();
    let clients = || redis.ask::<String>("CLIENT LIST").lines().count();
    until("the connections are closed", LONG, || async { clients() == 1 }).await;
    assert!(connections.iter_mut().all(|connection| redis::cmd("PING").exec(connection).is_err()));
    redis::cmd("PING").exec(&mut redis::Client::open(proxy.url()).unwrap().get_connection().unwrap()).unwrap();
}

#[test]
fn tls_redis_is_trusted_only_with_its_authority() {
    let (redis, stranger) = (TlsRedis::start_with(&[]), Authority::new());
    let ping = |authority: &std::path::Path| {
        let (host, port) = redis.host().split_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
        let mut command = Command::new("redis-cli");
        let output = command.args(["-h", &host, "-p", &port, "--tls", "--cacert"]).arg(authority).arg("PING").output();
        String::from_utf8(output.expect("redis-cli runs").stdout).unwrap()
    };
    assert_eq!(ping(&redis.authority()), "PONG\n");
    assert_eq!(ping(&stranger.certificate()), "");
}

/// A killed test leaves no database process behind.
#[tokio::test]
async fn killed_test_ends_its_database() {
    let mut peer = Peer::start(PEER, "database", "none", &Ledger::new());
    let port: u16 = peer.url.parse().unwrap();
    let answers = async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
    assert!(answers().await);
    peer.kill();
    until("it has ended", LONG, async || !answers().await).await;
}
