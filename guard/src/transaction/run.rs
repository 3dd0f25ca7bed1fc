//! Runs a whole transaction, repeats it after a serialization failure, and resolves commits whose reply was lost.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use onceward_api::{Code, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Pool, Transaction};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::claim::{ClaimRow, TxClaim};
use super::handle::TxHandle;
use super::{ClaimError, Dialect};
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::engine::Engine;
use crate::intent::Intent;
use crate::mode::Mode;
use crate::policy::KeyRules;
use crate::record::DoneRecord;
use crate::reply::{NoReply, Reply};
use crate::run::{RunError, RunOutcome};
use crate::store::StoreError;
use crate::store::sql::{StatementError, is_any_serialization_failure, is_serialization_failure};

/// Maximum number of tries of a transaction that the database cannot serialize.
const TRIES: u32 = 20;
/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Timeout of a commit, after which its reply counts as lost.
const COMMIT: Duration = Duration::from_secs(10);
/// Time limit for finding out whether a lost commit took effect.
const RESOLVE: Duration = Duration::from_secs(30);

/// The result of one try.
enum TryResult<T, E> {
    /// The final result.
    Ended(Result<RunOutcome<T>, RunError<E>>),
    /// An earlier try of the same run was committed.
    WasCommitted,
    /// The outcome of an earlier try is unknown: its record may have expired.
    Forgotten,
    /// Nothing was committed, and the next try may succeed. The error is returned if there is no next try.
    Repeat(RunError<E>),
    /// The work returned this value under its claim, its record was written at this time, and the reply to the commit was lost.
    Lost(T, Moment, StatementError),
}

/// The continuation of a try.
enum Continuation {
    /// Under its claim.
    Claimed,
    /// Without a claim, in the same transaction: in observe mode no request is stopped.
    Unclaimed,
    /// Without a claim, in a new transaction, because this one has failed.
    Afresh,
}

/// A try that may have been committed: its value, when its record was written, and the deadline for finding out.
struct LostCommit<T> {
    value: T,
    written: Moment,
    until: Instant,
}

/// Nothing of this try was committed.
impl<T, E> From<ClaimError> for TryResult<T, E> {
    fn from(error: ClaimError) -> Self {
        let again = error.should_repeat();
        let error = RunError::Store(error.into());
        if again { Self::Repeat(error) } else { Self::Ended(Err(error)) }
    }
}

/// The state that all tries share.
struct Trial<'a, DB: Dialect> {
    engine: &'a Engine,
    pool: &'a Pool<DB>,
    intent: &'a Intent<'a>,
    claimed: Option<TxClaim>,
}

pub(crate) async fn transact<DB, T, E, F, W>(
    engine: &Engine,
    pool: &Pool<DB>,
    rules: &KeyRules,
    intent: &Intent<'_>,
    mut work: W,
) -> Result<RunOutcome<T>, RunError<E>>
where
    DB: Dialect,
    T: Serialize + DeserializeOwned,
    E: Error + 'static,
    F: Future<Output = Result<T, E>>,
    W: FnMut(TxHandle<DB>) -> F,
{
    // A handler that calls this is counted already, and may continue when new work is rejected.
    let _running = engine.shutdown.begin();
    let claimed = match (engine.mode, TxClaim::of(rules, intent)) {
        (Mode::Enforce, Err(rejection)) => return Err(RunError::Rejected(rejection)),
        (Mode::Enforce | Mode::Observe, Ok(claimed)) => Some(claimed),
        (Mode::Off, _) | (Mode::Observe, Err(_)) => None,
    };
    let trial = Trial { engine, pool, intent, claimed };
    let (mut tries, mut backoff) = (1, Backoff::between(PAUSE.0, PAUSE.1));
    // A second lost commit has the same deadline as the first.
    let (mut lost, mut until): (Option<LostCommit<T>>, Option<Instant>) = (None, None);
    loop {
        match (trial.once(&mut lost, &mut work).await, &lost) {
            (TryResult::WasCommitted, _) => {
                let committed = lost.ok_or_else(|| RunError::Rejected(Code::ReplyNotKept.into()));
                return committed.map(|lost| RunOutcome::Executed(lost.value));
            }
            // The work is not repeated while its outcome is unknown.
            (TryResult::Forgotten, _) => return Err(RunError::Store(ClaimError::Expired.into())),
            (TryResult::Lost(value, written, failure), _) => {
                let until = *until.get_or_insert_with(|| Instant::now() + RESOLVE);
                if Instant::now() >= until {
                    return Err(RunError::Store(failure.into()));
                }
                tracing::warn!(error = %failure, "the reply to a commit was lost; looking up whether it was committed");
                lost = Some(LostCommit { value, written, until });
            }
            // The lookup failed, and the outcome of the commit is still unknown.
            (TryResult::Repeat(error) | TryResult::Ended(Err(error @ RunError::Store(_))), Some(lost)) => {
                if Instant::now() >= lost.until {
                    return Err(RunError::Store(StoreError::unknown(error.to_string())));
                }
            }
            (TryResult::Repeat(error), None) if tries >= TRIES => return Err(error),
            (TryResult::Repeat(_), None) => {}
            (TryResult::Ended(ended), _) => return ended,
        }
        tries += 1;
        sleep(backoff.next()).await;
    }
}

impl<DB: Dialect> Trial<'_, DB> {
    /// Runs the transaction once. First finds out whether the lost commit of an earlier try took effect, and clears `lost` if it did not.
    async fn once<T, E, F, W>(&self, lost: &mut Option<LostCommit<T>>, work: &mut W) -> TryResult<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: Error + 'static,
        F: Future<Output = Result<T, E>>,
        W: FnMut(TxHandle<DB>) -> F,
    {
        let until = lost.as_ref().map(|lost| lost.until);
        let mut transaction = match within(until, DB::begin(self.pool)).await {
            Ok(transaction) => transaction,
            Err(error) => return self.noted(error).into(),
        };
        let mut claimed = self.claimed.as_ref();
        if let Some(own) = claimed {
            let found = within(until, own.find(&mut transaction)).await;
            match self.judge(own, found, lost.as_ref()) {
                Ok(Continuation::Claimed) => {}
                Ok(Continuation::Unclaimed) => claimed = None,
                Ok(Continuation::Afresh) => {
                    drop(transaction);
                    transaction = match DB::begin(self.pool).await {
                        Ok(transaction) => transaction,
                        Err(error) => return self.noted(error.into()).into(),
                    };
                    claimed = None;
                }
                Err(tried) => return tried,
            }
            *lost = None;
        }
        let (handle, returned) = TxHandle::of(transaction);
        let worked = work(handle).await;
        match (worked, returned.take_back()) {
            (Ok(value), Some(transaction)) => conclude(transaction, claimed, value).await,
            // An uncommitted transaction has no effect, even if the work still holds it.
            (Ok(_), None) => ClaimError::NotGivenBack.into(),
            (Err(error), transaction) => {
                if let Some(transaction) = transaction {
                    // A transaction that cannot be rolled back is not committed either.
                    let _ = transaction.rollback().await;
                }
                let again = is_to_be_repeated(&error);
                let error = RunError::Failed(error);
                if again { TryResult::Repeat(error) } else { TryResult::Ended(Err(error)) }
            }
        }
    }

    /// Decides how a try continues with the row it found, or how it ends.
    fn judge<T: DeserializeOwned, E>(
        &self,
        own: &TxClaim,
        found: Result<ClaimRow, ClaimError>,
        lost: Option<&LostCommit<T>>,
    ) -> Result<Continuation, TryResult<T, E>> {
        let (action, observes) = (&*self.intent.action, self.engine.mode == Mode::Observe);
        match (found, lost) {
            (Ok(ClaimRow::Own), _) => Err(TryResult::WasCommitted),
            (Ok(ClaimRow::Free | ClaimRow::Others(_)), Some(lost)) if own.may_be_over_since(lost.written) => {
                Err(TryResult::Forgotten)
            }
            (Ok(ClaimRow::Free), _) => Ok(Continuation::Claimed),
            (Ok(ClaimRow::Others(done)), _) if observes => {
                let refused = own.duplicate_of(done).err();
                let outcome = refused.map_or(Outcome::Replayed, |rejection| Outcome::Rejected(rejection.code()));
                self.engine.observe(outcome, action);
                Ok(Continuation::Unclaimed)
            }
            (Ok(ClaimRow::Others(done)), _) => Err(TryResult::Ended(replayed(own, done))),
            (Ok(ClaimRow::InProgress), None) if observes => {
                self.engine.observe(Outcome::Rejected(Code::InProgress), action);
                Ok(Continuation::Afresh)
            }
            // The transaction in progress may be the lost one: look again.
            (Ok(ClaimRow::InProgress), lost) => {
                let refused = RunError::Rejected(Code::InProgress.into());
                Err(if lost.is_some() { TryResult::Repeat(refused) } else { TryResult::Ended(Err(refused)) })
            }
            (Err(error), None) if observes => {
                self.noted(error);
                Ok(Continuation::Afresh)
            }
            (Err(error), _) => Err(self.noted(error).into()),
        }
    }

    /// Logs why nothing could be claimed, at most one line every ten seconds: the application may report only that its store failed.
    fn noted(&self, error: ClaimError) -> ClaimError {
        let (error, action) = (error.at(self.pool), &*self.intent.action);
        if error.should_repeat() {
            return error;
        }
        if let Some(suppressed) = self.engine.transactions.admit() {
            match &error {
                ClaimError::Tables(_) => {
                    tracing::error!(%error, action, suppressed, "could not claim the key in a transaction: the database is not set up");
                }
                _ => tracing::warn!(%error, action, suppressed, "could not claim the key in a transaction"),
            }
        }
        error
    }
}

/// Writes the result of the work, and commits.
async fn conclude<DB: Dialect, T: Serialize, E>(
    mut transaction: Transaction<'static, DB>,
    claimed: Option<&TxClaim>,
    value: T,
) -> TryResult<T, E> {
    let Some(claimed) = claimed else {
        // A database rolls back a failed transaction on commit, and reports success.
        return match DB::goes_on(&mut transaction).await {
            Ok(()) => committed(transaction, value, None).await,
            Err(error) => ClaimError::from(error).into(),
        };
    };
    // The work succeeded, even if its result cannot be serialized.
    let reply = serde_json::to_vec(&value).map(|body| Reply::new(200, body)).map_err(|_| NoReply::Unwritable);
    let written = Moment::now();
    match claimed.complete(&mut transaction, reply).await {
        Ok(()) => committed(transaction, value, Some(written)).await,
        Err(error) => error.into(),
    }
}

/// Commits, and returns the outcome as far as known. `written` is the time at which the record of the claim was written, if there is a
/// claim.
async fn committed<DB: Dialect, T, E>(
    transaction: Transaction<'static, DB>,
    value: T,
    written: Option<Moment>,
) -> TryResult<T, E> {
    let failure = match timeout(COMMIT, transaction.commit()).await {
        Ok(Ok(())) if written.is_some() => return TryResult::Ended(Ok(RunOutcome::Executed(value))),
        Ok(Ok(())) => return TryResult::Ended(Ok(RunOutcome::Unprotected(value))),
        Ok(Err(error)) if is_serialization_failure(&error) => return ClaimError::from(error).into(),
        Ok(Err(error)) => StatementError::from(error),
        Err(_) => StatementError::TimedOut(COMMIT),
    };
    match written {
        Some(written) if !failure.is_certain() => TryResult::Lost(value, written, failure),
        // Without a claim there is no record to look up, and a second try might apply the work twice.
        _ => TryResult::Ended(Err(RunError::Store(failure.into()))),
    }
}

/// Returns the result of an earlier run.
fn replayed<T: DeserializeOwned, E>(claimed: &TxClaim, done: DoneRecord) -> Result<RunOutcome<T>, RunError<E>> {
    match claimed.duplicate_of(done) {
        Ok(Ok(reply)) => serde_json::from_slice(reply.body()).map(RunOutcome::Replayed).map_err(RunError::Unreadable),
        Ok(Err(reason)) => Err(RunError::Rejected(reason.into())),
        Err(rejection) => Err(RunError::Rejected(rejection)),
    }
}

/// Returns whether an error of the work, or one of its causes, is a serialization failure or deadlock of this transaction, so that all of
/// it must be repeated. The failure of a store that the work has used says nothing about this transaction.
fn is_to_be_repeated(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<StoreError>() || cause.is::<StatementError>() {
            return false;
        }
        if is_any_serialization_failure(cause) || cause.downcast_ref().is_some_and(ClaimError::should_repeat) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Runs `step` until `deadline`, if there is one.
async fn within<T, E: Into<ClaimError>>(
    deadline: Option<Instant>,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, ClaimError> {
    match deadline {
        None => step.await.map_err(Into::into),
        Some(deadline) => match timeout_at(deadline, step).await {
            Ok(done) => done.map_err(Into::into),
            Err(_) => Err(ClaimError::Database(sqlx::Error::PoolTimedOut)),
        },
    }
}
