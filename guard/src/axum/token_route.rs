use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use axum::routing::post;

use super::SubjectFrom;
use crate::guard::Guard;
use crate::http::GuardResponse;
use crate::tower::issue_token;

/// Creates the route `POST /token` for an application's own pages, which responds with a new token. Merge it into your router:
/// `.merge(token_route(&guard, subject))`.
///
/// The body may contain the `action` of the token and a shorter `ttl`. The client cannot choose the subject: `subject` resolves it, and
/// the token is bound to it unless it is anonymous. A guard that is off does not use its store, and one that observes ignores a store
/// failure: the page then receives a placeholder token, which no enforcing guard accepts.
pub fn token_route<S: Clone + Send + Sync + 'static>(guard: &Guard, subject: SubjectFrom) -> Router<S> {
    let (guard, others) = (guard.clone(), guard.clone());
    let issue = async move |request: Request| issue_token(request, &guard, &subject).await.map(Body::from);
    let other = async move |request: Request| {
        GuardResponse::method_not_allowed(&request.into_parts().0, &others, "POST").into_response()
    };
    Router::new().route("/token", post(issue).fallback(other))
}
