//! Tokens: issued to browsers, redeemed and released by backends.

use std::num::NonZeroU32;
use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::http::issued;
use onceward::{Attempt, Binding, Guard, Intent, Policy, Rejection, Released, RunId, Subject, TokenRules, Verdict};
use onceward_api::{
    Code, IssuedToken, IssuedTokens, Outcome, Problem, RedeemRequest, Redeemed, ReleaseRequest, TokenRequest,
    TokensRequest, header,
};
use utoipa::IntoResponses;

use crate::desk::{Answer, Desk, with_fields};
use crate::json_body::read_json;

/// How many tokens may be fetched with one request.
const MOST: u32 = 100;

/// What every request with a body may be answered, whatever it asks.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it is there to be specified")]
pub(super) enum Anywhere {
    /// `method_not_allowed`
    #[response(status = 405, content_type = "application/problem+json")]
    Method(Problem),
    /// `body_too_large`
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// `unsupported_media_type`
    #[response(status = 415, content_type = "application/problem+json")]
    MediaType(Problem),
    /// `internal`: a fault of the service
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(Problem),
}

/// Issue a token
///
/// Fetch one before each submission. The body is optional. A token that names an action or a subject is good only there.
#[utoipa::path(
    tag = "tokens",
    request_body(content = Option<TokenRequest>, example = json!({"action": "POST /orders", "ttl": "10m"})),
    responses(
        (status = 201, description = "A token", body = IssuedToken),
        (status = 400, description = "`bad_request`: the detail names the field", body = Problem, content_type = "application/problem+json"),
        Anywhere,
        (status = 429, description = "`rate_limited`: wait for Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`: no token was issued", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token")]
pub(crate) async fn issue(request: HttpRequest, body: web::Payload, desk: web::Data<Desk>) -> HttpResponse {
    desk.answer(&request, issue_one(&request, body, &desk).await)
}

async fn issue_one(request: &HttpRequest, body: web::Payload, desk: &Desk) -> Answer {
    let asked: TokenRequest = read_json(request, body).await?.unwrap_or_default();
    let ttl = desk.ttl(request, asked.ttl)?;
    let fields = desk.take_quota(request, NonZeroU32::MIN)?;
    let token = desk.sign(ttl, asked.action.as_deref(), asked.subject.as_deref()).await?;
    Ok(with_fields(HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(token), fields))
}

/// Issue several tokens
///
/// As many as `count` says, each for one submission. For SDKs that keep a few in stock.
#[utoipa::path(
    tag = "tokens",
    request_body(content = TokensRequest, example = json!({"count": 10})),
    responses(
        (status = 201, description = "Tokens", body = IssuedTokens),
        (status = 400, description = "`bad_request`: the detail names the field", body = Problem, content_type = "application/problem+json"),
        Anywhere,
        (status = 429, description = "`rate_limited`: wait for Retry-After", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`: no token was issued", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/tokens")]
pub(crate) async fn issue_many(request: HttpRequest, body: web::Payload, desk: web::Data<Desk>) -> HttpResponse {
    desk.answer(&request, issue_several(&request, body, &desk).await)
}

async fn issue_several(request: &HttpRequest, body: web::Payload, desk: &Desk) -> Answer {
    let asked: TokensRequest = read_json(request, body).await?.ok_or_else(|| bad("`count` is missing.".into()))?;
    let count = NonZeroU32::new(asked.count).filter(|count| count.get() <= MOST);
    let count = count.ok_or_else(|| bad(format!("`count` has to be from 1 to {MOST}.")))?;
    let ttl = desk.ttl(request, asked.ttl)?;
    let fields = desk.take_quota(request, count)?;
    let mut tokens = Vec::new();
    for _ in 0..count.get() {
        tokens.push(desk.sign(ttl, asked.action.as_deref(), asked.subject.as_deref()).await?);
    }
    let answer = HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(IssuedTokens { tokens });
    Ok(with_fields(answer, fields))
}

/// Redeem a token
///
/// Uses the token up. Do what was asked for only if this says 200. With `attempt`, the same attempt is accepted again for
/// 60 seconds, so that the question may be repeated if its answer was lost; the answer then has the `run_id` that a release names.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = RedeemRequest, example = json!({"token": "ow1_…", "action": "POST /orders"})),
    responses(
        (status = 200, description = "The token was good, and is used up now", body = Redeemed, example = json!({"outcome": "redeemed"})),
        (status = 400, description = "`token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "`unauthorized`: the API key is missing or wrong", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "`token_invalid`: forged, or for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: this submission was received already", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
        Anywhere,
        (status = 503, description = "`redeem_unknown`, `store_unavailable` or `overloaded`: nothing may run", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token/redeem")]
pub(crate) async fn redeem(request: HttpRequest, body: web::Payload, desk: web::Data<Desk>) -> HttpResponse {
    desk.answer(&request, redeem_one(&request, body, &desk).await)
}

async fn redeem_one(request: &HttpRequest, body: web::Payload, desk: &Desk) -> Answer {
    desk.access().require_backend(request)?;
    let asked: RedeemRequest = read_json(request, body).await?.ok_or_else(|| bad("`token` is missing.".into()))?;
    let attempt = asked.attempt.as_deref().map(attempt).transpose()?;
    if asked.bound && asked.action.is_none() {
        return Err(bad("`bound` needs the `action` that the token has to be bound to.".into()).into());
    }
    let rules = if asked.bound { TokenRules::new().bound() } else { TokenRules::new() };
    let policy = Policy::Token(rules);
    let action = asked.action.as_deref().unwrap_or_default();
    let mut intent = Intent::new(action, subject(asked.subject.as_deref())).credential(&asked.token);
    if let Some(attempt) = &attempt {
        intent = intent.attempt(attempt);
    }
    let (_, run) = desk.redeem(&policy, &intent).await?;
    let run_id = run.map(|run| run.to_string());
    let redeemed = Redeemed { outcome: Outcome::Redeemed.as_str().to_owned(), run_id };
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::OUTCOME, Outcome::Redeemed.as_str()));
    Ok(answer.insert_header((CACHE_CONTROL, "no-store")).json(redeemed))
}

/// Release a token
///
/// It did not happen: a token that this attempt has redeemed works again, within 60 seconds. Repeating it does no harm: `run_id` names
/// the use of the token that is released, and a later one stays.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = ReleaseRequest, example = json!({"token": "ow1_…", "attempt": "4711", "run_id": "8e03978e-40d5-43dd-bc93-6894a57f9324"})),
    responses(
        (status = 204, description = "The token works again"),
        (status = 400, description = "`token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "`unauthorized`: the API key is missing or wrong", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`claim_lost`: another attempt has it, or the same one has redeemed it again, or the 60 seconds are over", body = Problem, content_type = "application/problem+json"),
        Anywhere,
        (status = 503, description = "`store_unavailable`: ask again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/token/release")]
pub(crate) async fn release(request: HttpRequest, body: web::Payload, desk: web::Data<Desk>) -> HttpResponse {
    desk.answer(&request, release_one(&request, body, &desk).await)
}

async fn release_one(request: &HttpRequest, body: web::Payload, desk: &Desk) -> Answer {
    desk.access().require_backend(request)?;
    let asked: ReleaseRequest = read_json(request, body).await?.ok_or_else(|| bad("`token` is missing.".into()))?;
    let (attempt, run) = (attempt(&asked.attempt)?, run_id(&asked.run_id)?);
    let released = desk.guard().release(&asked.token, &attempt, run).await.map_err(|error| {
        tracing::warn!(%error, "a token could not be released");
        Rejection::new(Code::StoreUnavailable)
    })?;
    match released {
        Released::Back => Ok(HttpResponse::NoContent().finish()),
        Released::Rejected(rejection) => Err(rejection.into()),
    }
}

impl Desk {
    /// The life of a token: what was asked for, if the caller may ask for so much.
    fn ttl(&self, request: &HttpRequest, asked: Option<Duration>) -> Result<Duration, Rejection> {
        let is_backend = self.access().is_backend(request);
        self.guard().ttl(asked, if is_backend { *Guard::TOKEN_TTL.end() } else { self.guard().token_ttl() })
    }

    /// Uses a token up, and says how it was bound, and by which run of the attempt it is used, if there is one.
    pub(super) async fn redeem<'a>(
        &self,
        policy: &Policy,
        intent: &Intent<'a>,
    ) -> Result<(Binding<'a>, Option<RunId>), Rejection> {
        let verdict = self.guard().check(policy, intent).await.map_err(|error| {
            tracing::warn!(%error, "a token could not be redeemed");
            Rejection::after(&error, policy, intent)
        })?;
        match verdict {
            Verdict::Run(pass) => {
                let redeemed = (pass.binding(intent), pass.run_id());
                // Whether it happens is the backend's to say, with a release if it does not.
                pass.complete(None).await.map_err(|error| Rejection::after(&error, policy, intent))?;
                Ok(redeemed)
            }
            Verdict::Reject(rejection) => Err(rejection),
            _ => Err(Rejection::new(Code::Internal)),
        }
    }

    async fn sign(&self, ttl: Duration, action: Option<&str>, named: Option<&str>) -> Result<IssuedToken, Rejection> {
        let token = self.guard().issue(ttl, Binding::to(action, subject(named))).await.map_err(|error| {
            tracing::warn!(%error, "no token could be issued");
            Rejection::new(Code::StoreUnavailable)
        })?;
        Ok(issued(&token, ttl))
    }
}

pub(super) fn subject(named: Option<&str>) -> Subject<'_> {
    named.map_or_else(Subject::anonymous, Subject::named)
}

/// The attempt that a body names.
pub(super) fn attempt(named: &str) -> Result<Attempt, Rejection> {
    Attempt::new(named).map_err(|error| bad(format!("`attempt`: {error}.")))
}

/// The run that a body names.
fn run_id(named: &str) -> Result<RunId, Rejection> {
    named.parse().map_err(|_| bad("`run_id` has to be the one that `POST /token/redeem` answered.".into()))
}

pub(super) fn bad(detail: String) -> Rejection {
    Rejection::new(Code::BadRequest).detail(detail)
}
