//! The acceptance suite on actix-web.

mod layers;
mod messages;

use actix_web::body::BoxBody;
use actix_web::dev::{HttpServiceFactory, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::web::{self, Bytes, Json, Payload, ServiceConfig};
use actix_web::{App, Error, Handler as ActixHandler, HttpRequest, HttpResponse, HttpServer};
use futures_util::future::{Either, select};
use onceward::actix::{Actix, Peer, RequestIntent, entered, token_route};
use onceward::{Effect, Guard};
use serde_json::Value;

use self::layers::Layers;
use self::messages::piped;
pub use self::messages::{call_of, response_of};
use crate::handler::{Handler, Takes};
use crate::ledger::Ledger;
use crate::reply::ReplyBody;
use crate::routes::{Entry, Route, Routes};
use crate::shop;
use crate::test_server::TestServer;
use crate::web_framework::WebFramework;

impl WebFramework for Actix {
    const SERVE: &'static str = "onceward::actix::serve";
    const DECODES_PATHS: bool = true;
    const SCOPES_INCLUDE_UNMATCHED: bool = true;
    const ANSWERS_HALF_CLOSED: bool = true;
    const KNOWS_EXTRACTOR_ERRORS: bool = true;
    const ANSWERS_UNREAD_BODIES: bool = true;
    const HAS_PATTERNS: bool = true;
    const EVERY_PATH: &'static [&'static str] = &["/{all:.*}"];
    const UNMARKED_TIMEOUT: Effect = Effect::NotApplied;

    fn serve(ledger: &Ledger, routes: Routes<Self>) -> TestServer {
        let ledger = ledger.clone();
        TestServer::run(move |listener| {
            let server = HttpServer::new(move || app(&routes, &ledger)).workers(2);
            Ok(server.disable_signals().listen(listener)?.run())
        })
    }

    fn serve_watching(ledger: &Ledger, routes: Routes<Self>) -> TestServer {
        let ledger = ledger.clone();
        TestServer::run(move |listener| {
            let server = HttpServer::new(move || app(&routes, &ledger)).workers(2).on_connect(Peer::note);
            Ok(server.disable_signals().listen(listener)?.run())
        })
    }

    fn serve_shop(guard: &Guard, ledger: &Ledger) -> TestServer {
        let routes = shop::actix_routes(guard, ledger);
        TestServer::run(move |listener| {
            let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2);
            Ok(server.disable_signals().listen(listener)?.run())
        })
    }

    fn peer(kind: &str) -> String {
        kind.to_owned()
    }

    fn header_name(name: &'static str) -> Self::HeaderName {
        actix_web::http::header::HeaderName::from_static(name)
    }

    fn status(head: &Self::ResponseHead) -> u16 {
        head.status.as_u16()
    }

    fn has_header(head: &Self::ResponseHead, name: &str) -> bool {
        head.headers().contains_key(name)
    }
}

/// An application with these routes.
fn app(
    routes: &Routes<Actix>,
    ledger: &Ledger,
) -> App<
    impl ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>
    + use<>,
> {
    App::new().wrap(Layers::new(&routes.layers, ledger)).configure(|config| mount(config, routes, ledger))
}

/// Adds the entries of a table to an application or a scope, without the layers around all of them.
pub fn mount(config: &mut ServiceConfig, routes: &Routes<Actix>, ledger: &Ledger) {
    for entry in &routes.entries {
        match entry {
            Entry::Route(route) => config.service(resource(route, ledger)),
            Entry::Tokens(guard, subject) => config.service(token_route(guard, subject.clone())),
            Entry::Scope(prefix, inner) => config.service(scope(prefix, inner, ledger)),
        };
    }
}

fn scope(prefix: &str, routes: &Routes<Actix>, ledger: &Ledger) -> impl HttpServiceFactory + use<> {
    let scope = web::scope(prefix).configure(|config| mount(config, routes, ledger));
    scope.wrap(Layers::new(&routes.layers, ledger))
}

fn resource(route: &Route<Actix>, ledger: &Ledger) -> impl HttpServiceFactory + use<> {
    let resource = web::resource(route.path.clone());
    let to = |method: actix_web::Route| handled(method, &route.handler, ledger);
    let resource = match &route.methods[..] {
        [] => resource.route(to(web::route())),
        methods => methods.iter().fold(resource, |resource, method| {
            let method = Method::from_bytes(method.as_str().as_bytes()).expect("the name of a method");
            resource.route(to(web::method(method)))
        }),
    };
    resource.wrap(Layers::new(&route.layers, ledger))
}

fn handled(route: actix_web::Route, handler: &Handler, ledger: &Ledger) -> actix_web::Route {
    let (is_marked, ledger) = (handler.is_marked, ledger.clone());
    match handler.takes.clone() {
        Takes::Head(respond) => to(route, is_marked, move |request: HttpRequest| {
            let run = respond(call_of(&request, &ledger, Bytes::new()), ());
            async move { response_of(run.await, &request) }
        }),
        Takes::Body(respond) => to(route, is_marked, move |request: HttpRequest, body: Bytes| {
            let run = respond(call_of(&request, &ledger, body), ());
            async move { response_of(run.await, &request) }
        }),
        Takes::Json(respond) => to(route, is_marked, move |request: HttpRequest, json: Json<Value>| {
            let run = respond(call_of(&request, &ledger, Bytes::new()), json.into_inner());
            async move { response_of(run.await, &request) }
        }),
        Takes::Intent(respond) => to(route, is_marked, move |request: HttpRequest, intent: RequestIntent| {
            let run = respond(call_of(&request, &ledger, Bytes::new()), intent);
            async move { response_of(run.await, &request) }
        }),
        Takes::Stream(respond) => to(route, is_marked, move |request: HttpRequest, body: Payload| {
            let (body, feed) = piped(body);
            let run = respond(call_of(&request, &ledger, Bytes::new()), body);
            async move {
                let reply = match select(run, feed).await {
                    Either::Left((reply, feed)) => {
                        // A handler that sends its body back reads it after it has returned.
                        if matches!(reply.body, ReplyBody::Streamed(..)) {
                            actix_web::rt::spawn(feed);
                        }
                        reply
                    }
                    Either::Right(((), run)) => run.await,
                };
                response_of(reply, &request)
            }
        }),
    }
}

fn to<H, Args>(route: actix_web::Route, is_marked: bool, handler: H) -> actix_web::Route
where
    H: ActixHandler<Args, Output = HttpResponse>,
    Args: actix_web::FromRequest + 'static,
{
    if is_marked { route.to(entered(handler)) } else { route.to(handler) }
}
