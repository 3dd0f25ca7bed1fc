use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::post;

use super::SubjectFrom;
use crate::guard::Guard;
use crate::http::{GuardResponse, answer_token_request};
use crate::tower::{GuardedBody, mark_seen};

/// Creates the route `POST /token` for an application's own pages, which responds with a new token. Merge it into your router:
/// `.merge(token_route(&guard, subject))`.
///
/// The body may contain the `action` of the token and a shorter `ttl`. The client cannot choose the subject: `subject` resolves it, and
/// the token is bound to it unless it is anonymous. A guard that is off does not use its store, and one that observes ignores a store
/// failure: the page then receives a placeholder token, which no enforcing guard accepts.
pub fn token_route<S: Clone + Send + Sync + 'static>(guard: &Guard, subject: SubjectFrom) -> Router<S> {
    let (guard, others) = (guard.clone(), guard.clone());
    let issue = async move |request: Request| {
        let (head, body) = request.into_parts();
        mark_seen(&head);
        answer_token_request(&head, &mut GuardedBody::new(body), &guard, &subject).await
    };
    let other = async move |request: Request| {
        GuardResponse::method_not_allowed(&request.into_parts().0, &others, "POST").into_response()
    };
    Router::new().route("/token", post(issue).fallback(other))
}
