//! A master with two replicas, monitored by three Sentinels, all real processes. Every server is behind a proxy, and the
//! servers and Sentinels connect from [`INNER`]: when a proxy cuts that address, only clients still reach the server.

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
use crate::listening_port::free_port;
use crate::polling::{until, until_blocking};
use crate::redis_cluster::{Node, among_others};
use crate::redis_server::program;

/// Name of the master in Sentinel.
pub const NAME: &str = "shop";
/// Time without a response after which a Sentinel considers a server down. After each failover a Sentinel reconnects, with one
/// try a second: with a much shorter time, it would consider the new master down as well.
const DOWN_AFTER: Duration = Duration::from_millis(2_000);
const LONG: Duration = Duration::from_secs(30);

/// Three servers and their Sentinels.
pub struct Sentinels {
    /// Initially a master, then two replicas.
    pub nodes: Vec<Node>,
    /// The Sentinels that monitor them.
    pub sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// Starts all processes and waits until the Sentinels know the servers and each other.
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

    /// Makes all other servers replicas of this one and waits until they are in sync.
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

    /// Its URL.
    pub fn address(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Sentinel::host).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// Waits until all running Sentinels agree on a master other than `former`, and returns it.
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

    /// Returns the master that the first Sentinel names.
    pub fn master(&self) -> usize {
        let port = self.sentinels[0].named();
        self.nodes.iter().position(|node| Some(node.proxy.port()) == port).expect("it is one of them")
    }

    /// Makes the first Sentinel start a failover and waits until all agree on the new master.
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
    /// Starts one that monitors this master with this quorum.
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

    /// Its host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends a command and returns the reply.
    ///
    /// # Errors
    /// If it does not reply, or replies with an error.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(format!("redis://{}", self.host()))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(1))?;
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut connection)
    }

    /// Returns the port of the server that it considers the master.
    pub fn named(&self) -> Option<u16> {
        let (_, port) = self.ask::<(String, String)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
        port.parse().ok()
    }

    /// Pauses it with SIGSTOP; its connections stay open.
    pub fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it can be signalled");
    }

    /// Resumes it with SIGCONT.
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

    /// Returns true if it knows two replicas and considers neither of them down.
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
    // Announce the address that it listens on, not the one that it connects from.
    write!(
        text,
        "sentinel announce-ip 127.0.0.1\nsentinel announce-port {port}\nsentinel monitor {NAME} 127.0.0.1 {master} \
         {quorum}\nsentinel down-after-milliseconds {NAME} {after}\nsentinel failover-timeout {NAME} 3000\nsentinel \
         parallel-syncs {NAME} 2\n"
    )
    .expect("writing to a string succeeds");
    text
}

fn arguments(proxy: u16) -> Vec<String> {
    let proxy = proxy.to_string();
    among_others(&[("replica-announce-ip", "127.0.0.1"), ("replica-announce-port", &proxy)])
}
