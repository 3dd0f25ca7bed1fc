//! One schedule: some processes, their callers, a store and a clock, all moved by one pair of dice.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::fault_store::{FaultStore, Flaw};
use super::history::{History, HistoryEvent};
use crate::attempt::Attempt;
use crate::clock::ManualClock;
use crate::fingerprint::Fingerprint;
use crate::guard::Guard;
use crate::intent::{Binding, Intent, Subject};
use crate::key::Key;
use crate::pass::Pass;
use crate::pass::signed::SignedPass;
use crate::policy::{KeyRules, Policy, TokenRules};
use crate::record::ClaimRecord;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::store::{Memory, Store, StoreError};
use crate::token::secret::Secret;
use crate::verdict::Verdict;

pub(super) const LEASE: Duration = Duration::from_secs(1);
/// Longer than any schedule: what is kept does not lapse in it.
const RETAIN: Duration = Duration::from_secs(100_000);
/// A schedule ends here at the latest.
const STEPS: usize = 400;
/// How often a caller asks.
const TRIES: usize = 4;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One schedule.
pub(super) struct World {
    dice: fastrand::Rng,
    clock: ManualClock,
    store: Arc<FaultStore>,
    processes: Vec<Process>,
    policy: Policy,
    /// The token that they ask for, on routes that remember and on others; `None` if they ask under a key.
    token: Option<Rc<str>>,
    is_held: bool,
    /// Time passes in leaps.
    has_time: bool,
    has_duplicates: bool,
    /// Callers name their attempts.
    has_attempts: bool,
    history: Rc<RefCell<History>>,
    /// What a caller has found wrong.
    wrong: Rc<RefCell<Option<String>>>,
}

/// A process with its own guard, and what goes on in it.
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
        // A plain token that is given back twice is good twice: the command is sent once.
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

    /// A guard of one process.
    fn guard(&self) -> Guard {
        guard(Arc::clone(&self.store), &self.clock)
    }

    /// Everything that was told, for comparing two schedules.
    pub(super) fn told(mut self) -> Vec<HistoryEvent> {
        let _ = self.play();
        self.history.take().told
    }

    /// Plays it to its end.
    ///
    /// # Errors
    /// If a promise was broken.
    pub(super) fn run(mut self) -> Result<(), String> {
        let played = self.play().and_then(|()| self.look_back());
        played.map_err(|reason| {
            format!(
                "{reason} (held: {}, attempts: {}, token: {}, duplicates: {}) {:?}",
                self.is_held,
                self.has_attempts,
                self.token.is_some(),
                self.has_duplicates,
                self.history.borrow().told
            )
        })
    }

    fn play(&mut self) -> Result<(), String> {
        // What is drawn elsewhere, for the jitter of a backoff.
        fastrand::seed(self.dice.u64(..));
        for _ in 0..STEPS {
            self.step();
            self.check()?;
        }
        Ok(())
    }

    /// Two effects are excluded where no claim can lapse, or where a claim that lapses is held.
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

    /// Ends a process in the middle of whatever it was doing.
    fn kill(&mut self, at: usize) {
        let process = &mut self.processes[at];
        process.is_alive = false;
        process.tasks.clear();
        self.history.borrow_mut().tell(HistoryEvent::Killed);
    }

    /// Begins one of the steps that are due beside the callers.
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

    /// What is on record once everything has arrived and every process that lives has done what it had to.
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
        if let Some(count) = self.waits_still() {
            return Err(format!("{count} claims still wait to be tried again"));
        }
        self.processes.iter_mut().for_each(|process| process.tasks.clear());
        self.clock.advance(LEASE * 2);
        let told = self.ask_once()?;
        let history = self.history.borrow();
        match told {
            _ if let [done] = history.finals()[..]
                && told != HistoryEvent::Replayed(done) =>
            {
                Err(format!("run {done} is not on record: {told:?}"))
            }
            HistoryEvent::Rejected("outcome_unknown") if history.has_open_end() => Ok(()),
            HistoryEvent::Rejected("token_used") if history.plain_uses() > 0 => Ok(()),
            HistoryEvent::Rejected(code) if !history.has_run() && !self.has_duplicates => {
                Err(format!("nothing ever ran, and all the same it is told {code}"))
            }
            HistoryEvent::Rejected(code) if !self.has_duplicates => Err(format!("{code} is told for ever")),
            HistoryEvent::Ran(_) if self.is_held && history.effects() > 0 => {
                Err("it would run again: two effects".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// How many claims wait to be written or taken back in a process that lives, if any do.
    fn waits_still(&self) -> Option<usize> {
        let alive = self.processes.iter().filter(|process| process.is_alive);
        let waiting: Vec<_> = alive.map(|process| process.guard.renewals().retrying()).collect();
        Some(waiting.into_iter().sum()).filter(|count| *count > 0)
    }

    /// Asks as somebody new, over a store that works again.
    fn ask_once(&self) -> Result<HistoryEvent, String> {
        let guard = self.guard();
        let (key, policy, token) = (key(), self.policy.clone(), self.token.clone());
        let asking = async move { guard.check(&policy, &intent(&key, token.as_deref())).await };
        let verdict = at_once(asking).map_err(|error| error.to_string())?;
        let mut history = self.history.borrow_mut();
        Ok(match verdict {
            Verdict::Run(pass) => HistoryEvent::Ran(history.number(run_id(&pass))),
            Verdict::Replay(reply) => HistoryEvent::Replayed(history.number(run_of(&reply))),
            Verdict::Reject(rejection) => HistoryEvent::Rejected(rejection.code().as_str()),
        })
    }

    /// Somebody who asks until there is an answer.
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
        if is_plain { Box::pin(caller.ask_plainly()) } else { Box::pin(caller.ask()) }
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
    async fn ask(mut self) {
        let key = key();
        let mut is_certain = true;
        for _ in 0..TRIES {
            self.tell(HistoryEvent::Asked);
            let (attempt, token) = (self.attempt.clone(), self.token.clone());
            let asked = match &attempt {
                Some(attempt) => intent(&key, token.as_deref()).attempt(attempt),
                None => intent(&key, token.as_deref()),
            };
            let checked = self.guard.check(&self.policy, &asked).await;
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
                    return self.tell(HistoryEvent::Replayed(run));
                }
                Ok(Verdict::Reject(rejection)) => {
                    let checked =
                        self.history.borrow().check_refusal(rejection.code(), self.is_held, self.has_duplicates);
                    if let Err(reason) = checked {
                        *self.wrong.borrow_mut() = Some(reason);
                    }
                    self.tell(HistoryEvent::Rejected(rejection.code().as_str()));
                }
                Err(StoreError::Unknown(_)) => self.tell(HistoryEvent::Unknown),
                Err(StoreError::NotExecuted(_)) => self.tell(HistoryEvent::NotExecuted),
            }
            self.wait().await;
        }
        if !is_certain {
            self.tell(HistoryEvent::GaveUp);
        }
    }

    /// Asks once on a route that remembers nothing, where a lost answer is the end: the token may be used.
    async fn ask_plainly(mut self) {
        self.tell(HistoryEvent::AskedPlain);
        let (key, token) = (key(), self.token.clone());
        let checked = self.guard.check(&Policy::token(), &intent(&key, token.as_deref())).await;
        match checked {
            Ok(Verdict::Run(pass)) => self.work(pass).await,
            Ok(Verdict::Replay(_)) => *self.wrong.borrow_mut() = Some("a plain token was replayed".to_owned()),
            Ok(Verdict::Reject(rejection)) => {
                if let Err(reason) = self.history.borrow().check_plain_refusal(rejection.code()) {
                    *self.wrong.borrow_mut() = Some(reason);
                }
                self.tell(HistoryEvent::NotUsedPlain);
            }
            Err(StoreError::Unknown(_)) => {}
            Err(StoreError::NotExecuted(_)) => self.tell(HistoryEvent::NotUsedPlain),
        }
    }

    /// Works as a backend does that was given its pass in writing, and says whether that is all. It is not, if the work took no
    /// effect: then it may be done again, and the release of the first run is repeated meanwhile.
    async fn work_elsewhere(&mut self, pass: Pass) -> bool {
        let id = run_id(&pass);
        let run = self.history.borrow_mut().number(id);
        self.tell(HistoryEvent::Ran(run));
        let text = pass.into_signed().await.expect("the secret is known").expect("it is a claim");
        let pass = self.guard.open_pass(&text).await.expect("the secret is known").expect("it is ours");
        self.wait().await;
        let takes_effect = self.released.is_some() || self.dice.bool();
        if let Some(first) = self.released.take() {
            // Whether that is answered is of no account.
            let _ = first.release().await;
            self.wait().await;
        }
        if takes_effect {
            self.tell(HistoryEvent::Effect(run));
        }
        self.wait().await;
        for _ in 0..TRIES {
            let settled = match takes_effect {
                true => pass.complete(Some(reply_of(id))).await,
                false => pass.release().await,
            };
            let told = match settled {
                Ok(Settled::Final) => HistoryEvent::Final(run),
                Ok(Settled::Released) => HistoryEvent::Back(run),
                Ok(Settled::Lost | Settled::Rejected(_)) => HistoryEvent::Lost(run),
                Err(_) => continue,
            };
            let is_back = told == HistoryEvent::Back(run);
            self.tell(told);
            self.released = is_back.then_some(pass);
            return !is_back;
        }
        self.tell(HistoryEvent::Open(run));
        true
    }

    /// Works for a while, takes effect or not, and says how it ended or does not.
    async fn work(&mut self, pass: Pass) {
        let has_reply = pass.run_id().is_some();
        let id = pass.run_id().unwrap_or_else(RunId::new);
        let run = self.history.borrow_mut().number(id);
        self.tell(HistoryEvent::Ran(run));
        self.wait().await;
        let (takes_effect, end) = (self.dice.u8(..4) > 0, self.dice.u8(..10));
        if takes_effect {
            self.tell(HistoryEvent::Effect(run));
        }
        self.wait().await;
        let settled = match end {
            0 => {
                drop(pass);
                return self.tell(HistoryEvent::Open(run));
            }
            1 => {
                // How it ends is open from now on, also if this is never polled again.
                self.tell(HistoryEvent::Open(run));
                let _ = pass.unknown().await;
                return;
            }
            _ if takes_effect => pass.complete(Some(reply_of(id))).await,
            _ => pass.release().await,
        };
        match settled {
            Ok(Settled::Final) if has_reply => self.tell(HistoryEvent::Final(run)),
            // A plain token is gone, and its record with it.
            Ok(Settled::Final) => {}
            Ok(Settled::Lost | Settled::Rejected(_)) => self.tell(HistoryEvent::Lost(run)),
            Ok(Settled::Released) => self.tell(HistoryEvent::Back(run)),
            Err(_) => {}
        }
    }

    async fn wait(&mut self) {
        let times = self.dice.u8(..6);
        super::pause(times).await;
    }

    fn tell(&self, told: HistoryEvent) {
        self.history.borrow_mut().tell(told);
    }
}

fn key() -> Key {
    Key::new("the one submission").unwrap()
}

fn intent<'a>(key: &'a Key, token: Option<&'a str>) -> Intent<'a> {
    let intent = Intent::new("pay", Subject::named("somebody")).fingerprint(Fingerprint::of_bytes(b"the same"));
    match token {
        Some(token) => intent.credential(token),
        None => intent.key(key),
    }
}

/// A guard of one process. The secret is given, since the store may not be asked for it here.
fn guard(store: Arc<impl Store>, clock: &ManualClock) -> Guard {
    let builder = Guard::builder(store).clock(clock.into()).by_hand();
    builder.secret(Secret::new("a secret that all processes have").expect("it is long enough")).build()
}

/// Issues a token over a store that works. It lives for longer than any schedule.
fn issue(memory: &Arc<Memory>, clock: &ManualClock) -> Rc<str> {
    let guard = guard(Arc::clone(memory), clock);
    let issued = at_once(async move { guard.issue(Duration::from_secs(86_400), Binding::none()).await });
    issued.expect("a memory has room").as_str().into()
}

/// Polls until it is done, over a store that does not wait for anything.
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

/// A reply that says whose it is.
fn reply_of(run: RunId) -> Reply {
    Reply::new(200, run.as_bytes().to_vec())
}

fn run_of(reply: &Reply) -> RunId {
    RunId::from_bytes(reply.body()[..].try_into().expect("every reply here names its run"))
}

/// A claim that is nobody's here.
pub(super) fn somebody_elses_claim() -> Vec<u8> {
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
