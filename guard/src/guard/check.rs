//! Decides whether a submission runs, policy by policy.

use std::sync::Arc;

use onceward_api::Code;

use crate::attempt::Attempt;
use crate::audit;
use crate::claim::{self, Claim, Entered, Origin, Terms};
use crate::engine::Engine;
use crate::intent::Intent;
use crate::key::Key;
use crate::language::Language;
use crate::pass::Pass;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};
use crate::record::{Record, UnknownRecord};
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::shutdown::InFlight;
use crate::store::StoreError;
use crate::ticket::Ticket;
use crate::token::TokenFields;
use crate::token::mint::Mint;
use crate::verdict::Verdict;

/// Decides whether a submission runs, and counts nothing.
pub(super) async fn decide(engine: &Arc<Engine>, policy: &Policy, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
    let decided = match policy {
        Policy::Token(rules) => check_token(engine, rules, intent).await,
        // Boxed, so that the future of a plain token does not have the size of a claim.
        Policy::Key(rules) => Box::pin(check_key(engine, rules, intent)).await,
        Policy::Interval(rules) => Box::pin(check_interval(engine, rules, intent)).await,
    };
    match (decided, intent.within) {
        (Ok(Verdict::Reject(rejection)), Some(run)) => {
            Ok(Verdict::Reject(Box::pin(unless_within(engine, run, rejection, policy, intent)).await))
        }
        (decided, _) => decided,
    }
}

async fn check_token(engine: &Arc<Engine>, rules: &TokenRules, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
    let verified = match engine.secrets.known().as_deref().map(|mint| verify(mint, rules.bound, intent)) {
        Some(verified) => verified,
        // A text without the shape of a token is rejected before the secret is fetched from the store.
        None => match intent.credential.presented() {
            Ok(_) => verify(&*Box::pin(engine.mint()).await?, rules.bound, intent),
            Err(code) => Err(code.into()),
        },
    };
    let token = match verified {
        Ok(token) => token,
        Err(rejection) => return Ok(rejection.into()),
    };
    let Some(in_flight) = engine.shutdown.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
    let ticket = Ticket::of_token(token.id);
    engine.admit(&ticket).await?;
    if let Some(remember) = &rules.remember {
        return Box::pin(check_remembered(engine, remember, intent, token, in_flight)).await;
    }
    if let Some(attempt) = intent.attempt {
        return Box::pin(check_attempt(engine, token, attempt, in_flight)).await;
    }
    if engine.is_expired(&token) {
        return Ok(Verdict::Reject(Code::TokenExpired.into()));
    }
    Ok(match engine.redeem(&token, &ticket).await? {
        Ok(()) => Verdict::Run(Pass::of_token(Arc::clone(engine), token, ticket, in_flight)),
        Err(rejection) => rejection.into(),
    })
}

/// Checks a plain token with an attempt. A late retry of an attempt that was accepted in time is still that attempt.
async fn check_attempt(
    engine: &Arc<Engine>,
    token: TokenFields,
    attempt: &Attempt,
    in_flight: InFlight,
) -> Result<Verdict, StoreError> {
    let run = match engine.is_expired(&token) {
        false => engine.mark(&token, attempt).await?,
        true => engine.marked(&token, attempt).await?.ok_or_else(|| Code::TokenExpired.into()),
    };
    Ok(match run {
        Ok(run) => Verdict::Run(Pass::of_attempt(Arc::clone(engine), token, attempt, run, in_flight)),
        Err(rejection) => rejection.into(),
    })
}

async fn check_key(engine: &Arc<Engine>, rules: &KeyRules, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
    let Some(key) = intent.key else { return Ok(Verdict::Reject(Code::KeyMissing.into())) };
    let Some(in_flight) = engine.shutdown.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
    let terms = terms_of_key(engine, rules, intent, key);
    engine.admit(&terms.ticket).await?;
    enter(terms, in_flight).await
}

/// Checks a remembered token. A late retry still receives its reply, even if the token has expired or is stale.
async fn check_remembered(
    engine: &Arc<Engine>,
    rules: &KeyRules,
    intent: &Intent<'_>,
    token: TokenFields,
    in_flight: InFlight,
) -> Result<Verdict, StoreError> {
    let terms = terms_of_token(engine, rules, intent, token);
    if engine.is_expired(&token) && intent.attempt.is_none() {
        return terms.reply_to_late(Code::TokenExpired.into()).await.map(Verdict::from);
    }
    enter(terms, in_flight).await
}

async fn check_interval(
    engine: &Arc<Engine>,
    rules: &IntervalRules,
    intent: &Intent<'_>,
) -> Result<Verdict, StoreError> {
    let terms = terms_of_interval(engine, rules, intent).await?;
    engine.admit(&terms.ticket).await?;
    let Some(in_flight) = engine.shutdown.begin() else { return Ok(Verdict::Reject(Code::Overloaded.into())) };
    enter(terms, in_flight).await
}

/// Returns the terms of an interval. Only a remembered interval with a name compares content: without a name, content is the identity.
async fn terms_of_interval(
    engine: &Arc<Engine>,
    rules: &IntervalRules,
    intent: &Intent<'_>,
) -> Result<Terms, StoreError> {
    let ticket = ticket_of_interval(engine, intent).await?;
    let compared = rules.remember.and(intent.key.zip(intent.fingerprint));
    let fingerprint = compared.map(|(name, content)| content.keyed(name.as_bytes(), ticket.digest()));
    Ok(terms(engine, &rules.claim(), intent, ticket, fingerprint, Origin::Interval(rules.clone())))
}

async fn ticket_of_interval(engine: &Engine, intent: &Intent<'_>) -> Result<Ticket, StoreError> {
    let Some(name) = intent.key else {
        let what = intent.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
        let salt = engine.secrets.salt(&engine.store).await?;
        return Ok(Ticket::of_interval(salt.interval(&intent.action, &intent.subject, what)));
    };
    Ok(Ticket::of_name(&intent.subject, &intent.action, name))
}

async fn enter(terms: Terms, in_flight: InFlight) -> Result<Verdict, StoreError> {
    if terms.engine.renewals.is_full() {
        return Err(StoreError::not_executed("too many failed writes wait for a retry, so new work is rejected"));
    }
    Ok(match claim::enter(Arc::new(Claim::new(terms)), in_flight).await? {
        Entered::Run(claim, in_flight) => Verdict::Run(Pass::of_claim(claim, in_flight)),
        Entered::Duplicate(duplicate) => duplicate.into(),
    })
}

/// Returns the rejection, or an internal error if the conflicting claim belongs to the run of the guard around the handler. That is a bug
/// in the application: the inner run would wait for the outer one forever.
async fn unless_within(
    engine: &Engine,
    run: RunId,
    rejection: Rejection,
    policy: &Policy,
    intent: &Intent<'_>,
) -> Rejection {
    let Ok(Some(ticket)) = ticket(engine, policy, intent).await else { return rejection };
    if !is_claimed_by(engine, &ticket, run).await.unwrap_or(false) {
        return rejection;
    }
    tracing::error!(
        action = &*intent.action,
        %run,
        "a handler tried to claim what the guard around it has claimed, so its work never runs; use another action or key"
    );
    Rejection::new(Code::Internal)
        .detail("The handler tried to claim what the guard around it has claimed, so its work did not run.")
        .detail_in(Language::SIMPLIFIED_CHINESE, "处理函数试图占用其外层守卫已占用的提交，因此该部分没有执行。")
}

/// Returns the ticket that a submission claims, or `None` if it presents no token or key for it.
pub(super) async fn ticket(
    engine: &Engine,
    policy: &Policy,
    intent: &Intent<'_>,
) -> Result<Option<Ticket>, StoreError> {
    Ok(match policy {
        Policy::Token(_) => intent.credential.fields().map(|token| Ticket::of_token(token.id)),
        Policy::Key(_) => intent.key.map(|key| Ticket::of_key(&intent.subject, &intent.action, key)),
        Policy::Interval(_) => Some(ticket_of_interval(engine, intent).await?),
    })
}

/// Returns whether this run holds the claim on a ticket.
pub(super) async fn is_claimed_by(engine: &Engine, ticket: &Ticket, run: RunId) -> Result<bool, StoreError> {
    Ok(matches!(engine.record(ticket).await?, Some(Record::Claimed(claimed)) if claimed.run == run))
}

/// Returns the terms of a duplicate that was rejected as `in_progress` and may wait, or `None` if it cannot wait.
pub(super) async fn waiting_terms(
    engine: &Arc<Engine>,
    policy: &Policy,
    intent: &Intent<'_>,
) -> Result<Option<Terms>, StoreError> {
    Ok(match policy {
        Policy::Key(rules) => intent.key.map(|key| terms_of_key(engine, rules, intent, key)),
        Policy::Token(rules) => {
            let remember = rules.remember.as_ref().zip(intent.credential.fields());
            remember.map(|(remember, token)| terms_of_token(engine, remember, intent, *token))
        }
        Policy::Interval(rules) => Some(terms_of_interval(engine, rules, intent).await?),
    })
}

fn terms_of_key(engine: &Arc<Engine>, rules: &KeyRules, intent: &Intent<'_>, key: &Key) -> Terms {
    let ticket = Ticket::of_key(&intent.subject, &intent.action, key);
    let fingerprint = intent.fingerprint.map(|fingerprint| fingerprint.keyed(key.as_bytes(), ticket.digest()));
    terms(engine, rules, intent, ticket, fingerprint, Origin::Key)
}

fn terms_of_token(engine: &Arc<Engine>, rules: &KeyRules, intent: &Intent<'_>, token: TokenFields) -> Terms {
    let ticket = Ticket::of_token(token.id);
    let fingerprint = intent.fingerprint.map(|fingerprint| fingerprint.keyed(token.id.as_bytes(), ticket.digest()));
    terms(engine, rules, intent, ticket, fingerprint, Origin::Token(token, intent.asker(token.id)))
}

fn terms(
    engine: &Arc<Engine>,
    rules: &KeyRules,
    intent: &Intent<'_>,
    ticket: Ticket,
    fingerprint: Option<[u8; 16]>,
    origin: Origin,
) -> Terms {
    let attempt = intent.attempt.map(|attempt| attempt.under(ticket.digest(), fingerprint));
    let (engine, rules, action) = (Arc::clone(engine), rules.clone(), audit::named(&intent.action));
    Terms { engine, rules, origin, action, ticket, fingerprint, attempt }
}

/// Performs every check on a token that needs no store command, in the order of the contract.
pub(super) fn present(
    engine: &Engine,
    mint: &Mint,
    policy: &Policy,
    intent: &Intent<'_>,
) -> Result<TokenFields, Rejection> {
    let Policy::Token(rules) = policy else { return Err(Code::TokenMissing.into()) };
    let token = verify(mint, rules.bound, intent)?;
    if engine.is_expired(&token) {
        return Err(Code::TokenExpired.into());
    }
    match engine.store.epoch(&Ticket::of_token(token.id)) {
        Some(epoch) if epoch != token.epoch => Err(Code::TokenStale.into()),
        _ => Ok(token),
    }
}

/// Returns whether a submission runs although the store failed. A record of another version is a reply of the store, and does not allow a
/// run.
pub(super) fn fails_open(policy: &Policy, error: &StoreError) -> bool {
    policy.fails_open() && !error.is_because_of::<UnknownRecord>()
}

/// Returns the rejection for the client if the store failed during a check.
pub(super) fn rejection_after(error: &StoreError, policy: &Policy, intent: &Intent<'_>) -> Rejection {
    let code = match (policy, error, intent.repeats_attempt) {
        (_, StoreError::NotExecuted(_), _) => Code::StoreUnavailable,
        // A claim that may have been written is revoked, or its lease expires.
        (Policy::Key(_) | Policy::Interval(_), StoreError::Unknown(_), _) => Code::StoreUnavailable,
        (Policy::Token(TokenRules { remember: Some(_), .. }), StoreError::Unknown(_), _) => Code::StoreUnavailable,
        // If the attempt was accepted after all, a retry is accepted again.
        (Policy::Token(_), StoreError::Unknown(_), true) => Code::StoreUnavailable,
        (Policy::Token(_), StoreError::Unknown(_), false) => Code::RedeemUnknown,
    };
    code.into()
}

/// Verifies that one of the guard's secrets signed the token, and that it is valid for this intent.
pub(super) fn verify(mint: &Mint, bound: bool, intent: &Intent<'_>) -> Result<TokenFields, Rejection> {
    let token = mint.verify(&intent.credential, &intent.action, &intent.subject)?;
    if bound && !(token.names_action() && (token.names_subject() || intent.subject.is_anonymous())) {
        return Err(Rejection::new(Code::TokenInvalid)
            .detail("This submission needs a token that is bound to it. Fetch a token for its action and subject.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "此次提交需要与其绑定的令牌。请为对应的操作和请求方获取令牌。"));
    }
    Ok(token)
}
