//! A guard brought in by degrees: off, observing, enforcing; and a net under the routes that nobody has wrapped.

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
use onceward_tests::client::{Answer, ask_token, http, send, submit, token};
use onceward_tests::key_routes::{KEY, buy, serve, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, header, order, panics};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(10);

/// An answer with all that a guard might touch.
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

/// Sends every byte back, however many there are.
async fn echo(body: web::Payload) -> HttpResponse {
    match body.to_bytes_limited(1024 * 1024).await {
        Ok(Ok(body)) => HttpResponse::Ok().body(body),
        _ => HttpResponse::BadRequest().finish(),
    }
}

/// The same routes, guarded in all ways there are, or bare.
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

/// Answers without its body.
async fn ignoring(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("ignoring");
    HttpResponse::Accepted().body("whatever you send")
}

/// Begins before its body is there.
async fn streaming(ledger: web::Data<Ledger>, body: web::Payload) -> HttpResponse {
    ledger.record("begun");
    let body = body.to_bytes_limited(1_000_000).await.unwrap().unwrap();
    ledger.record("read");
    HttpResponse::Ok().body(format!("{} bytes", body.len()))
}

/// The same application with a guard and without.
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

    /// Sends the same bytes to both, and has the same bytes back.
    async fn same(&self, request: &[u8]) -> String {
        let bare = exchange(&self.bare, request).await;
        let guarded = exchange(&self.guarded, request).await;
        assert_eq!(guarded, bare, "{}", String::from_utf8_lossy(&request[..request.len().min(300)]));
        bare
    }

    /// Sends everything there is, twice, to every route.
    async fn same_for_everything(&self) {
        for path in ["/token", "/remembered", "/key", "/held", "/named", "/interval"] {
            for request in requests(path) {
                self.same(&request).await;
                self.same(&request).await;
            }
        }
        assert_eq!(self.ledgers[1].runs(), self.ledgers[0].runs(), "every request has run, and as it would have");
    }
}

/// One request on a connection of its own, and all bytes of the answer, but its date, and its headers in order: actix writes them
/// in a different one each time.
async fn exchange(served: &TestServer, request: &[u8]) -> String {
    let address: SocketAddr = served.url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut answer)).await.expect("an answer in time");
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let mut lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect();
    lines.sort_unstable();
    format!("{}\n\n{body}{}", lines.join("\n"), if read.is_ok() { "" } else { "<reset>" })
}

/// A request as it is written, with the lines of its head and its body.
fn written(method: &str, path: &str, lines: &[&str], body: &[u8]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = format!("content-length: {}\r\n", body.len());
    let length = if lines.contains("transfer-encoding") { "" } else { &length };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{length}{lines}\r\n");
    [head.as_bytes(), body].concat()
}

/// Everything that a guard might find something about.
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
    // A body that breaks off is no body, and must not be taken for a shorter one.
    for kind in ["content-type: text/plain", form] {
        let broken = b"4\r\na=12\r\nnonsense\r\n";
        all.push(written("POST", &order, &[&format!("{KEY}: broken"), "transfer-encoding: chunked", kind], broken));
    }
    all
}

#[tokio::test]
async fn switched_off_a_guard_changes_no_byte_and_asks_nothing_of_the_store() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let store = || Redis::open(&redis.url()).unwrap();
    let everywhere = Guard::builder(store()).mode(Mode::Off).build();
    SideBySide::by_side(&everywhere, Mode::Enforce).same_for_everything().await;
    let is_ours = |command: &String| command.contains("onceward");
    assert_eq!(monitor.commands().into_iter().filter(is_ours).collect::<Vec<_>>(), [""; 0]);

    // On single routes: the guard itself is there for others.
    let here = Guard::new(store());
    SideBySide::by_side(&here, Mode::Off).same_for_everything().await;
    let is_asked = |command: &String| is_ours(command) && !command.contains(":secret:");
    assert_eq!(monitor.commands().into_iter().filter(is_asked).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((everywhere.would_have(), here.would_have()), (BTreeMap::new(), BTreeMap::new()));
}

#[tokio::test]
async fn switched_off_a_guard_does_not_mind_a_store_that_is_down() {
    let mut redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Off).build();
    redis.kill();
    let side = SideBySide::by_side(&guard, Mode::Enforce);
    let begun = Instant::now();
    side.same_for_everything().await;
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_observing_guard_changes_no_byte_and_lets_everything_run() {
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
async fn a_store_that_is_down_changes_nothing_for_whoever_is_observed() {
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

    // A store that dies in the middle of a run neither.
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
async fn an_observing_guard_counts_what_it_would_not_have_let_run_by_its_reason() {
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
        assert_eq!(answer.outcome, "", "nothing is said of it");
        all.push(answer);
    }
    assert_eq!(ledger.count("ran"), all.len(), "everything runs");
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

/// On a route where a duplicate would wait, it does not: that would change when it is answered.
#[tokio::test]
async fn an_observed_duplicate_of_a_run_in_progress_runs_at_once() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = serve(&ledger, routes(Some(guard.clone()), Mode::Enforce));
    let slow = tokio::spawn(send(under(&served.url, "/key/order", "k", "slow").header(TAKES, 1_500)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    assert_eq!(buy(&served.url, "/key/order", "k", "quick").await.status, 200);
    assert!(!slow.is_finished(), "it was not waited for");
    assert_eq!(guard.would_have(), BTreeMap::from([("in_progress", 1)]));
    assert_eq!((slow.await.unwrap().status, ledger.count("slow"), ledger.count("quick")), (200, 1, 1));
}

#[tokio::test]
async fn observed_handler_that_ignores_its_body_does_not_wait_for_it() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let side = SideBySide::by_side(&guard, Mode::Enforce);
    let paths = ["/token", "/remembered", "/key", "/held", "/named", "/interval"];
    let tries = paths.iter().flat_map(|path| [(path, 99), (path, 50)]).map(async |(path, missing)| {
        let lines = [&format!("{KEY}: k"), "x-order: k", "content-type: application/x-www-form-urlencoded"];
        let whole = written("POST", &format!("{path}/ignoring"), &lines, &[b'x'; 99]);
        let answer = side.same(&whole[..whole.len() - missing]).await;
        assert!(answer.contains("HTTP/1.1 202 ") && answer.ends_with("whatever you send"), "{path}: {answer}");
    });
    join_all(tries).await;
    assert_eq!(side.ledgers[1].count("ignoring"), paths.len() * 2);
    assert_eq!(guard.would_have(), BTreeMap::from([("unread", paths.len() as u64 * 2)]));
}

/// The body comes when the handler has begun, and the handler reads it.
#[tokio::test]
async fn observed_request_with_a_slow_body_is_judged_after_its_handler_has_read_it() {
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
async fn a_guard_enforces_unless_it_is_told_otherwise_and_a_route_never_does_more_than_its_guard() {
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

/// Answers without asking anybody further in, as a login check does.
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

/// A shop in which somebody has forgotten something.
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
async fn a_submission_that_no_guard_has_seen_is_refused_by_the_name_of_its_route() {
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
        assert_eq!(net.ledger.count(path), 1, "it is found out by the first, and from then on nothing runs");
    }
    assert_eq!(net.send("POST", "/forgotten/2").await.said(), "500 internal");
    assert_eq!(net.ledger.count("/forgotten/2"), 0, "it is one route, whatever the id");
    assert_eq!(net.require.unprotected(), ["DELETE /api/v1/{tenant}/forgotten", "POST /forgotten/{id}"]);
}

#[tokio::test]
async fn what_is_protected_exempt_or_only_looks_passes_the_net() {
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

/// One route has many spellings, and is known under all of them.
#[tokio::test]
async fn route_that_is_known_by_one_spelling_of_its_path_is_known_by_all() {
    let net = Net::under(&Guard::new(Memory::new()));
    for target in ["/%66orgotten/1", "/forgotten/2", "/f%6Frgotten/%33", "/%66%6frgotten/1"] {
        assert_eq!(post(&net.served.url, target, &[(ORDER, target)], "").await.said(), "500 internal", "{target}");
    }
    assert_eq!(net.ledger.runs(), ["/%66orgotten/1"], "from then on it is refused before it runs");
    assert_eq!(net.require.unprotected(), ["POST /forgotten/{id}"]);

    for target in ["/%70rotected", "/protected", "/%73earch", "/search"] {
        let answer = post(&net.served.url, target, &[(KEY, target), (ORDER, target)], "").await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
    }
    assert_eq!(net.require.unprotected(), ["POST /forgotten/{id}"], "a guard on one route says nothing of another");
    assert_eq!(post(&net.served.url, "/%66orgotten/4", &[(ORDER, "late")], "").await.said(), "500 internal");
    assert_eq!(net.ledger.count("late"), 0);
}

/// Whoever is not let in has not submitted anything, and must not shut the route for everybody else.
#[tokio::test]
async fn a_login_check_that_answers_for_a_protected_route_does_not_have_it_refused() {
    for (accept, status) in [("application/json", 401), ("text/html", 303)] {
        let net = Net::under(&Guard::new(Memory::new()));
        let path = "/members/orders";
        let request = || http().post(format!("{}{path}", net.served.url)).header(ORDER, "ran").header("accept", accept);
        let request = |key: &str| request().header(KEY, key);
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        for _ in 0..2 {
            let stranger = client.execute(request("k").build().unwrap()).await.unwrap();
            assert_eq!(stranger.status(), status, "it is told to log in");
        }
        assert_eq!(send(request("k").header("x-user", "alice")).await.said(), "200 executed");
        assert_eq!((net.ledger.count("ran"), net.require.unprotected()), (1, Vec::new()));
    }
}

/// A form is answered with a redirect as a rule. So is whoever has to log in first, on a route that is protected.
#[actix_web::test]
async fn a_redirect_finds_a_route_until_a_guard_is_seen_on_it_and_has_nothing_refused() {
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

/// What wraps the application, or a scope, and answers with a page.
async fn closed(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if header(request.request(), "x-user").is_some() {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    Ok(request.into_response(HttpResponse::Ok().body("Log in.")).map_into_right_body())
}

/// What is protected stays open, and what is not is found, although strangers are given a page in the place of both.
async fn a_page_shuts_nothing<R, B: MessageBody>(
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
async fn a_page_that_is_answered_in_the_place_of_a_protected_route_does_not_have_it_refused() {
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
    a_page_shuts_nothing(&test::init_service(app).await, ask_as, &require, &ledger, "").await;

    let require = RequireProtection::new(&guard);
    let members = web::scope("/members").service(on("/it").wrap(protect())).service(on("/forgotten"));
    let app = App::new().app_data(web::Data::new(ledger.clone())).wrap(require.clone());
    let app = app.service(members.wrap(from_fn(closed))).service(on("/late").wrap(protect()).wrap(from_fn(closed)));
    let app = test::init_service(app).await;
    a_page_shuts_nothing(&app, ask_as, &require, &ledger, "/members").await;
    // On the route itself nobody can tell, until a guard was seen there.
    for user in [Some("alice"), None, Some("alice")] {
        assert_eq!(test::call_service(&app, ask_as("/late", user)).await.status(), 200, "{user:?}");
    }
    assert_eq!((require.unprotected(), ledger.count("/late")), (vec!["POST /members/forgotten".to_owned()], 2));
}

#[actix_web::test]
async fn what_is_taken_without_a_route_is_found_too() {
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
async fn a_guard_that_is_off_or_observes_has_a_net_that_refuses_nothing() {
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

/// A rejection before the handler leaves a body that nobody has read.
#[tokio::test]
async fn what_the_net_refuses_is_told_although_it_was_sent_with_a_body() {
    let net = Net::under(&Guard::new(Memory::new()));
    let client = http();
    for _ in 0..10 {
        let request = client.post(format!("{}/forgotten/1", net.served.url)).body(vec![b'x'; 60_000]);
        let answer = Answer::of(request.send().await.expect("an answer")).await;
        assert_eq!(answer.said(), "500 internal");
    }
    assert_eq!(net.ledger.count("order"), 1);
}

/// What a user writes to have every route of an application checked with its own tests.
#[actix_web::test]
async fn a_user_s_own_tests_say_which_routes_were_forgotten() {
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

/// The route that gives out tokens takes nothing that could happen twice.
#[actix_web::test]
async fn the_route_that_gives_out_tokens_needs_no_protection() {
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

/// An application that gives out tokens, takes submissions with them, and has a route that only a token leads to.
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

/// Pages fetch a token before they submit: a guard that is off, or only observes, must not keep them from it.
#[tokio::test]
async fn a_store_that_is_down_keeps_no_page_from_its_token_unless_the_guard_enforces() {
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
async fn a_guard_that_is_off_gives_out_tokens_without_its_store_that_are_not_taken_for_used_ones_later() {
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
    // A page that was open when the guard was switched on fetches another, since nothing was sent with this one.
    let on = application(&guard(Mode::Enforce), &ledger);
    let later = send(submit(&on.url, "/it", &token, "ran")).await;
    assert_eq!((later.said().as_str(), later.problem().retry), ("403 token_invalid", Retry::NewToken));
}
