//! Routes of the shop that are protected by a key.

use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::Server;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use onceward::actix::{Protect, SubjectFrom};
use onceward::{Guard, KeyRules};
use reqwest::RequestBuilder;

use crate::charging_app::charge;
use crate::client::{Answer, http, send};
use crate::faulty_tcp_proxy::Proxy;
use crate::ledger::Ledger;
use crate::peer::Peer;
use crate::polling::until;
use crate::redis_server::RedisServer;
use crate::shop::{ORDER, TestServer, USER, block, header, order, panics};

/// Request header with the key.
pub const KEY: &str = onceward_api::header::IDEMPOTENCY_KEY;
/// Request header: number of padding bytes in the response.
pub const SIZE: &str = "x-size";
/// Request header: milliseconds that the handler takes after its effect.
pub const THEN: &str = "x-then";
/// The lease of all keyed routes except the patient and the brief ones.
pub const LEASE: Duration = Duration::from_secs(1);
/// The lease of the patient ones.
pub const PATIENT: Duration = Duration::from_secs(4);
/// The lease of the brief ones.
pub const BRIEF: Duration = Duration::from_millis(300);

/// Maximum time that a duplicate waits on the waiting routes.
const LONG: Duration = Duration::from_secs(20);

/// The shop's routes with a key.
pub fn routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let guard = guard.clone();
    move |config| {
        let user = || SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
        let bearer = || SubjectFrom::resolver(|request| bearer_of(request).map(str::to_owned));
        let rules = || KeyRules::retryable().lease(LEASE).expect("a lease of 100 ms or more");
        let once = || KeyRules::at_most_once().lease(LEASE).expect("a lease of 100 ms or more");
        let by_key = |rules| Protect::key(&guard, SubjectFrom::anonymous(), rules);
        let resource = |path: &str, protect| web::resource(format!("/keyed{path}")).wrap(protect);
        let protect = |path: &str, protect| resource(path, protect).route(web::post().to(purchase));
        config
            .service(protect("/orders", by_key(rules())))
            .service(protect("/orders/{id}/pay", by_key(rules())))
            .service(protect("/named/{id}/pay", by_key(rules()).action("pay-order")))
            .service(protect("/mine", Protect::key(&guard, user(), rules())))
            .service(protect("/bearer", Protect::key(&guard, bearer(), rules())))
            .service(protect("/optional", by_key(rules()).optional()))
            .service(protect("/held", by_key(once())))
            .service(protect("/patient", by_key(rules().lease(PATIENT).expect("a lease of 100 ms or more"))))
            .service(protect("/held/patient", by_key(once().lease(PATIENT).expect("a lease of 100 ms or more"))))
            .service(protect("/wait", by_key(rules()).wait(LONG)))
            .service(protect("/held/wait", by_key(once()).wait(LONG)))
            .service(protect("/brief", by_key(rules().lease(BRIEF).expect("a lease of 100 ms or more"))))
            .service(resource("/charge", by_key(rules())).route(web::post().to(charge)))
            .service(resource("/held/charge", by_key(once())).route(web::post().to(charge)))
            .service(
                resource("/block", by_key(rules().lease(BRIEF).expect("a lease of 100 ms or more")))
                    .route(web::post().to(block)),
            )
            .service(resource("/panic", by_key(rules())).route(web::post().to(panics)))
            .service(
                resource("/held/panic", by_key(once().lease(BRIEF).expect("a lease of 100 ms or more")))
                    .route(web::post().to(panics)),
            );
    }
}

/// Returns the user of an access token: `Bearer alice.17` and `Bearer alice.18` both belong to Alice.
pub fn bearer_of(request: &HttpRequest) -> Option<&str> {
    header(request, "authorization")?.strip_prefix("Bearer ")?.split('.').next()
}

/// Like [`order`], but responds with a receipt that is unique to this run.
pub async fn purchase(request: HttpRequest, ledger: web::Data<Ledger>, body: web::Bytes) -> HttpResponse {
    let size: Option<usize> = header(&request, SIZE).and_then(|size| size.parse().ok());
    let then: u64 = header(&request, THEN).and_then(|millis| millis.parse().ok()).unwrap_or(0);
    let receipt = uuid::Uuid::new_v4().to_string();
    let mut answer = order(request, ledger, body).await;
    actix_web::rt::time::sleep(Duration::from_millis(then)).await;
    let location = HeaderValue::from_str(&format!("/receipts/{receipt}")).expect("visible characters");
    answer.headers_mut().insert(HeaderName::from_static("location"), location);
    let body = receipt + &"x".repeat(size.unwrap_or(0));
    answer.set_body(BoxBody::new(body))
}

/// Starts a server with these routes and this ledger.
pub fn serve<F>(ledger: &Ledger, routes: F) -> TestServer
where
    F: Fn(&mut ServiceConfig) + Clone + Send + 'static,
{
    let ledger = web::Data::new(ledger.clone());
    TestServer::run(move |listener| -> std::io::Result<Server> {
        let server = HttpServer::new(move || App::new().app_data(ledger.clone()).configure(routes.clone()));
        Ok(server.workers(2).disable_signals().listen(listener)?.run())
    })
}

/// Starts a server with one protected route, `/it`, that responds with receipts.
pub fn serve_one<P: 'static>(ledger: &Ledger, protect: Protect<P>) -> TestServer {
    serve_at(ledger, "/it", protect)
}

/// Like [`serve_one`], on another path.
pub fn serve_at<P: 'static>(ledger: &Ledger, path: &'static str, protect: Protect<P>) -> TestServer {
    serve(ledger, move |config| {
        config.service(web::resource(path).wrap(protect.clone()).route(web::route().to(purchase)));
    })
}

/// Builds a submission under a key, without sending it.
pub fn under(url: &str, path: &str, key: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(KEY, key).header(ORDER, order)
}

/// Two processes of one kind on one Redis behind a proxy.
pub struct Pair {
    /// The Redis.
    pub redis: RedisServer,
    /// The proxy between Redis and the peers.
    pub proxy: Proxy,
    /// The ledger of their handlers.
    pub ledger: Ledger,
    /// The two processes.
    pub peers: [Peer; 2],
}

impl Pair {
    /// Starts them. `program` is the path of the `peer` binary, `kind` its first argument.
    pub async fn start(program: &str, kind: &str) -> Self {
        let (redis, ledger) = (RedisServer::start(), Ledger::new());
        let proxy = Proxy::before(redis.port()).await;
        let peers = [(); 2].map(|()| Peer::start(program, kind, &proxy.url(), &ledger));
        Self { redis, proxy, ledger, peers }
    }

    /// URL of the first peer.
    pub fn one(&self) -> &str {
        &self.peers[0].url
    }

    /// URL of the second peer.
    pub fn other(&self) -> &str {
        &self.peers[1].url
    }

    /// Waits until this many handlers have begun.
    pub async fn begun(&self, runs: usize) {
        until("a handler has begun", Duration::from_secs(10), || async { self.ledger.count("begun") == runs }).await;
    }
}

/// Submits under a key.
pub async fn buy(url: &str, path: &str, key: &str, order: &str) -> Answer {
    send(under(url, path, key, order)).await
}
