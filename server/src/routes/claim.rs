//! Claims: a backend runs something once, under a key, with a token or in an interval, and then completes or releases the claim.

mod terms;

use std::ops::RangeInclusive;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::actix::Peer;
use onceward::{Guard, Rejection, Settled, SignedPass, Verdict};
use onceward_api::{ClaimRequest, ClaimResponse, Code, CompleteRequest, PassRequest, Problem};

use self::terms::ClaimTerms;
pub(super) use self::terms::limits;
use super::documented_responses::{AuthenticationFailure, CommonResponses, InvalidField};
use crate::context::{Context, HandlerResult};
use crate::http::bad_request;
use crate::http::json_body::{read_json, read_json_up_to};
use crate::http::request_log::LoggedPolicy;
use crate::http::wire_reply::{from_wire, to_wire};

/// The path for completing a claim.
pub(crate) const COMPLETE: &str = "/claim/complete";
/// Maximum body size: a reply of 1 MiB in base64, and the JSON around it.
pub(crate) const LIMIT: usize = 2 * 1024 * 1024;
/// The allowed retention of a reply.
pub(crate) const RETAIN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(400 * 24 * 60 * 60);

/// Claim a key, a token or an interval
///
/// Call this before you run a client's request. `run`: run it, renew the claim every `renew_every` while you work, then complete or release it.
/// `replay`: it ran before, and this is the stored reply. Anything else is a problem.
///
/// A claim on a key or a token is at most once: if it is not renewed, a duplicate is rejected as `outcome_unknown`, and nothing runs again before
/// the backend, or an operator, settles the first run. With `"at_most_once": false` a key is free again when the lease expires, so work that takes
/// longer and is not renewed may run twice. An interval is free again when it ends.
///
/// With `attempt`, the same attempt receives the same pass and a full lease, so that the request can be retried if its response was lost: until the
/// lease expires, and afterwards only if the claim is not at most once.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = ClaimRequest, examples(
        ("key" = (summary = "A key that the client chose", value = json!({"key": "order-4711", "action": "POST /payments", "subject": "alice"}))),
        ("token" = (summary = "A token that the client sent: a second click receives the stored reply", value = json!({"token": "ow1_…", "action": "POST /orders"}))),
        ("interval" = (summary = "The same content once per interval", value = json!({"interval": "2s", "fingerprint": "Nice article!", "action": "POST /comments", "subject": "alice"}))),
    )),
    responses(
        (status = 200, description = "Run the work, or send the stored reply", body = ClaimResponse, example = json!({"outcome": "run", "pass": "owp1_…", "lease": "15s", "renew_every": "5s"})),
        (status = 400, description = "`bad_request`, `key_malformed` or `token_malformed`: the detail names the field", body = Problem, content_type = "application/problem+json"),
        AuthenticationFailure,
        (status = 403, description = "`token_invalid`: forged, or for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`in_progress`, `outcome_unknown`, `reply_not_kept`, `token_used` or `too_soon`", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
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
    let asked: ClaimRequest = read_json(request, body).await?.unwrap_or_default();
    logged_policy(&asked).note(request);
    let terms = ClaimTerms::of(&asked)?;
    let (policy, intent) = (terms.policy(), terms.intent(&asked));
    let failed = |error| {
        tracing::debug!(%error, "could not claim; nothing runs");
        Guard::rejection_after(&error, policy, &intent)
    };
    // Without the secret no pass can be signed, so nothing is claimed.
    context.guard().fetch_secret().await.map_err(failed)?;
    let verdict = match terms.wait() {
        Some(wait) => {
            let enough = Peer::closed_or_after(request, wait);
            context.guard().check_and_wait_until(policy, &intent, enough).await
        }
        None => context.guard().check(policy, &intent).await,
    };
    let claimed = match verdict.map_err(failed)? {
        Verdict::Run(pass) => match pass.into_signed().await.map_err(failed)? {
            Some(pass) => ClaimResponse::Run { pass, lease: terms.lease(), renew_every: terms.renew_every() },
            None => return Err(Rejection::new(Code::Internal).into()),
        },
        Verdict::Replay(reply) => ClaimResponse::Replay { reply: to_wire(&reply) },
        Verdict::Reject(rejection) => return Err(rejection.into()),
    };
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(claimed))
}

fn logged_policy(asked: &ClaimRequest) -> LoggedPolicy {
    match (&asked.token, asked.interval) {
        (_, Some(_)) => LoggedPolicy::Interval,
        (Some(_), None) => LoggedPolicy::Remembered,
        (None, None) => LoggedPolicy::Key,
    }
}

/// Complete a claim
///
/// The run took effect: duplicates receive this reply from now on. Can be repeated safely. An interval stores the reply only if it was claimed
/// with `remember`; otherwise the reply is ignored, and the interval lasts to its end.
#[utoipa::path(
    operation_id = "complete_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = CompleteRequest, example = json!({"pass": "owp1_…", "reply": {"status": 201, "headers": [["location", "/payments/1"]], "body": "e30="}})),
    responses(
        (status = 204, description = "The claim is complete"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: the claim expired, and another request has claimed the same", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: send the same request again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/claim/complete")]
pub(crate) async fn complete(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, complete_one(&request, body, &context).await)
}

async fn complete_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: Option<CompleteRequest> = read_json_up_to(request, body, LIMIT).await?;
    let CompleteRequest { pass, reply } = asked.ok_or_else(|| bad_request("`pass` is missing.", "缺少 `pass`。"))?;
    let reply = reply.as_ref().map(from_wire).transpose()?;
    settled(context.pass(request, &pass).await?.complete(reply).await)
}

/// Release a claim
///
/// The run had no effect: the next request with the key runs, a token is valid again until it expires, an interval ends. Can be repeated
/// safely. Send no renewal at the same time: one that arrives after the release claims a key or an interval again, for a lease in which
/// nothing runs.
#[utoipa::path(
    operation_id = "release_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = PassRequest, example = json!({"pass": "owp1_…"})),
    responses(
        (status = 204, description = "The key or interval is free, the token valid again"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: another request has claimed the same, or the run was completed", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: send the same request again", body = Problem, content_type = "application/problem+json"),
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
/// Extends the claim by another lease. Renew every `renew_every` from the response to the claim, and stop before you release it: renewing a claim that
/// is gone claims it again.
#[utoipa::path(
    operation_id = "renew_claim",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = PassRequest, example = json!({"pass": "owp1_…"})),
    responses(
        (status = 204, description = "The claim is yours for another lease"),
        InvalidField,
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: another request has claimed the same, or the run was completed", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: send the same request again", body = Problem, content_type = "application/problem+json"),
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
    /// Reads a body that contains only a pass.
    async fn presented(&self, request: &HttpRequest, body: web::Payload) -> Result<SignedPass, Rejection> {
        self.access().require_backend(request)?;
        let asked: Option<PassRequest> = read_json(request, body).await?;
        self.pass(request, &asked.ok_or_else(|| bad_request("`pass` is missing.", "缺少 `pass`。"))?.pass).await
    }

    async fn pass(&self, request: &HttpRequest, text: &str) -> Result<SignedPass, Rejection> {
        let pass = self.guard().open_pass(text).await.map_err(unavailable)?;
        let pass = pass.ok_or_else(|| {
            bad_request(
                "`pass` was not issued by this service, or it was altered.",
                "`pass` 不是由本服务签发的，或已被改动。",
            )
        })?;
        LoggedPolicy::of_claim(pass.ticket().kind()).note(request);
        Ok(pass)
    }
}

/// Returns the response after a pass was settled.
fn settled(settled: Result<Settled, onceward::store::StoreError>) -> HandlerResult {
    settled.map_err(unavailable)?.into_result()?;
    Ok(HttpResponse::NoContent().finish())
}

fn unavailable(error: onceward::store::StoreError) -> Rejection {
    tracing::debug!(%error, "could not settle or renew a claim");
    Rejection::new(Code::StoreUnavailable)
}
