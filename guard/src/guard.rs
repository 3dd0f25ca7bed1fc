//! The guard: issues tokens, and decides whether a submission runs.
//!
//! Every operation is a method of [`Guard`] that delegates to a submodule.

mod adapter;
mod builder;
mod check;
mod inspect;
mod issue;
mod release;
mod revoke;
mod run;
mod settle;
mod wait;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::metric;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

pub use self::builder::GuardBuilder;
pub use self::issue::IssueError;
pub use self::revoke::Revocation;
use self::settle::{Settlement, Target};
use crate::attempt::Attempt;
use crate::binding::Binding;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::failure::IntoFailure;
use crate::intent::Intent;
use crate::language::Languages;
use crate::mode::Mode;
use crate::pass::signed::{self, SignedPass};
use crate::policy::{KeyRules, Policy};
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::run::{RunError, RunOutcome};
use crate::run_id::RunId;
use crate::settled::Settled;
use crate::snapshot::{Snapshot, TokenInfo};
use crate::store::{Store, StoreError};
use crate::ticket::Ticket;
use crate::token::Token;
#[cfg(feature = "sql")]
use crate::transaction::{self, Dialect, TxHandle};
use crate::verdict::Verdict;

/// The allowed range of a token's time to live.
const TOKEN_TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

/// The guard of an application: issues tokens, and decides whether a submission runs. Cheap to clone; all clones share the same state.
#[derive(Clone)]
pub struct Guard(Arc<Engine>);

impl Guard {
    /// The allowed range of a token's time to live.
    pub const TOKEN_TTL: RangeInclusive<Duration> = TOKEN_TTL;

    /// Creates a guard on this store with default settings.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Returns a builder of a guard on this store.
    pub fn builder(store: impl Store) -> GuardBuilder {
        GuardBuilder::on(store)
    }

    /// Issues a token that expires after `ttl`.
    ///
    /// # Errors
    /// If `ttl` is outside of [`TOKEN_TTL`](Self::TOKEN_TTL), if the store did not write the token, or if it is unknown whether it did.
    /// This method never returns a token that is not stored.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a token that was stored for a dropped future expires unused.
    pub async fn issue(&self, ttl: Duration, bound: Binding<'_>) -> Result<Token, IssueError> {
        issue::issue(&self.0, ttl, &bound).await
    }

    /// Returns the time to live that a client requested, or the default if it requested none.
    ///
    /// # Errors
    /// If the requested time is not from one second to `longest`: the rejection for the client.
    pub fn ttl(&self, asked: Option<Duration>, longest: Duration) -> Result<Duration, Rejection> {
        issue::ttl(&self.0, asked, longest)
    }

    /// Decides whether a submission runs: run it, replay a stored response, or reject it.
    ///
    /// The verdict does not depend on the guard's [`mode`](Self::mode): the caller applies the mode. Once the signing secret is known, a
    /// token that is not valid for the intent is rejected without a store command.
    ///
    /// # Errors
    /// If the store failed. The submission must not run; [`rejection_after`](Self::rejection_after) returns the rejection for the client.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe** with a plain token: dropping this future may consume the token without a run. Spawn it as a separate task, or
    /// set an [attempt](Intent::attempt), so that the caller can check again. Under every other policy it is cancel safe: the background
    /// task revokes a claim that may have been written. A claim with an attempt stays, and a retry of the attempt continues it.
    pub async fn check(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        let verdict = self.decide(policy, intent).await;
        self.count_verdict(policy, &verdict, intent);
        verdict
    }

    /// Like [`check`](Self::check), but a duplicate of a run in flight waits for its reply, for at most `longest`.
    ///
    /// If the first run was not applied, the waiting duplicates are decided once more: one of them receives the verdict to run, and the
    /// others wait for that run. A waiter is rejected as `in_progress` if its timeout expires, if too many duplicates wait already, or if
    /// the second run was not applied either. A run whose outcome is unknown is never decided again. Under a key, only waiters in the
    /// process that released the key are decided again: waiters in other processes cannot distinguish a released key from an expired claim,
    /// and are rejected as `in_progress`.
    ///
    /// # Errors
    /// The same as for [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`check`](Self::check).
    pub async fn check_and_wait(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        longest: Duration,
    ) -> Result<Verdict, StoreError> {
        self.check_and_wait_until(policy, intent, tokio::time::sleep(longest)).await
    }

    /// Like [`check_and_wait`](Self::check_and_wait), but the duplicate waits until `enough` completes: a timeout, or a client that closes
    /// its connection. The future is polled only while the duplicate waits.
    ///
    /// # Errors
    /// The same as for [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`check`](Self::check): complete `enough` to end the wait, instead of dropping this future.
    pub async fn check_and_wait_until(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        enough: impl Future<Output = ()>,
    ) -> Result<Verdict, StoreError> {
        let verdict = match self.decide(policy, intent).await {
            Ok(Verdict::Reject(rejection)) => self.wait_if_in_progress(rejection, policy, intent, enough, |_| {}).await,
            verdict => verdict,
        };
        self.count_verdict(policy, &verdict, intent);
        verdict
    }

    /// Returns the rejection for the client if the store failed during a check. It does not contain the cause, which belongs in the
    /// operator's log.
    pub fn rejection_after(error: &StoreError, policy: &Policy, intent: &Intent<'_>) -> Rejection {
        check::rejection_after(error, policy, intent)
    }

    /// Returns whether the intent presents a token that this guard's secrets signed, that is valid for the intent, and that has not
    /// expired.
    ///
    /// Sends no store command, so it consumes nothing and does not know whether the token was used. Use it for routing and for early
    /// responses, never to decide whether to run.
    pub fn recognises(&self, policy: &Policy, intent: &Intent<'_>) -> bool {
        self.0.secrets.known().as_deref().is_some_and(|mint| check::present(&self.0, mint, policy, intent).is_ok())
    }

    /// Runs some work once per intent.
    ///
    /// Under a key or with a remembered token, a later caller with the same intent receives the stored result. A caller that arrives while
    /// the work is in flight is rejected, with the time after which it may retry.
    ///
    /// # When the work fails
    ///
    /// An `Err` counts like a response with status 500, unless it is a [`Failure`](crate::Failure) that states the effect:
    ///
    /// | the work ends with | token, interval, key | key with [at most once](crate::KeyRules::at_most_once) |
    /// |---|---|---|
    /// | `Err(error)`, `Err(Failure::Failed(error))` | not applied: the next caller runs it again | unknown: it does not run again before [`Guard::settle`], or before [`retain`](KeyRules::retain) has passed |
    /// | `Err(Failure::NotApplied(error))` | not applied | not applied: the next caller runs it again |
    /// | `Err(Failure::Unknown(error))`, a panic, a future that is dropped | unknown: a token stays used, a claim lasts until its lease expires | unknown |
    ///
    /// The caller receives [`RunError::Failed`] if the work was not applied, and [`RunError::Unknown`] if the outcome is unknown.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: dropping this future while the work runs makes the outcome unknown. Spawn it as a separate task where that may
    /// happen.
    ///
    /// # Examples
    ///
    /// ```
    /// use onceward::{Intent, Key, KeyRules, Policy, RunOutcome, Subject, testing};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let (guard, _clock) = testing::guard();
    /// let message = Key::of_parts(["billing", "4711"])?;
    /// let intent = Intent::new("send invoice", Subject::anonymous()).key(&message);
    /// let policy = Policy::key(KeyRules::retryable());
    ///
    /// let send = async || Ok::<_, std::io::Error>("sent".to_owned());
    /// assert_eq!(guard.run(&policy, &intent, send).await?, RunOutcome::Executed("sent".to_owned()));
    /// let again = async || unreachable!("it has run");
    /// assert_eq!(guard.run::<String, std::io::Error, _, _>(&policy, &intent, again).await?.into_value(), "sent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// Under *at most once*, the work returns `NotApplied` where it is certain that nothing took effect:
    ///
    /// ```
    /// use onceward::Failure::{self, NotApplied};
    /// use onceward::{Intent, Key, KeyRules, Policy, RunError, Subject, testing};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let (guard, _clock) = testing::guard();
    /// let message = Key::new("charge-4711")?;
    /// let intent = Intent::new("charge", Subject::named("alice")).key(&message);
    /// let policy = Policy::key(KeyRules::at_most_once());
    ///
    /// let closed = async || Err::<(), _>(NotApplied("the bank is closed"));
    /// let result = guard.run(&policy, &intent, closed).await;
    /// assert!(matches!(result, Err(RunError::Failed("the bank is closed"))));
    ///
    /// // `?` passes on every error that converts into the inner error.
    /// let lost = async || -> Result<(), Failure<Box<dyn std::error::Error>>> {
    ///     Err(std::io::Error::other("the response was lost"))?;
    ///     Ok(())
    /// };
    /// assert!(matches!(guard.run(&policy, &intent, lost).await, Err(RunError::Unknown(_))), "it may have been charged");
    /// let again = async || unreachable!("the outcome of the charge is unknown");
    /// let result = guard.run::<(), std::io::Error, _, _>(&policy, &intent, again).await;
    /// assert!(matches!(result, Err(RunError::Rejected(_))), "outcome_unknown, until it is settled");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// If the work did not run, failed, or has a stored result that cannot be read.
    pub async fn run<T, E, F, W>(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        work: W,
    ) -> Result<RunOutcome<T>, RunError<E::Error>>
    where
        T: Serialize + DeserializeOwned,
        E: IntoFailure,
        F: Future<Output = Result<T, E>>,
        W: FnOnce() -> F,
    {
        run::run(self, policy, intent, work).await
    }

    /// Runs some work once, in a transaction of this pool, and commits its writes together with a record of the run.
    ///
    /// A later caller with the same intent receives the stored result. A concurrent caller waits for the first transaction.
    ///
    /// Work that fails is rolled back, so it did not take effect, and the next caller with the same intent runs it again, even under [at
    /// most once](KeyRules::at_most_once). If the database asks for a retry of the transaction, the work is rolled back and runs again: it
    /// may run more than once, and is committed once. Its effects outside of the transaction are not protected. If the reply to the commit
    /// is lost, the guard looks the run up by its id and never guesses. The pool's settings determine the isolation level. The
    /// [module](crate::transaction) has an example.
    ///
    /// Behind [`Protect`](crate::actix::Protect) on Redis, Redis serves as a cache and the table is authoritative: if Redis has lost the
    /// record, the handler runs, and this method returns the stored result. The response is then marked as *executed*, because the handler
    /// ran, and `Protect` counts it once: this method counts no verdicts. A handler that responds with an error marks its response with
    /// [`RunError::effect`]: `Protect` cannot know that the work was rolled back, and under *at most once* treats a 500 or 503 as an
    /// unknown outcome.
    ///
    /// # Errors
    /// If the work did not run, failed, or was not committed. [`RunError::Store`] with [`StoreError::Unknown`] means that the work may have
    /// been committed: the database did not report the outcome within 30 seconds, or only after [`retain`](KeyRules::retain) had passed.
    /// Within `retain`, a retry with the same intent finds the outcome.
    ///
    /// If a commit receives no reply within 10 seconds, the guard looks up its outcome over another connection. The connection of the
    /// commit returns to the connection pool, which pings it without a timeout; `PoolOptions::after_release` can close it instead.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future before the commit is sent rolls the transaction back. Dropping it during the commit makes the outcome unknown
    /// to the caller: within `retain`, a retry with the same intent finds the outcome.
    #[cfg(feature = "sql")]
    pub async fn transact<DB, T, E, F, W>(
        &self,
        pool: &sqlx::Pool<DB>,
        rules: &KeyRules,
        intent: &Intent<'_>,
        work: W,
    ) -> Result<RunOutcome<T>, RunError<E>>
    where
        DB: Dialect,
        T: Serialize + DeserializeOwned,
        E: std::error::Error + 'static,
        F: Future<Output = Result<T, E>>,
        W: FnMut(TxHandle<DB>) -> F,
    {
        transaction::run::transact(&self.0, pool, rules, intent, work).await
    }

    /// Opens a pass that [`Pass::into_signed`](crate::Pass::into_signed) created. Returns `None` if none of the guard's secrets signed it.
    ///
    /// # Errors
    /// If the signing secret could not be fetched.
    pub async fn open_pass(&self, text: &str) -> Result<Option<SignedPass>, StoreError> {
        self.0.noted(signed::open(&self.0, text).await)
    }

    /// Fetches the signing secret, unless it is known. Call this before [`check`](Self::check) if you [sign](crate::Pass::into_signed) its
    /// pass: if the secret cannot be fetched, nothing is claimed yet.
    ///
    /// # Errors
    /// If the store failed.
    pub async fn fetch_secret(&self) -> Result<(), StoreError> {
        self.0.noted(self.0.mint().await).map(drop)
    }

    /// Returns the record of a submission. Changes nothing.
    ///
    /// If the intent has a fingerprint, it must be that of the first request. Otherwise the state is
    /// [`RecordState::Rejected`](crate::RecordState::Rejected), and the stored reply is not returned. Without one, anyone who knows the subject, the action and the key or token may look.
    ///
    /// # Errors
    /// If the store failed.
    pub async fn look(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Snapshot, StoreError> {
        self.0.noted(inspect::look(&self.0, policy, intent).await)
    }

    /// Returns the record of a ticket, such as one from a log line. Changes nothing.
    ///
    /// # Errors
    /// If the store failed.
    pub async fn look_at(&self, ticket: &Ticket) -> Result<Snapshot, StoreError> {
        self.0.noted(inspect::look_at(&self.0, ticket).await)
    }

    /// Returns everything that is known about the presented token, for people and never to decide whether to run. Changes nothing. Returns
    /// `None` if the text does not have the shape of a token.
    ///
    /// # Errors
    /// If the store failed.
    pub async fn inspect(&self, intent: &Intent<'_>) -> Result<Option<TokenInfo>, StoreError> {
        self.0.noted(inspect::inspect(&self.0, intent).await)
    }

    /// Settles a run whose outcome is unknown, under a key or with a remembered token.
    ///
    /// With [`Effect::Applied`], a duplicate receives this reply from now on. With [`Effect::NotApplied`], the next request runs.
    /// [`Effect::Unknown`] changes nothing, and a reply is stored with [`Effect::Applied`] only. A run that is still in flight according to
    /// this machine's clock is not changed. With a run id, as [`look`](Self::look) returns it, only that run is settled: repeating the call
    /// is harmless, even if the handler has run again since.
    ///
    /// # Errors
    /// If the store failed, or if its reply was lost: retry the call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: retry the call with the same run id.
    pub async fn settle(
        &self,
        rules: &KeyRules,
        intent: &Intent<'_>,
        run: Option<RunId>,
        effect: Effect,
        reply: Option<Reply>,
    ) -> Result<Settled, StoreError> {
        self.0.noted(settle::settle_intent(&self.0, rules, intent, Settlement { run, effect, reply }).await)
    }

    /// Like [`settle`](Self::settle), by a ticket from a log line. A token that is settled as not applied does not become valid again: its
    /// expiry is not on record.
    ///
    /// # Errors
    /// If the store failed, or if its reply was lost: retry the call.
    pub async fn settle_ticket(
        &self,
        rules: &KeyRules,
        ticket: Ticket,
        run: Option<RunId>,
        effect: Effect,
        reply: Option<Reply>,
    ) -> Result<Settled, StoreError> {
        let target = Target { ticket, token: None, action: "" };
        self.0.noted(settle::settle(&self.0, rules, &target, Settlement { run, effect, reply }).await)
    }

    /// Releases a token that this attempt has redeemed, after a submission that did not take effect. The token is valid again until it
    /// expires.
    ///
    /// `run` is the id that [`Pass::run_id`](crate::Pass::run_id) returned when the attempt redeemed the token; a retry of the attempt
    /// receives the same one. Repeating a release is harmless: once the attempt has redeemed the token again, that is another run, and the
    /// release of the first is [lost](Settled::Lost). So is the release of a token from an earlier epoch of the store.
    ///
    /// # Errors
    /// If the store failed, or if its reply was lost: retry the call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: retry the call.
    pub async fn release(&self, token: &str, attempt: &Attempt, run: RunId) -> Result<Settled, StoreError> {
        self.0.noted(release::release(&self.0, token, attempt, run).await)
    }

    /// Revokes a token, whatever it is bound to: for operators, not for clients. The record of a run stays.
    ///
    /// # Errors
    /// If the store failed, or if its reply was lost: retry the call.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: retry the call.
    pub async fn revoke(&self, token: &str) -> Result<Revocation, StoreError> {
        self.0.noted(revoke::revoke(&self.0, token).await)
    }

    /// Checks that the store responds and accepts writes.
    ///
    /// # Errors
    /// If it does not. A Redis that has reached `maxmemory` without eviction refuses new records: [`StoreError::is_full`] distinguishes it
    /// from a Redis that cannot be reached.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.0.store.ping().await.inspect_err(|error| self.0.store.step_failed(error))
    }

    /// Starts a graceful shutdown: from now on, responses carry `Connection: close`, so that clients connect to another server.
    pub fn begin_draining(&self) {
        self.0.shutdown.begin_draining();
    }

    /// Returns whether a graceful shutdown has started.
    pub fn is_draining(&self) -> bool {
        self.0.shutdown.is_draining()
    }

    /// Rejects new work, and waits without a timeout until every run in flight under this guard has ended.
    ///
    /// Await this before you stop the server: a server waits for its connections only, and drops a run whose client has disconnected.
    /// Calling [`begin_draining`](Self::begin_draining) shortly before avoids rejecting requests.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: after a drop, new work is still rejected, and another call continues to wait.
    pub async fn drain(&self) {
        self.0.shutdown.wait().await;
    }

    /// Performs a complete graceful shutdown before you stop the server. Returns whether every run has ended.
    ///
    /// It [starts the shutdown](Self::begin_draining), serves requests for [`last_call`](Self::last_call), and [drains](Self::drain) for at
    /// most [`drain_limit`](Self::drain_limit). Each step is logged. A warning is logged if runs are still in flight after `drain_limit`:
    /// stopping the server aborts them, with an unknown outcome.
    pub async fn shut_down(&self) -> bool {
        self.begin_draining();
        let (last_call, drain_limit) = (self.last_call(), self.drain_limit());
        tracing::info!(
            ?last_call,
            "graceful shutdown started: requests are served for `last_call`, and responses carry `Connection: close`"
        );
        tokio::time::sleep(last_call).await;
        tracing::info!(
            in_flight = self.0.shutdown.count(),
            ?drain_limit,
            "drain started: new work is rejected, handlers in flight complete"
        );
        let begun = Instant::now();
        let is_drained = timeout(drain_limit, self.drain()).await.is_ok();
        let took_ms = begun.elapsed().as_millis() as u64;
        if is_drained {
            tracing::info!(took_ms, "drain ended: no handler is in flight");
        } else {
            let in_flight = self.0.shutdown.count();
            tracing::warn!(took_ms, in_flight, "drain limit exceeded; aborting handlers in flight, outcome unknown");
        }
        is_drained
    }

    /// Returns how many requests ran in [`Mode::Observe`] and would otherwise have been rejected or replayed, by the code of the rejection
    /// or `replayed`. `unread` counts requests that could not be judged, because their handler responded without reading a body that had
    /// not arrived.
    pub fn would_have(&self) -> BTreeMap<&'static str, u64> {
        self.0.rollout.observed()
    }

    /// Returns how many submissions ran unprotected, because the store failed and their policy [fails
    /// open](crate::IntervalRules::fail_open).
    pub fn let_through(&self) -> u64 {
        self.0.rollout.unprotected()
    }

    /// Sets the gauges of the metrics recorder: runs in flight, waiters, retries, claims of backends, usage of a memory store.
    ///
    /// Call it before metrics are exported; it adds no cost to requests. If several guards report, the last one overwrites the others.
    ///
    /// All other metrics in [`onceward_api::metric`] are recorded as they happen, by the recorder that was installed when the guard was
    /// built.
    pub fn report(&self) {
        let gauge = |metric: &metric::Metric, value: f64| metrics::gauge!(metric.name).set(value);
        gauge(&metric::RUNNING, self.0.shutdown.count() as f64);
        gauge(&metric::WAITING, self.0.waiters.count() as f64);
        gauge(&metric::RETRYING, self.0.renewals.retrying() as f64);
        let claims = self.0.open_claims.counts();
        gauge(&metric::CLAIMS_OPEN, claims.open as f64);
        gauge(&metric::CLAIMS_OVERDUE, claims.overdue as f64);
        // The store overwrites it if a node is slow.
        gauge(&metric::SLOW_NODES, 0.0);
        self.0.store.report();
    }

    /// Returns the guard's mode.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// Returns the default time to live of a token.
    pub fn token_ttl(&self) -> Duration {
        self.0.token_ttl
    }

    /// Returns the grace period at the start of a graceful shutdown, in which requests are served and responses carry `Connection: close`.
    pub fn last_call(&self) -> Duration {
        self.0.last_call
    }

    /// Returns how long a graceful shutdown waits for runs in flight.
    pub fn drain_limit(&self) -> Duration {
        self.0.drain_limit
    }

    /// Returns the base URL of the pages that explain problem codes.
    pub fn problem_base(&self) -> &str {
        &self.0.problem_base
    }

    /// Returns the languages of rejections.
    pub fn languages(&self) -> &Languages {
        &self.0.languages
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("token_ttl", &self.0.token_ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use onceward_api::Code;

    use super::*;
    use crate::clock::ManualClock;
    use crate::policy::TokenRules;
    use crate::settled::Settled;
    use crate::store::{Bytes, Compared, Epoch, Memory, Room};
    use crate::subject::Subject;
    use crate::token::TokenFields;
    use crate::token::secret::Secret;

    const TTL: Duration = Duration::from_secs(60);

    /// Returns a guard, with its store and its clock for the test to use directly.
    fn guard() -> (Guard, Arc<Memory>, ManualClock) {
        let manual = ManualClock::new();
        let store = Arc::new(Memory::with_clock((&manual).into()));
        (Guard::builder(Arc::clone(&store)).clock((&manual).into()).build(), store, manual)
    }

    fn presenting(token: &Token) -> Intent<'_> {
        Intent::new("a", Subject::anonymous()).credential(token.as_str())
    }

    async fn check(guard: &Guard, token: &Token) -> Result<Verdict, StoreError> {
        guard.check(&Policy::token(), &presenting(token)).await
    }

    #[tokio::test]
    async fn only_an_issued_record_redeems_a_token() {
        let (guard, store, _clock) = guard();
        let token = guard.issue(TTL, Binding::none()).await.unwrap();
        let ticket = Ticket::of_token(TokenFields::open(token.as_str()).unwrap().0.id);
        for strange in [&b"\x01i"[..], b"\x03i", b"", b"\x02z", b"anything"] {
            let there = store.look(&ticket).await.unwrap().unwrap();
            store.swap(&ticket, &there, strange, TTL, Room::Free, None).await.unwrap();
            let error = check(&guard, &token).await.unwrap_err();
            assert_eq!(
                Guard::rejection_after(&error, &Policy::token(), &presenting(&token)).code(),
                Code::StoreUnavailable
            );
            assert_eq!(
                store.look(&ticket).await.unwrap().as_deref(),
                Some(strange),
                "the record of an unknown version is unchanged"
            );
            assert!(guard.look(&Policy::token(), &presenting(&token)).await.is_err());
        }
    }

    /// A store whose reply to a swap or remove arrives with the second poll.
    struct SlowReply(Memory);

    #[crate::store::async_trait]
    impl Store for SlowReply {
        async fn insert(
            &self,
            ticket: &Ticket,
            value: &[u8],
            ttl: Duration,
            room: Room,
        ) -> Result<Option<Bytes>, StoreError> {
            self.0.insert(ticket, value, ttl, room).await
        }

        async fn swap(
            &self,
            ticket: &Ticket,
            held: &[u8],
            value: &[u8],
            ttl: Duration,
            room: Room,
            _: Option<Epoch>,
        ) -> Result<Compared, StoreError> {
            let swapped = self.0.swap(ticket, held, value, ttl, room, None).await;
            tokio::task::yield_now().await;
            swapped
        }

        async fn remove(&self, ticket: &Ticket, held: &[u8], _: Option<Epoch>) -> Result<Compared, StoreError> {
            let removed = self.0.remove(ticket, held, None).await;
            tokio::task::yield_now().await;
            removed
        }

        async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
            self.0.look(ticket).await
        }
    }

    /// `SlowReply` does not distinguish epochs, like the store in the documentation of `Store`.
    #[tokio::test]
    async fn token_of_another_store_is_stale_without_epochs() {
        let secret = Secret::random();
        let guard = Guard::builder(SlowReply(Memory::new())).secret(secret.clone()).build();
        let other = Guard::builder(Memory::new()).secret(secret).build();
        let own = guard.issue(TTL, Binding::none()).await.unwrap();
        let foreign = other.issue(TTL, Binding::none()).await.unwrap();
        let attempt = Attempt::new("one").unwrap();
        let remembered = Policy::Token(TokenRules::new().remember(TTL));
        for (policy, intent) in [
            (Policy::token(), presenting(&foreign)),
            (Policy::token(), presenting(&foreign).attempt(&attempt)),
            (remembered, presenting(&foreign)),
        ] {
            let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent).await else {
                panic!("foreign token accepted")
            };
            assert_eq!(rejection.code(), Code::TokenStale);
        }
        let Ok(Verdict::Run(pass)) = check(&guard, &own).await else { panic!("valid token rejected") };
        pass.complete(None).await.unwrap();
        let Ok(Verdict::Reject(rejection)) = check(&guard, &own).await else { panic!("used token accepted") };
        assert_eq!(rejection.code(), Code::TokenUsed);
    }

    #[tokio::test]
    async fn dropped_check_consumes_plain_token_but_attempt_may_retry() {
        let guard = Guard::new(SlowReply(Memory::new()));
        let attempt = Attempt::new("one").unwrap();
        for (has_attempt, expected) in [(false, "token_used"), (true, "run")] {
            let token = guard.issue(TTL, Binding::none()).await.unwrap();
            let intent = || match has_attempt {
                true => presenting(&token).attempt(&attempt),
                false => presenting(&token),
            };
            let policy = Policy::token();
            let presented = intent();
            let mut dropped = Box::pin(guard.check(&policy, &presented));
            let polled = poll_fn(|context| Poll::Ready(dropped.as_mut().poll(context).is_pending()));
            assert!(polled.await, "the store has redeemed the token, and its reply is pending");
            drop(dropped);
            let received = match guard.check(&policy, &intent()).await.unwrap() {
                Verdict::Run(pass) => pass.complete(None).await.map(|_| "run".to_owned()).unwrap(),
                Verdict::Reject(rejection) => rejection.code().to_string(),
                Verdict::Replay(_) => unreachable!("a plain token has no reply"),
            };
            assert_eq!(received, expected);
        }
    }

    #[tokio::test]
    async fn ttl_out_of_range_is_rejected() {
        let (guard, _store, _clock) = guard();
        let second = Duration::from_secs(1);
        for ttl in [Duration::ZERO, second - Duration::from_nanos(1), second * 60 * 60 * 24 + Duration::from_nanos(1)] {
            assert!(matches!(guard.issue(ttl, Binding::none()).await, Err(IssueError::Ttl(_))), "{ttl:?}");
            assert!(Guard::builder(Memory::new()).token_ttl(ttl).is_err(), "{ttl:?}");
        }
        let tokens = [second, second * 60 * 60 * 24].map(|ttl| guard.issue(ttl, Binding::none()));
        for token in tokens {
            token.await.unwrap();
        }
    }

    #[tokio::test]
    async fn released_token_is_valid_if_a_second_is_left() {
        let (guard, _store, clock) = guard();
        let token = guard.issue(TTL, Binding::none()).await.unwrap();
        for _ in 0..2 {
            let Ok(Verdict::Run(pass)) = check(&guard, &token).await else { panic!("valid token rejected") };
            clock.advance(Duration::from_millis(29_500));
            assert_eq!(pass.release().await.unwrap(), Settled::Released);
        }
        let Ok(Verdict::Run(pass)) = check(&guard, &token).await else { panic!("valid token rejected") };
        clock.advance(Duration::from_millis(1));
        assert_eq!(pass.release().await.unwrap(), Settled::Final, "less than a second is left");
        let Ok(Verdict::Reject(rejection)) = check(&guard, &token).await else { panic!("used token accepted") };
        assert_eq!(rejection.code(), Code::TokenUsed);
    }

    #[tokio::test]
    async fn malformed_token_is_rejected_without_store() {
        struct Down;
        #[crate::store::async_trait]
        impl Store for Down {
            async fn insert(&self, _: &Ticket, _: &[u8], _: Duration, _: Room) -> Result<Option<Bytes>, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn swap(
                &self,
                _: &Ticket,
                _: &[u8],
                _: &[u8],
                _: Duration,
                _: Room,
                _: Option<Epoch>,
            ) -> Result<Compared, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn remove(&self, _: &Ticket, _: &[u8], _: Option<Epoch>) -> Result<Compared, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn look(&self, _: &Ticket) -> Result<Option<Bytes>, StoreError> {
                Err(StoreError::unknown("down"))
            }
        }
        let guard = Guard::new(Down);
        let policy = Policy::token();
        let nothing = Intent::new("a", Subject::anonymous());
        for (intent, code) in [(nothing.clone(), Code::TokenMissing), (nothing.credential("x"), Code::TokenMalformed)] {
            let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent).await else {
                panic!("malformed token accepted")
            };
            assert_eq!(rejection.code(), code);
        }
        let (other, ..) = self::guard();
        let token = other.issue(TTL, Binding::none()).await.unwrap();
        let error = check(&guard, &token).await.unwrap_err();
        let code = Guard::rejection_after(&error, &policy, &presenting(&token)).code();
        assert_eq!(code, Code::StoreUnavailable, "fetching the secret failed, and the token is unchanged");
    }
}
