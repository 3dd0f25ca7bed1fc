//! Routes of the shop that are protected by a key.

use std::time::Duration;

use actix_web::dev::Server;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpServer};
use onceward::http::protect::KeyPolicy;
use onceward::http::{Protect, SubjectSource};
use onceward::{Guard, KeyRules};
use reqwest::RequestBuilder;

use crate::charging_app::charge;
use crate::client::{Answer, http, send};
use crate::faulty_tcp_proxy::Proxy;
use crate::handler::Handler;
use crate::ledger::Ledger;
use crate::peer::Peer;
use crate::polling::until;
use crate::redis_server::RedisServer;
use crate::routes::Routes;
use crate::shop::{TestServer, text_of, user};
use crate::shop_handlers::{ORDER, block, panics, purchase};
pub use crate::shop_handlers::{SIZE, THEN};
use crate::web_framework::WebFramework;

/// Request header with the key.
pub const KEY: &str = onceward_api::header::IDEMPOTENCY_KEY;
/// The lease of all keyed routes except the patient and the brief ones.
pub const LEASE: Duration = Duration::from_secs(1);
/// The lease of the patient ones.
pub const PATIENT: Duration = Duration::from_secs(4);
/// The lease of the brief ones.
pub const BRIEF: Duration = Duration::from_millis(300);

/// Maximum time that a duplicate waits on the waiting routes.
const LONG: Duration = Duration::from_secs(20);

/// A lease of 100 ms or more.
fn leased(rules: KeyRules, lease: Duration) -> KeyRules {
    rules.lease(lease).expect("a lease of 100 ms or more")
}

/// The shop's routes with a key.
pub fn routes<F: WebFramework>(guard: &Guard) -> Routes<F> {
    let bearer = SubjectSource::resolver(|request| bearer_of::<F>(request).map(str::to_owned));
    let rules = || leased(KeyRules::retryable(), LEASE);
    let once = || leased(KeyRules::at_most_once(), LEASE);
    let with = |subject, rules| Protect::<F, KeyPolicy>::key(guard, subject, rules);
    let by_key = |rules| with(SubjectSource::anonymous(), rules);
    let (purchase, panics) = (|| Handler::of_body(purchase), || Handler::of_head(panics));
    Routes::new()
        .post("/keyed/orders", by_key(rules()), purchase())
        .post("/keyed/orders/{id}/pay", by_key(rules()), purchase())
        .post("/keyed/named/{id}/pay", by_key(rules()).action("pay-order"), purchase())
        .post("/keyed/mine", with(user::<F>(), rules()), purchase())
        .post("/keyed/bearer", with(bearer, rules()), purchase())
        .post("/keyed/optional", by_key(rules()).optional(), purchase())
        .post("/keyed/held", by_key(once()), purchase())
        .post("/keyed/patient", by_key(leased(rules(), PATIENT)), purchase())
        .post("/keyed/held/patient", by_key(leased(once(), PATIENT)), purchase())
        .post("/keyed/wait", by_key(rules()).wait(LONG), purchase())
        .post("/keyed/held/wait", by_key(once()).wait(LONG), purchase())
        .post("/keyed/brief", by_key(leased(rules(), BRIEF)), purchase())
        .post("/keyed/block", by_key(leased(rules(), BRIEF)), Handler::of_head(block))
        .post("/keyed/panic", by_key(rules()), panics())
        .post("/keyed/held/panic", by_key(leased(once(), BRIEF)), panics())
}

/// Routes whose handler passes on an error of actix-web's client.
pub(crate) fn charging_routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let by_key = |rules| onceward::actix::Protect::key(guard, SubjectSource::anonymous(), leased(rules, LEASE));
    let (free, held) = (by_key(KeyRules::retryable()), by_key(KeyRules::at_most_once()));
    move |config| {
        let resource = |path: &str| web::resource(path.to_owned()).route(web::post().to(charge));
        config
            .service(resource("/keyed/charge").wrap(free.clone()))
            .service(resource("/keyed/held/charge").wrap(held.clone()));
    }
}

/// Returns the user of an access token: `Bearer alice.17` and `Bearer alice.18` both belong to Alice.
fn bearer_of<F: WebFramework>(request: &F::Request) -> Option<&str> {
    text_of::<F>(request, "authorization")?.strip_prefix("Bearer ")?.split('.').next()
}

/// Starts an actix-web server with these routes and this ledger.
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
pub fn serve_one<F: WebFramework, P>(ledger: &Ledger, protect: Protect<F, P>) -> TestServer {
    serve_at(ledger, "/it", protect)
}

/// Like [`serve_one`], on another path.
pub fn serve_at<F: WebFramework, P>(ledger: &Ledger, path: &str, protect: Protect<F, P>) -> TestServer {
    F::serve(ledger, Routes::new().any(path, protect, Handler::of_body(purchase)))
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
