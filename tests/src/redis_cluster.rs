//! A Redis Cluster of six real nodes: three masters with one replica each, every node behind a proxy. A node announces its
//! proxy's port, so clients and replicas both connect through it; see [`INNER`].

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{Connection, cmd};

use crate::faulty_tcp_proxy::{INNER, Proxy};
use crate::listening_port::free_port;
use crate::polling::{until, until_blocking};
use crate::redis_server::RedisServer;

/// Time without a response after which the other nodes consider a node down.
const NODE_TIMEOUT: Duration = Duration::from_millis(2_000);
const LONG: Duration = Duration::from_secs(30);
/// Number of hash slots.
const SLOTS: u16 = 16_384;

/// A server and the proxy in front of it.
pub struct Node {
    /// The server itself.
    pub server: RedisServer,
    /// The proxy in front of it.
    pub proxy: Proxy,
}

impl Node {
    /// Starts one; `arguments` receives the port of its proxy.
    pub(crate) async fn start(arguments: impl Fn(u16) -> Vec<String>) -> Self {
        // Another process may take the port before the server binds it: then try another one.
        for _ in 0..10 {
            let port = free_port();
            let proxy = Proxy::before(port).await;
            if let Some(server) = RedisServer::start_at(port, &arguments(proxy.port())) {
                return Self { server, proxy };
            }
        }
        panic!("redis-server does not start");
    }

    /// Returns a field of `INFO replication`, or an empty string.
    pub fn replication(&self, field: &str) -> String {
        let info = self.info();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Returns true if the node considers itself a master.
    pub fn is_master(&self) -> bool {
        self.replication("role") == "master"
    }

    /// Returns the number of replicas that are in sync with it.
    pub fn followers(&self) -> usize {
        self.info().matches("state=online").count()
    }

    /// Reads `INFO replication`, with retries: a demoted master breaks its clients' connections.
    fn info(&self) -> String {
        let ask = |_| {
            let mut connection = redis::Client::open(self.server.url()).ok()?.get_connection().ok()?;
            cmd("INFO").arg("replication").query(&mut connection).ok()
        };
        (0..3).find_map(ask).expect("the server answers")
    }

    /// Waits until a replica has all writes so far. `WAIT` would only cover writes of its own connection.
    pub async fn replicated(&self) {
        let written: u64 = self.replication("master_repl_offset").parse().expect("an offset");
        until("a replica has everything", LONG, || async {
            let replica = self.replication("slave0");
            let offset = replica.split(',').find_map(|part| part.strip_prefix("offset="));
            offset.and_then(|offset| offset.parse::<u64>().ok()).is_some_and(|offset| offset >= written)
        })
        .await;
    }

    /// Partitions it from its replicas. Clients are not affected.
    pub async fn cut_off(&self) {
        self.proxy.cut();
        until("its replicas have lost it", LONG, || async { self.replication("connected_slaves") == "0" }).await;
    }

    fn id(&self) -> String {
        self.server.ask("CLUSTER MYID")
    }
}

/// Returns the arguments of servers that replicate among themselves.
pub(crate) fn among_others(arguments: &[(&str, &str)]) -> Vec<String> {
    let inner = INNER.to_string();
    let shared = [
        ("bind-source-addr", inner.as_str()),
        ("repl-diskless-sync-delay", "0"),
        ("repl-ping-replica-period", "1"),
        ("repl-timeout", "60"),
    ];
    let all = shared.iter().chain(arguments);
    all.flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]).collect()
}

/// A running cluster.
pub struct RedisCluster {
    /// Initially three masters, then the replica of each.
    pub nodes: Vec<Node>,
}

impl RedisCluster {
    /// Starts one and waits until it serves every slot and every replica is in sync.
    pub async fn start() -> Self {
        let mut nodes = Vec::new();
        for _ in 0..6 {
            nodes.push(Node::start(arguments).await);
        }
        let cluster = Self { nodes };
        cluster.join().await;
        cluster
    }

    async fn join(&self) {
        let share = SLOTS / 3;
        for (number, node) in self.nodes.iter().enumerate() {
            node.server.ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            if let Some(first) = u16::try_from(number).ok().filter(|number| *number < 3).map(|number| number * share) {
                let last = if number == 2 { SLOTS - 1 } else { first + share - 1 };
                node.server.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            }
            let bus: Vec<String> = node.server.ask("CONFIG GET cluster-port");
            self.nodes[0].server.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.proxy.port(), bus[1]));
        }
        let know = |node: &Node| node.server.ask::<String>("CLUSTER INFO").contains("cluster_known_nodes:6");
        until("all know each other", LONG, || async { self.nodes.iter().all(know) }).await;
        for number in 3..6 {
            let master = self.nodes[number - 3].id();
            let follow = format!("CLUSTER REPLICATE {master}");
            self.nodes[number].server.ask::<()>(&follow);
        }
        self.settled().await;
    }

    /// Waits until every node sees every slot served, and each master has a replica in sync.
    pub async fn settled(&self) {
        until("the cluster serves every slot", LONG, || async { self.nodes.iter().all(Self::is_well) }).await;
        let masters = || self.nodes.iter().filter(|node| node.is_master()).collect::<Vec<_>>();
        let are_followed = || async { masters().len() == 3 && masters().iter().all(|node| node.followers() == 1) };
        until("every master has a replica", LONG, are_followed).await;
    }

    fn is_well(node: &Node) -> bool {
        let info: String = node.server.ask("CLUSTER INFO");
        info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
    }

    /// Its URL, with three of its nodes.
    pub fn address(&self) -> String {
        format!("redis+cluster://{}", self.hosts(","))
    }

    /// Its nodes as a list separated by `;`.
    pub fn list(&self) -> String {
        self.hosts(";")
    }

    fn hosts(&self, between: &str) -> String {
        let hosts: Vec<_> = self.nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.proxy.port())).collect();
        hosts.join(between)
    }

    /// Returns the numbers of the current masters.
    pub fn masters(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| self.nodes[*number].is_master()).collect()
    }

    /// Returns the number of a master's replica.
    pub fn replica_of(&self, master: usize) -> usize {
        let port = self.nodes[master].proxy.port().to_string();
        let follows = |number: &usize| self.nodes[*number].replication("master_port") == port;
        (0..self.nodes.len()).find(follows).expect("a replica follows it")
    }

    /// Makes a replica take over from its master with a coordinated failover that loses nothing.
    pub async fn fail_over(&self, replica: usize) {
        // Nodes do not vote twice for the same slots within a short time: then retry.
        let has_begun = || async {
            self.nodes[replica].server.ask::<()>("CLUSTER FAILOVER");
            until_blocking(NODE_TIMEOUT, || self.nodes[replica].is_master())
        };
        until("it is master", LONG, has_begun).await;
        self.settled().await;
    }

    /// Returns the slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].server.ask(&format!("CLUSTER KEYSLOT {key}"))
    }

    /// Moves slots with their keys from one master to another while both serve requests.
    pub fn reshard(&self, from: usize, to: usize, slots: RangeInclusive<u16>) {
        let mut moving = self.moving(from, to);
        for slot in slots {
            moving.begin(slot);
            while moving.carry(slot, 100) > 0 {}
            moving.end(slot);
        }
    }

    /// Returns the steps of a migration, for a test that checks the state between them.
    pub fn moving(&self, from: usize, to: usize) -> SlotMigration {
        let connection = |number: usize| self.nodes[number].server.connection();
        let others = self.masters().into_iter().filter(|number| *number != from && *number != to);
        SlotMigration {
            source: connection(from),
            target: connection(to),
            others: others.map(connection).collect(),
            source_id: self.nodes[from].id(),
            target_id: self.nodes[to].id(),
            target_port: self.nodes[to].server.port(),
        }
    }
}

/// A migration of slots from one master to another.
pub struct SlotMigration {
    source: Connection,
    target: Connection,
    others: Vec<Connection>,
    source_id: String,
    target_id: String,
    target_port: u16,
}

impl SlotMigration {
    /// Begins the migration: the source replies ASK for keys that it does not have.
    pub fn begin(&mut self, slot: u16) {
        let set = |role: &str, id: &str| cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(role).arg(id).clone();
        set("IMPORTING", &self.source_id).exec(&mut self.target).expect("the target imports the slot");
        set("MIGRATING", &self.target_id).exec(&mut self.source).expect("the source migrates the slot");
    }

    /// Moves up to `most` keys and returns their number.
    pub fn carry(&mut self, slot: u16, most: usize) -> usize {
        let mut list = cmd("CLUSTER");
        list.arg("GETKEYSINSLOT").arg(slot).arg(most);
        let keys: Vec<String> = list.query(&mut self.source).expect("the source answers");
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.target_port).arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
            migrate.exec(&mut self.source).expect("the keys are moved");
        }
        keys.len()
    }

    /// Ends the migration: the target owns the slot, and all masters know it.
    pub fn end(&mut self, slot: u16) {
        let set = cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(&self.target_id).clone();
        for connection in [&mut self.target, &mut self.source].into_iter().chain(&mut self.others) {
            set.exec(connection).expect("the node accepts the new owner");
        }
    }
}

fn arguments(proxy: u16) -> Vec<String> {
    let (bus, timeout, proxy) = (free_port().to_string(), NODE_TIMEOUT.as_millis().to_string(), proxy.to_string());
    among_others(&[
        ("cluster-enabled", "yes"),
        ("cluster-port", &bus),
        ("cluster-node-timeout", &timeout),
        // Let a partitioned replica take over: the tests need that.
        ("cluster-replica-validity-factor", "0"),
        // A master without slots stays a master.
        ("cluster-allow-replica-migration", "no"),
        ("cluster-announce-ip", "127.0.0.1"),
        ("cluster-announce-port", &proxy),
    ])
}
