//! Tokens kept in stock, so that a submission does not have to wait for one.
//!
//! However many ask at the same moment, one fetch is under way. It belongs to nobody: whoever asked first may go away, and
//! the others still get theirs.

mod error;
mod source;
mod stock;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

pub(crate) use self::error::NoToken;
use self::source::Fetched;
pub(crate) use self::source::{Binding, Source};
use self::stock::Stock;
use crate::retry_decision::Wait;
use crate::retry_limits::Limits;
use crate::token::Token;

/// How long a failed refill that nobody waited for is left alone.
const QUIET: Duration = Duration::from_secs(1);
/// How many the service gives at once at most.
const MOST: u32 = 100;

type Waiter = oneshot::Sender<Result<Token, NoToken>>;

/// The tokens of one kind from one endpoint.
pub(crate) struct Pool {
    source: Source,
    limits: Limits,
    /// The most that are kept.
    size: u32,
    state: Mutex<State>,
    /// Told whenever a fetch has ended.
    ended: Notify,
}

#[derive(Default)]
struct State {
    stock: Stock,
    waiting: VecDeque<Waiter>,
    is_fetching: bool,
    /// How many should be in stock. It grows when somebody had to wait.
    aim: u32,
    /// How many may be asked for at once for now, after the server has said that it was too many.
    most: Option<u32>,
    /// The same for good: so many at once are never given.
    ceiling: Option<u32>,
    quiet_until: Option<Instant>,
    /// Why the last fetch ended, unless it ended well.
    failure: Option<NoToken>,
}

impl Pool {
    pub(crate) fn new(source: Source, size: u32, limits: Limits) -> Arc<Self> {
        let state = Mutex::new(State { aim: 1, ..State::default() });
        Arc::new(Self { source, limits, size: size.max(1), state, ended: Notify::new() })
    }

    /// A token, from stock if there is one.
    ///
    /// # Errors
    /// If none can be had.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Token, NoToken> {
        loop {
            let receiver = {
                let mut state = self.state();
                let now = Instant::now();
                if let Some(token) = state.stock.take(now) {
                    self.refill(&mut state, now);
                    return Ok(token);
                }
                let (sender, receiver) = oneshot::channel();
                state.waiting.push_back(sender);
                state.aim = (state.aim * 2).min(self.size);
                self.begin(&mut state);
                receiver
            };
            // Nobody answers if the runtime that fetched has ended: then it is fetched on this one.
            if let Ok(token) = receiver.await {
                return token;
            }
        }
    }

    /// Has this many in stock, as far as the pool's size allows.
    ///
    /// # Errors
    /// If none can be had.
    pub(crate) async fn warm_up(self: &Arc<Self>, count: u32) -> Result<(), NoToken> {
        loop {
            let ended = self.ended.notified();
            {
                let mut state = self.state();
                state.aim = state.aim.max(count.clamp(1, self.size));
                if state.stock.fresh(Instant::now()) >= state.aim as usize {
                    return Ok(());
                }
                self.begin(&mut state);
            }
            ended.await;
            let state = self.state();
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            if !state.is_fetching && state.stock.fresh(Instant::now()) == 0 {
                // They do not live long enough to be kept.
                return Ok(());
            }
        }
    }

    /// Takes in a token that came with an answer.
    pub(crate) fn give(&self, token: Token) {
        let mut state = self.state();
        if state.stock.fresh(Instant::now()) < self.size as usize {
            state.stock.put_unasked(token, Instant::now());
        }
    }

    /// Forgets what is in stock.
    pub(crate) fn clear(&self) {
        self.state().stock.clear();
    }

    /// Whether it holds nothing and nobody waits for anything.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        !state.is_fetching && state.waiting.is_empty() && state.stock.fresh(Instant::now()) == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to fetch if the stock runs low, unless that has just failed.
    fn refill(self: &Arc<Self>, state: &mut State, now: Instant) {
        let is_low = state.stock.fresh(now) < state.aim.div_ceil(2) as usize;
        if is_low && state.quiet_until.is_none_or(|until| until <= now) {
            self.begin(state);
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State) {
        if !state.is_fetching {
            state.is_fetching = true;
            tokio::spawn(fetch(Fetching { pool: Arc::clone(self), is_over: false }));
        }
    }
}

/// A fetch that is under way. If it is dropped before it is over, with the runtime it ran on, the next who asks begins another.
struct Fetching {
    pool: Arc<Pool>,
    is_over: bool,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.pool.state();
            state.is_fetching = false;
            state.waiting.clear();
        }
        self.pool.ended.notify_waiters();
    }
}

/// Fetches until nobody waits and the stock is full, or until it fails.
async fn fetch(mut fetching: Fetching) {
    let pool = Arc::clone(&fetching.pool);
    let mut failures = 0;
    let mut had = None;
    while let Some((count, fresh)) = wanted(&pool, had) {
        had = Some(fresh);
        match pool.source.fetch(count, |tokens| hand_out(&pool, tokens)).await {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                let wait = may_wait(&pool, &error, count, failures);
                tracing::debug!(count, failures, waits = wait.is_some(), "no token: {}", error.says);
                let Some(wait) = wait else {
                    fail(&pool, &error);
                    break;
                };
                let most = Some((count / 2).max(1));
                match is_too_many(&error, count) {
                    true => pool.state().ceiling = most,
                    false => pool.state().most = most,
                }
                sleep(wait.drawn(fastrand::f64())).await;
            }
        }
    }
    // Under the lock it is already: another may have begun since.
    fetching.is_over = true;
}

/// How many to ask for, and how many there are. `None`, and no longer fetching, if that is none, or if nobody waits and it did
/// not get more since there were `had`: tokens that are too old as soon as they come are not worth having in stock.
fn wanted(pool: &Pool, had: Option<usize>) -> Option<(u32, usize)> {
    let mut state = pool.state();
    state.waiting.retain(|waiter| !waiter.is_closed());
    let fresh = state.stock.fresh(Instant::now());
    let count = (state.aim as usize + state.waiting.len()).saturating_sub(fresh) as u32;
    let is_in_vain = state.waiting.is_empty() && had.is_some_and(|had| fresh <= had);
    if count == 0 || is_in_vain {
        state.is_fetching = false;
        return None;
    }
    let most = [state.most, state.ceiling].into_iter().flatten().min();
    Some((count.min(most.unwrap_or(MOST)), fresh))
}

/// Gives tokens to whoever waits, the others to the stock.
fn hand_out(pool: &Pool, tokens: Vec<Fetched>) {
    let mut state = pool.state();
    (state.most, state.quiet_until, state.failure) = (None, None, None);
    'tokens: for Fetched { token, asked, life } in tokens {
        let mut token = token;
        while let Some(waiter) = state.waiting.pop_front() {
            match waiter.send(Ok(token)) {
                Ok(()) => continue 'tokens,
                // It has gone away meanwhile.
                Err(Ok(back)) => token = back,
                Err(Err(_)) => continue 'tokens,
            }
        }
        state.stock.put(token, asked, life);
    }
}

/// Whether the server never gives so many at once.
fn is_too_many(error: &NoToken, count: u32) -> bool {
    let code = error.refusal.as_ref().map(|refusal| refusal.problem.code);
    count > 1 && code == Some(Code::BadRequest)
}

/// How long to wait before it is tried again, if somebody waits and it may help.
fn may_wait(pool: &Pool, error: &NoToken, count: u32, failures: u32) -> Option<Wait> {
    if is_too_many(error, count) {
        return Some(Wait { at_least: Duration::ZERO, spread: Duration::ZERO });
    }
    let after = error.retry_after();
    let in_time = after.is_none_or(|after| after < pool.limits.deadline);
    let may = error.is_passing && in_time && failures < pool.limits.tries && !pool.state().waiting.is_empty();
    may.then(|| Wait::before(failures, after, &pool.limits))
}

fn fail(pool: &Pool, error: &NoToken) {
    let mut state = pool.state();
    let after = error.retry_after().unwrap_or(QUIET);
    state.quiet_until = Some(Instant::now() + after.min(pool.limits.deadline));
    (state.is_fetching, state.failure) = (false, Some(error.clone()));
    for waiter in state.waiting.drain(..) {
        // Whoever has gone away does not need to know.
        let _ = waiter.send(Err(error.clone()));
    }
}
