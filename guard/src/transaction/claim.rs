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
use crate::store::sql::{RecordRow, StatementOutcome, has_waited_in_vain, millis};
use crate::ticket::Ticket;

/// How long a database is asked what became of a claim.
const PATIENCE: Duration = Duration::from_secs(30);
/// And how long it rests where it wants to be asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// What is to be done in a transaction. A duplicate is no error.
#[derive(Debug)]
pub enum TxVerdict {
    /// Go on, and commit.
    Run(TxClaim),
    /// It was done before: this is what was answered, if that was kept.
    Done(Option<Reply>),
    /// Do not go on, for this reason.
    Reject(Rejection),
}

/// A claim in a transaction: it lasts if the transaction is committed, and is gone if not.
#[must_use = "what was claimed is done by the same transaction"]
pub struct TxClaim {
    name: String,
    rules: KeyRules,
    record: DoneRecord,
    made: Moment,
}

/// What was found under the name of a claim.
pub(super) enum ClaimRow {
    /// Nothing: the claim is there now.
    Free,
    /// What this claim itself has committed.
    Own,
    /// What somebody else has.
    Others(DoneRecord),
    /// What somebody has not committed yet, for longer than the database lets anybody wait. The transaction that waited has failed.
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
        // Not the name that a store has for the same key: a guard may have its own record in the same table.
        let name = ticket.name("onceward:transaction");
        Ok(Self { name, rules: rules.clone(), record, made: Moment::now() })
    }

    /// The name of the run, to write beside what it does.
    pub fn run_id(&self) -> RunId {
        self.record.run
    }

    /// Keeps an answer for whoever comes later, in the same transaction, once. One that is larger than the
    /// [limit](KeyRules::reply_limit) is not kept, and a duplicate is told that there was one. From here on the record lives for
    /// [`retain`](KeyRules::retain), however long the transaction took until now.
    ///
    /// # Errors
    /// If the database does not take it. [`ClaimError::NotClaimed`] if the claim is not there as it was made, as after a rollback to
    /// a savepoint before it: then nothing is written, whoever has the name now.
    pub async fn complete_in<DB: Dialect>(
        &self,
        transaction: &mut Transaction<'_, DB>,
        reply: Reply,
    ) -> Result<(), ClaimError> {
        self.complete(transaction, Ok(reply)).await
    }

    /// Asks whether this claim was committed, where the answer to that was lost. Whoever still has the transaction in hand, such as a
    /// backend that has not noticed yet that its caller is gone, is waited for; so what this says stays true.
    ///
    /// # Errors
    /// If the database cannot be asked, or does not say for half a minute: then it is not known yet. [`ClaimError::Expired`] if nothing is
    /// there and [`retain`](KeyRules::retain) is over, or nearly, since the claim was made: what has expired cannot be told from what was
    /// never committed.
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
                    Err(error) if error.asks_for_a_repetition() => {}
                    Err(error) => return Err(error),
                }
                sleep(PAUSE).await;
            }
        });
        asked.await.unwrap_or(Err(ClaimError::Database(sqlx::Error::PoolTimedOut)))
    }

    /// Finds what is there, and leaves it as it is.
    async fn look_for_it<DB: Dialect>(&self, pool: &Pool<DB>) -> Result<ClaimRow, ClaimError> {
        let mut transaction = DB::begin(pool).await?;
        let found = self.find(&mut transaction).await;
        transaction.rollback().await?;
        found
    }

    /// Whether a record that was written then may have expired by now, should the database's clock run a little faster than ours.
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

    /// Inserts, and finds what is there if that cannot be.
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
                // It was committed while this one waited for it: now it is seen.
                Ok(StatementOutcome { there: None, .. }) => continue,
                Err(error) if has_waited_in_vain(&error) => return Ok(ClaimRow::InProgress),
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

    /// What a duplicate gets: the reply, or why there is none. Other content is told before anything else.
    pub(super) fn duplicate_of(&self, done: DoneRecord) -> Result<Result<Reply, NoReply>, Rejection> {
        match done.fingerprint.zip(self.record.fingerprint) {
            Some((theirs, ours)) if theirs != ours => Err(Code::KeyReused.into()),
            _ => Ok(done.reply),
        }
    }
}

/// Until when a record that is written now is valid.
fn deadline(rules: &KeyRules) -> u64 {
    Clock::system().wall().saturating_add(rules.retain.as_millis() as u64)
}

impl fmt::Debug for TxClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxClaim").field("run", &self.record.run).finish_non_exhaustive()
    }
}
