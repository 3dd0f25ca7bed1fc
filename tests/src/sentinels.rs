//! A master with two replicas, watched by three Sentinels, all real processes. Every server is behind a proxy, and the
//! servers and Sentinels call from [`INNER`]: cut that, and clients are all that still reaches a server.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, RedisResult};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::faulty_tcp_proxy::INNER;
use crate::polling::{until, until_blocking};
use crate::redis_cluster::{Node, among_others};
use crate::redis_server::{free_port, program};

/// What the master is called.
pub const NAME: &str = "shop";
/// How long a server is silent before a Sentinel takes it for dead. After each failover a Sentinel connects anew, and tries
/// that once a second: with much less, it would take the new master for dead as well.
const DOWN_AFTER: Duration = Duration::from_millis(2_000);
const LONG: Duration = Duration::from_secs(30);

/// Three servers and their Sentinels.
pub struct Sentinels {
    /// A master and two replicas, at first in this order.
    pub nodes: Vec<Node>,
    /// Who watches them.
    pub sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// Starts all of it, and waits until the Sentinels know the servers and each other.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(arguments).await);
        }
        let mut all = Self { nodes, sentinels: Vec::new() };
        all.follow(0).await;
        all.sentinels = (0..3).map(|_| Sentinel::start(all.nodes[0].proxy.port(), 2)).collect();
        until("the Sentinels know all", LONG, || async { all.sentinels.iter().all(Sentinel::knows_all) }).await;
        all
    }

    /// Has all others follow this one, and waits until they have everything.
    pub async fn follow(&self, master: usize) {
        for (number, node) in self.nodes.iter().enumerate().filter(|(number, _)| *number != master) {
            if node.is_master() || node.replication("master_port") != self.nodes[master].proxy.port().to_string() {
                self.nodes[number]
                    .server
                    .ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", self.nodes[master].proxy.port()));
            }
        }
        until("all follow", LONG, || async { self.nodes[master].followers() == self.nodes.len() - 1 }).await;
    }

    /// Its address.
    pub fn address(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Sentinel::host).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The server that all Sentinels that run name, once they agree on another than this one.
    pub async fn promoted_after(&self, former: usize) -> usize {
        let port = self.nodes[former].proxy.port();
        let promoted = Cell::new(None);
        let agree = || async {
            let mut named = self.sentinels.iter().filter(|sentinel| !sentinel.is_frozen()).map(Sentinel::named);
            promoted.set(named.next().flatten().filter(|name| *name != port));
            promoted.get().is_some() && named.all(|name| name == promoted.get())
        };
        until("the Sentinels agree on another master", LONG, agree).await;
        let number = self.nodes.iter().position(|node| Some(node.proxy.port()) == promoted.get());
        number.expect("it is one of them")
    }

    /// The server that the first Sentinel names.
    pub fn master(&self) -> usize {
        let port = self.sentinels[0].named();
        self.nodes.iter().position(|node| Some(node.proxy.port()) == port).expect("it is one of them")
    }

    /// Has the first Sentinel promote a replica, and waits until all agree.
    pub async fn fail_over(&self) -> usize {
        let former = self.master();
        let ask = || async { self.sentinels[0].ask::<()>(&["SENTINEL", "FAILOVER", NAME]).is_ok() };
        until("the Sentinel begins", LONG, ask).await;
        self.promoted_after(former).await
    }

    /// Brings a former master back as a replica of the current one, without waiting for a Sentinel to do it.
    pub async fn rejoin(&mut self, former: usize, master: usize) {
        self.nodes[former].proxy.mend();
        if self.nodes[former].server.has_ended() {
            self.nodes[former].server.restart();
        }
        self.follow(master).await;
        let port = self.nodes[master].proxy.port();
        let agree =
            || async { self.sentinels.iter().all(|sentinel| sentinel.named() == Some(port) && sentinel.sees_all()) };
        until("the Sentinels see all", LONG, agree).await;
    }
}

/// One Sentinel.
pub struct Sentinel {
    child: Child,
    is_frozen: AtomicBool,
    port: u16,
    _folder: TempDir,
}

impl Sentinel {
    /// Starts one that watches this master, and would need `quorum` of its kind to replace it.
    pub fn start(master: u16, quorum: usize) -> Self {
        for _ in 0..10 {
            let (port, folder) = (free_port(), tempfile::tempdir().expect("a temporary folder"));
            let file = folder.path().join("sentinel.conf");
            fs::write(&file, settings(port, folder.path(), master, quorum)).expect("the folder can be written");
            let child = Command::new(program())
                .arg(&file)
                .arg("--sentinel")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server is missing; install it with: apt-get install redis-server");
            let mut sentinel = Self { child, is_frozen: AtomicBool::new(false), port, _folder: folder };
            let has_ended = |child: &mut Child| child.try_wait().expect("its own child").is_some();
            until_blocking(LONG, || sentinel.ask::<String>(&["PING"]).is_ok() || has_ended(&mut sentinel.child));
            if !has_ended(&mut sentinel.child) {
                return sentinel;
            }
        }
        panic!("no Sentinel starts");
    }

    /// Where it is.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Asks it.
    ///
    /// # Errors
    /// If it does not answer, or refuses.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(format!("redis://{}", self.host()))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut connection)
    }

    /// The port of whom it takes for the master.
    pub fn named(&self) -> Option<u16> {
        let (_, port) = self.ask::<(String, String)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        port.parse().ok()
    }

    /// Stops it from running, with its connections open.
    pub fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it can be signalled");
    }

    /// Lets it run again.
    pub fn thaw(&self) {
        self.is_frozen.store(false, Ordering::Relaxed);
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it can be signalled");
    }

    fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Relaxed)
    }

    fn knows_all(&self) -> bool {
        let others = self.ask::<Vec<redis::Value>>(&["SENTINEL", "SENTINELS", NAME]).map_or(0, |others| others.len());
        others == 2 && self.sees_all() && self.ask::<String>(&["SENTINEL", "CKQUORUM", NAME]).is_ok()
    }

    /// Whether it knows two replicas and holds neither of them for dead.
    fn sees_all(&self) -> bool {
        let replicas = self.ask::<Vec<std::collections::HashMap<String, String>>>(&["SENTINEL", "REPLICAS", NAME]);
        replicas.is_ok_and(|all| {
            let is_well = |replica: &std::collections::HashMap<String, String>| replica["flags"] == "slave";
            all.iter().filter(|replica| is_well(replica)).count() == 2
        })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(port: u16, folder: &Path, master: u16, quorum: usize) -> String {
    let mut text = format!("port {port}\nbind 127.0.0.1\nbind-source-addr {INNER}\ndir {}\n", folder.display());
    let after = DOWN_AFTER.as_millis();
    // What it tells others of itself is not where it calls from.
    write!(
        text,
        "sentinel announce-ip 127.0.0.1\nsentinel announce-port {port}\nsentinel monitor {NAME} 127.0.0.1 {master} \
         {quorum}\nsentinel down-after-milliseconds {NAME} {after}\nsentinel failover-timeout {NAME} 3000\nsentinel \
         parallel-syncs {NAME} 2\n"
    )
    .expect("a text can be written to");
    text
}

fn arguments(proxy: u16) -> Vec<String> {
    let proxy = proxy.to_string();
    among_others(&[("replica-announce-ip", "127.0.0.1"), ("replica-announce-port", &proxy)])
}
