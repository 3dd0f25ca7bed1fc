use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderValue};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, Resource, web};
use onceward_api::{Code, TokenRequest};

use super::require_protection::mark_seen;
use super::response::reject;
use super::subject::SubjectFrom;
use super::worker_stores::assert_shared;
use crate::binding::Binding;
use crate::guard::Guard;
use crate::http::{issued, parse_json};
use crate::mode::Mode;
use crate::rejection::Rejection;

/// Creates the route `POST /token` for an application's own pages, which responds with a new token.
///
/// The body may contain the `action` of the token and a shorter `ttl`. The client cannot choose the subject: `subject` resolves it, and
/// the token is bound to it unless it is anonymous. A guard that is off does not use its store, and one that observes ignores a store
/// failure: the page then receives a placeholder token, which no enforcing guard accepts.
///
/// # Panics
/// If every worker of a server builds its own memory store: build the guard before `HttpServer::new`.
#[track_caller]
pub fn token_route(guard: &Guard, subject: SubjectFrom) -> Resource {
    assert_shared(guard);
    let (guard, others) = (guard.clone(), guard.clone());
    let post = move |request: HttpRequest, body: web::Payload| {
        let (guard, subject) = (guard.clone(), subject.clone());
        mark_seen(&request);
        async move {
            match issue(&request, body, &guard, &subject).await {
                Ok(answer) => answer,
                Err(rejection) => reject(&request, &guard, &rejection),
            }
        }
    };
    let other = move |request: HttpRequest| {
        let mut answer = reject(&request, &others, &Rejection::new(Code::MethodNotAllowed));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        async move { answer }
    };
    web::resource("/token").route(web::post().to(post)).default_service(web::to(other))
}

/// The maximum size of the request body.
const BODY_LIMIT: usize = 16 * 1024;

async fn read(body: web::Payload) -> Result<web::Bytes, Rejection> {
    let body = body.to_bytes_limited(BODY_LIMIT).await.map_err(|_| Rejection::new(Code::BodyTooLarge))?;
    body.map_err(|_| Rejection::new(Code::BadRequest).detail("The body ended early."))
}

async fn issue(
    request: &HttpRequest,
    body: web::Payload,
    guard: &Guard,
    subject: &SubjectFrom,
) -> Result<HttpResponse, Rejection> {
    let subject = subject.resolve(request)?;
    let asked: TokenRequest = parse_json(request.content_type(), &read(body).await?)?.unwrap_or_default();
    if asked.subject.is_some() {
        return Err(Rejection::new(Code::BadRequest)
            .detail("`subject` is not accepted here: the application decides which subject the token belongs to."));
    }
    let ttl = guard.ttl(asked.ttl, guard.token_ttl())?;
    let bound = Binding::to(asked.action.as_deref(), subject);
    let token = match guard.mode() {
        Mode::Off => guard.blank_token(ttl, &bound),
        mode => match guard.issue(ttl, bound.clone()).await {
            Ok(token) => token,
            Err(error) => {
                tracing::debug!(%error, "could not issue a token");
                if mode == Mode::Enforce {
                    return Err(Code::StoreUnavailable.into());
                }
                guard.blank_token(ttl, &bound)
            }
        },
    };
    Ok(HttpResponse::Created().insert_header((CACHE_CONTROL, "no-store")).json(issued(&token, ttl)))
}
