//! Gradual rollout of a guard (off, observing, enforcing), and `RequireProtection`, which finds unprotected routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, error, test};
use futures_util::future::join_all;
use futures_util::stream;
use onceward::actix::{Exempt, HasToken, KeyFrom, Protect, RequireProtection, SubjectFrom, token_route};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, IntervalRules, KeyRules, Mode, Secret};
use onceward_api::header::TOKEN;
use onceward_api::{IssuedToken, Retry};
use onceward_tests::actix_handlers::{header, order, panics};
use onceward_tests::client::{Answer, ask_token, http, send, submit, token};
use onceward_tests::key_routes::{KEY, buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(10);

/// Responds with everything that a guard might change.
async fn rich(request: HttpRequest, ledger: web::Data<Ledger>, body: web::Bytes) -> Result<HttpResponse, Error> {
    ledger.record("rich");
    match header(&request, "x-kind") {
        Some("error") => Err(error::ErrorConflict("it cannot be")),
        Some("stream") => {
            let pieces = ["a", "bc", "def"].map(|piece| Ok::<_, Error>(web::Bytes::from_static(piece.as_bytes())));
            Ok(HttpResponse::Accepted().streaming(stream::iter(pieces)))
        }
        _ => Ok(HttpResponse::Created()
            .append_header(("set-cookie", "a=1"))
            .append_header(("set-cookie", "b=2"))
            .insert_header(("cache-control", "max-age=60"))
            .insert_header(("x-own", "kept"))
            .body(format!("{} bytes of {:?}", body.len(), request.uri().query()))),
    }
}

/// Sends the whole body back.
async fn echo(body: web::Payload) -> HttpResponse {
    match body.to_bytes_limited(1024 * 1024).await {
        Ok(Ok(body)) => HttpResponse::Ok().body(body),
        _ => HttpResponse::BadRequest().finish(),
    }
}

/// The same routes under every policy, or without a guard.
fn routes(guard: Option<Guard>, mode: Mode) -> impl Fn(&mut ServiceConfig) + Clone + Send + 'static {
    move |config| {
        let anyone = SubjectFrom::anonymous;
        let scope = |path: &str| {
            web::scope(path)
                .route("/order", web::route().to(order))
                .route("/rich", web::route().to(rich))
                .route("/echo", web::post().to(echo))
                .route("/panic", web::post().to(panics))
                .route("/ignoring", web::post().to(ignoring))
                .route("/streaming", web::post().to(streaming))
        };
        let Some(guard) = &guard else {
            for path in ["/token", "/remembered", "/key", "/held", "/named", "/interval"] {
                config.service(scope(path));
            }
            return;
        };
        let token = || Protect::token(guard, anyone()).mode(mode);
        let key = |rules| Protect::key(guard, anyone(), rules).mode(mode);
        config
            .service(scope("/token").wrap(token().bound().next_token()))
            .service(scope("/remembered").wrap(token().remember(LONG)))
            .service(scope("/key").wrap(key(KeyRules::retryable()).wait(LONG)))
            .service(scope("/held").wrap(key(KeyRules::at_most_once()).keep_header("x-own".parse().unwrap())))
            .service(scope("/named").wrap(key(KeyRules::retryable()).from(KeyFrom::header("x-order").unwrap())))
            .service(scope("/interval").wrap(Protect::interval(guard, anyone(), IntervalRules::new()).mode(mode)));
    }
}

/// Responds without reading its body.
async fn ignoring(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("ignoring");
    HttpResponse::Accepted().body("the body is ignored")
}

/// Begins before its body has arrived.
async fn streaming(ledger: web::Data<Ledger>, body: web::Payload) -> HttpResponse {
    ledger.record("begun");
    let body = body.to_bytes_limited(1_000_000).await.unwrap().unwrap();
    ledger.record("read");
    HttpResponse::Ok().body(format!("{} bytes", body.len()))
}

/// The same application with and without a guard.
struct SideBySide {
    bare: TestServer,
    guarded: TestServer,
    ledgers: [Ledger; 2],
}

impl SideBySide {
    fn by_side(guard: &Guard, mode: Mode) -> Self {
        let ledgers = [Ledger::new(), Ledger::new()];
        let bare = serve(&ledgers[0], routes(None, mode));
        Self { bare, guarded: serve(&ledgers[1], routes(Some(guard.clone()), mode)), ledgers }
    }

    /// Sends the same bytes to both, and asserts that both responses have the same bytes.
    async fn same(&self, request: &[u8]) -> String {
        let bare = exchange(&self.bare, request).await;
        let guarded = exchange(&self.guarded, request).await;
        assert_eq!(guarded, bare, "{}", String::from_utf8_lossy(&request[..request.len().min(300)]));
        bare
    }

    /// Sends every request twice to every route.
    async fn same_for_everything(&self) {
        for path in ["/token", "/remembered", "/key", "/held", "/named", "/interval"] {
            for request in requests(path) {
                self.same(&request).await;
                self.same(&request).await;
            }
        }
        assert_eq!(self.ledgers[1].runs(), self.ledgers[0].runs(), "every request ran, as without a guard");
    }
}

/// Sends one request on a new connection and returns all bytes of the response, without its date and with sorted headers: actix
/// writes them in a different order each time.
async fn exchange(served: &TestServer, request: &[u8]) -> String {
    let address: SocketAddr = served.url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("a response in time");
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let mut lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    lines.sort_unstable();
    format!("{}\n\n{body}{}", lines.join("\n"), if read.is_ok() { "" } else { "<reset>" })
}

/// Returns the bytes of a request with these header lines and this body.
fn written(method: &str, path: &str, lines: &[&str], body: &[u8]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = format!("content-length: {}\r\n", body.len());
    let length = if lines.contains("transfer-encoding") { "" } else { &length };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{length}{lines}\r\n");
    [head.as_bytes(), body].concat()
}

/// Returns requests of every kind that a guard treats differently.
fn requests(path: &str) -> Vec<Vec<u8>> {
    let token = format!("{TOKEN}: ow1_{}", "A".repeat(65));
    let (key, form) = (format!("{KEY}: k"), "content-type: application/x-www-form-urlencoded");
    let (order, rich) = (format!("{path}/order"), format!("{path}/rich"));
    let status = |status: u16| format!("{STATUS}: {status}");
    let mut all = vec![
        written("POST", &order, &[], b""),
        written("POST", &order, &[&key], b"the first"),
        written("POST", &order, &[&key], b"something else"),
        written("POST", &order, &[&key, &key], b""),
        written("POST", &order, &[&format!("{KEY}: a b")], b""),
        written("POST", &order, &[&token], b""),
        written("POST", &order, &[&format!("{TOKEN}: nonsense")], b""),
        written("POST", &order, &[&key, "onceward-look: true"], b""),
        written("POST", &order, &[&key, "accept: text/html"], b""),
        written("POST", &order, &[&key, form], b"_onceward=nonsense&a=1"),
        written("POST", &order, &[&key, "content-type: multipart/form-data"], b"no boundary"),
        written("POST", &order, &[&key, "x-order: named"], &vec![b'x'; 250_000]),
        written("POST", &format!("{path}/echo"), &[&key, "x-order: named"], &vec![b'x'; 600_000]),
        written("POST", &format!("{rich}?a=1&_onceward=x"), &[&key], b""),
        written("POST", &rich, &["x-kind: error", &format!("{KEY}: error"), "x-order: error"], b"error"),
        written("POST", &rich, &["x-kind: stream", &format!("{KEY}: stream"), "x-order: stream"], b"stream"),
        written("POST", &format!("{path}/nowhere"), &[&key], b""),
        written("POST", &format!("{path}/panic"), &[&format!("{KEY}: panic"), "x-order: panic"], b"panic"),
        written("GET", &order, &[&key], b""),
        written("HEAD", &rich, &[&key], b""),
        written("OPTIONS", &order, &[&key], b""),
        written("DELETE", &order, &[&format!("{KEY}: delete")], b""),
    ];
    for code in [204, 302, 400, 401, 422, 429, 500, 503, 504] {
        let own = format!("{KEY}: status-{code}");
        all.push(written("POST", &order, &[&own, &status(code), &format!("{ORDER}: status-{code}")], b"status"));
    }
    // A truncated body must not be treated as a shorter one.
    for kind in ["content-type: text/plain", form] {
        let broken = b"4\r\na=12\r\nnonsense\r\n";
        all.push(written("POST", &order, &[&format!("{KEY}: broken"), "transfer-encoding: chunked", kind], broken));
    }
    all
}

#[tokio::test]
async fn guard_that_is_off_changes_nothing_without_store_commands() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let store = || Redis::open(&redis.url()).unwrap();
    let everywhere = Guard::builder(store()).mode(Mode::Off).build();
    SideBySide::by_side(&everywhere, Mode::Enforce).same_for_everything().await;
    let is_ours = |command: &String| command.contains("onceward");
    assert_eq!(monitor.commands().into_iter().filter(is_ours).collect::<Vec<_>>(), [""; 0]);

    // Only these routes are off: the guard itself enforces.
    let here = Guard::new(store());
    SideBySide::by_side(&here, Mode::Off).same_for_everything().await;
    let is_for_records = |command: &String| is_ours(command) && !command.contains(":secret:");
    assert_eq!(monitor.commands().into_iter().filter(is_for_records).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((everywhere.would_have(), here.would_have()), (BTreeMap::new(), BTreeMap::new()));
}

#[tokio::test]
async fn guard_that_is_off_ignores_an_unavailable_store() {
    let mut redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Off).build();
    redis.kill();
    let side = SideBySide::by_side(&guard, Mode::Enforce);
    let begun = Instant::now();
    side.same_for_everything().await;
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn observing_guard_changes_no_byte_of_any_response() {
    let redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Observe).build();
    SideBySide::by_side(&guard, Mode::Enforce).same_for_everything().await;
    let here = Guard::new(Redis::open(&redis.url()).unwrap());
    SideBySide::by_side(&here, Mode::Observe).same_for_everything().await;
    for guard in [guard, here] {
        let would_have = guard.would_have();
        for code in
            ["key_missing", "key_malformed", "key_reused", "replayed", "token_malformed", "token_missing", "too_soon"]
        {
            assert!(would_have.contains_key(code), "{code}: {would_have:?}");
        }
        assert!(!would_have.contains_key("executed"), "{would_have:?}");
    }
}

#[tokio::test]
async fn observed_requests_run_while_the_store_is_down() {
    let mut redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(200));
    let guard = Guard::builder(store).mode(Mode::Observe).build();
    redis.kill();
    let side = SideBySide::by_side(&guard, Mode::Enforce);
    for path in ["/token", "/remembered", "/key", "/held", "/named", "/interval"] {
        let request = written("POST", &format!("{path}/rich"), &[&format!("{KEY}: k"), "x-order: k"], b"it");
        let answer = side.same(&request).await;
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    assert_eq!(side.ledgers[1].runs(), ["rich"; 6]);
    let would_have = guard.would_have();
    assert!(would_have.get("store_unavailable").is_some_and(|times| *times >= 3), "{would_have:?}");

    // Nor does a store that crashes during a run.
    redis.restart();
    let slow = [&format!("{KEY}: slow")[..], "x-order: slow", &format!("{TAKES}: 300")];
    let slow = written("POST", "/key/order", &slow, b"it");
    let (bare, guarded, ()) = tokio::join!(exchange(&side.bare, &slow), exchange(&side.guarded, &slow), async {
        until("it has begun", LONG, || async { side.ledgers[1].count("begun") == 1 }).await;
        redis.kill();
    });
    assert_eq!(guarded, bare);
}

#[tokio::test]
async fn observing_guard_counts_rejections_by_reason() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = serve(&ledger, routes(Some(guard.clone()), Mode::Enforce));
    let url = &served.url;
    let issue = async || guard.issue(LONG * 6, Binding::none().action("POST /token/order")).await.unwrap();
    let (token, other) = (issue().await, guard.issue(LONG * 6, Binding::none().action("POST /else")).await.unwrap());
    let post = |path: &str| http().post(format!("{url}{path}"));
    let free = guard.issue(LONG * 6, Binding::none()).await.unwrap();

    let mut all = Vec::new();
    for request in [
        submit(url, "/token/order", token.as_str(), "ran"),
        submit(url, "/token/order", token.as_str(), "ran"),
        submit(url, "/token/order", token.as_str(), "ran"),
        submit(url, "/token/order", other.as_str(), "ran"),
        submit(url, "/token/order", "ow1_x", "ran"),
        post("/token/order").header(ORDER, "ran"),
        submit(url, "/remembered/order", free.as_str(), "ran").body("it"),
        submit(url, "/remembered/order", free.as_str(), "ran").body("it"),
        submit(url, "/remembered/order", free.as_str(), "ran").body("else"),
        under(url, "/key/order", "k", "ran").body("it"),
        under(url, "/key/order", "k", "ran").body("it"),
        under(url, "/key/order", "k", "ran").body("else"),
        under(url, "/key/order", "released", "ran").header(STATUS, 503),
        under(url, "/key/order", "released", "ran").header(STATUS, 503),
        under(url, "/held/order", "lost", "ran").header(STATUS, 504),
        under(url, "/held/order", "lost", "ran").header(STATUS, 504),
        post("/key/order").header(ORDER, "ran"),
        post("/interval/order").header(ORDER, "ran"),
        post("/interval/order").header(ORDER, "ran"),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.outcome, "", "the response has no outcome");
        all.push(answer);
    }
    assert_eq!(ledger.count("ran"), all.len(), "every request runs");
    let expected = [
        ("key_missing", 1),
        ("key_reused", 1),
        ("outcome_unknown", 1),
        ("replayed", 2),
        ("token_invalid", 1),
        ("token_malformed", 1),
        ("token_missing", 1),
        ("token_used", 3),
        ("too_soon", 1),
    ];
    assert_eq!(guard.would_have(), BTreeMap::from(expected));
}

/// An observed duplicate does not wait, even on a route with `wait`: that would change the latency of its response.
#[tokio::test]
async fn observed_duplicate_does_not_wait_for_the_first() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = serve(&ledger, routes(Some(guard.clone()), Mode::Enforce));
    let slow = tokio::spawn(send(under(&served.url, "/key/order", "k", "slow").header(TAKES, 1_500)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    assert_eq!(buy(&served.url, "/key/order", "k", "quick").await.status, 200);
    assert!(!slow.is_finished(), "the duplicate did not wait");
    assert_eq!(guard.would_have(), BTreeMap::from([("in_progress", 1)]));
    assert_eq!((slow.await.unwrap().status, ledger.count("slow"), ledger.count("quick")), (200, 1, 1));
}

#[tokio::test]
async fn observed_handler_does_not_wait_for_an_ignored_body() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let side = SideBySide::by_side(&guard, Mode::Enforce);
    let paths = ["/token", "/remembered", "/key", "/held", "/named", "/interval"];
    let tries = paths.iter().flat_map(|path| [(path, 99), (path, 50)]).map(async |(path, missing)| {
        let lines = [&format!("{KEY}: k"), "x-order: k", "content-type: application/x-www-form-urlencoded"];
        let whole = written("POST", &format!("{path}/ignoring"), &lines, &[b'x'; 99]);
        let answer = side.same(&whole[..whole.len() - missing]).await;
        assert!(answer.contains("HTTP/1.1 202 ") && answer.ends_with("the body is ignored"), "{path}: {answer}");
    });
    join_all(tries).await;
    assert_eq!(side.ledgers[1].count("ignoring"), paths.len() * 2);
    assert_eq!(guard.would_have(), BTreeMap::from([("unread", paths.len() as u64 * 2)]));
}

/// The body arrives after the handler has begun, and the handler reads it.
#[tokio::test]
async fn observed_slow_body_is_checked_after_the_handler() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = serve(&ledger, routes(Some(guard.clone()), Mode::Enforce));
    let (address, form) =
        (served.url.strip_prefix("http://").unwrap(), "content-type: application/x-www-form-urlencoded");
    let send = async |path: &str, line: &str, body: String| {
        let begun = ledger.count("begun") + 1;
        let whole = written("POST", &format!("{path}/streaming"), &[line], body.as_bytes());
        let (head, rest) = whole.split_at(whole.len() - body.len());
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head).await.unwrap();
        until("the handler has begun", LONG, || async { ledger.count("begun") == begun }).await;
        let (first, second) = rest.split_at(rest.len() / 2);
        stream.write_all(first).await.unwrap();
        stream.write_all(second).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&format!("{} bytes", body.len())), "{answer}");
    };
    let key = format!("{KEY}: k");
    for _ in 0..3 {
        send("/key", &key, "it".into()).await;
    }
    send("/key", &key, "something else".into()).await;
    send("/key", &format!("{KEY}: large"), "x".repeat(300_000)).await;
    send("/interval", "x-order: k", "it".into()).await;
    send("/interval", "x-order: k", "it".into()).await;
    let issue = async |action: &str| guard.issue(LONG * 6, Binding::none().action(action)).await.unwrap();
    let token = issue("POST /token/streaming").await;
    for _ in 0..2 {
        send("/token", form, format!("_onceward={}&a=1", token.as_str())).await;
    }
    let token = issue("POST /remembered/streaming").await;
    for _ in 0..2 {
        send("/remembered", form, format!("a=1&_onceward={}", token.as_str())).await;
    }
    let expected = [("body_too_large", 1), ("key_reused", 1), ("replayed", 3), ("token_used", 1), ("too_soon", 1)];
    assert_eq!(guard.would_have(), BTreeMap::from(expected));
    assert_eq!(ledger.count("read"), ledger.count("begun"));
}

#[tokio::test]
async fn route_mode_never_exceeds_the_guard_mode() {
    use Mode::{Enforce, Observe, Off};
    assert_eq!((Mode::default(), Guard::new(Memory::new()).mode()), (Enforce, Enforce));
    for (everywhere, here, said) in [
        (Enforce, Enforce, "200 replayed"),
        (Enforce, Observe, "200 "),
        (Enforce, Off, "200 "),
        (Observe, Enforce, "200 "),
        (Observe, Off, "200 "),
        (Off, Enforce, "200 "),
        (Off, Observe, "200 "),
    ] {
        let (guard, ledger) = (Guard::builder(Memory::new()).mode(everywhere).build(), Ledger::new());
        let served = serve(&ledger, routes(Some(guard.clone()), here));
        buy(&served.url, "/key/order", "k", "ran").await;
        assert_eq!(buy(&served.url, "/key/order", "k", "ran").await.said(), said, "{everywhere:?} {here:?}");
        assert_eq!(ledger.count("ran"), if said == "200 replayed" { 1 } else { 2 });
        let is_observed = everywhere.min(here) == Observe;
        let expected = is_observed.then_some(("replayed", 1)).into_iter().collect();
        assert_eq!(guard.would_have(), expected, "{everywhere:?} {here:?}");
    }
}

/// Middleware that responds itself to clients that are not logged in.
async fn logged_in(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if header(request.request(), "x-user").is_some() {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let mut answer = match header(request.request(), "accept") {
        Some("text/html") => HttpResponse::SeeOther(),
        _ => HttpResponse::Unauthorized(),
    };
    Ok(request.into_response(answer.finish()).map_into_right_body())
}

/// A shop with some unprotected routes.
fn shop(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + 'static {
    let guard = guard.clone();
    move |config| {
        let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
        let resource = |path: &str| web::resource(path.to_owned());
        config
            .service(resource("/protected").wrap(protect()).route(web::post().to(order)))
            .service(resource("/off").wrap(protect().mode(Mode::Off)).route(web::post().to(order)))
            .service(resource("/search").wrap(Exempt).route(web::post().to(order)))
            .service(resource("/forgotten/{id}").route(web::post().to(order)).route(web::get().to(order)))
            .service(resource("/page").route(web::get().to(order)))
            .service(web::scope("/guarded").wrap(protect()).service(
                web::scope("/inner").route("/a/{id}", web::post().to(order)).route("/b", web::put().to(order)),
            ))
            .service(
                web::scope("/api").service(
                    web::scope("/v1/{tenant}")
                        .route("/forgotten", web::delete().to(order))
                        .service(resource("/protected").wrap(protect()).route(web::post().to(order))),
                ),
            )
            .service(
                web::scope("/members")
                    .wrap(from_fn(logged_in))
                    .service(resource("/orders").wrap(protect()).route(web::post().to(order))),
            );
    }
}

/// The shop behind a [`RequireProtection`].
struct Net {
    served: TestServer,
    require: RequireProtection,
    ledger: Ledger,
}

impl Net {
    fn under(guard: &Guard) -> Self {
        let (require, ledger, shop) = (RequireProtection::new(guard), Ledger::new(), shop(guard));
        let (own, data) = (require.clone(), web::Data::new(ledger.clone()));
        let served = TestServer::run(move |listener| {
            let app = move || App::new().app_data(data.clone()).wrap(own.clone()).configure(shop.clone());
            Ok(HttpServer::new(app).workers(2).disable_signals().listen(listener)?.run())
        });
        Self { served, require, ledger }
    }

    async fn send(&self, method: &str, path: &str) -> Answer {
        let request = http().request(method.parse().unwrap(), format!("{}{path}", self.served.url));
        send(request.header(KEY, uuid::Uuid::new_v4().to_string()).header(ORDER, path)).await
    }
}

#[tokio::test]
async fn unprotected_submission_is_rejected_with_its_route() {
    let net = Net::under(&Guard::new(Memory::new()));
    for (method, path, route) in [
        ("POST", "/forgotten/1", "POST /forgotten/{id}"),
        ("DELETE", "/api/v1/acme/forgotten", "DELETE /api/v1/{tenant}/forgotten"),
    ] {
        for _ in 0..3 {
            let answer = net.send(method, path).await;
            assert_eq!(answer.said(), "500 internal");
            let detail = answer.problem().detail;
            assert!(detail.contains(&format!("`{route}`")), "{detail}");
        }
        assert_eq!(net.ledger.count(path), 1, "the first request finds the route, and later ones do not run");
    }
    assert_eq!(net.send("POST", "/forgotten/2").await.said(), "500 internal");
    assert_eq!(net.ledger.count("/forgotten/2"), 0, "the route is the same for every id");
    assert_eq!(net.require.unprotected(), ["DELETE /api/v1/{tenant}/forgotten", "POST /forgotten/{id}"]);
}

#[tokio::test]
async fn protected_exempt_and_safe_requests_pass_require_protection() {
    let net = Net::under(&Guard::new(Memory::new()));
    for (method, path, said) in [
        ("POST", "/protected", "200 executed"),
        ("POST", "/off", "200 "),
        ("POST", "/search", "200 "),
        ("POST", "/guarded/inner/a/1", "200 executed"),
        ("PUT", "/guarded/inner/b", "200 executed"),
        ("POST", "/api/v1/acme/protected", "200 executed"),
        ("GET", "/forgotten/1", "200 "),
        ("HEAD", "/page", "404 "),
        ("GET", "/page", "200 "),
        ("POST", "/nowhere", "404 "),
        ("POST", "/api/v1/acme/nowhere", "404 "),
        ("POST", "/guarded/nowhere", "404 replayable"),
        ("POST", "/", "404 "),
        ("POST", "/page", "405 "),
        ("DELETE", "/forgotten/1", "405 "),
    ] {
        for _ in 0..2 {
            let answer = net.send(method, path).await;
            let is_same = answer.said() == said || (method == "HEAD" && answer.outcome.is_empty());
            assert!(is_same, "{method} {path}: {}", answer.said());
        }
    }
    assert_eq!(net.require.unprotected(), [""; 0]);
}

/// A route that was found by one spelling of its path is known by all.
#[tokio::test]
async fn unprotected_route_is_known_by_every_path_spelling() {
    let net = Net::under(&Guard::new(Memory::new()));
    for target in ["/%66orgotten/1", "/forgotten/2", "/f%6Frgotten/%33", "/%66%6frgotten/1"] {
        assert_eq!(post(&net.served.url, target, &[(ORDER, target)], "").await.said(), "500 internal", "{target}");
    }
    assert_eq!(net.ledger.runs(), ["/%66orgotten/1"], "later requests are rejected before the handler");
    assert_eq!(net.require.unprotected(), ["POST /forgotten/{id}"]);

    for target in ["/%70rotected", "/protected", "/%73earch", "/search"] {
        let answer = post(&net.served.url, target, &[(KEY, target), (ORDER, target)], "").await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
    }
    assert_eq!(net.require.unprotected(), ["POST /forgotten/{id}"], "a guard on one route does not protect another");
    assert_eq!(post(&net.served.url, "/%66orgotten/4", &[(ORDER, "late")], "").await.said(), "500 internal");
    assert_eq!(net.ledger.count("late"), 0);
}

/// A client that is not logged in reaches no handler, and must not make the route rejected for other clients.
#[tokio::test]
async fn login_check_does_not_make_a_protected_route_rejected() {
    for (accept, status) in [("application/json", 401), ("text/html", 303)] {
        let net = Net::under(&Guard::new(Memory::new()));
        let path = "/members/orders";
        let request = || http().post(format!("{}{path}", net.served.url)).header(ORDER, "ran").header("accept", accept);
        let request = |key: &str| request().header(KEY, key);
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        for _ in 0..2 {
            let stranger = client.execute(request("k").build().unwrap()).await.unwrap();
            assert_eq!(stranger.status(), status, "the login check responds");
        }
        assert_eq!(send(request("k").header("x-user", "alice")).await.said(), "200 executed");
        assert_eq!((net.ledger.count("ran"), net.require.unprotected()), (1, Vec::new()));
    }
}

/// Both a handler of a form and a login check on a protected route respond with a redirect.
#[actix_web::test]
async fn redirect_reports_a_route_until_a_guard_is_seen() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let post = || web::post().to(order);
    let app = App::new()
        .app_data(web::Data::new(Ledger::new()))
        .wrap(require.clone())
        .service(web::resource("/forgotten").route(post()))
        .service(web::resource("/member").wrap(protect()).wrap(from_fn(logged_in)).route(post()))
        .service(
            web::scope("/members").wrap(from_fn(logged_in)).service(web::resource("/a").wrap(protect()).route(post())),
        );
    let app = test::init_service(app).await;
    let ask = async |path: &str, user: Option<&str>| {
        let request = test::TestRequest::post().uri(path).insert_header((KEY, "k")).insert_header((STATUS, 303));
        let request = request.insert_header(("accept", "text/html"));
        let request = if let Some(user) = user { request.insert_header(("x-user", user)) } else { request };
        test::call_service(&app, request.to_request()).await.status()
    };
    for path in ["/forgotten", "/member", "/members/a"] {
        for _ in 0..2 {
            assert_eq!(ask(path, None).await, 303, "{path}");
        }
    }
    assert_eq!(require.unprotected(), ["POST /forgotten", "POST /member"]);
    assert_eq!(ask("/member", Some("alice")).await, 303);
    assert_eq!(ask("/member", None).await, 303);
    assert_eq!(require.unprotected(), ["POST /forgotten"]);
}

/// Middleware of an application or a scope that responds with a page to clients that are not logged in.
async fn closed(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if header(request.request(), "x-user").is_some() {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    Ok(request.into_response(HttpResponse::Ok().body("Log in.")).map_into_right_body())
}

/// Asserts that the protected route stays available and the unprotected one is found, although middleware responds with a page to
/// clients that are not logged in.
async fn page_of_middleware_rejects_nothing<R, B: MessageBody>(
    app: &impl Service<R, Response = ServiceResponse<B>, Error = Error>,
    ask_as: impl Fn(&str, Option<&str>) -> R,
    require: &RequireProtection,
    ledger: &Ledger,
    scope: &str,
) {
    let (it, forgotten) = (format!("{scope}/it"), format!("{scope}/forgotten"));
    for path in [&it, &forgotten] {
        assert_eq!(test::call_service(app, ask_as(path, None)).await.status(), 200, "{path}");
    }
    assert_eq!(require.unprotected(), [""; 0], "neither was reached");
    for user in [Some("alice"), None, Some("alice")] {
        assert_eq!(test::call_service(app, ask_as(&it, user)).await.status(), 200, "{it} for {user:?}");
    }
    assert_eq!(test::call_service(app, ask_as(&forgotten, Some("alice"))).await.status(), 500);
    assert_eq!((require.unprotected(), ledger.count(&it)), (vec![format!("POST {forgotten}")], 2));
}

#[actix_web::test]
async fn middleware_page_does_not_make_a_protected_route_rejected() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let on = |path: &str| web::resource(path.to_owned()).route(web::post().to(order));
    let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let ask_as = |path: &str, user: Option<&str>| {
        let request = test::TestRequest::post().uri(path).insert_header((KEY, uuid::Uuid::new_v4().to_string()));
        let request = request.insert_header((ORDER, path));
        if let Some(user) = user { request.insert_header(("x-user", user)) } else { request }.to_request()
    };

    let require = RequireProtection::new(&guard);
    let app = App::new().app_data(web::Data::new(ledger.clone())).wrap(from_fn(closed)).wrap(require.clone());
    let app = app.service(on("/it").wrap(protect())).service(on("/forgotten"));
    page_of_middleware_rejects_nothing(&test::init_service(app).await, ask_as, &require, &ledger, "").await;

    let require = RequireProtection::new(&guard);
    let members = web::scope("/members").service(on("/it").wrap(protect())).service(on("/forgotten"));
    let app = App::new().app_data(web::Data::new(ledger.clone())).wrap(require.clone());
    let app = app.service(members.wrap(from_fn(closed))).service(on("/late").wrap(protect()).wrap(from_fn(closed)));
    let app = test::init_service(app).await;
    page_of_middleware_rejects_nothing(&app, ask_as, &require, &ledger, "/members").await;
    // Middleware on the route itself looks like its handler, until a guard was seen on the route.
    for user in [Some("alice"), None, Some("alice")] {
        assert_eq!(test::call_service(&app, ask_as("/late", user)).await.status(), 200, "{user:?}");
    }
    assert_eq!((require.unprotected(), ledger.count("/late")), (vec!["POST /members/forgotten".to_owned()], 2));
}

#[actix_web::test]
async fn submission_to_the_default_service_is_found() {
    let guard = Guard::new(Memory::new());
    for is_exempt in [false, true] {
        let (require, ledger) = (RequireProtection::new(&guard), Ledger::new());
        let fallback = if is_exempt { web::to(order).wrap(Exempt) } else { web::to(order) };
        let app = App::new()
            .app_data(web::Data::new(ledger.clone()))
            .wrap(require.clone())
            .service(web::resource("/search").wrap(Exempt).route(web::post().to(order)))
            .default_service(fallback);
        let app = test::init_service(app).await;
        let ask = async |path: &str| {
            let request = test::TestRequest::post().uri(path).insert_header((ORDER, "ran"));
            test::call_service(&app, request.to_request()).await.status()
        };
        let expected = if is_exempt { 200 } else { 500 };
        for path in ["/anything", "/else"] {
            assert_eq!(ask(path).await, expected, "{path}");
        }
        assert_eq!(ask("/search").await, 200);
        assert_eq!(ledger.count("ran"), if is_exempt { 3 } else { 2 });
        let found = if is_exempt { vec![] } else { vec!["POST (no route)".to_owned()] };
        assert_eq!(require.unprotected(), found);
    }
}

#[tokio::test]
async fn require_protection_rejects_nothing_when_off_or_observing() {
    for (mode, found) in [(Mode::Off, vec![]), (Mode::Observe, vec!["POST /forgotten/{id}"])] {
        let net = Net::under(&Guard::builder(Memory::new()).mode(mode).build());
        for _ in 0..2 {
            assert_eq!(net.send("POST", "/forgotten/1").await.said(), "200 ", "{mode:?}");
        }
        assert_eq!(
            (net.ledger.count("/forgotten/1"), net.require.unprotected()),
            (2, found.iter().map(|route| (*route).to_owned()).collect())
        );
    }
}

/// A rejection before the handler leaves an unread body.
#[tokio::test]
async fn unprotected_submission_with_a_body_receives_the_rejection() {
    let net = Net::under(&Guard::new(Memory::new()));
    let client = http();
    for _ in 0..10 {
        let request = client.post(format!("{}/forgotten/1", net.served.url)).body(vec![b'x'; 60_000]);
        let answer = Answer::of(request.send().await.expect("a response")).await;
        assert_eq!(answer.said(), "500 internal");
    }
    assert_eq!(net.ledger.count("order"), 1);
}

/// An application's own tests can check all of its routes like this.
#[actix_web::test]
async fn application_tests_can_list_unprotected_routes() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let app = App::new()
        .app_data(web::Data::new(Ledger::new()))
        .wrap(require.clone())
        .service(token_route(&guard, SubjectFrom::anonymous()))
        .configure(shop(&guard));
    let app = test::init_service(app).await;
    for (method, path) in [
        ("POST", "/protected"),
        ("POST", "/search"),
        ("POST", "/forgotten/7"),
        ("POST", "/guarded/inner/a/7"),
        ("PUT", "/guarded/inner/b"),
        ("POST", "/api/v1/acme/protected"),
        ("DELETE", "/api/v1/acme/forgotten"),
        ("GET", "/page"),
    ] {
        let request = test::TestRequest::with_uri(path).method(method.parse().unwrap());
        test::call_service(&app, request.to_request()).await;
    }
    assert_eq!(require.unprotected(), ["DELETE /api/v1/{tenant}/forgotten", "POST /forgotten/{id}"]);
}

/// The route that issues tokens has no effect that could happen twice.
#[actix_web::test]
async fn token_route_needs_no_protection() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let app = App::new().wrap(require.clone()).service(token_route(&guard, SubjectFrom::anonymous()));
    let app = test::init_service(app).await;
    for _ in 0..2 {
        let request = test::TestRequest::post().uri("/token").to_request();
        assert_eq!(test::call_service(&app, request).await.status(), 201);
    }
    assert_eq!(require.unprotected(), [""; 0]);
}

/// Starts an application that issues tokens, redeems them, and has a route that matches only with a token.
fn application(guard: &Guard, ledger: &Ledger) -> TestServer {
    let guard = guard.clone();
    serve(ledger, move |config| {
        let protect = Protect::token(&guard, SubjectFrom::anonymous());
        config
            .service(token_route(&guard, SubjectFrom::anonymous()))
            .service(web::resource("/it").wrap(protect).route(web::post().to(order)))
            .service(
                web::resource("/led")
                    .route(web::post().guard(HasToken::new(&guard)).to(order))
                    .route(web::post().to(HttpResponse::BadRequest)),
            );
    })
}

/// Pages fetch a token before they submit: a guard that is off or observes must not prevent that.
#[tokio::test]
async fn tokens_are_issued_without_store_unless_enforcing() {
    for (mode, fetched, submitted) in
        [(Mode::Off, 201, "200 "), (Mode::Observe, 201, "200 "), (Mode::Enforce, 503, "400 token_missing")]
    {
        let mut redis = RedisServer::start();
        let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(200));
        let guard = Guard::builder(store).mode(mode).build();
        redis.kill();
        let ledger = Ledger::new();
        let served = application(&guard, &ledger);
        let answer = ask_token(&served.url, r#"{"action": "POST /it"}"#).await;
        assert_eq!(answer.status, fetched, "{mode:?}");
        let token = serde_json::from_slice::<IssuedToken>(&answer.body).map(|issued| issued.token).unwrap_or_default();
        assert_eq!(token.is_empty(), mode == Mode::Enforce);
        assert_eq!(send(submit(&served.url, "/it", &token, "ran")).await.said(), submitted, "{mode:?}");
        let led = send(submit(&served.url, "/led", &token, "led")).await;
        assert_eq!(led.status, if mode == Mode::Enforce { 400 } else { 200 }, "{mode:?}");
    }
}

#[tokio::test]
async fn token_issued_while_off_is_invalid_not_used_later() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let guard = |mode| {
        let secret = Secret::new("the same before and afterwards").unwrap();
        Guard::builder(Redis::open(&redis.url()).unwrap()).secret(secret).mode(mode).build()
    };
    let ledger = Ledger::new();
    let off = application(&guard(Mode::Off), &ledger);
    let token = token(&off.url).await;
    assert_eq!(send(submit(&off.url, "/it", &token, "ran")).await.said(), "200 ");
    assert_eq!(monitor.commands().into_iter().filter(|line| line.contains("onceward")).collect::<Vec<_>>(), [""; 0]);
    // A page that was open when the guard was switched on fetches a new token, as this one was not redeemed.
    let on = application(&guard(Mode::Enforce), &ledger);
    let later = send(submit(&on.url, "/it", &token, "ran")).await;
    assert_eq!((later.said().as_str(), later.problem().retry), ("403 token_invalid", Retry::NewToken));
}
