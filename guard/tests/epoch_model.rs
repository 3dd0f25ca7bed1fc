//! A model of a token on a Redis that forgets, looked through to its last state: a master and its replica, two callers, requests
//! and replies that get lost or come late, snapshots, restarts, promotions and demotions, also of a master that does not know that
//! it is none any more. It shows why a token has to be bound to the epoch that issued it, and that this may be looked at in the step
//! that redeems it, or behind it over the same connection, but not before; and that the same is true of a token that is not removed but
//! swapped for a claim, by a remembered run or an attempt, which finds its own claim again.

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

/// What a server looks at beside whether it has the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// Nothing.
    No,
    /// The epoch that the caller saw when it sent. A connection does not outlive its server's process.
    WhenSent,
    /// Its own epoch, in the step that removes the token.
    WhenRemoved,
    /// Its own epoch, in a later step, which the same process answers as a master.
    Afterwards,
    /// The same where the token is not removed but swapped for a claim: if the epoch is another, the claim is removed again, if that
    /// arrives.
    BehindAClaim,
}

/// What a server has on record of the token.
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
    /// Another one after each restart.
    process: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asks {
    /// Remove the token if it is an issued one, or swap it for a claim.
    Redeem,
    /// In which epoch it is, asked behind the other: whether that got the token is what it knows already.
    Epoch { is_redeemed: bool },
    /// The epoch was another: the claim is removed again.
    Undo,
    /// It did not happen: the token is inserted if there is no record. Sent once, and never again.
    GiveBack,
}

/// On its way to a process of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Request {
    caller: usize,
    attempt: u8,
    asks: Asks,
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
    /// What is in the last snapshot of each.
    disks: [Record; 2],
    epochs: u8,
    faults: u8,
    requests: BTreeSet<Request>,
    replies: BTreeSet<Reply>,
    callers: [Caller; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AuditEvent {
    Send {
        caller: usize,
        server: usize,
    },
    Arrive(Request),
    LoseRequest(Request),
    Answer(Reply),
    LoseReply(Reply),
    /// The caller waits no longer; what it has sent may still arrive.
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
    /// How many faults there are at most.
    faults: u8,
    scope: Scope,
}

/// What there is beside callers, promotions and demotions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Everything: snapshots and restarts, and callers who give back what they have redeemed, or ask again.
    Wide,
    /// Nothing, so that one fault more can be looked at: it takes three to make a master of a former one.
    Narrow,
}

const ISSUED_IN: u8 = 0;
const MOST_ATTEMPTS: u8 = 2;

impl Model for Redeeming {
    type State = State;
    type Action = AuditEvent;

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

    fn actions(&self, state: &State, events: &mut Vec<AuditEvent>) {
        for (caller, is) in state.callers.iter().enumerate() {
            let may_ask = is.waits_for.is_none() && !is.has_run && is.attempts < self.most_attempts();
            for server in (0..2).filter(|server| state.servers[*server].is_master) {
                if may_ask {
                    events.push(AuditEvent::Send { caller, server });
                }
                if is.has_run && !is.has_given_back && self.scope == Scope::Wide {
                    events.push(AuditEvent::GiveBack { caller, server });
                }
            }
            if is.waits_for.is_some() {
                events.push(AuditEvent::GiveUp { caller });
            }
        }
        for request in &state.requests {
            events.extend([AuditEvent::Arrive(request.clone()), AuditEvent::LoseRequest(request.clone())]);
        }
        for reply in &state.replies {
            events.extend([AuditEvent::Answer(reply.clone()), AuditEvent::LoseReply(reply.clone())]);
        }
        events.push(AuditEvent::Replicate);
        for server in 0..2 {
            if self.scope == Scope::Wide {
                events.push(AuditEvent::Snapshot { server });
            }
            if state.faults < self.faults {
                let is_master = state.servers[server].is_master;
                if self.scope == Scope::Wide {
                    events.push(AuditEvent::Restart { server });
                }
                events.push(if is_master { AuditEvent::Demote { server } } else { AuditEvent::Promote { server } });
            }
        }
    }

    fn next_state(&self, before: &State, event: AuditEvent) -> Option<State> {
        let mut state = before.clone();
        match event {
            AuditEvent::Send { caller, server } => {
                let attempt = state.callers[caller].attempts;
                state.callers[caller].attempts += 1;
                state.callers[caller].waits_for = Some(attempt);
                state.send(caller, attempt, Asks::Redeem, server);
            }
            AuditEvent::GiveBack { caller, server } => {
                let is = &mut state.callers[caller];
                (is.has_run, is.has_given_back) = (false, true);
                state.send(caller, MOST_ATTEMPTS, Asks::GiveBack, server);
            }
            AuditEvent::Arrive(request) => {
                state.requests.remove(&request);
                self.arrive(&mut state, &request);
            }
            AuditEvent::LoseRequest(request) => drop(state.requests.take(&request)),
            AuditEvent::Answer(reply) => {
                state.replies.remove(&reply);
                let is = &mut state.callers[reply.caller];
                // A reply to an attempt that was given up is read by nobody.
                if is.waits_for == Some(reply.attempt) {
                    is.waits_for = None;
                    is.has_run |= reply.is_redeemed;
                    // It knows now, and does not ask again.
                    is.attempts = self.most_attempts();
                }
            }
            AuditEvent::LoseReply(reply) => drop(state.replies.take(&reply)),
            AuditEvent::GiveUp { caller } => state.callers[caller].waits_for = None,
            AuditEvent::Snapshot { server } => state.disks[server] = state.servers[server].record,
            AuditEvent::Replicate => state.replicate(),
            AuditEvent::Restart { server } => {
                state.begin_epoch();
                let (epoch, record) = (state.epochs, state.disks[server]);
                let restarted = &mut state.servers[server];
                (restarted.process, restarted.epoch, restarted.record) = (restarted.process + 1, epoch, record);
            }
            AuditEvent::Promote { server } => {
                state.begin_epoch();
                (state.servers[server].is_master, state.servers[server].epoch) = (true, state.epochs);
            }
            AuditEvent::Demote { server } => {
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
            // After it was given back, where it can be.
            Property::sometimes("it takes effect", |model: &Self, state: &State| {
                (state.callers[0].has_given_back || model.scope == Scope::Narrow) && state.callers[1].has_run
            }),
        ]
    }
}

impl State {
    fn send(&mut self, caller: usize, attempt: u8, asks: Asks, server: usize) {
        let Server { process, epoch, .. } = self.servers[server];
        self.requests.insert(Request { caller, attempt, asks, server, process, epoch });
    }

    fn answer(&mut self, request: &Request, is_redeemed: bool) {
        self.replies.insert(Reply { caller: request.caller, attempt: request.attempt, is_redeemed });
    }

    fn begin_epoch(&mut self) {
        self.faults += 1;
        self.epochs += 1;
    }

    /// A replica becomes what its master is, if there is one to follow.
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
        // A connection ends with its process. A replica refuses to write, and says of itself that it is one.
        if server.process != request.process || !server.is_master {
            return;
        }
        let own = Record::Claimed { by: request.caller };
        let is_own = server.record == own;
        match request.asks {
            // A claim is compared before it becomes an issued token again.
            Asks::GiveBack if self.looks == Looks::BehindAClaim && !is_own => {}
            Asks::GiveBack if is_own || server.record == Record::Nothing => server.record = Record::Issued,
            Asks::GiveBack => {}
            Asks::Undo if is_own => server.record = Record::Nothing,
            Asks::Undo => {}
            Asks::Redeem => {
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
                    // Anything may happen before the second command is come to.
                    Looks::Afterwards | Looks::BehindAClaim => {
                        // Whoever finds its own claim goes on as if it had just made it.
                        let asks = Asks::Epoch { is_redeemed: is_redeemed || is_own };
                        state.requests.insert(Request { asks, ..request.clone() });
                    }
                    _ => state.answer(request, is_redeemed),
                }
            }
            Asks::Epoch { is_redeemed } => {
                let is_of_its_epoch = server.epoch == ISSUED_IN;
                if self.looks == Looks::BehindAClaim && is_redeemed && !is_of_its_epoch {
                    state.requests.insert(Request { asks: Asks::Undo, ..request.clone() });
                }
                state.answer(request, is_redeemed && is_of_its_epoch);
            }
        }
    }
}

/// Whether it can take effect twice, and in how many states that was looked for.
fn doubles(looks: Looks, faults: u8, scope: Scope) -> (bool, usize) {
    let checker = Redeeming { looks, faults, scope }.checker().threads(2).spawn_bfs().join();
    let does_something = checker.discovery("it takes effect").is_some();
    let is_double = checker.discovery("it takes effect once").is_some();
    assert!(does_something || is_double, "the model goes nowhere");
    (is_double, checker.unique_state_count())
}

#[test]
fn without_a_fault_nothing_needs_to_be_looked_at() {
    assert!(!doubles(Looks::No, 0, Scope::Wide).0);
}

#[test]
fn a_token_that_is_bound_to_nothing_comes_back_with_one_fault() {
    assert!(doubles(Looks::No, 1, Scope::Wide).0);
    assert!(doubles(Looks::No, 1, Scope::Narrow).0);
}

#[test]
fn an_epoch_that_was_looked_at_earlier_is_not_enough_where_a_master_is_demoted_and_promoted_again() {
    assert!(!doubles(Looks::WhenSent, 2, Scope::Narrow).0, "it takes three faults");
    assert!(doubles(Looks::WhenSent, 3, Scope::Narrow).0);
}

/// Every fault more makes it five times as long, and claims have the most states: `make model` looks at two faults, at one of claims, and in
/// the narrow scope at four.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
fn most_faults(looks: Looks, scope: Scope) -> u8 {
    let faults = std::env::var("MODEL_FAULTS").map_or(1, |faults| faults.parse().expect("MODEL_FAULTS is a number"));
    match (scope, looks) {
        (Scope::Narrow, _) => faults + 2,
        (Scope::Wide, Looks::BehindAClaim) => faults - 1,
        (Scope::Wide, _) => faults,
    }
}

/// Looks through everything, and finds no way to a second effect: in the narrow scope with as many faults as it takes to find one where
/// the epoch is looked at too early.
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
fn an_epoch_that_is_looked_at_in_the_step_that_removes_the_token_is_enough() {
    is_enough(Looks::WhenRemoved);
}

#[test]
fn an_epoch_that_is_looked_at_behind_that_step_over_the_same_connection_is_enough() {
    is_enough(Looks::Afterwards);
}

#[test]
fn an_epoch_that_is_looked_at_behind_a_claim_is_enough_also_where_that_is_found_again_or_not_removed() {
    is_enough(Looks::BehindAClaim);
}
