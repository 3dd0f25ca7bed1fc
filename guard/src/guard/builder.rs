//! Builds guards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::Problem;
use tokio::sync::watch;

use super::Guard;
use super::issue;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::language::Languages;
use crate::metrics::Metrics;
use crate::mode::{Mode, RolloutCounts};
use crate::open_claims::OpenClaims;
use crate::policy::SettingError;
use crate::renewal::RenewalQueue;
use crate::runtime;
use crate::shared_secret::{SharedSecrets, keep_sharing};
use crate::shutdown::Shutdown;
use crate::store::{OriginThread, Store, WatchedStore};
use crate::token::secret::Secret;
use crate::waiters::Waiters;
use crate::warning_limit::WarningLimit;

/// A builder of a [`Guard`] with your own settings.
#[must_use = "call `build` to create the guard"]
pub struct GuardBuilder {
    store: Arc<dyn Store>,
    secret: Option<Secret>,
    secret_previous: Option<Secret>,
    accepts_shared: bool,
    share_every: Duration,
    token_ttl: Duration,
    last_call: Duration,
    drain_limit: Duration,
    clock: Clock,
    problem_base: String,
    languages: Languages,
    waiters: usize,
    mode: Mode,
    by_hand: bool,
    origin_thread: Option<Arc<OriginThread>>,
}

impl GuardBuilder {
    pub(super) fn on(store: impl Store) -> Self {
        Self {
            origin_thread: OriginThread::of(&store),
            store: Arc::new(store),
            secret: None,
            secret_previous: None,
            accepts_shared: false,
            share_every: Duration::from_secs(1),
            token_ttl: Duration::from_secs(30 * 60),
            last_call: Duration::from_millis(250),
            drain_limit: Duration::from_secs(30),
            clock: Clock::system(),
            problem_base: Problem::BASE.to_owned(),
            languages: Languages::default(),
            waiters: 1_000,
            mode: Mode::Enforce,
            by_hand: false,
        }
    }

    /// Sets the signing secret. Default: guards on the same store generate one and share it through the store. A secret that you set is
    /// never written to the store.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Also accepts tokens and passes that were signed with this secret.
    ///
    /// To rotate the secret without rejecting a client, perform three rolling restarts:
    ///
    /// 1. `secret(old)` and `secret_previous(new)`: every process accepts tokens and passes signed with the new secret.
    /// 2. `secret(new)` and `secret_previous(old)`.
    /// 3. `secret(new)` alone, once the tokens and passes signed with the old secret have expired.
    ///
    /// Without the first step, a process that has not been restarted rejects tokens (`token_invalid`) and passes (400) of a restarted one.
    /// To switch between the shared secret and your own, use [`secret_previous_shared`](Self::secret_previous_shared) for the shared one.
    pub fn secret_previous(mut self, secret: Secret) -> Self {
        self.secret_previous = Some(secret);
        self
    }

    /// Also accepts tokens and passes that were signed with the secret that guards share through the store. Use it in the steps of
    /// [`secret_previous`](Self::secret_previous) in place of the old or the new secret:
    ///
    /// 1. From the shared secret to your own: `secret_previous(new)`; then `secret(new)` and `secret_previous_shared()`; then
    ///    `secret(new)`.
    /// 2. Back: `secret(old)` and `secret_previous_shared()`; then `secret_previous(old)`; then neither.
    ///
    /// While this is set, an attacker who can write to the store can make the guard accept the attacker's secret.
    pub fn secret_previous_shared(mut self) -> Self {
        self.accepts_shared = true;
        self
    }

    /// Sets the interval at which a guard reads the secrets that it shares with other guards through the store. Default: 1 second. If the
    /// store loses the signing secret and a new guard starts, guards may disagree on the secret for about this interval, at most twice as
    /// long.
    pub fn share_every(mut self, every: Duration) -> Self {
        self.share_every = every;
        self
    }

    /// Sets the default time to live of a token. Default: 30 minutes.
    ///
    /// # Errors
    /// If it is outside of [`Guard::TOKEN_TTL`].
    pub fn token_ttl(mut self, ttl: Duration) -> Result<Self, SettingError> {
        self.token_ttl = issue::valid(ttl)?;
        Ok(self)
    }

    /// Sets the grace period at the start of a graceful shutdown ([`Guard::shut_down`], `actix::serve`). Default: 250 milliseconds.
    /// Requests are served, and every response carries `Connection: close`, so that clients connect to another server. Behind a load
    /// balancer, make it longer than the interval of its health check.
    pub fn last_call(mut self, time: Duration) -> Self {
        self.last_call = time;
        self
    }

    /// Sets how long a graceful shutdown waits for runs in flight before it aborts them. Default: 30 seconds.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.drain_limit = limit;
        self
    }

    /// Sets the clock. Default: the system clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the base URL of the pages that explain problem codes, such as `https://example.com/problems/`.
    pub fn problem_base(mut self, base: impl Into<String>) -> Self {
        self.problem_base = base.into();
        if !self.problem_base.ends_with('/') {
            self.problem_base.push('/');
        }
        self
    }

    /// Sets the languages of rejections. Default: English or Simplified Chinese, by the `Accept-Language` header.
    ///
    /// ```
    /// use onceward::store::Memory;
    /// use onceward::{Guard, Language, Languages};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # let _entered = runtime.enter();
    /// let guard = Guard::builder(Memory::new()).languages(Languages::fixed(Language::simplified_chinese())).build();
    /// # let _ = guard;
    /// ```
    pub fn languages(mut self, languages: Languages) -> Self {
        self.languages = languages;
        self
    }

    /// Sets the maximum number of duplicates that wait for runs in flight, on routes that let them wait. Default: 1,000. The duplicates of
    /// one submission take at most a quarter of it. Further duplicates are rejected as `in_progress`.
    pub fn waiters(mut self, most: usize) -> Self {
        self.waiters = most;
        self
    }

    /// Sets the mode of [`run`](Guard::run), and the strictest mode that a route can have. Default: [`Mode::Enforce`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Starts no background task: the test performs every step.
    #[cfg(test)]
    pub(crate) fn by_hand(mut self) -> Self {
        self.by_hand = true;
        self
    }

    /// Builds the guard.
    #[must_use]
    pub fn build(self) -> Guard {
        let secrets = Arc::new(SharedSecrets::new(self.secret, self.secret_previous, self.accepts_shared));
        let (alive, gone) = watch::channel(());
        let store = Arc::new(WatchedStore::new(self.store, self.clock.clone()));
        if !self.by_hand && self.mode != Mode::Off {
            runtime::spawn(keep_sharing(Arc::clone(&secrets), Arc::clone(&store), self.share_every, gone.clone()));
        }
        let renewals = match self.by_hand {
            true => RenewalQueue::by_hand(self.clock.clone()),
            false => RenewalQueue::begin(self.clock.clone(), gone),
        };
        Guard(Arc::new(Engine {
            store,
            secrets,
            #[cfg(feature = "sql")]
            transactions: WarningLimit::new(self.clock.clone()),
            overdue_warnings: WarningLimit::new(self.clock.clone()),
            clock: self.clock,
            shutdown: Shutdown::default(),
            renewals,
            waiters: Waiters::new(self.waiters),
            open_claims: OpenClaims::default(),
            metrics: Metrics::new(),
            rollout: RolloutCounts::default(),
            mode: self.mode,
            token_ttl: self.token_ttl,
            last_call: self.last_call,
            drain_limit: self.drain_limit,
            problem_base: self.problem_base,
            languages: self.languages,
            origin_thread: self.origin_thread,
            _alive: alive,
        }))
    }
}

impl fmt::Debug for GuardBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBuilder").field("token_ttl", &self.token_ttl).finish_non_exhaustive()
    }
}
