//! The acceptance suite on axum.

mod messages;

use std::convert::Infallible;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler as AxumHandler;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, any};
use bytes::Bytes;
use onceward::Effect;
use onceward::axum::{Exempt, MarkedHandler, RequestIntent, entered, token_route};
use onceward::tower::Tower;
use reqwest::header::HeaderName;
use serde_json::Value;
use tower_http::compression::CompressionLayer;

use self::messages::{Parts, body_of, call_of, response_of};
use crate::handler::{Handler, Takes};
use crate::ledger::Ledger;
use crate::reply::Reply;
use crate::routes::{Entry, Layer, Route, Routes, TimeLimit};
use crate::test_server::TestServer;
use crate::web_framework::WebFramework;

/// Maximum size of a body that an extractor reads: the default of actix-web.
const BODY_LIMIT: usize = 256 * 1024;

impl WebFramework for Tower {
    const SERVE: &'static str = "onceward::axum::serve";
    const DECODES_PATHS: bool = false;
    const SCOPES_INCLUDE_UNMATCHED: bool = false;
    const ANSWERS_HALF_CLOSED: bool = false;
    const KNOWS_EXTRACTOR_ERRORS: bool = false;
    const ANSWERS_UNREAD_BODIES: bool = false;
    const HAS_PATTERNS: bool = false;
    const EVERY_PATH: &'static [&'static str] = &["/", "/{*all}"];
    const UNMARKED_TIMEOUT: Effect = Effect::Unknown;

    fn serve(ledger: &Ledger, routes: Routes<Self>) -> TestServer {
        TestServer::run_router(router(&routes, ledger))
    }

    fn peer(kind: &str) -> String {
        match kind {
            "onceward" => "axum".to_owned(),
            other => format!("axum-{other}"),
        }
    }

    fn header_name(name: &'static str) -> Self::HeaderName {
        HeaderName::from_static(name)
    }

    fn status(head: &Self::ResponseHead) -> u16 {
        head.status.as_u16()
    }

    fn has_header(head: &Self::ResponseHead, name: &str) -> bool {
        head.headers.contains_key(name)
    }
}

/// A router with these routes.
pub fn router(routes: &Routes<Tower>, ledger: &Ledger) -> Router {
    mounted(routes, ledger).layer(DefaultBodyLimit::max(BODY_LIMIT))
}

fn mounted(routes: &Routes<Tower>, ledger: &Ledger) -> Router {
    let router = routes.entries.iter().fold(Router::new(), |router, entry| match entry {
        Entry::Route(route) => router.route(&route.path, method_router(route, ledger)),
        Entry::Tokens(guard, subject) => router.merge(token_route(guard, subject.clone())),
        Entry::Scope(prefix, inner) if prefix.is_empty() => router.merge(mounted(inner, ledger)),
        Entry::Scope(prefix, inner) => router.nest(prefix, mounted(inner, ledger)),
    });
    routes.layers.iter().fold(router, |router, layer| match layer.clone() {
        Layer::Protect(protect) => router.layer(*protect),
        Layer::Require(require) => router.layer(require),
        Layer::Exempt => router.layer(Exempt),
        Layer::Compress => router.layer(CompressionLayer::new()),
        Layer::Answer(answer) => {
            let ledger = ledger.clone();
            router.layer(from_fn(move |request: Request, next: Next| {
                let (mut head, body) = request.into_parts();
                let reply = answer(&call_of(&mut head, &ledger, Bytes::new()));
                answered(reply, head, body, next)
            }))
        }
        Layer::Timeout(limit) => {
            let ledger = ledger.clone();
            router.layer(from_fn(move |request: Request, next: Next| limited(limit, ledger.clone(), request, next)))
        }
    })
}

fn method_router(route: &Route<Tower>, ledger: &Ledger) -> MethodRouter {
    let router = handled(&route.methods, &route.handler, ledger);
    route.layers.iter().fold(router, |router, layer| match layer.clone() {
        Layer::Protect(protect) => router.layer::<_, Infallible>(*protect),
        Layer::Require(require) => router.layer::<_, Infallible>(require),
        Layer::Exempt => router.layer::<_, Infallible>(Exempt),
        Layer::Compress => router.layer::<_, Infallible>(CompressionLayer::new()),
        Layer::Answer(answer) => {
            let ledger = ledger.clone();
            router.layer::<_, Infallible>(from_fn(move |request: Request, next: Next| {
                let (mut head, body) = request.into_parts();
                let reply = answer(&call_of(&mut head, &ledger, Bytes::new()));
                answered(reply, head, body, next)
            }))
        }
        Layer::Timeout(limit) => {
            let ledger = ledger.clone();
            let limited = move |request: Request, next: Next| limited(limit, ledger.clone(), request, next);
            router.layer::<_, Infallible>(from_fn(limited))
        }
    })
}

/// Responds with the reply of a layer, if it has one.
async fn answered(reply: Option<Reply>, head: Parts, body: Body, next: Next) -> Response {
    match reply {
        Some(reply) => response_of(reply, &head).into_response(),
        None => next.run(Request::from_parts(head, body)).await,
    }
}

/// Drops the handler after the time that the layer sets for this request, if it sets one.
async fn limited(limit: TimeLimit, ledger: Ledger, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let time = limit(&call_of(&mut head, &ledger, Bytes::new()));
    let run = next.run(Request::from_parts(head, body));
    match time {
        Some(time) => {
            tokio::time::timeout(time, run).await.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())
        }
        None => run.await,
    }
}

fn handled(methods: &[reqwest::Method], handler: &Handler, ledger: &Ledger) -> MethodRouter {
    let (is_marked, ledger) = (handler.is_marked, ledger.clone());
    match handler.takes.clone() {
        Takes::Head(respond) => to(methods, is_marked, async move |mut head: Parts| {
            response_of(respond(call_of(&mut head, &ledger, Bytes::new()), ()).await, &head)
        }),
        Takes::Body(respond) => to(methods, is_marked, async move |mut head: Parts, body: Bytes| {
            response_of(respond(call_of(&mut head, &ledger, body), ()).await, &head)
        }),
        Takes::Json(respond) => to(methods, is_marked, async move |mut head: Parts, Json(json): Json<Value>| {
            response_of(respond(call_of(&mut head, &ledger, Bytes::new()), json).await, &head)
        }),
        Takes::Intent(respond) => to(methods, is_marked, async move |mut head: Parts, intent: RequestIntent| {
            response_of(respond(call_of(&mut head, &ledger, Bytes::new()), intent).await, &head)
        }),
        Takes::Stream(respond) => to(methods, is_marked, async move |mut head: Parts, body: Body| {
            response_of(respond(call_of(&mut head, &ledger, Bytes::new()), body_of(body)).await, &head)
        }),
    }
}

fn to<H, T>(methods: &[reqwest::Method], is_marked: bool, handler: H) -> MethodRouter
where
    H: AxumHandler<T, ()>,
    MarkedHandler<H>: AxumHandler<T, ()>,
    T: 'static,
{
    if is_marked { on(methods, entered(handler)) } else { on(methods, handler) }
}

fn on<H: AxumHandler<T, ()>, T: 'static>(methods: &[reqwest::Method], handler: H) -> MethodRouter {
    if methods.is_empty() {
        return any(handler);
    }
    methods.iter().fold(MethodRouter::new(), |router, method| {
        let method = MethodFilter::try_from(method.clone()).expect("a method of the standard");
        router.on(method, handler.clone())
    })
}
