//! Tokens: issued to browsers, redeemed and released by backends.

use std::num::NonZeroU32;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::http::issued;
use onceward::{Binding, Guard, Intent, Policy, Rejection, RunId, TokenRules, Verdict};
use onceward_api::{
    Code, IssuedToken, IssuedTokens, Outcome, Problem, RedeemRequest, RedeemResponse, ReleaseRequest, TokenRequest,
    TokensRequest, header,
};

use super::documented_responses::{AuthenticationFailure, CommonResponses, InvalidField};
use super::request_fields::{attempt, run_id, subject};
use crate::context::{Context, HandlerResult, with_rate_limit};
use crate::http::bad_request;
use crate::http::json_body::read_json;
use crate::http::request_log::LoggedPolicy;

/// Maximum number of tokens per request.
pub(super) const MOST: u32 = 100;

/// Issue a token
///
/// Fetch one before each submission. The body is optional. A token with an action or a subject is accepted only for these.
#[utoipa::path(
    operation_id = "issue_token",
    tag = "tokens",
    request_body(content = Option<TokenRequest>, example = json!({"action": "POST /orders", "ttl": "10m"})),
    responses(
        (status = 201, description = "A token", body = IssuedToken),
        InvalidField,
        CommonResponses,
        (status = 429, description = "`rate_limited`: wait for Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`: no token was issued", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token")]
pub(crate) async fn issue(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    context.respond(&request, issue_one(&request, body, &context).await)
}

async fn issue_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    let asked: TokenRequest = read_json(request, body).await?.unwrap_or_default();
    let ttl = context.ttl(request, asked.ttl)?;
    let rate_limit = context.take_tokens(request, NonZeroU32::MIN)?;
    let token = context.sign(ttl, asked.action.as_deref(), asked.subject.as_deref()).await?;
    Ok(with_rate_limit(HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(token), rate_limit))
}

/// Issue several tokens
///
/// Issues `count` tokens, each for one submission. For SDKs that fetch tokens in advance.
#[utoipa::path(
    operation_id = "issue_tokens",
    tag = "tokens",
    request_body(content = TokensRequest, example = json!({"count": 10})),
    responses(
        (status = 201, description = "Tokens", body = IssuedTokens),
        InvalidField,
        CommonResponses,
        (status = 429, description = "`rate_limited`: wait for Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`: no token was issued", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/tokens")]
pub(crate) async fn issue_many(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    context.respond(&request, issue_several(&request, body, &context).await)
}

async fn issue_several(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    let asked: TokensRequest =
        read_json(request, body).await?.ok_or_else(|| bad_request("`count` is missing.", "缺少 `count`。"))?;
    let count = NonZeroU32::new(asked.count).filter(|count| count.get() <= MOST);
    let count = count.ok_or_else(|| {
        bad_request(format!("`count` must be from 1 to {MOST}."), format!("`count` 必须在 1 到 {MOST} 之间。"))
    })?;
    let ttl = context.ttl(request, asked.ttl)?;
    let rate_limit = context.take_tokens(request, count)?;
    let mut tokens = Vec::new();
    for _ in 0..count.get() {
        tokens.push(context.sign(ttl, asked.action.as_deref(), asked.subject.as_deref()).await?);
    }
    let answer = HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(IssuedTokens { tokens });
    Ok(with_rate_limit(answer, rate_limit))
}

/// Redeem a token
///
/// Marks the token as used. Run the operation only if the status is 200. With `attempt`, the same attempt is accepted again for 60 seconds, so that
/// the request can be retried if its response was lost; the response then has the `run_id` that a release needs.
#[utoipa::path(
    operation_id = "redeem_token",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = RedeemRequest, example = json!({"token": "ow1_…", "action": "POST /orders"})),
    responses(
        (status = 200, description = "The token was valid, and is now used", body = RedeemResponse, example = json!({"outcome": "redeemed"})),
        (status = 400, description = "`token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        AuthenticationFailure,
        (status = 403, description = "`token_invalid`: forged, or for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: this submission was already received", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`redeem_unknown`, `store_unavailable` or `overloaded`: nothing may run", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token/redeem")]
pub(crate) async fn redeem(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    context.respond(&request, redeem_one(&request, body, &context).await)
}

async fn redeem_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: RedeemRequest =
        read_json(request, body).await?.ok_or_else(|| bad_request("`token` is missing.", "缺少 `token`。"))?;
    let attempt = asked.attempt.as_deref().map(attempt).transpose()?;
    if asked.bound && asked.action.is_none() {
        return Err(bad_request(
            "`bound` requires `action`: the action that the token must be bound to.",
            "`bound` 需要 `action`，即令牌必须绑定的操作。",
        )
        .into());
    }
    let rules = if asked.bound { TokenRules::new().bound() } else { TokenRules::new() };
    let policy = Policy::Token(rules);
    let action = asked.action.as_deref().unwrap_or_default();
    let mut intent = Intent::new(action, subject(asked.subject.as_deref())).credential(&asked.token);
    if let Some(attempt) = &attempt {
        intent = intent.attempt(attempt);
    }
    let (_, run) = context.redeem(&policy, &intent).await?;
    let run_id = run.map(|run| run.to_string());
    let redeemed = RedeemResponse { outcome: Outcome::Redeemed.as_str().to_owned(), run_id };
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::OUTCOME, Outcome::Redeemed.as_str()));
    Ok(answer.insert_header((CACHE_CONTROL, "no-store")).json(redeemed))
}

/// Release a token
///
/// The submission had no effect: a token that this attempt redeemed less than 60 seconds ago works again. Can be repeated safely: `run_id`
/// names the use of the token that is released, and a later use stays.
#[utoipa::path(
    operation_id = "release_token",
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = ReleaseRequest, example = json!({"token": "ow1_…", "attempt": "4711", "run_id": "8e03978e-40d5-43dd-bc93-6894a57f9324"})),
    responses(
        (status = 204, description = "The token works again"),
        (status = 400, description = "`token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        AuthenticationFailure,
        (status = 409, description = "`claim_lost`: another attempt has redeemed the token, or the same attempt has redeemed it again, or more than 60 seconds have passed", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: send the same request again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token/release")]
pub(crate) async fn release(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    context.respond(&request, release_one(&request, body, &context).await)
}

async fn release_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: ReleaseRequest =
        read_json(request, body).await?.ok_or_else(|| bad_request("`token` is missing.", "缺少 `token`。"))?;
    let (attempt, run) = (attempt(&asked.attempt)?, run_id(&asked.run_id)?);
    let released = context.guard().release(&asked.token, &attempt, run).await.map_err(|error| {
        tracing::debug!(%error, "could not release a token");
        Rejection::new(Code::StoreUnavailable)
    })?;
    released.into_result()?;
    Ok(HttpResponse::NoContent().finish())
}

impl Context {
    /// Returns the requested time to live, if the caller may use it.
    fn ttl(&self, request: &HttpRequest, asked: Option<Duration>) -> Result<Duration, Rejection> {
        let is_backend = self.access().is_backend(request);
        self.guard().ttl(asked, if is_backend { *Guard::TOKEN_TTL.end() } else { self.guard().token_ttl() })
    }

    /// Redeems a token. Returns its binding, and the run id if the intent names an attempt.
    pub(super) async fn redeem<'a>(
        &self,
        policy: &Policy,
        intent: &Intent<'a>,
    ) -> Result<(Binding<'a>, Option<RunId>), Rejection> {
        let verdict = self.guard().check(policy, intent).await.map_err(|error| {
            tracing::debug!(%error, "could not redeem a token");
            Guard::rejection_after(&error, policy, intent)
        })?;
        match verdict {
            Verdict::Run(pass) => {
                let redeemed = (pass.binding(intent), pass.run_id());
                // The backend runs the operation, and releases the token if it has no effect.
                pass.complete(None).await.map_err(|error| Guard::rejection_after(&error, policy, intent))?;
                Ok(redeemed)
            }
            Verdict::Reject(rejection) => Err(rejection),
            _ => Err(Rejection::new(Code::Internal)),
        }
    }

    async fn sign(&self, ttl: Duration, action: Option<&str>, named: Option<&str>) -> Result<IssuedToken, Rejection> {
        let token = self.guard().issue(ttl, Binding::to(action, subject(named))).await.map_err(|error| {
            tracing::debug!(%error, "could not issue a token");
            Rejection::new(Code::StoreUnavailable)
        })?;
        Ok(issued(&token, ttl))
    }
}
