use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;
use onceward_api::Description;

use crate::http::body_of;

/// Creates the route `GET /.well-known/onceward`, which responds with the description of the application's rules. Merge it into your
/// router.
///
/// ```
/// use axum::Router;
/// use axum::routing::post;
/// use onceward::KeyRules;
/// use onceward::api::Description;
/// use onceward::axum::{Protect, SubjectFrom, entered, well_known};
///
/// let (guard, _clock) = onceward::testing::guard();
/// let payments = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
/// let description = Description::new().route(payments.describe("POST /payments"));
/// let app: Router = Router::new()
///     .merge(well_known(&description))
///     .route("/payments", post(entered(async || "paid")).layer(payments));
/// # let _ = app;
/// ```
pub fn well_known<S: Clone + Send + Sync + 'static>(description: &Description) -> Router<S> {
    let body = body_of(description);
    let headers = [(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")];
    Router::new().route(Description::PATH, get(async move || (headers, body.clone())))
}
