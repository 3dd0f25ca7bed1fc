use std::fmt;
use std::time::Duration;

use onceward_api::Code;
use sqlx::{Pool, Transaction};
use tokio::time::{sleep, timeout};

use super::{ClaimError, Dialect};
use crate::clock::{Clock, Moment};
use crate::intent::Intent;
use crate::policy::KeyRules;
use crate::record::{DoneRecord, Record};
use crate::rejection::Rejection;
use crate::reply::NoReply;
use crate::reply::Reply;
use crate::run_id::RunId;
use crate::store::sql::{RecordRow, StatementOutcome, lock_timed_out, millis};
use crate::ticket::Ticket;

/// Timeout for finding out whether a claim was committed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two lookups.
const PAUSE: Duration = Duration::from_millis(20);

/// The decision about a claim in a transaction. A duplicate is not an error.
#[derive(Debug)]
pub enum TxVerdict {
    /// Do the work, and commit.
    Run(TxClaim),
    /// An earlier transaction did the work; this is its reply, if one was stored.
    Done(Option<Reply>),
    /// Do not do the work, for this reason.
    Reject(Rejection),
}

/// A claim in a transaction. It persists if the transaction is committed, and disappears otherwise.
#[must_use = "do the work in the transaction that holds the claim, then commit it"]
pub struct TxClaim {
    name: String,
    rules: KeyRules,
    record: DoneRecord,
    made: Moment,
}

/// The row under the name of a claim.
pub(super) enum ClaimRow {
    /// There was no row: the claim is inserted.
    Free,
    /// The committed row of this claim.
    Own,
    /// The row of another claim.
    Others(DoneRecord),
    /// A row that another transaction has not committed before the lock timeout of the database. The transaction that waited has failed.
    InProgress,
}

impl TxClaim {
    pub(super) fn of(rules: &KeyRules, intent: &Intent<'_>) -> Result<Self, Rejection> {
        let key = intent.key.ok_or(Code::KeyMissing)?;
        let ticket = Ticket::of_key(&intent.subject, &intent.action, key);
        let record = DoneRecord {
            run: RunId::new(),
            fingerprint: intent.fingerprint.map(|fingerprint| fingerprint.keyed(key.as_bytes(), ticket.digest())),
            asker: None,
            deadline: deadline(rules),
            reply: Err(NoReply::NotGiven),
        };
        // Differs from the name that a store uses for the same key: a guard may have its own record in the same table.
        let name = ticket.name("onceward:transaction");
        Ok(Self { name, rules: rules.clone(), record, made: Moment::now() })
    }

    /// Returns the id of the run, to store it with the rows that the run writes.
    pub fn run_id(&self) -> RunId {
        self.record.run
    }

    /// Stores a reply for duplicates, in the same transaction. Call it once.
    ///
    /// A reply that is larger than the [limit](KeyRules::reply_limit) is not stored: a duplicate receives `Done` without a reply. The
    /// record lives for [`retain`](KeyRules::retain) from this call, however long the transaction has taken.
    ///
    /// # Errors
    /// If the database returns an error. [`ClaimError::NotClaimed`] if the claim is not in this transaction, as after a rollback to a
    /// savepoint before it: then nothing is written, even if another transaction has claimed the same key since.
    pub async fn complete_in<DB: Dialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
        reply: Reply,
    ) -> Result<(), ClaimError> {
        self.complete(transaction, Ok(reply)).await
    }

    /// Returns whether this claim was committed, for a commit whose reply was lost.
    ///
    /// If the transaction is still open, for example because the database has not noticed yet that the connection is closed, this waits for
    /// its end. The result is therefore final.
    ///
    /// # Errors
    /// If the database is unreachable, or gives no result within 30 seconds: the outcome is not known yet. [`ClaimError::Expired`] if there
    /// is no record of this claim and [`retain`](KeyRules::retain) has passed, or nearly passed, since the claim was inserted: an expired
    /// record cannot be distinguished from one that was never committed.
    pub async fn was_committed<DB: Dialect>(&self, pool: &Pool<DB>) -> Result<bool, ClaimError> {
        let asked = timeout(PATIENCE, async {
            loop {
                match self.look_for_it(pool).await {
                    Ok(ClaimRow::Own) => return Ok(true),
                    Ok(ClaimRow::Free | ClaimRow::Others(_)) if self.may_be_over_since(self.made) => {
                        return Err(ClaimError::Expired);
                    }
                    Ok(ClaimRow::Free | ClaimRow::Others(_)) => return Ok(false),
                    Ok(ClaimRow::InProgress) => {}
                    Err(error) if error.should_repeat() => {}
                    Err(error) => return Err(error),
                }
                sleep(PAUSE).await;
            }
        });
        asked.await.unwrap_or(Err(ClaimError::Database(sqlx::Error::PoolTimedOut)))
    }

    /// Looks up the row, and leaves it unchanged.
    async fn look_for_it<DB: Dialect>(&self, pool: &Pool<DB>) -> Result<ClaimRow, ClaimError> {
        let mut transaction = DB::begin(pool).await?;
        let found = self.find(&mut transaction).await;
        transaction.rollback().await?;
        found.map_err(|error| error.at(pool))
    }

    /// Returns whether a record written at `written` may have expired, in case the clock of the database runs a little faster than ours.
    pub(super) fn may_be_over_since(&self, written: Moment) -> bool {
        written.elapsed() >= self.rules.retain.mul_f64(0.9)
    }

    pub(super) async fn enter<DB: Dialect>(
        self,
        transaction: &mut Transaction<'_, DB>,
    ) -> Result<TxVerdict, ClaimError> {
        Ok(match self.find(transaction).await? {
            ClaimRow::Free | ClaimRow::Own => TxVerdict::Run(self),
            ClaimRow::Others(done) => match self.duplicate_of(done) {
                Ok(kept) => TxVerdict::Done(kept.ok()),
                Err(rejection) => TxVerdict::Reject(rejection),
            },
            ClaimRow::InProgress => TxVerdict::Reject(Code::InProgress.into()),
        })
    }

    /// Inserts the claim, or returns the row that is there already.
    pub(super) async fn find<DB: Dialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
    ) -> Result<ClaimRow, ClaimError> {
        let (value, millis) = (self.record.encode(), millis(self.rules.retain));
        loop {
            let row = RecordRow { name: &self.name, value: &value, millis };
            let there = match DB::claim(transaction, &row).await {
                Ok(StatementOutcome { is_done: true, .. }) => return Ok(ClaimRow::Free),
                Ok(StatementOutcome { there: Some(there), .. }) => there,
                // The other transaction was committed while this one waited: its row is visible now.
                Ok(StatementOutcome { there: None, .. }) => continue,
                Err(error) if lock_timed_out(&error) => return Ok(ClaimRow::InProgress),
                Err(error) => return Err(error.into()),
            };
            return match Record::decode(&there) {
                Ok(Record::Done(done)) if done.run == self.record.run => Ok(ClaimRow::Own),
                Ok(Record::Done(done)) => Ok(ClaimRow::Others(done)),
                _ => Err(ClaimError::UnknownRecord),
            };
        }
    }

    pub(super) async fn complete<DB: Dialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
        reply: Result<Reply, NoReply>,
    ) -> Result<(), ClaimError> {
        let held = self.record.encode();
        let done = DoneRecord { reply: self.rules.kept(reply), deadline: deadline(&self.rules), ..self.record.clone() };
        let row = RecordRow { name: &self.name, value: &done.encode(), millis: millis(self.rules.retain) };
        if DB::complete(transaction, &held, &row).await? { Ok(()) } else { Err(ClaimError::NotClaimed) }
    }

    /// Returns what a duplicate receives: the reply, or why there is none. Different content is rejected before anything else.
    pub(super) fn duplicate_of(&self, done: DoneRecord) -> Result<Result<Reply, NoReply>, Rejection> {
        match done.fingerprint.zip(self.record.fingerprint) {
            Some((theirs, ours)) if theirs != ours => Err(Code::KeyReused.into()),
            _ => Ok(done.reply),
        }
    }
}

/// Returns the time at which a record that is written now expires.
fn deadline(rules: &KeyRules) -> u64 {
    Clock::system().wall().saturating_add(rules.retain.as_millis() as u64)
}

impl fmt::Debug for TxClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxClaim").field("run", &self.record.run).finish_non_exhaustive()
    }
}
