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
use super::life::{FRESH, Known, Life};
use super::link::{Failure, Key, Link, Question, Said, are_refused, in_time, nothing, read};
use super::redirect::{Next, Node, REDIRECTS, SETTLE, asking, key_of, next_step};
use super::slot::{SLOTS, slot_of};
use crate::store::{Admission, Epoch, async_trait};

/// A connection that knows who has which slots, and sends nothing a second time by itself.
pub(super) struct HandedCluster {
    connection: ClusterConnection,
    /// The life of whoever has each slot: which of them are the same, nobody tells us.
    known: RwLock<HashMap<usize, Known>>,
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
    Node(Node, bool),
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

    async fn ask(&self, question: &Question, to: &To, deadline: Deadline) -> Result<Said, Failure> {
        let mut commands = Pipeline::with_capacity(3);
        let (route, skipped) = match to {
            To::Owner(slot) => (owner(*slot), 0),
            To::Node((host, port), is_asking) => {
                if *is_asking {
                    commands.add_command(asking());
                }
                (SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port }, usize::from(*is_asking))
            }
        };
        commands.add_command(question.command.clone());
        if question.wants_life {
            commands.add_command(Life::command());
        }
        let count = 1 + usize::from(question.wants_life);
        let mut connection = self.connection.clone();
        read(in_time(deadline, connection.route_pipeline(commands, skipped, count, route)).await?)
    }
}

fn owner(slot: usize) -> SingleNodeRoutingInfo {
    SingleNodeRoutingInfo::SpecificNode(Route::new(slot as u16, SlotAddr::Master))
}

#[async_trait]
impl Link for HandedCluster {
    async fn send(&self, question: Question, deadline: Deadline) -> Result<Said, Failure> {
        let slot = slot_of(&key_of(&question));
        let mut to = To::Owner(slot);
        let mut failure = Failure::TimedOut;
        for hop in 0..REDIRECTS {
            // It was not done, which is certain: sent now, nobody could tell.
            if hop > 0 && deadline.is_over() {
                break;
            }
            let asked = self.ask(&question, &to, deadline);
            failure = match self.breakers[slot / NEIGHBOURS].note(deadline, asked).await {
                Ok(said) => return Ok(said),
                Err(failure) => failure,
            };
            // A node that leaves its own host out is one that we have gone to by its host.
            let asked = match &to {
                To::Node(node, _) => node.clone(),
                To::Owner(_) => Node::default(),
            };
            to = match next_step(&failure, &asked) {
                Next::GoTo(node, is_asking) if !node.0.is_empty() => To::Node(node, is_asking),
                Next::GoTo(..) | Next::Wait | Next::AskWho if deadline.leaves(SETTLE) => {
                    sleep(SETTLE).await;
                    To::Owner(slot)
                }
                _ => break,
            };
        }
        Err(failure)
    }

    /// Nobody tells us when it is connected anew.
    fn known(&self, key: &Key<'_>) -> Option<(Life, Epoch)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&slot_of(key.0().as_bytes()))?.fresh(FRESH)
    }

    /// Asked behind a command on the key itself: a connection that has lost the owner of a slot asks anybody, who says of a key
    /// that it is another's, and tells of no life but its own.
    async fn learn(&self, key: &Key<'_>, deadline: Deadline) -> Result<(Life, Epoch), Failure> {
        let name = key.0();
        let slot = slot_of(name.as_bytes());
        let mut command = Cmd::new();
        command.arg("GET").arg(name);
        let said = self.send(Question { command, key_at: 1, wants_life: true }, deadline).await?;
        let life = said.life.unwrap_or(Life::Hidden);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(slot).or_default().note(life).map(|epoch| (life, epoch)).ok_or(Failure::Replica)
    }

    fn forget(&self, key: &Key<'_>) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&slot_of(key.0().as_bytes()));
    }

    fn refuses_scripts(&self) -> Option<bool> {
        self.refuses_scripts.get().copied()
    }

    async fn learn_scripts(&self, key: &Key<'_>, deadline: Deadline) -> Result<bool, Failure> {
        let question = Question { command: nothing(), key_at: 0, wants_life: false };
        let refuses = are_refused(self.ask(&question, &To::Owner(slot_of(key.0().as_bytes())), deadline).await)?;
        Ok(*self.refuses_scripts.get_or_init(|| refuses))
    }

    fn admit(&self, key: &Key<'_>, timeout: Duration) -> Admission {
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
