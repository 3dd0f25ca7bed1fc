//! The server on actix-web.

use std::net::TcpListener;

use actix_web::error::ErrorServiceUnavailable;
use actix_web::http::header::HeaderName;
use actix_web::web::{self, Bytes, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer, Resource};
use onceward::actix::{Protect, SubjectFrom, token_route};
use onceward::api::IssuedTokens;
use onceward::api::header::IDEMPOTENCY_KEY;
use onceward::http::issued;
use onceward::{Binding, Guard, IntervalRules, KeyRules};
use serde::Deserialize;

use super::{RETAIN, WORKERS};
use crate::Failure;

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener, guard: Option<Guard>, path: &'static str) -> Result<(), Failure> {
    let routes = routes(guard, path);
    let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(WORKERS).listen(listener)?;
    Ok(server.run().await?)
}

/// The routes. They are matched in order, so the route under load comes first.
fn routes(guard: Option<Guard>, path: &'static str) -> impl FnOnce(&mut ServiceConfig) + Clone {
    move |config| match &guard {
        None => {
            config.service(order_at(path));
        }
        Some(guard) => {
            protect(config, guard, path);
            config.service(token_route(guard, SubjectFrom::anonymous()));
            config.app_data(web::Data::new(guard.clone())).route("/tokens", web::post().to(issue_many));
        }
    }
}

/// Adds the order route with the protection for its path; none for the route that issues tokens.
fn protect(config: &mut ServiceConfig, guard: &Guard, path: &'static str) {
    let (order, anonymous) = (order_at(path), SubjectFrom::anonymous());
    match path {
        "/orders" => config.service(order.wrap(Protect::token(guard, anonymous))),
        "/keyed" => config.service(order.wrap(Protect::key(guard, anonymous, KeyRules::retryable()))),
        "/keyed-at-most-once" => config.service(order.wrap(Protect::key(guard, anonymous, KeyRules::at_most_once()))),
        "/remembered" => config.service(order.wrap(Protect::token(guard, anonymous).remember(RETAIN))),
        "/spaced" => config.service(order.wrap(Protect::interval(guard, each_another(), IntervalRules::new()))),
        _ => config,
    };
}

/// The order route, without protection.
pub(crate) fn order_at(path: &str) -> Resource {
    web::resource(path).route(web::post().to(order))
}

/// A different subject for each request, since all bodies are equal.
fn each_another() -> SubjectFrom {
    let name = HeaderName::from_static(IDEMPOTENCY_KEY);
    SubjectFrom::resolver(move |request| Some(request.headers().get(&name)?.to_str().ok()?.to_owned()))
}

/// The handler. It reads the body: a connection with an unread body is not reused, which would make the bare route too slow.
async fn order(body: Bytes) -> HttpResponse {
    HttpResponse::Created().content_type("application/json").body(format!(r#"{{"bytes":{}}}"#, body.len()))
}

/// Body of `POST /tokens`.
#[derive(Deserialize)]
struct BulkTokenRequest {
    count: u32,
}

/// Issues several tokens, like the service.
async fn issue_many(
    guard: web::Data<Guard>,
    wanted: web::Json<BulkTokenRequest>,
) -> actix_web::Result<web::Json<IssuedTokens>> {
    let mut tokens = Vec::new();
    for _ in 0..wanted.count {
        let token = guard.issue(guard.token_ttl(), Binding::none()).await.map_err(ErrorServiceUnavailable)?;
        tokens.push(issued(&token, guard.token_ttl()));
    }
    Ok(web::Json(IssuedTokens { tokens }))
}
