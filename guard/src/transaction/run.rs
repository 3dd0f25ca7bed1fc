//! A whole transaction, begun again where the database wants it, and asked about where its end was lost.

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
use crate::store::sql::{StatementError, asks_for_a_repetition, wants_a_repetition};

/// How often a transaction is begun at most that the database wants again.
const TRIES: u32 = 20;
/// The first and the longest pause before it is.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How long a commit may take before its answer counts as lost.
const COMMIT: Duration = Duration::from_secs(10);
/// How long it is then asked what became of it.
const RESOLVE: Duration = Duration::from_secs(30);

/// What one try has come to.
enum TryResult<T, E> {
    /// It is over, in this way.
    Ended(Result<RunOutcome<T>, RunError<E>>),
    /// An earlier try of the same run had been committed.
    WasCommitted,
    /// Whether it had is not known any more: its record may be over.
    Forgotten,
    /// Nothing was committed, and the next try may succeed. This is what to say if there is none.
    Repeat(RunError<E>),
    /// It came to this value under its claim, with a record written at this time, and nobody has heard whether that was committed.
    Lost(T, Moment, StatementError),
}

/// How a try goes on.
enum Continuation {
    /// Under its claim.
    Claimed,
    /// Without, in the same transaction: a guard that observes does not keep anybody from anything.
    Unclaimed,
    /// Without, in a new one, because this one has failed.
    Afresh,
}

/// What a try came to that may have been committed, when its record was written, and until when that is asked.
struct LostCommit<T> {
    value: T,
    written: Moment,
    until: Instant,
}

/// Nothing of this try was committed.
impl<T, E> From<ClaimError> for TryResult<T, E> {
    fn from(error: ClaimError) -> Self {
        let again = error.asks_for_a_repetition();
        let error = RunError::Store(error.into());
        if again { Self::Repeat(error) } else { Self::Ended(Err(error)) }
    }
}

/// What all tries have in common.
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
    // Whoever calls this from a handler is counted already, and goes on when nothing new may begin.
    let _running = engine.shutdown.begin();
    let claimed = match (engine.mode, TxClaim::of(rules, intent)) {
        (Mode::Enforce, Err(rejection)) => return Err(RunError::Rejected(rejection)),
        (Mode::Enforce | Mode::Observe, Ok(claimed)) => Some(claimed),
        (Mode::Off, _) | (Mode::Observe, Err(_)) => None,
    };
    let trial = Trial { engine, pool, intent, claimed };
    let (mut tries, mut backoff) = (1, Backoff::between(PAUSE.0, PAUSE.1));
    // The second commit that is lost has no more time than the first.
    let (mut lost, mut until): (Option<LostCommit<T>>, Option<Instant>) = (None, None);
    loop {
        match (trial.once(&mut lost, &mut work).await, &lost) {
            (TryResult::WasCommitted, _) => {
                let committed = lost.ok_or_else(|| RunError::Rejected(Code::ReplyNotKept.into()));
                return committed.map(|lost| RunOutcome::Executed(lost.value));
            }
            // Nothing is done a second time on a guess.
            (TryResult::Forgotten, _) => return Err(RunError::Store(ClaimError::Expired.into())),
            (TryResult::Lost(value, written, failure), _) => {
                let until = *until.get_or_insert_with(|| Instant::now() + RESOLVE);
                if Instant::now() >= until {
                    return Err(RunError::Store(failure.into()));
                }
                tracing::warn!(error = %failure, "the answer to a commit was lost; asking what became of it");
                lost = Some(LostCommit { value, written, until });
            }
            // It cannot be asked at the moment, and what became of it is still not known.
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
    /// Tries it once. What an earlier try has lost is asked for before that, and is forgotten once it is known that it was not committed.
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
            Err(error) => return error.into(),
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
                        Err(error) => return ClaimError::from(error).into(),
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
            // What is not committed did not happen, whoever still has it in hand.
            (Ok(_), None) => ClaimError::NotGivenBack.into(),
            (Err(error), transaction) => {
                if let Some(transaction) = transaction {
                    // One that cannot be rolled back is not committed either.
                    let _ = transaction.rollback().await;
                }
                let again = is_to_be_repeated(&error);
                let error = RunError::Failed(error);
                if again { TryResult::Repeat(error) } else { TryResult::Ended(Err(error)) }
            }
        }
    }

    /// How a try goes on that has found this, or how it ends.
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
            // What was lost may be what is in progress: then it is asked again.
            (Ok(ClaimRow::InProgress), lost) => {
                let refused = RunError::Rejected(Code::InProgress.into());
                Err(if lost.is_some() { TryResult::Repeat(refused) } else { TryResult::Ended(Err(refused)) })
            }
            (Err(error), None) if observes => {
                tracing::warn!(%error, action, "could not be observed");
                Ok(Continuation::Afresh)
            }
            (Err(error), _) => Err(error.into()),
        }
    }
}

/// Writes down what it came to, and commits.
async fn conclude<DB: Dialect, T: Serialize, E>(
    mut transaction: Transaction<'static, DB>,
    claimed: Option<&TxClaim>,
    value: T,
) -> TryResult<T, E> {
    let Some(claimed) = claimed else {
        // A database answers a commit of what has failed with a rollback, and calls that well.
        return match DB::goes_on(&mut transaction).await {
            Ok(()) => committed(transaction, value, None).await,
            Err(error) => ClaimError::from(error).into(),
        };
    };
    // What cannot be written as text is done all the same.
    let reply = serde_json::to_vec(&value).map(|body| Reply::new(200, body)).map_err(|_| NoReply::Unwritable);
    let written = Moment::now();
    match claimed.complete(&mut transaction, reply).await {
        Ok(()) => committed(transaction, value, Some(written)).await,
        Err(error) => error.into(),
    }
}

/// Commits, and tells what is known of it. What was claimed has its record, since the time when that was written.
async fn committed<DB: Dialect, T, E>(
    transaction: Transaction<'static, DB>,
    value: T,
    written: Option<Moment>,
) -> TryResult<T, E> {
    let failure = match timeout(COMMIT, transaction.commit()).await {
        Ok(Ok(())) if written.is_some() => return TryResult::Ended(Ok(RunOutcome::Executed(value))),
        Ok(Ok(())) => return TryResult::Ended(Ok(RunOutcome::Unprotected(value))),
        Ok(Err(error)) if asks_for_a_repetition(&error) => return ClaimError::from(error).into(),
        Ok(Err(error)) => StatementError::from(error),
        Err(_) => StatementError::TimedOut,
    };
    match written {
        Some(written) if !failure.is_certain() => TryResult::Lost(value, written, failure),
        // Without a claim there is nothing to ask for, and to do it again might be to do it twice.
        _ => TryResult::Ended(Err(RunError::Store(failure.into()))),
    }
}

/// What somebody else's run came to.
fn replayed<T: DeserializeOwned, E>(claimed: &TxClaim, done: DoneRecord) -> Result<RunOutcome<T>, RunError<E>> {
    match claimed.duplicate_of(done) {
        Ok(Ok(reply)) => serde_json::from_slice(reply.body()).map(RunOutcome::Replayed).map_err(RunError::Unreadable),
        Ok(Err(reason)) => Err(RunError::Rejected(reason.into())),
        Err(rejection) => Err(RunError::Rejected(rejection)),
    }
}

/// Whether an error of the work, or its cause, is a serialization failure or deadlock of this transaction, so that all of it is begun again.
/// The failure of a store that the work has asked says nothing about this transaction.
fn is_to_be_repeated(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<StoreError>() || cause.is::<StatementError>() {
            return false;
        }
        if wants_a_repetition(cause) || cause.downcast_ref().is_some_and(ClaimError::asks_for_a_repetition) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// No longer than until then, if there is a then.
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
