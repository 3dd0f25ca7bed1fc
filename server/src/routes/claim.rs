//! Claims: a backend does something under a caller's key, and says how it ended.

use std::ops::RangeInclusive;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::actix::Peer;
use onceward::{Fingerprint, Guard, Intent, KeyRules, Policy, Rejection, Settled, SignedPass, Subject, Verdict};
use onceward_api::{ClaimRequest, ClaimResponse, Code, CompleteRequest, PassRequest, Problem};

use super::documented_responses::{AuthenticationFailure, CommonResponses, InvalidField};
use super::request_fields::{attempt, key};
use crate::context::{Context, HandlerResult};
use crate::http::bad_request;
use crate::http::json_body::{read_json, read_json_up_to};
use crate::http::wire_reply::{from_wire, to_wire};

/// Where a claim is completed.
pub(crate) const COMPLETE: &str = "/claim/complete";
/// A reply of 1 MiB in base64, and what stands around it.
pub(crate) const LIMIT: usize = 2 * 1024 * 1024;
const LEASE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60 * 60);
const DEFAULT_LEASE: Duration = Duration::from_secs(15);
/// How often a claim is to be renewed within its lease.
const RENEWALS: u32 = 3;
/// How long a reply may be stored.
pub(crate) const RETAIN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(400 * 24 * 60 * 60);
const WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30);

/// Claim a key
///
/// Ask before doing what a caller has sent under a key of its own. `run`: do it, renew the claim every `renew_every` while you
/// work, and say how it ended. `replay`: it was done before, and this is what was answered. Anything else is a problem.
///
/// A claim is at most once: if it is not renewed, a repetition is told `outcome_unknown`, and nothing runs again before the
/// backend, or an operator, says how the first run ended. With `"at_most_once": false` the key is free again when the lease expires,
/// so work that takes longer and is not renewed may be done twice.
///
/// With `attempt`, the same attempt gets the same pass and a whole lease, so that the question may be repeated if its answer was
/// lost: until the lease expires, and beyond it only with `"at_most_once": false`.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = ClaimRequest, example = json!({"key": "order-4711", "action": "POST /payments", "subject": "alice"})),
    responses(
        (status = 200, description = "Do it, or give this answer", body = ClaimResponse, example = json!({"outcome": "run", "pass": "owp1_…", "lease": "15s", "renew_every": "5s"})),
        (status = 400, description = "`bad_request` or `key_malformed`: the detail names the field", body = Problem, content_type = "application/problem+json"),
        AuthenticationFailure,
        (status = 409, description = "`in_progress`, `outcome_unknown` or `reply_not_kept`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "`key_reused`: the same key with another fingerprint", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable` or `overloaded`: nothing may run", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/claim")]
pub(crate) async fn claim(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, claim_one(&request, body, &context).await)
}

async fn claim_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: ClaimRequest = read_json(request, body).await?.ok_or_else(|| bad_request("`key` is missing."))?;
    let key = key(&asked.key)?;
    let attempt = asked.attempt.as_deref().map(attempt).transpose()?;
    let lease = within("lease", asked.lease, &LEASE)?.unwrap_or(DEFAULT_LEASE);
    let (policy, wait) = (Policy::key(rules(&asked, lease)?), within("wait", asked.wait, &WAIT)?);
    named("action", &asked.action)?;
    named("subject", &asked.subject)?;
    let mut intent = Intent::new(&asked.action, Subject::named(asked.subject.as_str())).key(&key);
    if let Some(fingerprint) = &asked.fingerprint {
        intent = intent.fingerprint(Fingerprint::of_bytes(fingerprint.as_bytes()));
    }
    if let Some(attempt) = &attempt {
        intent = intent.attempt(attempt);
    }
    let failed = |error| {
        tracing::warn!(%error, "a key could not be claimed");
        Guard::rejection_after(&error, &policy, &intent)
    };
    // Nothing is claimed for which no pass can be signed.
    context.guard().fetch_secret().await.map_err(failed)?;
    let verdict = match wait {
        Some(wait) => {
            let enough = Peer::closed_or_after(request, wait);
            context.guard().check_and_wait_until(&policy, &intent, enough).await
        }
        None => context.guard().check(&policy, &intent).await,
    };
    let claimed = match verdict.map_err(failed)? {
        Verdict::Run(pass) => match pass.into_signed().await.map_err(failed)? {
            Some(pass) => ClaimResponse::Run { pass, lease, renew_every: lease / RENEWALS },
            None => return Err(Rejection::new(Code::Internal).into()),
        },
        Verdict::Replay(reply) => ClaimResponse::Replay { reply: to_wire(&reply) },
        Verdict::Reject(rejection) => return Err(rejection.into()),
    };
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(claimed))
}

/// Complete a claim
///
/// The run took effect: duplicates receive this reply from now on. Can be repeated safely.
#[utoipa::path(
    operation_id = "complete_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = CompleteRequest, example = json!({"pass": "owp1_…", "reply": {"status": 201, "headers": [["location", "/payments/1"]], "body": "e30="}})),
    responses(
        (status = 204, description = "It is on record"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: the claim lapsed, and somebody else has the key", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: say it again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/claim/complete")]
pub(crate) async fn complete(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, complete_one(&request, body, &context).await)
}

async fn complete_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: Option<CompleteRequest> = read_json_up_to(request, body, LIMIT).await?;
    let CompleteRequest { pass, reply } = asked.ok_or_else(|| bad_request("`pass` is missing."))?;
    let reply = reply.as_ref().map(from_wire).transpose()?;
    settled(context.pass(&pass).await?.complete(reply).await)
}

/// Release a claim
///
/// The run had no effect: the next request with the key runs. Can be repeated safely. Send no renewal at the same time: one that
/// arrives after the release claims the key again, for a lease in which nothing runs.
#[utoipa::path(
    operation_id = "release_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = PassRequest, example = json!({"pass": "owp1_…"})),
    responses(
        (status = 204, description = "The key is free"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: somebody else has the key, or it was completed", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: say it again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/claim/release")]
pub(crate) async fn release(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, release_one(&request, body, &context).await)
}

async fn release_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    settled(context.presented(request, body).await?.release().await)
}

/// Renew a claim
///
/// The run goes on: the claim lives for another lease. Do so every `renew_every` of the answer to the claim, and not any more once it is
/// released: a claim that is gone is made again.
#[utoipa::path(
    operation_id = "renew_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = PassRequest, example = json!({"pass": "owp1_…"})),
    responses(
        (status = 204, description = "The claim is yours for another lease"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: somebody else has the key, or it was completed", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: say it again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/claim/renew")]
pub(crate) async fn renew(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, renew_one(&request, body, &context).await)
}

async fn renew_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    match context.presented(request, body).await?.renew().await.map_err(unavailable)? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Rejection::new(Code::ClaimLost).into()),
    }
}

impl Context {
    /// The pass that a backend presents alone.
    async fn presented(&self, request: &HttpRequest, body: web::Payload) -> Result<SignedPass, Rejection> {
        self.access().require_backend(request)?;
        let asked: Option<PassRequest> = read_json(request, body).await?;
        self.pass(&asked.ok_or_else(|| bad_request("`pass` is missing."))?.pass).await
    }

    async fn pass(&self, text: &str) -> Result<SignedPass, Rejection> {
        let pass = self.guard().open_pass(text).await.map_err(unavailable)?;
        pass.ok_or_else(|| bad_request("`pass` is not one that was given out here, or it was altered."))
    }
}

/// The response after a pass was settled.
fn settled(settled: Result<Settled, onceward::store::StoreError>) -> HandlerResult {
    settled.map_err(unavailable)?.into_result()?;
    Ok(HttpResponse::NoContent().finish())
}

fn unavailable(error: onceward::store::StoreError) -> Rejection {
    tracing::warn!(%error, "a claim could not be settled or renewed");
    Rejection::new(Code::StoreUnavailable)
}

fn rules(asked: &ClaimRequest, lease: Duration) -> Result<KeyRules, Rejection> {
    let rules = if asked.at_most_once { KeyRules::at_most_once() } else { KeyRules::retryable() };
    let mut rules = rules.lease(lease).map_err(|error| bad_request(format!("`lease`: {error}.")))?;
    if let Some(retain) = within("retain", asked.retain, &RETAIN)? {
        rules = rules.retain(retain);
    }
    Ok(rules)
}

/// A duration that is allowed here.
fn within(
    field: &str,
    asked: Option<Duration>,
    allowed: &RangeInclusive<Duration>,
) -> Result<Option<Duration>, Rejection> {
    match asked {
        Some(asked) if !allowed.contains(&asked) => {
            let [least, most] = [allowed.start(), allowed.end()].map(|end| onceward_api::duration::text(*end));
            Err(bad_request(format!("`{field}` has to be from {least} to {most}.")))
        }
        asked => Ok(asked),
    }
}

fn named(field: &str, text: &str) -> Result<(), Rejection> {
    if text.is_empty() { Err(bad_request(format!("`{field}` may not be empty."))) } else { Ok(()) }
}
