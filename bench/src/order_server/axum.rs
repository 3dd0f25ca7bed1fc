//! The server on axum: the routes under load. The clients of the SDK comparison use the server on actix-web.

use std::net::TcpListener;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post};
use axum::serve::ListenerExt as _;
use onceward::api::header::IDEMPOTENCY_KEY;
use onceward::axum::{Protect, SubjectFrom, entered, token_route};
use onceward::{Guard, IntervalRules, KeyRules};

use super::RETAIN;
use crate::Failure;

/// Serves until the process ends. Sets `TCP_NODELAY`, as the documentation of axum does.
pub(super) async fn serve(listener: TcpListener, guard: Option<Guard>, path: &'static str) -> Result<(), Failure> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
        // The connection may have been closed already.
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, routes(guard, path)).await?)
}

fn routes(guard: Option<Guard>, path: &'static str) -> Router {
    let Some(guard) = guard else { return Router::new().route(path, post(order)) };
    let routes = Router::new().merge(token_route(&guard, SubjectFrom::anonymous()));
    match protected(&guard, path) {
        Some(order) => routes.route(path, order),
        None => routes,
    }
}

/// The order route with the protection for its path; none for the route that issues tokens.
fn protected(guard: &Guard, path: &str) -> Option<MethodRouter> {
    let (order, anonymous) = (post(entered(order)), SubjectFrom::anonymous());
    Some(match path {
        "/orders" => order.layer(Protect::token(guard, anonymous)),
        "/keyed" => order.layer(Protect::key(guard, anonymous, KeyRules::retryable())),
        "/keyed-at-most-once" => order.layer(Protect::key(guard, anonymous, KeyRules::at_most_once())),
        "/remembered" => order.layer(Protect::token(guard, anonymous).remember(RETAIN)),
        "/spaced" => order.layer(Protect::interval(guard, each_another(), IntervalRules::new())),
        _ => return None,
    })
}

/// A different subject for each request, since all bodies are equal.
fn each_another() -> SubjectFrom {
    let name = HeaderName::from_static(IDEMPOTENCY_KEY);
    SubjectFrom::resolver(move |request| Some(request.headers.get(&name)?.to_str().ok()?.to_owned()))
}

/// The handler: the same response as on actix-web.
async fn order(body: Bytes) -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (StatusCode::CREATED, headers, Body::from(format!(r#"{{"bytes":{}}}"#, body.len())))
}
