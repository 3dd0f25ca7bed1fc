//! What is decided of a submission, policy by policy.

use std::sync::Arc;
use std::time::Duration;

use onceward_api::Code;

use super::{Guard, Verdict};
use crate::audit;
use crate::claim::{Claim, Origin, Terms};
use crate::intent::Intent;
use crate::key::Key;
use crate::mint::Mint;
use crate::pass::Pass;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};
use crate::record::{Record, UnknownRecord};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::shutdown::InFlight;
use crate::store::{Admission, StoreError, Taken};
use crate::ticket::Ticket;
use crate::token::{GRACE, TokenFields};

impl Guard {
    pub(super) async fn check_token(&self, rules: &TokenRules, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        let mint = match self.0.sharing.known() {
            Some(mint) => mint,
            // What has not even the shape of a token is refused before the store is asked for the secret.
            None => match shape(intent) {
                Ok(_) => Box::pin(self.mint()).await?,
                Err(rejection) => return Ok(Verdict::Reject(rejection)),
            },
        };
        let token = match verify(&mint, rules.bound, intent) {
            Ok(token) => token,
            Err(rejection) => return Ok(Verdict::Reject(rejection)),
        };
        let Some(running) = self.0.drain.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
        let ticket = Ticket::of_token(token.id);
        self.admit(&ticket).await?;
        if let (Some(remember), None) = (&rules.remember, intent.attempt) {
            return Box::pin(self.check_remembered(remember, intent, token, running)).await;
        }
        // Where the epoch is not known, the step that takes a plain token decides. Asked for only where it is to be doubted, and
        // apart, since every request pays for the room of what few need.
        let is_doubtful = match self.0.store.epoch(&ticket) {
            Some(epoch) => epoch != token.epoch,
            None => intent.attempt.is_some(),
        };
        let late = match self.is_expired(&token) || is_doubtful {
            true => Box::pin(self.late(&token, &ticket)).await?,
            false => None,
        };
        match (late, intent.attempt) {
            (None, None) => self.redeem(token, ticket, running).await,
            (None, Some(attempt)) => match Box::pin(self.mark(&token, attempt)).await? {
                Ok(run) => Ok(Verdict::Run(Pass::of_attempt(self.clone(), token, attempt, run, running))),
                Err(rejection) => Ok(Verdict::Reject(rejection)),
            },
            // A late question of a try that was accepted in time is still that try.
            (Some(rejection), Some(attempt)) => match Box::pin(self.marked(&token, attempt)).await? {
                Some(run) => Ok(Verdict::Run(Pass::of_attempt(self.clone(), token, attempt, run, running))),
                None => Ok(Verdict::Reject(rejection)),
            },
            (Some(rejection), None) => Ok(Verdict::Reject(rejection)),
        }
    }

    pub(super) async fn check_key(&self, rules: &KeyRules, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        let Some(key) = intent.key else { return Ok(Verdict::Reject(Code::KeyMissing.into())) };
        let Some(running) = self.0.drain.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
        let claim = self.claim_of_key(rules, intent, key);
        self.admit(claim.ticket()).await?;
        self.enter(claim, running).await
    }

    /// A token that is too old is looked up all the same: a late retry still gets its answer.
    pub(super) async fn check_remembered(
        &self,
        rules: &KeyRules,
        intent: &Intent<'_>,
        token: TokenFields,
        running: InFlight,
    ) -> Result<Verdict, StoreError> {
        let claim = self.claim_of_token(rules, intent, token);
        match self.late(&token, claim.ticket()).await? {
            None => self.enter(claim, running).await,
            Some(rejection) => claim.late(rejection).await,
        }
    }

    pub(super) async fn check_interval(
        &self,
        rules: &IntervalRules,
        intent: &Intent<'_>,
    ) -> Result<Verdict, StoreError> {
        let ticket = self.ticket_of_interval(intent).await?;
        self.admit(&ticket).await?;
        let Some(running) = self.0.drain.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
        self.enter(self.claim(&rules.claim(), intent, ticket, None, Origin::Interval(rules.clone())), running).await
    }

    async fn ticket_of_interval(&self, intent: &Intent<'_>) -> Result<Ticket, StoreError> {
        let Some(name) = intent.key else {
            let what = intent.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
            let salt = self.0.sharing.salt(&*self.0.store).await?;
            return Ok(Ticket::of_interval(salt.interval(&intent.action, &intent.subject, what)));
        };
        Ok(Ticket::of_name(&intent.subject, &intent.action, name))
    }

    /// The rejection, unless the claim in the way is that of the run in which this is asked. That is an error in the application: the
    /// one would wait for the other for ever.
    pub(super) async fn unless_within(
        &self,
        run: RunId,
        rejection: Rejection,
        policy: &Policy,
        intent: &Intent<'_>,
    ) -> Rejection {
        let Ok(Some(ticket)) = self.ticket(policy, intent).await else { return rejection };
        if !self.is_claimed_by(&ticket, run).await.unwrap_or(false) {
            return rejection;
        }
        tracing::error!(
            action = &*intent.action,
            %run,
            "a handler asks for the claim that the guard around it holds, so its work never runs; name another action or key"
        );
        Rejection::new(Code::Internal)
            .detail("The handler asked for what the guard around it holds, so its work did not run.")
    }

    /// The ticket that a submission claims; `None` if it presents nothing to claim by.
    pub(crate) async fn ticket(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Option<Ticket>, StoreError> {
        Ok(match policy {
            Policy::Token(_) => {
                intent.credential.and_then(TokenFields::open).map(|(token, _)| Ticket::of_token(token.id))
            }
            Policy::Key(_) => intent.key.map(|key| Ticket::of_key(&intent.subject, &intent.action, key)),
            Policy::Interval(_) => Some(self.ticket_of_interval(intent).await?),
        })
    }

    /// Whether the claim on a ticket is that of this run.
    pub(crate) async fn is_claimed_by(&self, ticket: &Ticket, run: RunId) -> Result<bool, StoreError> {
        Ok(matches!(self.record(ticket).await?, Some(Record::Claimed(claimed)) if claimed.run == run))
    }

    fn claim_of_key(&self, rules: &KeyRules, intent: &Intent<'_>, key: &Key) -> Arc<Claim> {
        let ticket = Ticket::of_key(&intent.subject, &intent.action, key);
        let said = intent.fingerprint.map(|fingerprint| fingerprint.keyed(key.as_bytes(), &ticket));
        self.claim(rules, intent, ticket, said, Origin::Key)
    }

    fn claim_of_token(&self, rules: &KeyRules, intent: &Intent<'_>, token: TokenFields) -> Arc<Claim> {
        let ticket = Ticket::of_token(token.id);
        let said = intent.fingerprint.map(|fingerprint| fingerprint.keyed(token.id.as_bytes(), &ticket));
        self.claim(rules, intent, ticket, said, Origin::Token(token, intent.asker(token.id)))
    }

    fn claim(
        &self,
        rules: &KeyRules,
        intent: &Intent<'_>,
        ticket: Ticket,
        fingerprint: Option<[u8; 16]>,
        origin: Origin,
    ) -> Arc<Claim> {
        // A token's attempt is marked on the token itself.
        let attempt = intent.attempt.filter(|_| matches!(origin, Origin::Key));
        let attempt = attempt.map(|attempt| attempt.under(&ticket, fingerprint));
        let action = audit::named(&intent.action);
        Arc::new(Claim::new(self.terms(rules, ticket, fingerprint, attempt, origin, action)))
    }

    pub(crate) fn terms(
        &self,
        rules: &KeyRules,
        ticket: Ticket,
        fingerprint: Option<[u8; 16]>,
        attempt: Option<[u8; 16]>,
        origin: Origin,
        action: String,
    ) -> Terms {
        Terms {
            store: Arc::clone(&self.0.store),
            clock: self.0.clock.clone(),
            upkeep: self.0.upkeep.clone(),
            meter: Arc::clone(&self.0.meter),
            waiting: self.0.waiting.clone(),
            rules: rules.clone(),
            origin,
            action,
            ticket,
            fingerprint,
            attempt,
        }
    }

    /// Lets new work begin on this ticket. While the store does not answer in time, one at a time finds out whether it does again, by a
    /// look that changes nothing; the others are rejected at once.
    pub(super) async fn admit(&self, ticket: &Ticket) -> Result<(), StoreError> {
        match self.0.store.admission(ticket) {
            Admission::Accept => Ok(()),
            // Apart, since every request pays for the room of what few need.
            Admission::Probe => match Box::pin(self.0.store.look(ticket)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.certainly_not_executed()),
            },
            Admission::Reject => Err(StoreError::not_executed("most commands time out, so new work is rejected")),
        }
    }

    async fn enter(&self, claim: Arc<Claim>, running: InFlight) -> Result<Verdict, StoreError> {
        if self.0.upkeep.is_full() {
            return Err(StoreError::not_executed("too many claims wait to be written or taken back"));
        }
        let mut running = Some(running);
        match (claim.enter(&mut running).await?, running) {
            (None, Some(running)) => Ok(Verdict::Run(Pass::of_claim(self.clone(), claim, running))),
            (Some(verdict), _) => Ok(verdict),
            (None, None) => unreachable!("it is taken only with an error"),
        }
    }

    /// The claim of somebody who may wait, being told that the first still runs.
    pub(crate) fn waiting_claim(&self, policy: &Policy, intent: &Intent<'_>) -> Option<Arc<Claim>> {
        match policy {
            Policy::Key(rules) => intent.key.map(|key| self.claim_of_key(rules, intent, key)),
            Policy::Token(rules) => {
                let (token, _) = TokenFields::open(intent.credential?)?;
                rules.remember.as_ref().map(|remember| self.claim_of_token(remember, intent, token))
            }
            Policy::Interval(_) => None,
        }
    }

    /// The one step that decides: of any number of callers, one gets the record. A store that has begun anew may have it
    /// again, or have lost it, so that neither says anything then.
    async fn redeem(&self, token: TokenFields, ticket: Ticket, running: InFlight) -> Result<Verdict, StoreError> {
        let Taken { found, is_of_epoch } = self.0.store.take_under(&ticket, token.epoch).await?;
        let used = if is_of_epoch { Code::TokenUsed } else { Code::TokenStale };
        match found {
            None => Ok(Verdict::Reject(used.into())),
            Some(taken) => match Record::decode(&taken) {
                Ok(Record::Issued) if is_of_epoch => Ok(Verdict::Run(Pass::of_token(self.clone(), token, running))),
                Ok(Record::Issued) => Ok(Verdict::Reject(used.into())),
                // Apart, since every request pays for the room of what few need.
                _ => Box::pin(self.put_back_used(&ticket, &taken, token, used)).await,
            },
        }
    }

    /// Somebody has used it: what is known of that goes back for the life that is written in it.
    async fn put_back_used(
        &self,
        ticket: &Ticket,
        taken: &[u8],
        token: TokenFields,
        used: Code,
    ) -> Result<Verdict, StoreError> {
        let record = Record::decode(taken);
        let deadline = match &record {
            Ok(Record::Attempted(mark)) => Some(mark.deadline),
            // One that has just been inserted again lives for a lease.
            Ok(Record::Claimed(claimed)) => {
                let lease = self.0.clock.wall().saturating_add(claimed.lease);
                Some(claimed.heartbeat.map_or(lease, |heartbeat| heartbeat.deadline))
            }
            Ok(Record::Done(done)) => Some(done.deadline),
            Ok(Record::Issued) | Err(UnknownRecord) => None,
        };
        let until = deadline.unwrap_or(token.expires_at.saturating_add(GRACE.as_millis() as u64));
        let life = Duration::from_millis(until.saturating_sub(self.0.clock.wall()));
        // Somebody else may have had the claim of that run in hand, and been quicker: its reply goes over it.
        // And over the token itself, if it was barred and whoever had it in hand has given it back in between.
        if let Some(there) = self.0.store.put_back(ticket, taken, life).await?
            && let (Ok(Record::Done(done)), Ok(other)) = (&record, Record::decode(&there))
            && (other == Record::Issued || matches!(&other, Record::Claimed(claimed) if done.run == claimed.run))
        {
            self.0.store.swap(ticket, &there, taken, life).await?;
        }
        match (deadline, record) {
            // Of a life of the store that is over, nothing on record counts.
            (Some(_), Ok(record)) if used == Code::TokenUsed => Ok(Verdict::Reject(record.used().into())),
            (Some(_), _) => Ok(Verdict::Reject(used.into())),
            (None, _) => Err(StoreError::not_executed(UnknownRecord)),
        }
    }
}

/// What is presented, if it has the shape of a token.
fn shape<'a>(intent: &Intent<'a>) -> Result<&'a str, Rejection> {
    let text = intent.credential.ok_or(Code::TokenMissing)?;
    TokenFields::open(text).map(|_| text).ok_or(Code::TokenMalformed.into())
}

/// Whether a token is ours, and good for what it is presented for.
pub(super) fn verify(mint: &Mint, bound: bool, intent: &Intent<'_>) -> Result<TokenFields, Rejection> {
    let text = intent.credential.ok_or(Code::TokenMissing)?;
    let token = mint.verify(text, &intent.action, &intent.subject)?;
    if bound && !(token.names_action() && (token.names_subject() || intent.subject.is_anonymous())) {
        return Err(Rejection::new(Code::TokenInvalid)
            .detail("This submission needs a token that was issued for it. Fetch one that names its action."));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::intent::Binding;
    use crate::record::DoneRecord;
    use crate::run_id::RunId;
    use crate::testing;

    /// Whoever asks for a barred token takes what bars it in hand for a moment, and just then the token may be given back.
    #[tokio::test]
    async fn what_bars_a_token_goes_back_over_the_token_itself() {
        let (guard, clock) = testing::guard();
        let life = Duration::from_secs(60);
        let issued = guard.issue(life, Binding::none()).await.unwrap();
        let (token, _) = TokenFields::open(issued.as_str()).unwrap();
        let ticket = Ticket::of_token(token.id);
        let deadline = Clock::from(&clock).wall() + life.as_millis() as u64;
        let bar = DoneRecord::bar(RunId::new(), deadline).encode();
        let verdict = guard.put_back_used(&ticket, &bar, token, Code::TokenUsed).await.unwrap();
        assert!(matches!(verdict, Verdict::Reject(rejection) if rejection.code() == Code::TokenUsed));
        assert_eq!(guard.store().look(&ticket).await.unwrap().as_deref(), Some(&bar[..]));
    }
}
