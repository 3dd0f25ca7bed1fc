//! One schedule: processes, their callers, a store and a clock, all driven by one random number generator.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::fault_store::{FaultStore, Flaw};
use super::history::{History, HistoryEvent};
use crate::attempt::Attempt;
use crate::binding::Binding;
use crate::clock::ManualClock;
use crate::fingerprint::Fingerprint;
use crate::guard::Guard;
use crate::intent::Intent;
use crate::key::Key;
use crate::pass::Pass;
use crate::pass::signed::SignedPass;
use crate::policy::{KeyRules, Policy, TokenRules};
use crate::record::ClaimRecord;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::{Memory, Store, StoreError};
use crate::subject::Subject;
use crate::token::secret::Secret;
use crate::verdict::Verdict;

pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Longer than any schedule: a stored response does not expire.
const RETAIN: Duration = Duration::from_secs(100_000);
/// Number of steps of a schedule.
const STEPS: usize = 400;
/// Maximum number of tries of a caller.
const TRIES: usize = 4;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One schedule.
pub(super) struct World {
    dice: fastrand::Rng,
    clock: ManualClock,
    store: Arc<FaultStore>,
    processes: Vec<Process>,
    policy: Policy,
    /// The token that the callers redeem; `None` if they use a key.
    token: Option<Rc<str>>,
    is_held: bool,
    /// True if the clock jumps.
    has_time: bool,
    has_duplicates: bool,
    /// True if callers name their attempts.
    has_attempts: bool,
    history: Rc<RefCell<History>>,
    /// The first violation that a caller found.
    wrong: Rc<RefCell<Option<String>>>,
}

/// A process with its own guard and its tasks.
struct Process {
    guard: Guard,
    tasks: Vec<Task>,
    is_alive: bool,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let clock = ManualClock::new();
        let has_token = dice.u8(..3) == 0;
        let is_held = has_token || dice.bool();
        let has_time = is_held || dice.bool();
        // A plain token that is given back twice is valid twice, so the guard sends that command once.
        let has_duplicates = dice.u8(..4) == 0 && !has_token;
        let has_attempts = dice.u8(..3) == 0;
        let faults = [0, 10, 30, 50][dice.usize(..4)];
        let memory = Arc::new(Memory::with_clock((&clock).into()));
        let token = has_token.then(|| issue(&memory, &clock));
        let store = Arc::new(FaultStore::new(memory, dice.u64(..), faults, has_duplicates, flaw));
        let rules = if is_held { KeyRules::at_most_once() } else { KeyRules::retryable() };
        let rules = rules.lease(LEASE).unwrap().retain(RETAIN).ceiling(LEASE * 50);
        let policy = match has_token {
            true => Policy::Token(TokenRules::new().remember_by(rules)),
            false => Policy::key(rules),
        };
        let mut world = Self {
            dice,
            clock,
            store,
            processes: Vec::new(),
            policy,
            token,
            is_held,
            has_time,
            has_duplicates,
            has_attempts,
            history: Rc::default(),
            wrong: Rc::default(),
        };
        for process in 0..world.dice.usize(1..4) {
            let guard = world.guard();
            let callers = world.dice.usize(1..4);
            let tasks = (0..callers).map(|caller| world.caller(&guard, format!("{process}-{caller}"))).collect();
            world.processes.push(Process { guard, tasks, is_alive: true });
        }
        world
    }

    /// Builds the guard of one process.
    fn guard(&self) -> Guard {
        guard(Arc::clone(&self.store), &self.clock)
    }

    /// Runs the schedule and returns its events, to compare two schedules.
    pub(super) fn events(mut self) -> Vec<HistoryEvent> {
        let _ = self.play();
        self.history.take().events
    }

    /// Runs the schedule to its end.
    ///
    /// # Errors
    /// If a guarantee was broken.
    pub(super) fn run(mut self) -> Result<(), String> {
        let played = self.play().and_then(|()| self.look_back());
        played.map_err(|reason| {
            format!(
                "{reason} (held: {}, attempts: {}, token: {}, duplicates: {}) {:?}",
                self.is_held,
                self.has_attempts,
                self.token.is_some(),
                self.has_duplicates,
                self.history.borrow().events
            )
        })
    }

    fn play(&mut self) -> Result<(), String> {
        // Seeds the jitter of the backoff.
        fastrand::seed(self.dice.u64(..));
        for _ in 0..STEPS {
            self.step();
            self.check()?;
        }
        Ok(())
    }

    /// Two effects are impossible if claims cannot expire, or if expired claims are held.
    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = self.wrong.borrow().clone() {
            return Err(wrong);
        }
        let has_open_end = self.history.borrow().has_open_end();
        self.history.borrow().check(self.is_held || (!self.has_time && !has_open_end))
    }

    fn step(&mut self) {
        let at = self.dice.usize(..self.processes.len());
        match self.dice.u8(..100) {
            0..3 if self.has_time => self.clock.advance(Duration::from_millis(self.dice.u64(..2_500))),
            3..8 => {
                self.store.deliver();
            }
            8..9 if self.processes.len() > 1 && self.processes[at].is_alive => self.kill(at),
            9..25 => self.keep_up(at),
            _ => self.poll_one(at),
        }
    }

    /// Ends a process with all its tasks.
    fn kill(&mut self, at: usize) {
        let process = &mut self.processes[at];
        process.is_alive = false;
        process.tasks.clear();
        self.history.borrow_mut().record(HistoryEvent::Killed);
    }

    /// Begins one background step that is due, such as a renewal.
    fn keep_up(&mut self, at: usize) {
        let (dice, process) = (&mut self.dice, &mut self.processes[at]);
        if !process.is_alive {
            return;
        }
        if let Some(claim) = process.guard.renewals().take(|count| dice.usize(..count)) {
            process.tasks.push(Box::pin(async move {
                claim.step().await;
            }));
        }
    }

    fn poll_one(&mut self, at: usize) {
        let (dice, process) = (&mut self.dice, &mut self.processes[at]);
        if process.tasks.is_empty() {
            return;
        }
        let chosen = dice.usize(..process.tasks.len());
        let mut context = Context::from_waker(Waker::noop());
        if process.tasks[chosen].as_mut().poll(&mut context).is_ready() {
            drop(process.tasks.swap_remove(chosen));
        }
    }

    /// Checks the final record after all commands have arrived and every live process has finished its work.
    fn look_back(&mut self) -> Result<(), String> {
        self.store.heal();
        for _ in 0..40 {
            while self.store.deliver() {}
            for at in 0..self.processes.len() {
                for _ in 0..20 {
                    self.keep_up(at);
                    (0..20).for_each(|_| self.poll_one(at));
                }
            }
            self.check()?;
            self.clock.advance(LEASE / 2);
        }
        if let Some(count) = self.pending_claims() {
            return Err(format!("{count} claims still wait for a retry"));
        }
        self.processes.iter_mut().for_each(|process| process.tasks.clear());
        self.clock.advance(LEASE * 2);
        let event = self.check_once()?;
        let history = self.history.borrow();
        match event {
            _ if let [done] = history.finals()[..]
                && event != HistoryEvent::Replayed(done) =>
            {
                Err(format!("run {done} is not replayed: {event:?}"))
            }
            HistoryEvent::Rejected("outcome_unknown") if history.has_open_end() => Ok(()),
            HistoryEvent::Rejected("token_used") if history.plain_uses() > 0 => Ok(()),
            HistoryEvent::Rejected(code) if !history.has_run() && !self.has_duplicates => {
                Err(format!("no run began, but the request is rejected with {code}"))
            }
            HistoryEvent::Rejected(code) if !self.has_duplicates => Err(format!("rejected with {code} forever")),
            HistoryEvent::Ran(_) if self.is_held && history.effects() > 0 => {
                Err("a new request would run again: two effects".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of claims that a live process still has to write or release, if any.
    fn pending_claims(&self) -> Option<usize> {
        let alive = self.processes.iter().filter(|process| process.is_alive);
        let waiting: Vec<_> = alive.map(|process| process.guard.renewals().retrying()).collect();
        Some(waiting.into_iter().sum()).filter(|count| *count > 0)
    }

    /// Sends one request from a new caller, over a store without faults.
    fn check_once(&self) -> Result<HistoryEvent, String> {
        let guard = self.guard();
        let (key, policy, token) = (key(), self.policy.clone(), self.token.clone());
        let checking = async move { guard.check(&policy, &intent(&key, token.as_deref())).await };
        let verdict = at_once(checking).map_err(|error| error.to_string())?;
        let mut history = self.history.borrow_mut();
        Ok(match verdict {
            Verdict::Run(pass) => HistoryEvent::Ran(history.number(run_id(&pass))),
            Verdict::Replay(reply) => HistoryEvent::Replayed(history.number(run_of(&reply))),
            Verdict::Reject(rejection) => HistoryEvent::Rejected(rejection.code().as_str()),
        })
    }

    /// Returns the task of a caller that retries until it has a verdict.
    fn caller(&mut self, guard: &Guard, name: String) -> Task {
        let caller = Caller {
            guard: guard.clone(),
            attempt: self.has_attempts.then(|| Attempt::new(name).expect("visible characters")),
            released: None,
            policy: self.policy.clone(),
            token: self.token.clone(),
            is_held: self.is_held,
            has_duplicates: self.has_duplicates,
            dice: self.dice.fork(),
            history: Rc::clone(&self.history),
            wrong: Rc::clone(&self.wrong),
        };
        let is_plain = self.token.is_some() && self.dice.bool();
        if is_plain { Box::pin(caller.submit_plainly()) } else { Box::pin(caller.submit()) }
    }
}

struct Caller {
    guard: Guard,
    attempt: Option<Attempt>,
    /// The pass of its first run, which it has released.
    released: Option<SignedPass>,
    policy: Policy,
    token: Option<Rc<str>>,
    is_held: bool,
    has_duplicates: bool,
    dice: fastrand::Rng,
    history: Rc<RefCell<History>>,
    wrong: Rc<RefCell<Option<String>>>,
}

impl Caller {
    async fn submit(mut self) {
        let key = key();
        let mut is_certain = true;
        for _ in 0..TRIES {
            self.record(HistoryEvent::Requested);
            let (attempt, token) = (self.attempt.clone(), self.token.clone());
            let intent = match &attempt {
                Some(attempt) => intent(&key, token.as_deref()).attempt(attempt),
                None => intent(&key, token.as_deref()),
            };
            let checked = self.guard.check(&self.policy, &intent).await;
            is_certain &= checked.is_ok() || attempt.is_none();
            match checked {
                Ok(Verdict::Run(pass)) if attempt.is_some() => {
                    is_certain = true;
                    if self.work_elsewhere(pass).await {
                        return;
                    }
                }
                Ok(Verdict::Run(pass)) => return self.work(pass).await,
                Ok(Verdict::Replay(reply)) => {
                    let run = self.history.borrow_mut().number(run_of(&reply));
                    return self.record(HistoryEvent::Replayed(run));
                }
                Ok(Verdict::Reject(rejection)) => {
                    let checked =
                        self.history.borrow().check_rejection(rejection.code(), self.is_held, self.has_duplicates);
                    if let Err(reason) = checked {
                        *self.wrong.borrow_mut() = Some(reason);
                    }
                    self.record(HistoryEvent::Rejected(rejection.code().as_str()));
                }
                Err(StoreError::Unknown(_)) => self.record(HistoryEvent::Unknown),
                Err(StoreError::NotExecuted(_)) => self.record(HistoryEvent::NotExecuted),
            }
            self.wait().await;
        }
        if !is_certain {
            self.record(HistoryEvent::GaveUp);
        }
    }

    /// Sends one request on a plain route, without retries after a lost reply: the token may be used.
    async fn submit_plainly(mut self) {
        self.record(HistoryEvent::RequestedPlain);
        let (key, token) = (key(), self.token.clone());
        let checked = self.guard.check(&Policy::token(), &intent(&key, token.as_deref())).await;
        match checked {
            Ok(Verdict::Run(pass)) => self.work(pass).await,
            Ok(Verdict::Replay(_)) => *self.wrong.borrow_mut() = Some("a plain token was replayed".to_owned()),
            Ok(Verdict::Reject(rejection)) => {
                if let Err(reason) = self.history.borrow().check_plain_rejection(rejection.code()) {
                    *self.wrong.borrow_mut() = Some(reason);
                }
                self.record(HistoryEvent::NotUsedPlain);
            }
            Err(StoreError::Unknown(_)) => {}
            Err(StoreError::NotExecuted(_)) => self.record(HistoryEvent::NotUsedPlain),
        }
    }

    /// Works like a backend with a signed pass. Returns false if the work took no effect and was released: then the caller retries, and
    /// repeats the release of the first run meanwhile.
    async fn work_elsewhere(&mut self, pass: Pass) -> bool {
        let id = run_id(&pass);
        let run = self.history.borrow_mut().number(id);
        self.record(HistoryEvent::Ran(run));
        let text = pass.into_signed().await.expect("the secret is known").expect("a claim has a signed pass");
        let pass = self.guard.open_pass(&text).await.expect("the secret is known").expect("the pass is valid");
        self.wait().await;
        let takes_effect = self.released.is_some() || self.dice.bool();
        if let Some(first) = self.released.take() {
            // The result does not matter.
            let _ = first.release().await;
            self.wait().await;
        }
        if takes_effect {
            self.record(HistoryEvent::Effect(run));
        }
        self.wait().await;
        for _ in 0..TRIES {
            let settled = match takes_effect {
                true => pass.complete(Some(reply_of(id))).await,
                false => pass.release().await,
            };
            let event = match settled {
                Ok(Settled::Final) => HistoryEvent::Final(run),
                Ok(Settled::Released) => HistoryEvent::Back(run),
                Ok(Settled::Lost | Settled::Rejected(_)) => HistoryEvent::Lost(run),
                Err(_) => continue,
            };
            let is_back = event == HistoryEvent::Back(run);
            self.record(event);
            self.released = is_back.then_some(pass);
            return !is_back;
        }
        self.record(HistoryEvent::Open(run));
        true
    }

    /// Works for a while, takes effect or not, and settles the pass or does not.
    async fn work(&mut self, pass: Pass) {
        let has_reply = pass.run_id().is_some();
        let id = pass.run_id().unwrap_or_else(RunId::new);
        let run = self.history.borrow_mut().number(id);
        self.record(HistoryEvent::Ran(run));
        self.wait().await;
        let (takes_effect, end) = (self.dice.u8(..4) > 0, self.dice.u8(..10));
        if takes_effect {
            self.record(HistoryEvent::Effect(run));
        }
        self.wait().await;
        let settled = match end {
            0 => {
                drop(pass);
                return self.record(HistoryEvent::Open(run));
            }
            1 => {
                // The outcome is unknown from now on, even if this future is never polled again.
                self.record(HistoryEvent::Open(run));
                let _ = pass.unknown().await;
                return;
            }
            _ if takes_effect => pass.complete(Some(reply_of(id))).await,
            _ => pass.release().await,
        };
        match settled {
            Ok(Settled::Final) if has_reply => self.record(HistoryEvent::Final(run)),
            // A plain token has no record any more.
            Ok(Settled::Final) => {}
            Ok(Settled::Lost | Settled::Rejected(_)) => self.record(HistoryEvent::Lost(run)),
            Ok(Settled::Released) => self.record(HistoryEvent::Back(run)),
            Err(_) => {}
        }
    }

    async fn wait(&mut self) {
        let times = self.dice.u8(..6);
        super::pause(times).await;
    }

    fn record(&self, event: HistoryEvent) {
        self.history.borrow_mut().record(event);
    }
}

fn key() -> Key {
    Key::new("the one submission").unwrap()
}

fn intent<'a>(key: &'a Key, token: Option<&'a str>) -> Intent<'a> {
    let intent = Intent::new("pay", Subject::named("alice")).fingerprint(Fingerprint::of_bytes(b"the same"));
    match token {
        Some(token) => intent.credential(token),
        None => intent.key(key),
    }
}

/// Builds the guard of one process. It has a secret, so that it does not read one from the store.
fn guard(store: Arc<impl Store>, clock: &ManualClock) -> Guard {
    let builder = Guard::builder(store).clock(clock.into()).by_hand();
    builder.secret(Secret::new("a secret that all processes have").expect("a secret that is long enough")).build()
}

/// Issues a token over a store without faults. It expires after the end of any schedule.
fn issue(memory: &Arc<Memory>, clock: &ManualClock) -> Rc<str> {
    let guard = guard(Arc::clone(memory), clock);
    let issued = at_once(async move { guard.issue(Duration::from_secs(86_400), Binding::none()).await });
    issued.expect("a memory store has room").as_str().into()
}

/// Polls a future to its end, over a store that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

fn run_id(pass: &Pass) -> RunId {
    pass.run_id().expect("a claim has a run")
}

/// Returns a reply that names its run.
fn reply_of(run: RunId) -> Reply {
    Reply::new(200, run.as_bytes().to_vec())
}

fn run_of(reply: &Reply) -> RunId {
    RunId::from_bytes(reply.body()[..].try_into().expect("every reply here names its run"))
}

/// Returns a claim that no caller of the schedule made.
pub(super) fn foreign_claim() -> Vec<u8> {
    ClaimRecord {
        run: RunId::new(),
        attempt: None,
        fingerprint: None,
        asker: None,
        started_at: 0,
        lease: 1_000,
        heartbeat: None,
    }
    .encode()
}
