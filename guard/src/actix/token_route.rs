use std::time::Duration;

use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, Resource, web};
use jiff::Timestamp;
use onceward_api::{Code, IssuedToken, TokenRequest};

use super::answer::refuse;
use super::subject::SubjectFrom;
use crate::guard::Guard;
use crate::intent::{Binding, Subject};
use crate::refusal::Refusal;
use crate::token::Token;

/// How much of a body is read.
const BODY: usize = 16 * 1024;
/// The shortest life that can be asked for.
const SHORTEST: Duration = Duration::from_secs(1);

/// `POST /token`, for an application's own pages: answers with a fresh token.
///
/// The body may name the `action` it is for and a shorter `ttl`. Whom it is for is not the client's to say: that is
/// what `subject` finds, and the token is bound to it, unless it is anonymous.
pub fn token_route(guard: &Guard, subject: SubjectFrom) -> Resource {
    let (guard, others) = (guard.clone(), guard.clone());
    let post = move |request: HttpRequest, body: web::Payload| {
        let (guard, subject) = (guard.clone(), subject.clone());
        async move {
            match issue(&request, body, &guard, &subject).await {
                Ok(answer) => answer,
                Err(refusal) => refuse(&request, &guard, &refusal),
            }
        }
    };
    let other = move |request: HttpRequest| {
        let mut answer = refuse(&request, &others, &Refusal::new(Code::MethodNotAllowed));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        async move { answer }
    };
    web::resource("/token").route(web::post().to(post)).default_service(web::to(other))
}

async fn issue(
    request: &HttpRequest,
    body: web::Payload,
    guard: &Guard,
    subject: &SubjectFrom,
) -> Result<HttpResponse, Refusal> {
    let subject = subject.resolve(request)?;
    let body = body.to_bytes_limited(BODY).await.map_err(|_| Refusal::new(Code::BodyTooLarge))?;
    let body = body.map_err(|_| Refusal::new(Code::BadRequest).detail("The body broke off."))?;
    let asked = read(request.content_type(), &body)?;
    if asked.subject.is_some() {
        return Err(Refusal::new(Code::BadRequest)
            .detail("`subject`: whom a token is for is decided by this application, not by the request."));
    }
    let ttl = ttl(asked.ttl, guard.token_ttl())?;
    let token = guard.issue(ttl, binding(asked.action.as_deref(), subject)).await.map_err(|error| {
        tracing::warn!(%error, "no token could be issued");
        Refusal::new(Code::StoreUnavailable)
    })?;
    Ok(HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(answer(&token, ttl)))
}

/// Reads the body, which may be missing.
fn read(content_type: &str, body: &[u8]) -> Result<TokenRequest, Refusal> {
    if body.is_empty() {
        return Ok(TokenRequest::default());
    }
    if !content_type.eq_ignore_ascii_case("application/json") {
        return Err(Code::UnsupportedMediaType.into());
    }
    // An array would be read as the fields in their order, which is nobody's contract.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::new(Code::BadRequest).detail("The body has to be a JSON object."));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::new(Code::BadRequest).detail(error.to_string()))
}

/// The life of a token: what was asked for, if that is allowed.
fn ttl(asked: Option<Duration>, longest: Duration) -> Result<Duration, Refusal> {
    match asked {
        None => Ok(longest),
        Some(ttl) if (SHORTEST..=longest).contains(&ttl) => Ok(ttl),
        Some(_) => {
            let longest = onceward_api::duration::text(longest);
            Err(Refusal::new(Code::BadRequest).detail(format!("`ttl` has to be from 1s to {longest}.")))
        }
    }
}

fn binding<'a>(action: Option<&'a str>, subject: Subject<'a>) -> Binding<'a> {
    let binding = Binding::none().subject(subject);
    match action {
        Some(action) => binding.action(action),
        None => binding,
    }
}

fn answer(token: &Token, ttl: Duration) -> IssuedToken {
    let millis = i64::try_from(token.expires_at()).unwrap_or(i64::MAX);
    IssuedToken {
        token: token.as_str().to_owned(),
        expires_at: Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX),
        expires_in: ttl.as_secs(),
    }
}
