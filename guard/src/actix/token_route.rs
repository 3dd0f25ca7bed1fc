use actix_web::{HttpRequest, HttpResponse, Resource, web};

use super::SubjectFrom;
use super::require_protection::mark_seen;
use super::worker_stores::assert_shared;
use crate::guard::Guard;
use crate::http::{GuardResponse, answer_token_request};

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
        async move { HttpResponse::from(answer_token_request(&request, &mut body.into_inner(), &guard, &subject).await) }
    };
    let other = move |request: HttpRequest| {
        let response = GuardResponse::method_not_allowed(&request, &others, "POST");
        async move { HttpResponse::from(response) }
    };
    web::resource("/token").route(web::post().to(post)).default_service(web::to(other))
}
