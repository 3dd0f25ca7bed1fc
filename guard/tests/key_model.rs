//! A model of a key, looked through to its last state: two callers that claim, renew, run, settle and crash, requests and replies
//! that get lost or come late, a claim that lapses and is taken over, a release that is repeated when the same attempt runs
//! again, and an operator who settles what nobody can tell.
//!
//! It shows what a key promises on a store that forgets nothing: nobody runs beside a live owner whose renewals arrive, a late
//! owner changes nothing of its successor's, not even of its own next run, and under at most once there is one effect whatever happens.

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

/// How much older a claim may get before it is over. Its owner renews it at every age but the first.
const LEASE: u8 = 2;
/// How often each caller tries, each time as another run.
const MOST_TRIES: [u8; 2] = [2, 1];

/// What the store holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Record {
    Nothing,
    Claim { run: Run, age: u8, is_held: bool },
    Done { run: Run },
}

/// A caller, which stands for its attempt, and the number of its try.
type Run = (usize, u8);

/// What a claim is compared with before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compares {
    /// With the run.
    Run,
    /// With the attempt, which may have begun another run since.
    Attempt,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Asks {
    Insert,
    /// Has the claim outlive its owner.
    Hold,
    Renew,
    Complete,
    Remove,
}

/// On its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Request {
    run: Run,
    asks: Asks,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Reply {
    run: Run,
    asks: Asks,
    is_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// It has asked for the claim, or to have it held.
    Entering(Asks),
    Running,
    /// It happened, and that is being written.
    Completing,
    /// It was refused, has settled, or has crashed.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    tries: u8,
    phase: Phase,
    has_effect: bool,
    is_alive: bool,
    /// The run that it has released last, and may release once more: the first answer may be lost.
    released: Option<Run>,
}

impl Caller {
    /// Whether its claim is being renewed.
    fn is_owner(&self) -> bool {
        self.is_alive && matches!(self.phase, Phase::Running | Phase::Completing | Phase::Entering(Asks::Hold))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    record: Record,
    callers: [Caller; 2],
    requests: BTreeSet<Request>,
    replies: BTreeSet<Reply>,
    /// Which runs have had an effect.
    effects: BTreeSet<Run>,
    faults: u8,
    /// A claim was over although its owner lived: none of its renewals had come.
    has_outlived: bool,
    /// Somebody's record was changed by another run.
    is_stolen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AuditEvent {
    Enter(usize),
    Arrive(Request),
    LoseRequest(Request),
    Answer(Reply),
    LoseReply(Reply),
    /// It waits no longer for the claim, and takes back what it may have got.
    GiveUp(usize),
    Effect(usize),
    Complete(usize),
    Fail(usize),
    ReleaseAgain(usize),
    Crash(usize),
    Renew(usize),
    Age,
    /// An operator finds out what became of a held claim whose owner is gone.
    Settle,
}

struct Claiming {
    at_most_once: bool,
    /// What a claim is compared with before it is removed.
    compares: Compares,
    faults: u8,
}

impl Model for Claiming {
    type State = State;
    type Action = AuditEvent;

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

    fn actions(&self, state: &State, events: &mut Vec<AuditEvent>) {
        let may_fail = state.faults < self.faults;
        for (number, caller) in state.callers.iter().enumerate().filter(|(_, caller)| caller.is_alive) {
            match caller.phase {
                Phase::Idle if caller.tries < MOST_TRIES[number] => events.push(AuditEvent::Enter(number)),
                Phase::Entering(_) => events.push(AuditEvent::GiveUp(number)),
                Phase::Running if !caller.has_effect => {
                    events.extend([AuditEvent::Effect(number), AuditEvent::Fail(number)]);
                }
                Phase::Running => events.push(AuditEvent::Complete(number)),
                // What is not answered is written again.
                Phase::Completing => events.push(AuditEvent::Complete(number)),
                Phase::Idle | Phase::Over => {}
            }
            if caller.released.is_some() {
                events.push(AuditEvent::ReleaseAgain(number));
            }
            if may_fail && caller.phase != Phase::Idle && caller.phase != Phase::Over {
                events.push(AuditEvent::Crash(number));
            }
        }
        for request in &state.requests {
            events.push(AuditEvent::Arrive(request.clone()));
            if may_fail {
                events.push(AuditEvent::LoseRequest(request.clone()));
            }
        }
        for reply in &state.replies {
            events.push(AuditEvent::Answer(reply.clone()));
            if may_fail {
                events.push(AuditEvent::LoseReply(reply.clone()));
            }
        }
        if let Record::Claim { run, age, is_held } = &state.record {
            let is_owned = state.is_owner(*run);
            let renewal = Request { run: *run, asks: Asks::Renew };
            if is_owned && *age > 0 && !state.requests.contains(&renewal) {
                events.push(AuditEvent::Renew(run.0));
            }
            // Whoever still waits for the claim gives up long before a lease is over. An owner that lives has renewed its claim
            // before that gets any older, or else that is a fault.
            let is_entered = !state.waits_for(*run, Asks::Insert);
            if !is_held && is_entered && (!is_owned || *age == 0 || may_fail) {
                events.push(AuditEvent::Age);
            }
            if *is_held && !is_owned && state.is_quiet(*run) {
                events.push(AuditEvent::Settle);
            }
        }
    }

    fn next_state(&self, before: &State, event: AuditEvent) -> Option<State> {
        let mut state = before.clone();
        match event {
            AuditEvent::Enter(number) => {
                let caller = &mut state.callers[number];
                let run = (number, caller.tries);
                (caller.tries, caller.phase, caller.has_effect) =
                    (caller.tries + 1, Phase::Entering(Asks::Insert), false);
                state.requests.insert(Request { run, asks: Asks::Insert });
            }
            AuditEvent::Arrive(request) => {
                state.requests.remove(&request);
                self.arrive(&mut state, &request);
            }
            AuditEvent::LoseRequest(request) => {
                state.faults += 1;
                state.requests.remove(&request);
            }
            AuditEvent::Answer(reply) => {
                state.replies.remove(&reply);
                self.answer(&mut state, &reply);
            }
            AuditEvent::LoseReply(reply) => {
                state.faults += 1;
                state.replies.remove(&reply);
            }
            AuditEvent::GiveUp(number) => {
                let run = state.run(number);
                state.callers[number].phase = Phase::Idle;
                state.requests.insert(Request { run, asks: Asks::Remove });
            }
            AuditEvent::Effect(number) => {
                state.callers[number].has_effect = true;
                let run = state.run(number);
                state.effects.insert(run);
            }
            AuditEvent::Complete(number) => {
                state.callers[number].phase = Phase::Completing;
                let run = state.run(number);
                if !state.requests.insert(Request { run, asks: Asks::Complete }) {
                    return None;
                }
            }
            AuditEvent::Fail(number) => {
                let run = state.run(number);
                (state.callers[number].phase, state.callers[number].released) = (Phase::Idle, Some(run));
                state.requests.insert(Request { run, asks: Asks::Remove });
            }
            AuditEvent::ReleaseAgain(number) => {
                let run = state.callers[number].released.take()?;
                state.requests.insert(Request { run, asks: Asks::Remove });
            }
            AuditEvent::Crash(number) => {
                state.faults += 1;
                (state.callers[number].is_alive, state.callers[number].phase) = (false, Phase::Over);
            }
            AuditEvent::Renew(number) => {
                let run = state.run(number);
                state.requests.insert(Request { run, asks: Asks::Renew });
            }
            AuditEvent::Age => state.get_older(),
            AuditEvent::Settle => {
                let Record::Claim { run, .. } = state.record else { return None };
                state.record = if state.effects.contains(&run) { Record::Done { run } } else { Record::Nothing };
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nobody runs beside a live owner whose renewals arrive", |_, state: &State| {
                let running = state.callers.iter().filter(|caller| caller.is_alive && caller.phase == Phase::Running);
                running.count() <= 1 || state.has_outlived
            }),
            Property::always("it takes effect once", |_, state: &State| state.effects.len() <= 1),
            Property::always("nobody changes another's record", |_, state: &State| !state.is_stolen),
            Property::sometimes("a claim is taken over", |_, state: &State| {
                state.callers.iter().any(|caller| !caller.is_alive) && matches!(state.record, Record::Done { .. })
            }),
        ]
    }
}

impl State {
    /// The newest run of a caller.
    fn run(&self, number: usize) -> Run {
        (number, self.callers[number].tries.saturating_sub(1))
    }

    /// Whether somebody lives who renews the claim of this run.
    fn is_owner(&self, run: Run) -> bool {
        self.run(run.0) == run && self.callers[run.0].is_owner()
    }

    fn waits_for(&self, run: Run, asks: Asks) -> bool {
        let caller = &self.callers[run.0];
        let is_asked = match caller.phase {
            Phase::Entering(asked) => asked == asks,
            Phase::Completing => asks == Asks::Complete,
            Phase::Idle | Phase::Running | Phase::Over => false,
        };
        self.run(run.0) == run && caller.is_alive && is_asked
    }

    /// Whether nothing of this run is on its way any more.
    fn is_quiet(&self, run: Run) -> bool {
        self.requests.iter().all(|request| request.run != run)
    }

    /// A claim gets older, and is over when it is too old.
    fn get_older(&mut self) {
        let Record::Claim { run, .. } = self.record else { return };
        let is_owned = self.is_owner(run);
        let Record::Claim { age, .. } = &mut self.record else { return };
        if is_owned && *age > 0 {
            // Its renewal did not come in time.
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
        let Request { run, asks } = *request;
        let there = match &state.record {
            Record::Nothing => None,
            Record::Claim { run, .. } | Record::Done { run } => Some(*run),
        };
        let is_claim = matches!(state.record, Record::Claim { .. });
        let mut is_own = there.is_none_or(|there| there == run);
        let claim = |is_held| Record::Claim { run, age: 0, is_held };
        match asks {
            Asks::Insert if there.is_none() => state.record = claim(false),
            // What was done meanwhile is found by whoever inserts.
            Asks::Insert => is_own &= is_claim,
            Asks::Hold if there == Some(run) && is_claim => state.record = claim(true),
            Asks::Hold => is_own = false,
            Asks::Renew => {
                if there == Some(run) && is_claim {
                    state.record = claim(self.at_most_once);
                } else if there.is_none() && state.is_owner(run) {
                    // A claim that lapsed, and that nobody took over, is made again.
                    state.record = claim(false);
                }
                return;
            }
            Asks::Complete if is_own => state.record = Record::Done { run },
            Asks::Complete => {}
            Asks::Remove => {
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
        // A reply to a run that was given up is read by nobody.
        if state.waits_for(run, asks) {
            state.replies.insert(Reply { run, asks, is_own });
        }
    }

    fn answer(&self, state: &mut State, reply: &Reply) {
        if !state.waits_for(reply.run, reply.asks) {
            return;
        }
        let caller = &mut state.callers[reply.run.0];
        caller.phase = match (caller.phase, reply.asks) {
            (Phase::Entering(Asks::Insert), Asks::Insert) if reply.is_own && self.at_most_once => {
                state.requests.insert(Request { run: reply.run, asks: Asks::Hold });
                Phase::Entering(Asks::Hold)
            }
            (Phase::Entering(Asks::Insert), Asks::Insert) if reply.is_own => Phase::Running,
            (Phase::Entering(Asks::Hold), Asks::Hold) if reply.is_own => Phase::Running,
            (Phase::Entering(asked), asks) if asked == asks => Phase::Over,
            (Phase::Completing, Asks::Complete) => Phase::Over,
            (phase, _) => phase,
        };
    }
}

/// What can go wrong, and in how many states that was looked for.
fn look(model: Claiming) -> (BTreeSet<&'static str>, usize) {
    let faults = model.faults;
    let checker = model.checker().threads(2).spawn_bfs().join();
    let mut found: BTreeSet<_> = checker.discoveries().into_keys().collect();
    let does_something = found.remove("a claim is taken over");
    assert!(does_something || faults == 0 || !found.is_empty(), "the model goes nowhere");
    (found, checker.unique_state_count())
}

/// Every fault more makes it several times as long: `make model` looks at two.
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
fn most_faults() -> u8 {
    std::env::var("MODEL_FAULTS").map_or(1, |faults| faults.parse().expect("MODEL_FAULTS is a number"))
}

#[test]
fn at_most_once_there_is_one_effect_whatever_gets_lost_and_whoever_crashes() {
    for faults in 0..=most_faults() {
        let (found, states) = look(Claiming { at_most_once: true, compares: Compares::Run, faults });
        println!("at most once: {states} states with up to {faults} faults");
        assert!(found.is_empty() && states > 1_000, "{found:?} in {states}");
    }
}

#[test]
fn without_hold_a_fault_may_have_it_run_again_but_nobody_beside_a_live_owner() {
    for faults in 0..=most_faults() {
        let (found, states) = look(Claiming { at_most_once: false, compares: Compares::Run, faults });
        println!("retryable: {states} states with up to {faults} faults");
        let may_be_found = if faults == 0 { BTreeSet::new() } else { BTreeSet::from(["it takes effect once"]) };
        assert!(found == may_be_found && states > 500, "{found:?} in {states}");
    }
}

#[test]
fn a_late_owner_that_removes_whatever_is_there_steals_its_successor_s_claim() {
    let (found, _) = look(Claiming { at_most_once: false, compares: Compares::Nothing, faults: 1 });
    assert!(found.contains("nobody changes another's record"), "{found:?}");
}

#[test]
fn release_that_goes_by_the_attempt_frees_its_next_run() {
    for at_most_once in [false, true] {
        let (found, _) = look(Claiming { at_most_once, compares: Compares::Attempt, faults: 0 });
        assert!(found.contains("nobody changes another's record"), "{found:?}");
    }
}
