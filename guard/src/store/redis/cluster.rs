//! A Redis cluster: each slot has a master, and a node redirects commands for keys that it does not own.
//!
//! A node that redirects a command has not executed it, so the command is sent again to the other node. No other command is ever sent
//! twice.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout_at};

use super::address::at;
use super::connection::{Endpoint, ManagedConnection, client, reconnecting};
use super::deadline::Deadline;
use super::error::{ConnectionFailure, TransportError};
use super::eviction::EvictionWarning;
use super::redirect::{NodeAddress, REDIRECTS, RetryDecision, SETTLE, asking, retry_decision};
use super::replication_id::{ReplicationId, ReplicationIdCache};
use super::request::{KeyName, Request};
use super::slot::SLOTS;
use super::topology::{ask_seeds, ranges, slots};
use super::transport::{Response, ServerFacts, Transport, in_time, read};
use crate::runtime;
use crate::store::{Admission, Epoch, async_trait};

/// The maximum interval between lookups of the slot map.
const LOOKED_UP: Duration = Duration::from_secs(5);
/// The timeout of a slot map lookup at one node.
const ANSWER: Duration = Duration::from_millis(500);
/// The owner of an unassigned slot.
const NO_OWNER: u16 = u16::MAX;

/// A connection to each master of a cluster.
pub(super) struct Cluster {
    state: Arc<ClusterState>,
    map: watch::Receiver<Arc<SlotMap>>,
    _wanted: watch::Sender<()>,
}

struct ClusterState {
    seeds: Vec<ConnectionInfo>,
    nodes: Mutex<HashMap<NodeAddress, Arc<ManagedConnection>>>,
    /// Notified when a command was redirected or failed, so that the slot map is looked up again.
    doubted: Notify,
    /// The reason why the last lookup of the slot map failed; `None` if it succeeded.
    unknown: Mutex<Option<ConnectionFailure>>,
    eviction: Arc<EvictionWarning>,
}

/// The master of each slot.
struct SlotMap {
    masters: Vec<(NodeAddress, Arc<ManagedConnection>)>,
    /// For each slot, the index of its master.
    owners: Vec<u16>,
}

impl SlotMap {
    fn owner(&self, slot: usize) -> Option<&(NodeAddress, Arc<ManagedConnection>)> {
        self.owners.get(slot).and_then(|owner| self.masters.get(usize::from(*owner)))
    }
}

impl Cluster {
    /// Starts to discover the cluster in the background.
    pub(super) fn open(seeds: Vec<ConnectionInfo>) -> RedisResult<Self> {
        // Reports an invalid address at once.
        seeds.iter().try_for_each(|seed| client(seed.clone()).map(drop))?;
        let state = Arc::new(ClusterState {
            seeds,
            nodes: Mutex::default(),
            doubted: Notify::new(),
            unknown: Mutex::default(),
            eviction: Arc::default(),
        });
        let nothing = SlotMap { masters: Vec::new(), owners: vec![NO_OWNER; SLOTS] };
        let (publish, map) = watch::channel(Arc::new(nothing));
        let wanted = watch::Sender::new(());
        runtime::spawn(keep_looking(Arc::clone(&state), publish, wanted.subscribe()));
        Ok(Self { state, map, _wanted: wanted })
    }

    /// Returns the owner of a slot once it is connected. Stops waiting for a node that has been replaced.
    async fn owner(
        &self,
        slot: usize,
        deadline: Deadline,
    ) -> Result<(NodeAddress, Arc<ManagedConnection>), TransportError> {
        let (node, connection) = self.known_or_awaited(slot, deadline).await?;
        if connection.is_up() {
            return Ok((node, connection));
        }
        tokio::select! {
            reached = connection.reached(deadline) => reached?,
            Some(other) = self.other_owner(slot, &node, deadline) => return Ok(other),
        }
        Ok((node, connection))
    }

    /// Returns the owner of a slot, and waits until it is known.
    async fn known_or_awaited(
        &self,
        slot: usize,
        deadline: Deadline,
    ) -> Result<(NodeAddress, Arc<ManagedConnection>), TransportError> {
        if let Some(owner) = self.map.borrow().owner(slot) {
            return Ok(owner.clone());
        }
        self.state.doubted.notify_one();
        let mut map = self.map.clone();
        let found = timeout_at(deadline.at, map.wait_for(|map| map.owner(slot).is_some())).await;
        match found {
            Ok(Ok(map)) => map.owner(slot).cloned(),
            _ => None,
        }
        .ok_or_else(|| {
            TransportError::NoConnection(match self.state.unknown() {
                Some(failure) => {
                    let reason = format!("no cluster node returned the slot map: {failure}");
                    ConnectionFailure::from(reason).caused_by(&TransportError::NoConnection(failure))
                }
                None => format!("no cluster node owns slot {slot}").into(),
            })
        })
    }

    /// Waits until another node owns the slot, and returns it.
    async fn other_owner(
        &self,
        slot: usize,
        than: &NodeAddress,
        deadline: Deadline,
    ) -> Option<(NodeAddress, Arc<ManagedConnection>)> {
        self.state.doubted.notify_one();
        let mut map = self.map.clone();
        let is_other = |map: &Arc<SlotMap>| map.owner(slot).is_some_and(|(node, _)| node != than);
        timeout_at(deadline.at, map.wait_for(is_other)).await.ok()?.ok()?.owner(slot).cloned()
    }

    fn known_owner(&self, key: KeyName<'_>) -> Option<Arc<ManagedConnection>> {
        self.map.borrow().owner(key.slot()).map(|(_, connection)| Arc::clone(connection))
    }
}

#[async_trait]
impl Transport for Cluster {
    async fn send(&self, request: Request<'_>, deadline: Deadline) -> Result<Response, TransportError> {
        let slot = request.key.slot();
        let (mut node, mut connection) = self.owner(slot, deadline).await?;
        let mut is_asking = false;
        let mut error = deadline.timed_out();
        for hop in 0..REDIRECTS {
            // The previous node certainly did not execute the command; if it were sent now, its outcome would be unknown.
            if hop > 0 && deadline.is_over() {
                break;
            }
            // Nodes that redirect to each other agree after a short while.
            if hop > 2 && deadline.leaves(SETTLE) {
                sleep(SETTLE).await;
            }
            error = match send_to(&connection, &request, is_asking, deadline).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            is_asking = false;
            self.state.doubts(&error);
            match retry_decision(&error, &node) {
                RetryDecision::GoTo(other, asking) => {
                    connection = self.state.node(&other)?;
                    (node, is_asking) = (other, asking);
                }
                RetryDecision::Wait if deadline.leaves(SETTLE) => {
                    sleep(SETTLE).await;
                    (node, connection) = self.owner(slot, deadline).await?;
                }
                RetryDecision::AskWho => match self.other_owner(slot, &node, deadline).await {
                    Some(other) => (node, connection) = other,
                    None => break,
                },
                RetryDecision::Wait | RetryDecision::GiveUp => break,
            }
        }
        Err(error)
    }

    fn facts(&self, key: KeyName<'_>) -> ServerFacts {
        self.known_owner(key).map_or_else(ServerFacts::default, |connection| connection.facts(key))
    }

    fn epoch(&self, key: KeyName<'_>) -> Option<Epoch> {
        self.known_owner(key)?.known().epoch()
    }

    async fn learn_epoch(&self, key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError> {
        let slot = key.slot();
        let (node, connection) = self.owner(slot, deadline).await?;
        match connection.learn_epoch(deadline).await {
            // The node may no longer own the slot.
            Err(TransportError::NoConnection(_) | TransportError::Replica) => {
                match self.other_owner(slot, &node, deadline).await {
                    Some((_, other)) => other.learn_epoch(deadline).await,
                    None => {
                        Err(TransportError::NoConnection(format!("the owner of slot {slot} cannot be reached").into()))
                    }
                }
            }
            other => other,
        }
    }

    fn forget(&self, key: KeyName<'_>) {
        if let Some(connection) = self.known_owner(key) {
            connection.forget(key);
        }
    }

    async fn learn_scripts(&self, key: KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        let (_, connection) = self.owner(key.slot(), deadline).await?;
        connection.learn_scripts(key, deadline).await
    }

    async fn native_tried(&self, key: KeyName<'_>, deadline: Deadline) {
        if let Some(connection) = self.known_owner(key) {
            connection.native_tried(key, deadline).await;
        }
    }

    fn reject_native(&self, key: KeyName<'_>) {
        if let Some(connection) = self.known_owner(key) {
            connection.reject_native(key);
        }
    }

    fn admit(&self, key: KeyName<'_>, timeout: Duration) -> Admission {
        // Usually no node is slow, and the owner of the key need not be determined.
        if self.slow() == 0 {
            return Admission::Accept;
        }
        self.known_owner(key).map_or(Admission::Accept, |connection| connection.admit(key, timeout))
    }

    fn slow(&self) -> usize {
        self.map.borrow().masters.iter().map(|(_, connection)| connection.slow()).sum()
    }

    fn allow_eviction(&self) {
        self.state.eviction.allow();
    }

    /// Completes when any master has reconnected, or when the set of masters changes.
    async fn reconnected(&self) {
        let mut map = self.map.clone();
        let masters = map.borrow_and_update().masters.clone();
        let mut reconnected: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> =
            masters.iter().map(|(_, connection)| connection.reconnected()).collect();
        let any = std::future::poll_fn(|context| {
            let is_any = reconnected.iter_mut().any(|one| one.as_mut().poll(context).is_ready());
            if is_any { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = any => {}
            changed = map.changed() => if changed.is_err() { std::future::pending().await },
        }
    }
}

/// Sends a request to one node, over the calling thread's connection if it has one.
async fn send_to(
    connection: &ManagedConnection,
    request: &Request<'_>,
    is_asking: bool,
    deadline: Deadline,
) -> Result<Response, TransportError> {
    if is_asking {
        // Not counted by the breaker: the key is migrating between two nodes, and either may be slow.
        let ask = async |open: &mut _| send_asking(open, request, connection.known(), deadline).await;
        return connection.over(deadline, ask).await;
    }
    match connection.ask(request, deadline) {
        Some(answer) => answer.await,
        None => connection.send(*request, deadline).await,
    }
}

/// Sends a request with `ASKING`, for a key that is migrating to this node.
async fn send_asking(
    connection: &mut MultiplexedConnection,
    request: &Request<'_>,
    known: &ReplicationIdCache,
    deadline: Deadline,
) -> Result<Response, TransportError> {
    let mut commands = Pipeline::with_capacity(3);
    commands.add_command(asking()).add_command(request.command()).add_command(ReplicationId::command());
    let answers = in_time(deadline, connection.send_packed_commands(&commands, 1, 2)).await?;
    read(answers, known)
}

impl ClusterState {
    /// Triggers a lookup of the slot map if the error may mean that the slots have moved.
    fn doubts(&self, error: &TransportError) {
        let is_doubtful = match error {
            TransportError::TooMany | TransportError::Incapable | TransportError::Untried => false,
            TransportError::NoConnection(_) | TransportError::Replica | TransportError::TimedOut(_) => true,
            TransportError::Redis(redis_error) => {
                let is_moved = redis_error.redirect_node().is_some() && !error.is(ServerErrorKind::Ask);
                let is_in_motion = !matches!(
                    retry_decision(error, &NodeAddress::default()),
                    RetryDecision::GiveUp | RetryDecision::GoTo(..)
                );
                is_moved || is_in_motion || redis_error.is_unrecoverable_error()
            }
        };
        if is_doubtful {
            self.doubted.notify_one();
        }
    }

    /// Returns the connection to a node; opens one if there is none.
    fn node(&self, node: &NodeAddress) -> Result<Arc<ManagedConnection>, TransportError> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = nodes.get(node) {
            return Ok(Arc::clone(connection));
        }
        let connection =
            Arc::new(ManagedConnection::open(Endpoint::Fixed(self.client(node)?), Arc::clone(&self.eviction)));
        nodes.insert(node.clone(), Arc::clone(&connection));
        Ok(connection)
    }

    fn client(&self, node: &NodeAddress) -> RedisResult<Client> {
        let like = &self.seeds[0];
        client(like.clone().set_addr(at(like.addr(), node.0.clone(), node.1)))
    }

    /// Reads the slot map: first from connected nodes in random order, then from the configured nodes.
    async fn look_up(&self) -> Result<SlotMap, TransportError> {
        let mut known: Vec<_> = self
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter(|(_, connection)| connection.is_up())
            .map(|(node, connection)| (node.clone(), Arc::clone(connection)))
            .collect();
        fastrand::shuffle(&mut known);
        for (node, connection) in known {
            let deadline = Deadline::after(ANSWER);
            let answer =
                connection.over(deadline, async |connection| in_time(deadline, slots().query_async(connection)).await);
            if let Ok(Some(map)) = answer.await.map(|answer| self.read(&answer, &node.0)) {
                return Ok(map);
            }
        }
        let (answer, host) = ask_seeds(&self.seeds).await?;
        self.read(&answer, &host)
            .ok_or(TransportError::NoConnection("a cluster node returned an unreadable slot map".into()))
    }

    /// Describes why none of the configured nodes returned the slot map.
    fn failure(&self, error: TransportError) -> ConnectionFailure {
        let seeds: Vec<_> = self.seeds.iter().map(|seed| seed.addr().to_string()).collect();
        ConnectionFailure::of(&format!("Redis Cluster at {}", seeds.join(",")), self.seeds[0].redis_settings(), error)
    }

    fn unknown(&self) -> Option<ConnectionFailure> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records why the lookup of the slot map failed, or that it succeeded. Logs a new reason if a map was known before; without one, every
    /// command fails with the reason.
    fn note(&self, failure: Option<ConnectionFailure>, is_known: bool) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = failure.as_ref().map(ConnectionFailure::reason)
            && unknown.as_ref().map(ConnectionFailure::reason) != Some(reason)
            && is_known
        {
            tracing::warn!(reason, "no cluster node returned the slot map; using the previous one");
        }
        *unknown = failure;
    }

    /// Reads a node's reply, in which the node may omit its own host.
    fn read(&self, answer: &Value, asked: &str) -> Option<SlotMap> {
        let mut map = SlotMap { masters: Vec::new(), owners: vec![NO_OWNER; SLOTS] };
        for (first, last, node) in ranges(answer, asked)? {
            let place = match map.masters.iter().position(|(known, _)| *known == node) {
                Some(place) => place,
                None => {
                    let connection = self.node(&node).ok()?;
                    map.masters.push((node, connection));
                    map.masters.len() - 1
                }
            };
            map.owners.get_mut(first..=last)?.fill(u16::try_from(place).ok()?);
        }
        (!map.masters.is_empty()).then_some(map)
    }

    /// Drops the connections to nodes that own no slots any more.
    fn keep_only(&self, map: &SlotMap) {
        let wanted: HashSet<_> = map.masters.iter().map(|(node, _)| node).collect();
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).retain(|node, _| wanted.contains(node));
    }
}

/// Looks up the slot map when it is in doubt and at a fixed interval, until the cluster is dropped. Backs off as long as the lookups
/// find nothing new.
async fn keep_looking(state: Arc<ClusterState>, publish: watch::Sender<Arc<SlotMap>>, mut wanted: watch::Receiver<()>) {
    let mut pause = reconnecting();
    loop {
        let found = tokio::select! {
            found = state.look_up() => found,
            _ = wanted.changed() => return,
        };
        let is_found = found.is_ok();
        let found = found.map_err(|error| state.failure(error));
        state.note(found.as_ref().err().cloned(), !publish.borrow().masters.is_empty());
        if let Ok(map) = found {
            state.keep_only(&map);
            let is_new = publish.send_if_modified(|before| {
                let names = |map: &SlotMap| map.masters.iter().map(|(node, _)| node.clone()).collect::<Vec<_>>();
                let is_new = before.owners != map.owners || names(before) != names(&map);
                *before = Arc::new(map);
                is_new
            });
            if is_new {
                pause.reset();
            }
        }
        let is_due = async {
            if is_found {
                tokio::select! {
                    () = sleep(LOOKED_UP) => return pause.reset(),
                    () = state.doubted.notified() => {}
                }
            }
            sleep(pause.next()).await;
        };
        tokio::select! {
            () = is_due => {}
            _ = wanted.changed() => return,
        }
    }
}
