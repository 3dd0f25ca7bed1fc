//! Queries a Redis server over a connection of its own.

use std::collections::HashMap;

use onceward::{Clock, Kind, Ticket};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind};
use tokio::time::{Duration, Instant};

use super::PATIENCE;
use super::connect_error::{ConnectError, denied_user};
use super::redis_info::Info;

/// Maximum number of keys that are tried to find one in a slot of this node: enough for a cluster of a hundred nodes.
const PLACES: usize = 1_000;

/// The result of a probe. `None` in a field means that this user may not read it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) took: Duration,
    pub(crate) info: Option<Info>,
    /// `appendfsync`
    pub(crate) fsync: Option<String>,
    /// `save`
    pub(crate) snapshots: Option<String>,
    /// True if the address names a cluster.
    pub(crate) is_of_cluster: bool,
    /// The user of this connection.
    pub(crate) user: Option<String>,
    /// Commands that this user may not send.
    pub(crate) denied: Vec<&'static str>,
    /// True if this user may not access keys with our prefix.
    pub(crate) is_kept_from_keys: bool,
    /// The error reply of Redis when a record could not be written.
    pub(crate) refused: Option<String>,
    /// The clock of Redis minus ours, in milliseconds.
    pub(crate) ahead: Option<i64>,
}

/// A connection to one Redis server.
pub(crate) struct Probe(MultiplexedConnection);

impl Probe {
    pub(crate) async fn begin(client: &Client) -> Result<Self, ConnectError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connected = tokio::time::timeout(PATIENCE * 2, connecting).await.map_err(|_| ConnectError::Silent)?;
        let mut probe = Self(connected.map_err(|error| ConnectError::of("AUTH", &error))?);
        probe.ask::<String>("PING", &[]).await.map_err(|error| ConnectError::of("PING", &error))?;
        Ok(probe)
    }

    pub(crate) async fn info(&mut self) -> Result<Info, ConnectError> {
        let text: String = self.ask("INFO", &[]).await.map_err(|error| ConnectError::of("INFO", &error))?;
        Ok(Info::parse(&text))
    }

    /// Collects all facts, for keys with this prefix.
    pub(crate) async fn facts(&mut self, prefix: &str, is_of_cluster: bool) -> Result<Facts, ConnectError> {
        let mut facts = Facts { is_of_cluster, ..Facts::default() };
        let begun = Instant::now();
        self.ask::<String>("PING", &[]).await.map_err(|error| ConnectError::of("PING", &error))?;
        facts.took = begun.elapsed();
        facts.info = match self.info().await {
            Ok(info) => Some(info),
            Err(ConnectError::Denied { user, .. }) => {
                facts.user = user;
                None
            }
            Err(error) => return Err(error),
        };
        facts.ahead = facts.info.as_ref().and_then(Info::time).map(|theirs| ahead(theirs, Clock::system().wall()));
        facts.fsync = self.setting("appendfsync").await;
        facts.snapshots = self.setting("save").await;
        facts.user = self.ask("ACL", &["WHOAMI"]).await.ok().or(facts.user);
        self.try_commands(prefix, &mut facts).await;
        Ok(facts)
    }

    /// Sends every command that the store sends, on a unique key that expires at once. This shows which commands work, even if the
    /// user may not read its own ACL.
    async fn try_commands(&mut self, prefix: &str, facts: &mut Facts) {
        let name = self.name_of_its_own(prefix).await;
        let unknown_script = "0".repeat(40);
        let of_cluster: [(&'static str, &[&str]); 2] = [("CLUSTER SLOTS", &[]), ("ASKING", &[])];
        let always: [(&'static str, &[&str]); 2] = [("GET", &[&name]), ("SET", &[&name, "-", "PX", "1", "NX", "GET"])];
        let scripts: [(&'static str, &[&str]); 4] = [
            ("PEXPIRE", &[&name, "1000"]),
            ("DEL", &[&name]),
            ("EVAL", &["return 1", "1", &name]),
            ("EVALSHA", &[&unknown_script, "1", &name]),
        ];
        // A server with commands that compare needs no scripts.
        let needs_scripts = !self.compares(&name).await;
        let scripts = scripts.into_iter().filter(|_| needs_scripts);
        let of_cluster = of_cluster.into_iter().filter(|_| facts.is_of_cluster).collect::<Vec<_>>();
        for (command, arguments) in always.into_iter().chain(scripts).chain(of_cluster) {
            let Err(error) = self.ask::<redis::Value>(command, arguments).await else { continue };
            facts.user = facts.user.take().or_else(|| error.detail().and_then(denied_user));
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::NoScript) => {}
                ErrorKind::Server(ServerErrorKind::NoPerm) if error.to_string().contains("command") => {
                    facts.denied.push(command);
                }
                ErrorKind::Server(ServerErrorKind::NoPerm) => facts.is_kept_from_keys = true,
                _ if facts.refused.is_none() => facts.refused = Some(error.to_string()),
                _ => {}
            }
        }
    }

    /// Returns whether this user may send commands that compare and change a key in one step.
    async fn compares(&mut self, name: &str) -> bool {
        let set = ["SET", name, "-", "IFEQ", "+", "GET", "PX", "1"];
        let (delex, delifeq) = (["DELEX", name, "IFEQ", "+"], ["DELIFEQ", name, "+"]);
        let mut may = async |words: &[&str]| self.ask::<redis::Value>(words[0], &words[1..]).await.is_ok();
        may(&set).await && (may(&delex).await || may(&delifeq).await)
    }

    /// Returns a unique key. On a node of a cluster, the key is in a slot of that node.
    async fn name_of_its_own(&mut self, prefix: &str) -> String {
        let new = || Ticket::of(Kind::Key, uuid::Uuid::new_v4().as_bytes()).name(prefix);
        let mut name = new();
        for _ in 0..PLACES {
            match self.ask::<redis::Value>("GET", &[&name]).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) => name = new(),
                _ => break,
            }
        }
        name
    }

    /// Reads a setting of Redis, if this user may.
    async fn setting(&mut self, name: &str) -> Option<String> {
        let mut settings: HashMap<String, String> = self.ask("CONFIG", &["GET", name]).await.ok()?;
        settings.remove(name)
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &str, arguments: &[&str]) -> RedisResult<T> {
        let mut asked = Cmd::new();
        asked.arg(command.split(' ').collect::<Vec<_>>()).arg(arguments);
        asked.query_async(&mut self.0).await
    }
}

fn ahead(theirs: u64, ours: u64) -> i64 {
    i64::try_from(i128::from(theirs) - i128::from(ours)).unwrap_or(i64::MAX)
}
