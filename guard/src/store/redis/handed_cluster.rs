//! An application's own connection to a cluster.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, Pipeline};
use tokio::time::sleep;

use super::breaker::Breaker;
use super::deadline::Deadline;
use super::redirect::{NodeAddress, REDIRECTS, RetryDecision, SETTLE, asking, key_of, retry_decision};
use super::replication_id::{FRESH, ReplicationId, ReplicationIdCache};
use super::slot::{SLOTS, slot_of};
use super::transport::{KeyName, Request, Response, Transport, TransportError, are_refused, in_time, nothing, read};
use crate::store::{Admission, Epoch, async_trait};

/// A connection that knows who has which slots, and sends nothing a second time by itself.
pub(super) struct HandedCluster {
    connection: ClusterConnection,
    /// The life of whoever has each slot: which of them are the same, nobody tells us.
    known: RwLock<HashMap<usize, ReplicationIdCache>>,
    refuses_scripts: OnceLock<bool>,
    /// One for so many slots in a row: the connection does not say which node has them, and a node has ranges of slots.
    breakers: Vec<Breaker>,
}

/// How many slots have a breaker in common.
const NEIGHBOURS: usize = 1_024;

/// Who is asked.
enum To {
    /// Whoever has this slot, as far as the connection knows.
    Owner(usize),
    /// This node; the key is on its way there, if that is true.
    NodeAddress(NodeAddress, bool),
}

impl HandedCluster {
    pub(super) fn new(connection: ClusterConnection) -> Self {
        let breaker = |range: usize| Breaker::new(format!("slots from {} on", range * NEIGHBOURS));
        Self {
            connection,
            known: RwLock::default(),
            refuses_scripts: OnceLock::new(),
            breakers: (0..SLOTS.div_ceil(NEIGHBOURS)).map(breaker).collect(),
        }
    }

    async fn ask(&self, request: &Request, to: &To, deadline: Deadline) -> Result<Response, TransportError> {
        let mut commands = Pipeline::with_capacity(3);
        let (route, skipped) = match to {
            To::Owner(slot) => (owner(*slot), 0),
            To::NodeAddress((host, port), is_asking) => {
                if *is_asking {
                    commands.add_command(asking());
                }
                (SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port }, usize::from(*is_asking))
            }
        };
        commands.add_command(request.command.clone());
        if request.wants_replication_id {
            commands.add_command(ReplicationId::command());
        }
        let count = 1 + usize::from(request.wants_replication_id);
        let mut connection = self.connection.clone();
        read(in_time(deadline, connection.route_pipeline(commands, skipped, count, route)).await?)
    }
}

fn owner(slot: usize) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::new(slot as u16, SlotAddr::Master))
}

#[async_trait]
impl Transport for HandedCluster {
    async fn send(&self, request: Request, deadline: Deadline) -> Result<Response, TransportError> {
        let slot = slot_of(&key_of(&request));
        let mut to = To::Owner(slot);
        let mut error = TransportError::TimedOut;
        for hop in 0..REDIRECTS {
            // It was not done, which is certain: sent now, nobody could tell.
            if hop > 0 && deadline.is_over() {
                break;
            }
            let asked = self.ask(&request, &to, deadline);
            error = match self.breakers[slot / NEIGHBOURS].note(deadline, asked).await {
                Ok(said) => return Ok(said),
                Err(error) => error,
            };
            // A node that leaves its own host out is one that we have gone to by its host.
            let asked = match &to {
                To::NodeAddress(node, _) => node.clone(),
                To::Owner(_) => NodeAddress::default(),
            };
            to = match retry_decision(&error, &asked) {
                RetryDecision::GoTo(node, is_asking) if !node.0.is_empty() => To::NodeAddress(node, is_asking),
                RetryDecision::GoTo(..) | RetryDecision::Wait | RetryDecision::AskWho if deadline.leaves(SETTLE) => {
                    sleep(SETTLE).await;
                    To::Owner(slot)
                }
                _ => break,
            };
        }
        Err(error)
    }

    /// Nobody tells us when it is connected anew.
    fn known(&self, key: &KeyName<'_>) -> Option<(ReplicationId, Epoch)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&slot_of(key.0().as_bytes()))?.fresh(FRESH)
    }

    /// Asked behind a command on the key itself: a connection that has lost the owner of a slot asks anybody, who says of a key
    /// that it is another's, and tells of no life but its own.
    async fn learn(&self, key: &KeyName<'_>, deadline: Deadline) -> Result<(ReplicationId, Epoch), TransportError> {
        let name = key.0();
        let slot = slot_of(name.as_bytes());
        let mut command = Cmd::new();
        command.arg("GET").arg(name);
        let said = self.send(Request { command, key_at: 1, wants_replication_id: true }, deadline).await?;
        let life = said.replication_id.unwrap_or(ReplicationId::Hidden);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(slot).or_default().note(life).map(|epoch| (life, epoch)).ok_or(TransportError::Replica)
    }

    fn forget(&self, key: &KeyName<'_>) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&slot_of(key.0().as_bytes()));
    }

    fn refuses_scripts(&self) -> Option<bool> {
        self.refuses_scripts.get().copied()
    }

    async fn learn_scripts(&self, key: &KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        let request = Request { command: nothing(), key_at: 0, wants_replication_id: false };
        let refuses = are_refused(self.ask(&request, &To::Owner(slot_of(key.0().as_bytes())), deadline).await)?;
        Ok(*self.refuses_scripts.get_or_init(|| refuses))
    }

    fn admit(&self, key: &KeyName<'_>, timeout: Duration) -> Admission {
        if self.slow() == 0 {
            return Admission::Accept;
        }
        self.breakers[slot_of(key.0().as_bytes()) / NEIGHBOURS].admit(timeout)
    }

    /// So many ranges of slots, since the nodes are not known.
    fn slow(&self) -> usize {
        self.breakers.iter().filter(|breaker| breaker.is_open()).count()
    }

    async fn reconnected(&self) {
        std::future::pending().await
    }
}
