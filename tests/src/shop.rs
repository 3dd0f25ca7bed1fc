//! The application under test: a shop whose handlers behave as the request headers say and record each run in the ledger.

use std::io;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::http::StatusCode;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use onceward::Effect;
use onceward::Guard;
use onceward::actix::protect::TokenPolicy;
use onceward::actix::{HasToken, MarkEffect as _, Protect, SubjectFrom, token_route};
use onceward::store::Store;

use crate::ledger::Ledger;
use crate::{browser_pages, interval_routes, key_routes, remembered_routes};

/// Request header: the order to record in the ledger.
pub const ORDER: &str = "x-order";
/// Request header: the status of the handler's response.
pub const STATUS: &str = "x-status";
/// Request header: the effect that the handler marks.
pub const EFFECT: &str = "x-effect";
/// Request header: milliseconds that the handler takes.
pub const TAKES: &str = "x-takes";
/// Request header: the subject of the request.
pub const USER: &str = "x-user";

/// A server in its own thread.
pub struct TestServer {
    /// Its URL.
    pub url: String,
    handle: ServerHandle,
}

impl TestServer {
    /// Runs the server that `server` builds on a listener.
    pub fn run(server: impl FnOnce(TcpListener) -> io::Result<Server> + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its own address"));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = server(listener).expect("the server starts");
                tell.send(server.handle()).expect("the test waits for the handle");
                server.await.expect("the server ends without an error");
            });
        });
        Self { url, handle: told.recv().expect("the server starts") }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

/// A shop on a store, with its ledger.
pub struct Shop {
    /// Its guard.
    pub guard: Guard,
    /// The ledger of its handlers.
    pub ledger: Ledger,
    served: TestServer,
}

impl Shop {
    /// Opens a shop on a store.
    pub fn on(store: impl Store) -> Self {
        Self::with(Guard::new(store))
    }

    /// Opens a shop with a guard.
    pub fn with(guard: Guard) -> Self {
        let ledger = Ledger::new();
        let routes = routes(&guard, &ledger);
        let served = TestServer::run(move |listener| {
            let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2);
            Ok(server.disable_signals().listen(listener)?.run())
        });
        Self { guard, ledger, served }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.served.url
    }
}

/// The shop's routes.
pub fn routes(guard: &Guard, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let (guard, ledger) = (guard.clone(), ledger.clone());
    // The pages have their own memory store, which all workers share.
    let pages = browser_pages::routes(&guard);
    move |config| {
        let user = || SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
        let anyone = SubjectFrom::anonymous;
        let protect = |path: &str, protect: Protect<TokenPolicy>| {
            web::resource(path.to_owned()).wrap(protect).route(web::route().to(order))
        };
        config
            .app_data(web::Data::new(ledger.clone()))
            .configure(key_routes::routes(&guard))
            .configure(pages.clone())
            .configure(remembered_routes::routes(&guard))
            .configure(interval_routes::routes(&guard))
            .service(token_route(&guard, anyone()))
            .service(web::scope("/my").service(token_route(&guard, user())))
            .service(protect("/orders", Protect::token(&guard, anyone())))
            .service(protect("/orders/{id}", Protect::token(&guard, anyone())))
            .service(protect("/bound", Protect::token(&guard, anyone()).bound()))
            .service(protect("/named", Protect::token(&guard, anyone()).bound().action("place-order")))
            .service(protect("/mine", Protect::token(&guard, user())))
            .service(protect("/mine/bound", Protect::token(&guard, user()).bound()))
            .service(protect("/here", Protect::token(&guard, SubjectFrom::client_address()).bound()))
            .service(protect("/next", Protect::token(&guard, anyone()).next_token()))
            .service(protect(
                "/judged",
                Protect::token(&guard, anyone()).judge(|head| {
                    // An application that always responds with 200 and reports failures in a header.
                    head.headers().contains_key("x-failed").then_some(Effect::NotApplied)
                }),
            ))
            .service(web::resource("/panic").wrap(Protect::token(&guard, anyone())).route(web::post().to(panics)))
            .service(web::resource("/echo").wrap(Protect::token(&guard, anyone())).route(web::post().to(echo)))
            .service(web::resource("/streamed").wrap(Protect::token(&guard, anyone())).route(web::post().to(streamed)))
            .service(web::resource("/block").wrap(Protect::token(&guard, anyone())).route(web::post().to(block)))
            .service(
                web::resource("/presented")
                    .route(web::post().guard(HasToken::new(&guard)).to(HttpResponse::Ok))
                    .route(web::post().to(HttpResponse::NotFound)),
            )
            .service(web::resource("/open").route(web::route().to(order)));
    }
}

/// Returns the value of a header.
pub fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn number(request: &HttpRequest, name: &str) -> Option<u64> {
    header(request, name)?.parse().ok()
}

/// Takes [`TAKES`], records the order, and responds as the headers say.
pub async fn order(request: HttpRequest, ledger: web::Data<Ledger>, body: web::Bytes) -> HttpResponse {
    if let Some(millis) = number(&request, TAKES) {
        ledger.record("begun");
        actix_web::rt::time::sleep(Duration::from_millis(millis)).await;
    }
    ledger.record(header(&request, ORDER).unwrap_or("order"));
    let status = number(&request, STATUS).and_then(|status| StatusCode::from_u16(status as u16).ok());
    let mut answer = HttpResponse::build(status.unwrap_or(StatusCode::OK));
    if header(&request, "x-failed").is_some() {
        answer.insert_header(("x-failed", "yes"));
    }
    let answer = answer.body(format!("ordered with {} bytes", body.len()));
    match header(&request, EFFECT) {
        Some("happened") => answer.effect(Effect::Applied),
        Some("did not") => answer.effect(Effect::NotApplied),
        Some("unknown") => answer.effect(Effect::Unknown),
        _ => answer,
    }
}

/// Records the order and panics.
pub async fn panics(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record(header(&request, ORDER).unwrap_or("order"));
    panic!("the handler panics on purpose")
}

/// Begins before its body has arrived.
async fn streamed(request: HttpRequest, ledger: web::Data<Ledger>, body: web::Payload) -> HttpResponse {
    ledger.record("begun");
    match body.to_bytes_limited(1024).await {
        Ok(Ok(_)) => ledger.record(header(&request, ORDER).unwrap_or("order")),
        _ => return HttpResponse::BadRequest().finish(),
    }
    HttpResponse::Ok().finish()
}

/// Streams the body back.
async fn echo(body: web::Payload) -> HttpResponse {
    HttpResponse::Ok().streaming(body)
}

/// Blocks its worker thread for [`TAKES`].
#[expect(clippy::disallowed_methods, reason = "the tests need a handler that blocks its thread")]
pub async fn block(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("blocking");
    std::thread::sleep(Duration::from_millis(number(&request, TAKES).unwrap_or(0)));
    ledger.record("unblocked");
    HttpResponse::Ok().finish()
}
