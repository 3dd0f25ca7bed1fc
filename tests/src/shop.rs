//! The application under test: a shop whose handlers do what the request tells them to, and write it to the ledger.

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

/// Names the order for the ledger.
pub const ORDER: &str = "x-order";
/// The status that the handler answers with.
pub const STATUS: &str = "x-status";
/// What the handler says of the effect itself.
pub const EFFECT: &str = "x-effect";
/// How many milliseconds the handler takes.
pub const TAKES: &str = "x-takes";
/// Who is asking.
pub const USER: &str = "x-user";

/// A server in a thread of its own.
pub struct TestServer {
    /// Where it is.
    pub url: String,
    handle: ServerHandle,
}

impl TestServer {
    /// Runs what `server` makes of a listener.
    pub fn run(server: impl FnOnce(TcpListener) -> io::Result<Server> + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its own address"));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = server(listener).expect("the server starts");
                tell.send(server.handle()).expect("the test waits for it");
                server.await.expect("the server ends well");
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
    /// What its handlers did.
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

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.served.url
    }
}

/// The shop's routes.
pub fn routes(guard: &Guard, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let (guard, ledger) = (guard.clone(), ledger.clone());
    // They have a memory store of their own, which all workers share.
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
                    // An application that answers 200 to everything and says in a header how it went.
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

/// A header's text.
pub fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn number(request: &HttpRequest, name: &str) -> Option<u64> {
    header(request, name)?.parse().ok()
}

/// Takes its time, writes the order down, and answers as told.
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

/// Writes the order down and panics.
pub async fn panics(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record(header(&request, ORDER).unwrap_or("order"));
    panic!("a handler that panics, as this test wants")
}

/// Begins before its body is there.
async fn streamed(request: HttpRequest, ledger: web::Data<Ledger>, body: web::Payload) -> HttpResponse {
    ledger.record("begun");
    match body.to_bytes_limited(1024).await {
        Ok(Ok(_)) => ledger.record(header(&request, ORDER).unwrap_or("order")),
        _ => return HttpResponse::BadRequest().finish(),
    }
    HttpResponse::Ok().finish()
}

/// Sends back every byte, as it comes.
async fn echo(body: web::Payload) -> HttpResponse {
    HttpResponse::Ok().streaming(body)
}

/// Blocks its thread.
#[expect(clippy::disallowed_methods, reason = "a handler that blocks its thread is what is tested")]
pub async fn block(request: HttpRequest, ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("blocking");
    std::thread::sleep(Duration::from_millis(number(&request, TAKES).unwrap_or(0)));
    ledger.record("unblocked");
    HttpResponse::Ok().finish()
}
