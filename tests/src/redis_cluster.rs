//! A Redis Cluster of six real nodes: three masters with a replica each, every one of them behind a proxy. What a node
//! tells others of itself is its proxy's port, so clients and replicas both come through it; see [`INNER`].

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{Connection, cmd};

use crate::faulty_tcp_proxy::{INNER, Proxy};
use crate::polling::{until, until_blocking};
use crate::redis_server::{RedisServer, free_port};

/// How long a node is silent before the others take it for dead.
const NODE_TIMEOUT: Duration = Duration::from_millis(2_000);
const LONG: Duration = Duration::from_secs(30);
/// How many slots there are.
const SLOTS: u16 = 16_384;

/// A server and the proxy before it.
pub struct Node {
    /// The server itself.
    pub server: RedisServer,
    /// The way to it.
    pub proxy: Proxy,
}

impl Node {
    /// Starts one; `arguments` is told the port of its proxy.
    pub(crate) async fn start(arguments: impl Fn(u16) -> Vec<String>) -> Self {
        // Somebody else may get the port between our asking for it and the server's: then another one is taken.
        for _ in 0..10 {
            let port = free_port();
            let proxy = Proxy::before(port).await;
            if let Some(server) = RedisServer::start_at(port, &arguments(proxy.port())) {
                return Self { server, proxy };
            }
        }
        panic!("redis-server does not start");
    }

    /// A line of `INFO replication`, or nothing.
    pub fn replication(&self, field: &str) -> String {
        let info = self.info();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Whether it takes itself for a master.
    pub fn is_master(&self) -> bool {
        self.replication("role") == "master"
    }

    /// How many replicas follow it and have everything.
    pub fn followers(&self) -> usize {
        self.info().matches("state=online").count()
    }

    /// Whoever demotes a master has its clients' connections broken, this one among them: so it is asked again.
    fn info(&self) -> String {
        let ask = |_| {
            let mut connection = redis::Client::open(self.server.url()).ok()?.get_connection().ok()?;
            cmd("INFO").arg("replication").query(&mut connection).ok()
        };
        (0..3).find_map(ask).expect("the server answers")
    }

    /// Waits until a replica has everything that was written here so far. `WAIT` would wait for what its own connection has written only.
    pub async fn replicated(&self) {
        let written: u64 = self.replication("master_repl_offset").parse().expect("an offset");
        until("a replica has everything", LONG, || async {
            let replica = self.replication("slave0");
            let offset = replica.split(',').find_map(|part| part.strip_prefix("offset="));
            offset.and_then(|offset| offset.parse::<u64>().ok()).is_some_and(|offset| offset >= written)
        })
        .await;
    }

    /// Nothing gets from here to its replicas any more. Clients notice nothing.
    pub async fn cut_off(&self) {
        self.proxy.cut();
        until("its replicas have lost it", LONG, || async { self.replication("connected_slaves") == "0" }).await;
    }

    fn id(&self) -> String {
        self.server.ask("CLUSTER MYID")
    }
}

/// Arguments for servers that talk among themselves.
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
    /// Three masters, and the replica of each, at first.
    pub nodes: Vec<Node>,
}

impl RedisCluster {
    /// Starts one and waits until it serves every slot and every replica has caught up.
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

    /// Waits until every slot is served, as every node sees it, and each master has a replica that has caught up.
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

    /// Its address: three of its nodes.
    pub fn address(&self) -> String {
        format!("redis+cluster://{}", self.hosts(","))
    }

    /// The same as a bare list.
    pub fn list(&self) -> String {
        self.hosts(";")
    }

    fn hosts(&self, between: &str) -> String {
        let hosts: Vec<_> = self.nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.proxy.port())).collect();
        hosts.join(between)
    }

    /// Who is master now, by number.
    pub fn masters(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|number| self.nodes[*number].is_master()).collect()
    }

    /// The replica of a master, by number.
    pub fn replica_of(&self, master: usize) -> usize {
        let port = self.nodes[master].proxy.port().to_string();
        let follows = |number: &usize| self.nodes[*number].replication("master_port") == port;
        (0..self.nodes.len()).find(follows).expect("a replica follows it")
    }

    /// Has a replica take over from its master in good order: nothing is lost.
    pub async fn fail_over(&self, replica: usize) {
        // The others do not vote twice within a while for the same slots: then it is asked again.
        let has_begun = || async {
            self.nodes[replica].server.ask::<()>("CLUSTER FAILOVER");
            until_blocking(NODE_TIMEOUT, || self.nodes[replica].is_master())
        };
        until("it is master", LONG, has_begun).await;
        self.settled().await;
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].server.ask(&format!("CLUSTER KEYSLOT {key}"))
    }

    /// Moves slots from one master to another, with all that is in them, while both serve.
    pub fn reshard(&self, from: usize, to: usize, slots: RangeInclusive<u16>) {
        let mut moving = self.moving(from, to);
        for slot in slots {
            moving.begin(slot);
            while moving.carry(slot, 100) > 0 {}
            moving.end(slot);
        }
    }

    /// The steps of moving slots, for a test that looks between them.
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
    /// From now on the source answers ASK to what it does not have.
    pub fn begin(&mut self, slot: u16) {
        let set = |role: &str, id: &str| cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(role).arg(id).clone();
        set("IMPORTING", &self.source_id).exec(&mut self.target).expect("the target takes it");
        set("MIGRATING", &self.target_id).exec(&mut self.source).expect("the source gives it");
    }

    /// Carries up to `most` keys over, and says how many it were.
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

    /// From now on the target has the slot, and the others know.
    pub fn end(&mut self, slot: u16) {
        let set = cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(&self.target_id).clone();
        for connection in [&mut self.target, &mut self.source].into_iter().chain(&mut self.others) {
            set.exec(connection).expect("the slot is given");
        }
    }
}

fn arguments(proxy: u16) -> Vec<String> {
    let (bus, timeout, proxy) = (free_port().to_string(), NODE_TIMEOUT.as_millis().to_string(), proxy.to_string());
    among_others(&[
        ("cluster-enabled", "yes"),
        ("cluster-port", &bus),
        ("cluster-node-timeout", &timeout),
        // A replica that was cut off takes over all the same: that is what is tested.
        ("cluster-replica-validity-factor", "0"),
        // A master that has given away its last slot stays one.
        ("cluster-allow-replica-migration", "no"),
        ("cluster-announce-ip", "127.0.0.1"),
        ("cluster-announce-port", &proxy),
    ])
}
