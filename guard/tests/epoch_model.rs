//! A model of a token on a Redis that loses data, explored to its last state: a master and its replica, two callers, requests and
//! replies that get lost or are late, snapshots, restarts, promotions and demotions, also split brain (a former master that still
//! accepts writes).
//!
//! It shows why a token has to be bound to the epoch that issued it. The epoch may be checked in the step that redeems the token, or
//! after that step over the same connection, but not before it. The same is true if the token is not removed but swapped for a claim,
//! by a remembered run or by an attempt, which finds its own claim again.

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

/// The check of the epoch when a token is redeemed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// No check.
    No,
    /// Checks the epoch that the caller saw when it sent the request. A connection ends with its server's process.
    WhenSent,
    /// The server checks its own epoch in the step that removes the token.
    WhenRemoved,
    /// The server checks its own epoch in a later step, which the same process executes as a master.
    Afterwards,
    /// Like `Afterwards`, but the token is swapped for a claim instead of removed. If the epoch has changed, the claim is removed
    /// again, if that request arrives.
    BehindAClaim,
}

/// The record of the token on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Record {
    Nothing,
    Issued,
    Claimed { by: usize },
}

/// One server. A replica has its master's epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    is_master: bool,
    record: Record,
    epoch: u8,
    /// Changes with each restart.
    process: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Command {
    /// Removes the token if it is an issued one, or swaps it for a claim.
    Redeem,
    /// Reads the epoch, sent after `Redeem`, whose result is known by then.
    Epoch { is_redeemed: bool },
    /// Removes the claim again after the epoch has changed.
    Undo,
    /// Inserts the token again after a run without effect, if there is no record. Sent once, without retries.
    GiveBack,
}

/// A request in flight to a process of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Request {
    caller: usize,
    attempt: u8,
    command: Command,
    server: usize,
    process: u8,
    epoch: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Reply {
    caller: usize,
    attempt: u8,
    is_redeemed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Caller {
    attempts: u8,
    /// The attempt whose reply it waits for.
    waits_for: Option<u8>,
    has_run: bool,
    has_given_back: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    servers: [Server; 2],
    /// The record in the last snapshot of each server.
    disks: [Record; 2],
    epochs: u8,
    faults: u8,
    requests: BTreeSet<Request>,
    replies: BTreeSet<Reply>,
    callers: [Caller; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Send {
        caller: usize,
        server: usize,
    },
    Arrive(Request),
    LoseRequest(Request),
    Answer(Reply),
    LoseReply(Reply),
    /// The caller stops waiting; its request may still arrive.
    GiveUp {
        caller: usize,
    },
    /// The run was not applied, and the token is given back.
    GiveBack {
        caller: usize,
        server: usize,
    },
    Snapshot {
        server: usize,
    },
    Replicate,
    Restart {
        server: usize,
    },
    Promote {
        server: usize,
    },
    Demote {
        server: usize,
    },
}

struct Redeeming {
    looks: Looks,
    /// Maximum number of faults.
    faults: u8,
    scope: Scope,
}

/// The events besides requests, promotions and demotions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All: snapshots and restarts, and callers that give a token back or retry.
    Wide,
    /// None, so that more faults can be explored: it takes three to promote a former master again.
    Narrow,
}

const ISSUED_IN: u8 = 0;
const MOST_ATTEMPTS: u8 = 2;

impl Model for Redeeming {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let server = |is_master| Server { is_master, record: Record::Issued, epoch: ISSUED_IN, process: 0 };
        vec![State {
            servers: [server(true), server(false)],
            disks: [Record::Issued; 2],
            epochs: ISSUED_IN,
            faults: 0,
            requests: BTreeSet::new(),
            replies: BTreeSet::new(),
            callers: Default::default(),
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (caller, is) in state.callers.iter().enumerate() {
            let may_ask = is.waits_for.is_none() && !is.has_run && is.attempts < self.most_attempts();
            for server in (0..2).filter(|server| state.servers[*server].is_master) {
                if may_ask {
                    events.push(Event::Send { caller, server });
                }
                if is.has_run && !is.has_given_back && self.scope == Scope::Wide {
                    events.push(Event::GiveBack { caller, server });
                }
            }
            if is.waits_for.is_some() {
                events.push(Event::GiveUp { caller });
            }
        }
        for request in &state.requests {
            events.extend([Event::Arrive(request.clone()), Event::LoseRequest(request.clone())]);
        }
        for reply in &state.replies {
            events.extend([Event::Answer(reply.clone()), Event::LoseReply(reply.clone())]);
        }
        events.push(Event::Replicate);
        for server in 0..2 {
            if self.scope == Scope::Wide {
                events.push(Event::Snapshot { server });
            }
            if state.faults < self.faults {
                let is_master = state.servers[server].is_master;
                if self.scope == Scope::Wide {
                    events.push(Event::Restart { server });
                }
                events.push(if is_master { Event::Demote { server } } else { Event::Promote { server } });
            }
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        match event {
            Event::Send { caller, server } => {
                let attempt = state.callers[caller].attempts;
                state.callers[caller].attempts += 1;
                state.callers[caller].waits_for = Some(attempt);
                state.send(caller, attempt, Command::Redeem, server);
            }
            Event::GiveBack { caller, server } => {
                let is = &mut state.callers[caller];
                (is.has_run, is.has_given_back) = (false, true);
                state.send(caller, MOST_ATTEMPTS, Command::GiveBack, server);
            }
            Event::Arrive(request) => {
                state.requests.remove(&request);
                self.arrive(&mut state, &request);
            }
            Event::LoseRequest(request) => drop(state.requests.take(&request)),
            Event::Answer(reply) => {
                state.replies.remove(&reply);
                let is = &mut state.callers[reply.caller];
                // The reply to an attempt that was given up is ignored.
                if is.waits_for == Some(reply.attempt) {
                    is.waits_for = None;
                    is.has_run |= reply.is_redeemed;
                    // The outcome is known, so it does not retry.
                    is.attempts = self.most_attempts();
                }
            }
            Event::LoseReply(reply) => drop(state.replies.take(&reply)),
            Event::GiveUp { caller } => state.callers[caller].waits_for = None,
            Event::Snapshot { server } => state.disks[server] = state.servers[server].record,
            Event::Replicate => state.replicate(),
            Event::Restart { server } => {
                state.begin_epoch();
                let (epoch, record) = (state.epochs, state.disks[server]);
                let restarted = &mut state.servers[server];
                (restarted.process, restarted.epoch, restarted.record) = (restarted.process + 1, epoch, record);
            }
            Event::Promote { server } => {
                state.begin_epoch();
                (state.servers[server].is_master, state.servers[server].epoch) = (true, state.epochs);
            }
            Event::Demote { server } => {
                state.faults += 1;
                state.servers[server].is_master = false;
                state.replicate();
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("it takes effect once", |_, state: &State| {
                state.callers.iter().filter(|caller| caller.has_run).count() <= 1
            }),
            // In the wide scope, after the token was given back.
            Property::sometimes("it takes effect", |model: &Self, state: &State| {
                (state.callers[0].has_given_back || model.scope == Scope::Narrow) && state.callers[1].has_run
            }),
        ]
    }
}

impl State {
    fn send(&mut self, caller: usize, attempt: u8, command: Command, server: usize) {
        let Server { process, epoch, .. } = self.servers[server];
        self.requests.insert(Request { caller, attempt, command, server, process, epoch });
    }

    fn answer(&mut self, request: &Request, is_redeemed: bool) {
        self.replies.insert(Reply { caller: request.caller, attempt: request.attempt, is_redeemed });
    }

    fn begin_epoch(&mut self) {
        self.faults += 1;
        self.epochs += 1;
    }

    /// A replica copies its master, if there is one.
    fn replicate(&mut self) {
        let [one, other] = &mut self.servers;
        match (one.is_master, other.is_master) {
            (true, false) => (other.record, other.epoch) = (one.record, one.epoch),
            (false, true) => (one.record, one.epoch) = (other.record, other.epoch),
            _ => {}
        }
    }
}

impl Redeeming {
    fn most_attempts(&self) -> u8 {
        if self.scope == Scope::Wide { MOST_ATTEMPTS } else { 1 }
    }

    fn arrive(&self, state: &mut State, request: &Request) {
        let server = &mut state.servers[request.server];
        // A connection ends with its process. A replica refuses writes, and reports its role.
        if server.process != request.process || !server.is_master {
            return;
        }
        let own = Record::Claimed { by: request.caller };
        let is_own = server.record == own;
        match request.command {
            // A claim is compared before it becomes an issued token again.
            Command::GiveBack if self.looks == Looks::BehindAClaim && !is_own => {}
            Command::GiveBack if is_own || server.record == Record::Nothing => server.record = Record::Issued,
            Command::GiveBack => {}
            Command::Undo if is_own => server.record = Record::Nothing,
            Command::Undo => {}
            Command::Redeem => {
                let is_of_its_epoch = match self.looks {
                    Looks::No | Looks::Afterwards | Looks::BehindAClaim => true,
                    Looks::WhenSent => request.epoch == ISSUED_IN,
                    Looks::WhenRemoved => server.epoch == ISSUED_IN,
                };
                let is_redeemed = is_of_its_epoch && server.record == Record::Issued;
                if is_redeemed {
                    server.record = if self.looks == Looks::BehindAClaim { own } else { Record::Nothing };
                }
                match self.looks {
                    // Any event may happen before the second command.
                    Looks::Afterwards | Looks::BehindAClaim => {
                        // A caller that finds its own claim continues as if it had just claimed.
                        let command = Command::Epoch { is_redeemed: is_redeemed || is_own };
                        state.requests.insert(Request { command, ..request.clone() });
                    }
                    _ => state.answer(request, is_redeemed),
                }
            }
            Command::Epoch { is_redeemed } => {
                let is_of_its_epoch = server.epoch == ISSUED_IN;
                if self.looks == Looks::BehindAClaim && is_redeemed && !is_of_its_epoch {
                    state.requests.insert(Request { command: Command::Undo, ..request.clone() });
                }
                state.answer(request, is_redeemed && is_of_its_epoch);
            }
        }
    }
}

/// Returns true if the token can take effect twice, and the number of explored states.
fn doubles(looks: Looks, faults: u8, scope: Scope) -> (bool, usize) {
    let checker = Redeeming { looks, faults, scope }.checker().threads(2).spawn_bfs().join();
    let does_something = checker.discovery("it takes effect").is_some();
    let is_double = checker.discovery("it takes effect once").is_some();
    assert!(does_something || is_double, "the model reaches no effect");
    (is_double, checker.unique_state_count())
}

#[test]
fn token_without_epoch_check_runs_once_without_faults() {
    assert!(!doubles(Looks::No, 0, Scope::Wide).0);
}

#[test]
fn token_without_epoch_check_runs_twice_after_one_fault() {
    assert!(doubles(Looks::No, 1, Scope::Wide).0);
    assert!(doubles(Looks::No, 1, Scope::Narrow).0);
}

#[test]
fn epoch_checked_before_the_redeem_runs_twice_after_repromotion() {
    assert!(!doubles(Looks::WhenSent, 2, Scope::Narrow).0, "a double needs three faults");
    assert!(doubles(Looks::WhenSent, 3, Scope::Narrow).0);
}

/// Returns the number of faults to explore. Each additional fault takes five times as long, and claims have the most states: `make model`
/// explores two faults, one with claims, and four in the narrow scope.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
fn most_faults(looks: Looks, scope: Scope) -> u8 {
    let faults = std::env::var("MODEL_FAULTS").map_or(1, |faults| faults.parse().expect("MODEL_FAULTS is a number"));
    match (scope, looks) {
        (Scope::Narrow, _) => faults + 2,
        (Scope::Wide, Looks::BehindAClaim) => faults - 1,
        (Scope::Wide, _) => faults,
    }
}

/// Explores every state and asserts that no second effect is reachable. The narrow scope has as many faults as it takes to find one
/// when the epoch is checked too early.
fn is_enough(looks: Looks) {
    for scope in [Scope::Narrow, Scope::Wide] {
        for faults in 0..=most_faults(looks, scope) {
            let (is_double, states) = doubles(looks, faults, scope);
            println!("{looks:?}: {states} states with up to {faults} faults, {scope:?}");
            assert!(!is_double && states > 30, "{states}");
        }
    }
}

#[test]
fn epoch_checked_in_the_redeem_runs_once() {
    is_enough(Looks::WhenRemoved);
}

#[test]
fn epoch_checked_after_the_redeem_runs_once() {
    is_enough(Looks::Afterwards);
}

#[test]
fn epoch_checked_after_a_claim_runs_once() {
    is_enough(Looks::BehindAClaim);
}
