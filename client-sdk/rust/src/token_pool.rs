//! The token pool: tokens fetched ahead of time, so that a submission does not wait for one.
//!
//! At most one fetch per pool is in flight. It runs in its own task: cancelling a submission does not cancel the fetch for the others.

mod error;
mod source;
mod stock;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use self::error::TokenError;
use self::source::FreshToken;
pub(crate) use self::source::{TokenBinding, TokenSource};
use self::stock::TokenStock;
use crate::backoff::Backoff;
use crate::retry_limits::RetryLimits;
use crate::token::Token;

/// Pause after a failed refill, unless a submission waits for a token.
const REFILL_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of tokens that the service issues in one batch.
const MAX_BATCH: u32 = 100;

type Waiter = oneshot::Sender<Result<Token, TokenError>>;

/// The tokens for one binding and identity from one endpoint.
pub(crate) struct TokenPool {
    source: TokenSource,
    limits: RetryLimits,
    /// Maximum number of tokens in stock.
    size: u32,
    state: Mutex<PoolState>,
    /// Notified whenever a fetch has ended.
    fetch_ended: Notify,
}

#[derive(Default)]
struct PoolState {
    stock: TokenStock,
    waiting: VecDeque<Waiter>,
    is_fetching: bool,
    /// Target number of tokens in stock. It doubles when a submission had to wait.
    target: u32,
    /// Temporary maximum batch size after a failed fetch.
    batch_limit: Option<u32>,
    /// Permanent maximum batch size: the server rejects larger batches.
    max_batch: Option<u32>,
    paused_until: Option<Instant>,
    /// The error of the last request for tokens, if it failed.
    failure: Option<TokenError>,
}

impl TokenPool {
    pub(crate) fn new(source: TokenSource, size: u32, limits: RetryLimits) -> Arc<Self> {
        let state = Mutex::new(PoolState { target: 1, ..PoolState::default() });
        Arc::new(Self { source, limits, size: size.max(1), state, fetch_ended: Notify::new() })
    }

    /// Takes a token from stock, if there is one.
    pub(crate) fn take_from_stock(self: &Arc<Self>, now: Instant) -> Option<Token> {
        self.take_from(&mut self.state(), now)
    }

    /// Takes a token from stock, or waits for one. While the server refuses connections, it waits until `limit` has passed.
    ///
    /// # Errors
    /// If no token can be fetched within `limit`.
    pub(crate) async fn take(self: &Arc<Self>, limit: Duration) -> Result<Token, TokenError> {
        let token = timeout(limit, self.wait_for_token()).await;
        token.unwrap_or_else(|_| Err(error::too_late(self.state().failure.clone())))
    }

    async fn wait_for_token(self: &Arc<Self>) -> Result<Token, TokenError> {
        loop {
            let receiver = {
                let mut state = self.state();
                if let Some(token) = self.take_from(&mut state, Instant::now()) {
                    return Ok(token);
                }
                let (sender, receiver) = oneshot::channel();
                state.waiting.push_back(sender);
                state.target = (state.target * 2).min(self.size);
                self.start_fetch(&mut state);
                receiver
            };
            // If the runtime of the fetch was shut down, this runtime fetches the token.
            if let Ok(token) = receiver.await {
                return token;
            }
        }
    }

    /// Fetches until `count` tokens are in stock, limited to the size of the pool.
    ///
    /// # Errors
    /// If no token can be fetched.
    pub(crate) async fn warm_up(self: &Arc<Self>, count: u32) -> Result<(), TokenError> {
        loop {
            let ended = self.fetch_ended.notified();
            {
                let mut state = self.state();
                state.target = state.target.max(count.clamp(1, self.size));
                if state.stock.fresh(Instant::now()) >= state.target as usize {
                    return Ok(());
                }
                self.start_fetch(&mut state);
            }
            ended.await;
            let state = self.state();
            if let Some(failure) = state.failure.clone() {
                return Err(failure);
            }
            if !state.is_fetching && state.stock.fresh(Instant::now()) == 0 {
                // The lifetime of these tokens is too short to store them.
                return Ok(());
            }
        }
    }

    /// Adds a token that came with a response.
    pub(crate) fn add(&self, token: Token) {
        let mut state = self.state();
        if state.stock.fresh(Instant::now()) < self.size as usize {
            state.stock.insert_unrequested(token, Instant::now());
        }
    }

    /// Discards the tokens in stock.
    pub(crate) fn clear(&self) {
        self.state().stock.clear();
    }

    /// True if no token is in stock and no submission waits.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        !state.is_fetching && state.waiting.is_empty() && state.stock.fresh(Instant::now()) == 0
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_from(self: &Arc<Self>, state: &mut PoolState, now: Instant) -> Option<Token> {
        let token = state.stock.take(now)?;
        self.refill(state, now);
        Some(token)
    }

    /// Starts a fetch if the stock is low, unless one has just failed.
    fn refill(self: &Arc<Self>, state: &mut PoolState, now: Instant) {
        let is_low = state.stock.fresh(now) < state.target.div_ceil(2) as usize;
        if is_low && state.paused_until.is_none_or(|until| until <= now) {
            self.start_fetch(state);
        }
    }

    fn start_fetch(self: &Arc<Self>, state: &mut PoolState) {
        if !state.is_fetching {
            (state.is_fetching, state.failure) = (true, None);
            tokio::spawn(fetch(FetchGuard { pool: Arc::clone(self), is_finished: false }));
        }
    }
}

/// Marks a fetch as in flight. If its runtime shuts down and drops it, the next submission starts another fetch.
struct FetchGuard {
    pool: Arc<TokenPool>,
    is_finished: bool,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        if !self.is_finished {
            let mut state = self.pool.state();
            state.is_fetching = false;
            state.waiting.clear();
        }
        self.pool.fetch_ended.notify_waiters();
    }
}

/// Fetches until no submission waits and the stock is full, or until a fetch fails.
async fn fetch(mut guard: FetchGuard) {
    let pool = Arc::clone(&guard.pool);
    let (mut failures, mut refusals) = (0, 0);
    let mut previous = None;
    while let Some((count, fresh)) = next_batch(&pool, previous) {
        previous = Some(fresh);
        match pool.source.fetch(count, |tokens| hand_out(&pool, tokens)).await {
            Ok(()) => (failures, refusals) = (0, 0),
            Err(error) => {
                match error.is_refused {
                    true => refusals += 1,
                    false => failures += 1,
                }
                let backoff = retry_backoff(&pool, &error, count, failures, refusals);
                tracing::debug!(count, failures, refusals, retries = backoff.is_some(), "no token: {}", error.message);
                let Some(backoff) = backoff else {
                    fail(&pool, &error);
                    break;
                };
                prepare_retry(&pool, error, count);
                sleep(backoff.delay(fastrand::f64())).await;
            }
        }
    }
    // `next_batch` and `fail` have cleared `is_fetching` under the lock: another fetch may have started since.
    guard.is_finished = true;
}

/// Returns the size of the next batch and the number of fresh tokens. Clears `is_fetching` and returns `None` if no token is needed, or if
/// no submission waits and the stock has not grown since it was `previous`: tokens that are stale on arrival are not worth fetching.
fn next_batch(pool: &TokenPool, previous: Option<usize>) -> Option<(u32, usize)> {
    let mut state = pool.state();
    state.waiting.retain(|waiter| !waiter.is_closed());
    let fresh = state.stock.fresh(Instant::now());
    let count = (state.target as usize + state.waiting.len()).saturating_sub(fresh) as u32;
    let is_futile = state.waiting.is_empty() && previous.is_some_and(|previous| fresh <= previous);
    if count == 0 || is_futile {
        state.is_fetching = false;
        return None;
    }
    let limit = [state.batch_limit, state.max_batch].into_iter().flatten().min();
    Some((count.min(limit.unwrap_or(MAX_BATCH)), fresh))
}

/// Hands tokens to waiting submissions, and puts the others into stock.
fn hand_out(pool: &TokenPool, tokens: Vec<FreshToken>) {
    let mut state = pool.state();
    (state.batch_limit, state.paused_until, state.failure) = (None, None, None);
    'tokens: for FreshToken { token, requested, lifetime } in tokens {
        let mut token = token;
        while let Some(waiter) = state.waiting.pop_front() {
            match waiter.send(Ok(token)) {
                Ok(()) => continue 'tokens,
                // That submission was cancelled.
                Err(Ok(back)) => token = back,
                Err(Err(_)) => continue 'tokens,
            }
        }
        state.stock.insert(token, requested, lifetime);
    }
}

/// Stores the error for submissions whose deadline passes meanwhile, and halves the next batch, unless the connection was refused.
fn prepare_retry(pool: &TokenPool, error: TokenError, count: u32) {
    let (mut state, halved) = (pool.state(), Some((count / 2).max(1)));
    if is_batch_too_large(&error, count) {
        state.max_batch = halved;
    } else if !error.is_refused {
        state.batch_limit = halved;
    }
    state.failure = Some(error);
}

/// Returns true if the server rejects batches of this size.
fn is_batch_too_large(error: &TokenError, count: u32) -> bool {
    let code = error.rejection.as_ref().map(|rejection| rejection.problem.code);
    count > 1 && code == Some(Code::BadRequest)
}

/// Returns the backoff before the next fetch, if a submission waits and a retry may succeed. A refused connection is retried while a
/// submission waits, which is until its deadline.
fn retry_backoff(pool: &TokenPool, error: &TokenError, count: u32, failures: u32, refusals: u32) -> Option<Backoff> {
    if error.is_refused {
        let is_awaited = pool.limits.attempts > 1 && !pool.state().waiting.is_empty();
        return is_awaited.then(|| Backoff::after_refusals(refusals, &pool.limits));
    }
    if is_batch_too_large(error, count) {
        return Some(Backoff { minimum: Duration::ZERO, jitter: Duration::ZERO });
    }
    let retry_after = error.retry_after();
    let in_time = retry_after.is_none_or(|after| after < pool.limits.deadline);
    let may_retry =
        error.is_transient && in_time && failures < pool.limits.attempts && !pool.state().waiting.is_empty();
    may_retry.then(|| Backoff::after(failures, retry_after, &pool.limits))
}

fn fail(pool: &TokenPool, error: &TokenError) {
    let mut state = pool.state();
    let retry_after = error.retry_after().unwrap_or(REFILL_PAUSE);
    state.paused_until = Some(Instant::now() + retry_after.min(pool.limits.deadline));
    (state.is_fetching, state.failure) = (false, Some(error.clone()));
    for waiter in state.waiting.drain(..) {
        // The submission may have been cancelled.
        let _ = waiter.send(Err(error.clone()));
    }
}
