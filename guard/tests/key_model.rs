//! A model of a key, explored to its last state: two callers that claim, renew, run, settle and crash, requests and replies that
//! get lost or are late, a claim that expires and is taken over, a release that is repeated while the same attempt runs again, and
//! an operator who settles an unknown outcome.
//!
//! It shows the guarantees of a key on a store that loses nothing: no run begins beside a live owner whose renewals arrive, a late
//! owner does not change the record of its successor or of its own next run, and an at-most-once key has one effect under any faults.

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

/// Age at which a claim expires. Its owner renews it at every age except the first.
const LEASE: u8 = 2;
/// Maximum number of tries of each caller, each a new run.
const MOST_TRIES: [u8; 2] = [2, 1];

/// The record in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Record {
    Nothing,
    Claim { run: Run, age: u8, is_held: bool },
    Done { run: Run },
}

/// The number of a caller, which also stands for its attempt, and the number of its try.
type Run = (usize, u8);

/// The comparison before a claim is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compares {
    /// With the run.
    Run,
    /// With the attempt, which may have begun another run since.
    Attempt,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Command {
    Insert,
    /// Makes the claim outlive its owner.
    Hold,
    Renew,
    Complete,
    Remove,
}

/// A request in flight to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Request {
    run: Run,
    command: Command,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Reply {
    run: Run,
    command: Command,
    is_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// The caller has sent `Insert` or `Hold`.
    Entering(Command),
    Running,
    /// The effect happened, and the caller stores that.
    Completing,
    /// The caller was rejected, has settled, or has crashed.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    tries: u8,
    phase: Phase,
    has_effect: bool,
    is_alive: bool,
    /// The run that it released last, and may release once more, as the first reply may be lost.
    released: Option<Run>,
}

impl Caller {
    /// Returns true if it renews its claim.
    fn is_owner(&self) -> bool {
        self.is_alive && matches!(self.phase, Phase::Running | Phase::Completing | Phase::Entering(Command::Hold))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    record: Record,
    callers: [Caller; 2],
    requests: BTreeSet<Request>,
    replies: BTreeSet<Reply>,
    /// The runs that had an effect.
    effects: BTreeSet<Run>,
    faults: u8,
    /// A claim expired although its owner was alive, as none of its renewals had arrived.
    has_outlived: bool,
    /// A record was changed by another run.
    is_stolen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Enter(usize),
    Arrive(Request),
    LoseRequest(Request),
    Answer(Reply),
    LoseReply(Reply),
    /// The caller stops waiting for the claim, and releases it in case it was made.
    GiveUp(usize),
    Effect(usize),
    Complete(usize),
    Fail(usize),
    ReleaseAgain(usize),
    Crash(usize),
    Renew(usize),
    Age,
    /// An operator settles a held claim whose owner is gone.
    Settle,
}

struct Claiming {
    at_most_once: bool,
    /// The comparison before a claim is removed.
    compares: Compares,
    faults: u8,
}

impl Model for Claiming {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let caller = Caller { tries: 0, phase: Phase::Idle, has_effect: false, is_alive: true, released: None };
        vec![State {
            record: Record::Nothing,
            callers: [caller.clone(), caller],
            requests: BTreeSet::new(),
            replies: BTreeSet::new(),
            effects: BTreeSet::new(),
            faults: 0,
            has_outlived: false,
            is_stolen: false,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        let may_fail = state.faults < self.faults;
        for (number, caller) in state.callers.iter().enumerate().filter(|(_, caller)| caller.is_alive) {
            match caller.phase {
                Phase::Idle if caller.tries < MOST_TRIES[number] => events.push(Event::Enter(number)),
                Phase::Entering(_) => events.push(Event::GiveUp(number)),
                Phase::Running if !caller.has_effect => {
                    events.extend([Event::Effect(number), Event::Fail(number)]);
                }
                Phase::Running => events.push(Event::Complete(number)),
                // Without a reply, the caller retries.
                Phase::Completing => events.push(Event::Complete(number)),
                Phase::Idle | Phase::Over => {}
            }
            if caller.released.is_some() {
                events.push(Event::ReleaseAgain(number));
            }
            if may_fail && caller.phase != Phase::Idle && caller.phase != Phase::Over {
                events.push(Event::Crash(number));
            }
        }
        for request in &state.requests {
            events.push(Event::Arrive(request.clone()));
            if may_fail {
                events.push(Event::LoseRequest(request.clone()));
            }
        }
        for reply in &state.replies {
            events.push(Event::Answer(reply.clone()));
            if may_fail {
                events.push(Event::LoseReply(reply.clone()));
            }
        }
        if let Record::Claim { run, age, is_held } = &state.record {
            let is_owned = state.is_owner(*run);
            let renewal = Request { run: *run, command: Command::Renew };
            if is_owned && *age > 0 && !state.requests.contains(&renewal) {
                events.push(Event::Renew(run.0));
            }
            // A caller that still waits for its claim gives up long before a lease expires. A live owner renews its claim before it gets
            // older; anything else is a fault.
            let is_entered = !state.waits_for(*run, Command::Insert);
            if !is_held && is_entered && (!is_owned || *age == 0 || may_fail) {
                events.push(Event::Age);
            }
            if *is_held && !is_owned && state.is_quiet(*run) {
                events.push(Event::Settle);
            }
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        match event {
            Event::Enter(number) => {
                let caller = &mut state.callers[number];
                let run = (number, caller.tries);
                (caller.tries, caller.phase, caller.has_effect) =
                    (caller.tries + 1, Phase::Entering(Command::Insert), false);
                state.requests.insert(Request { run, command: Command::Insert });
            }
            Event::Arrive(request) => {
                state.requests.remove(&request);
                self.arrive(&mut state, &request);
            }
            Event::LoseRequest(request) => {
                state.faults += 1;
                state.requests.remove(&request);
            }
            Event::Answer(reply) => {
                state.replies.remove(&reply);
                self.answer(&mut state, &reply);
            }
            Event::LoseReply(reply) => {
                state.faults += 1;
                state.replies.remove(&reply);
            }
            Event::GiveUp(number) => {
                let run = state.run(number);
                state.callers[number].phase = Phase::Idle;
                state.requests.insert(Request { run, command: Command::Remove });
            }
            Event::Effect(number) => {
                state.callers[number].has_effect = true;
                let run = state.run(number);
                state.effects.insert(run);
            }
            Event::Complete(number) => {
                state.callers[number].phase = Phase::Completing;
                let run = state.run(number);
                if !state.requests.insert(Request { run, command: Command::Complete }) {
                    return None;
                }
            }
            Event::Fail(number) => {
                let run = state.run(number);
                (state.callers[number].phase, state.callers[number].released) = (Phase::Idle, Some(run));
                state.requests.insert(Request { run, command: Command::Remove });
            }
            Event::ReleaseAgain(number) => {
                let run = state.callers[number].released.take()?;
                state.requests.insert(Request { run, command: Command::Remove });
            }
            Event::Crash(number) => {
                state.faults += 1;
                (state.callers[number].is_alive, state.callers[number].phase) = (false, Phase::Over);
            }
            Event::Renew(number) => {
                let run = state.run(number);
                state.requests.insert(Request { run, command: Command::Renew });
            }
            Event::Age => state.get_older(),
            Event::Settle => {
                let Record::Claim { run, .. } = state.record else { return None };
                state.record = if state.effects.contains(&run) { Record::Done { run } } else { Record::Nothing };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no run begins beside a live owner whose renewals arrive", |_, state: &State| {
                let running = state.callers.iter().filter(|caller| caller.is_alive && caller.phase == Phase::Running);
                running.count() <= 1 || state.has_outlived
            }),
            Property::always("it takes effect once", |_, state: &State| state.effects.len() <= 1),
            Property::always("no run changes the record of another", |_, state: &State| !state.is_stolen),
            Property::sometimes("a claim is taken over", |_, state: &State| {
                state.callers.iter().any(|caller| !caller.is_alive) && matches!(state.record, Record::Done { .. })
            }),
        ]
    }
}

impl State {
    /// Returns the newest run of a caller.
    fn run(&self, number: usize) -> Run {
        (number, self.callers[number].tries.saturating_sub(1))
    }

    /// Returns true if a live caller renews the claim of this run.
    fn is_owner(&self, run: Run) -> bool {
        self.run(run.0) == run && self.callers[run.0].is_owner()
    }

    fn waits_for(&self, run: Run, command: Command) -> bool {
        let caller = &self.callers[run.0];
        let is_waiting = match caller.phase {
            Phase::Entering(sent) => sent == command,
            Phase::Completing => command == Command::Complete,
            Phase::Idle | Phase::Running | Phase::Over => false,
        };
        self.run(run.0) == run && caller.is_alive && is_waiting
    }

    /// Returns true if no request of this run is in flight.
    fn is_quiet(&self, run: Run) -> bool {
        self.requests.iter().all(|request| request.run != run)
    }

    /// Ages the claim, which expires at the age of [`LEASE`].
    fn get_older(&mut self) {
        let Record::Claim { run, .. } = self.record else { return };
        let is_owned = self.is_owner(run);
        let Record::Claim { age, .. } = &mut self.record else { return };
        if is_owned && *age > 0 {
            // Its renewal did not arrive in time.
            self.faults += 1;
        }
        *age += 1;
        if *age >= LEASE {
            self.has_outlived |= is_owned;
            self.record = Record::Nothing;
        }
    }
}

impl Claiming {
    fn arrive(&self, state: &mut State, request: &Request) {
        let Request { run, command } = *request;
        let there = match &state.record {
            Record::Nothing => None,
            Record::Claim { run, .. } | Record::Done { run } => Some(*run),
        };
        let is_claim = matches!(state.record, Record::Claim { .. });
        let mut is_own = there.is_none_or(|there| there == run);
        let claim = |is_held| Record::Claim { run, age: 0, is_held };
        match command {
            Command::Insert if there.is_none() => state.record = claim(false),
            // The insert finds a run that was completed meanwhile.
            Command::Insert => is_own &= is_claim,
            Command::Hold if there == Some(run) && is_claim => state.record = claim(true),
            Command::Hold => is_own = false,
            Command::Renew => {
                if there == Some(run) && is_claim {
                    state.record = claim(self.at_most_once);
                } else if there.is_none() && state.is_owner(run) {
                    // A claim that expired and was not taken over is made again.
                    state.record = claim(false);
                }
                return;
            }
            Command::Complete if is_own => state.record = Record::Done { run },
            Command::Complete => {}
            Command::Remove => {
                let is_meant = match self.compares {
                    Compares::Run => there == Some(run),
                    Compares::Attempt => there.is_some_and(|there| there.0 == run.0),
                    Compares::Nothing => true,
                };
                if is_claim && is_meant {
                    state.is_stolen |= there != Some(run);
                    state.record = Record::Nothing;
                }
                return;
            }
        }
        // The reply to a run that was given up is ignored.
        if state.waits_for(run, command) {
            state.replies.insert(Reply { run, command, is_own });
        }
    }

    fn answer(&self, state: &mut State, reply: &Reply) {
        if !state.waits_for(reply.run, reply.command) {
            return;
        }
        let caller = &mut state.callers[reply.run.0];
        caller.phase = match (caller.phase, reply.command) {
            (Phase::Entering(Command::Insert), Command::Insert) if reply.is_own && self.at_most_once => {
                state.requests.insert(Request { run: reply.run, command: Command::Hold });
                Phase::Entering(Command::Hold)
            }
            (Phase::Entering(Command::Insert), Command::Insert) if reply.is_own => Phase::Running,
            (Phase::Entering(Command::Hold), Command::Hold) if reply.is_own => Phase::Running,
            (Phase::Entering(sent), command) if sent == command => Phase::Over,
            (Phase::Completing, Command::Complete) => Phase::Over,
            (phase, _) => phase,
        };
    }
}

/// Returns the broken properties and the number of explored states.
fn look(model: Claiming) -> (BTreeSet<&'static str>, usize) {
    let faults = model.faults;
    let checker = model.checker().threads(2).spawn_bfs().join();
    let mut found: BTreeSet<_> = checker.discoveries().into_keys().collect();
    let does_something = found.remove("a claim is taken over");
    assert!(does_something || faults == 0 || !found.is_empty(), "the model reaches no takeover");
    (found, checker.unique_state_count())
}

/// Returns the number of faults to explore. Each additional fault takes several times as long: `make model` explores two.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
fn most_faults() -> u8 {
    std::env::var("MODEL_FAULTS").map_or(1, |faults| faults.parse().expect("MODEL_FAULTS is a number"))
}

#[test]
fn at_most_once_key_has_one_effect_under_faults() {
    for faults in 0..=most_faults() {
        let (found, states) = look(Claiming { at_most_once: true, compares: Compares::Run, faults });
        println!("at most once: {states} states with up to {faults} faults");
        assert!(found.is_empty() && states > 1_000, "{found:?} in {states}");
    }
}

#[test]
fn retryable_key_never_runs_beside_a_live_owner() {
    for faults in 0..=most_faults() {
        let (found, states) = look(Claiming { at_most_once: false, compares: Compares::Run, faults });
        println!("retryable: {states} states with up to {faults} faults");
        let may_be_found = if faults == 0 { BTreeSet::new() } else { BTreeSet::from(["it takes effect once"]) };
        assert!(found == may_be_found && states > 500, "{found:?} in {states}");
    }
}

#[test]
fn unconditional_release_steals_the_successor_s_claim() {
    let (found, _) = look(Claiming { at_most_once: false, compares: Compares::Nothing, faults: 1 });
    assert!(found.contains("no run changes the record of another"), "{found:?}");
}

#[test]
fn release_by_attempt_frees_its_next_run() {
    for at_most_once in [false, true] {
        let (found, _) = look(Claiming { at_most_once, compares: Compares::Attempt, faults: 0 });
        assert!(found.contains("no run changes the record of another"), "{found:?}");
    }
}
