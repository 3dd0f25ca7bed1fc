//! Gradual rollout of a guard (off, observing, enforcing), and `RequireProtection`, which finds unprotected routes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream;
use onceward::http::{Exempt, KeySource as KeyFrom, Protect, RequireProtection, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, IntervalRules, KeyRules, Mode, Secret};
use onceward_api::header::TOKEN;
use onceward_api::{IssuedToken, Retry};
use onceward_tests::call::{BodyStream, Call};
use onceward_tests::client::{Answer, ask_token, http, send, submit, token};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{KEY, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reply::Reply;
use onceward_tests::routes::{Layer, Route, Routes};
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, USER};
use onceward_tests::shop_handlers::{order, panics};
use onceward_tests::web_framework::WebFramework;
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

on_every_framework! {
    guard_that_is_off_changes_nothing_without_store_commands,
    guard_that_is_off_ignores_an_unavailable_store,
    observing_guard_changes_no_byte_of_any_response,
    observed_requests_run_while_the_store_is_down,
    observing_guard_counts_rejections_by_reason,
    observed_duplicate_does_not_wait_for_the_first,
    observed_handler_does_not_wait_for_an_ignored_body,
    observed_slow_body_is_checked_after_the_handler,
    route_mode_never_exceeds_the_guard_mode,
    unprotected_submission_is_rejected_with_its_route,
    protected_exempt_and_safe_requests_pass_require_protection,
    unprotected_route_is_known_by_every_path_spelling,
    login_check_does_not_make_a_protected_route_rejected,
    require_protection_rejects_nothing_when_off_or_observing,
    unprotected_submission_with_a_body_receives_the_rejection,
    tokens_are_issued_without_store_unless_enforcing,
    token_issued_while_off_is_invalid_not_used_later,
}

const LONG: Duration = Duration::from_secs(10);

/// Responds with everything that a guard might change.
async fn rich(call: Call) -> Reply {
    call.ledger.record("rich");
    match call.header("x-kind") {
        Some("error") => Reply::error(409, "it cannot be"),
        Some("stream") => {
            let pieces = ["a", "bc", "def"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
            Reply::new(202).streamed(stream::iter(pieces))
        }
        _ => Reply::new(201)
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("cache-control", "max-age=60")
            .header("x-own", "kept")
            .body(format!("{} bytes of {:?}", call.body.len(), call.query())),
    }
}

/// Sends the whole body back.
async fn echo(_: Call, body: BodyStream) -> Reply {
    match body.read(1024 * 1024).await {
        Ok(body) => Reply::new(200).body(body),
        Err(_) => Reply::new(400),
    }
}

/// Responds without reading its body.
async fn ignoring(call: Call) -> Reply {
    call.ledger.record("ignoring");
    Reply::new(202).body("the body is ignored")
}

/// Begins before its body has arrived.
async fn streaming(call: Call, body: BodyStream) -> Reply {
    call.ledger.record("begun");
    let body = body.read(1_000_000).await.unwrap();
    call.ledger.record("read");
    Reply::new(200).body(format!("{} bytes", body.len()))
}

/// The same routes under every policy, or without a guard.
fn routes<F: WebFramework>(guard: Option<&Guard>, mode: Mode) -> Routes<F> {
    let scope = || {
        Routes::new()
            .route(Route::any("/order", Handler::of_body(order)))
            .route(Route::any("/rich", Handler::of_body(rich)))
            .route(Route::post("/echo", Handler::of_stream(echo)))
            .route(Route::post("/panic", Handler::of_head(panics)))
            .route(Route::post("/ignoring", Handler::of_head(ignoring)))
            .route(Route::post("/streaming", Handler::of_stream(streaming)))
    };
    let Some(guard) = guard else {
        return POLICIES.into_iter().fold(Routes::new(), |routes, policy| routes.scope(policy, scope()));
    };
    let anyone = SubjectFrom::anonymous;
    let token = || Protect::<F, _>::token(guard, anyone()).mode(mode);
    let key = |rules| Protect::<F, _>::key(guard, anyone(), rules).mode(mode);
    let held = key(KeyRules::at_most_once()).keep_header(F::header_name("x-own"));
    let named = key(KeyRules::retryable()).from(KeyFrom::header("x-order").unwrap());
    let interval = Protect::<F, _>::interval(guard, anyone(), IntervalRules::new()).mode(mode);
    Routes::new()
        .scope("/token", scope().wrap(token().bound().next_token()))
        .scope("/remembered", scope().wrap(token().remember(LONG)))
        .scope("/key", scope().wrap(key(KeyRules::retryable()).wait(LONG)))
        .scope("/held", scope().wrap(held))
        .scope("/named", scope().wrap(named))
        .scope("/interval", scope().wrap(interval))
}

/// The prefix of each policy.
const POLICIES: [&str; 6] = ["/token", "/remembered", "/key", "/held", "/named", "/interval"];

/// The same application with and without a guard.
struct SideBySide {
    bare: TestServer,
    guarded: TestServer,
    ledgers: [Ledger; 2],
}

impl SideBySide {
    fn by_side<F: WebFramework>(guard: &Guard, mode: Mode) -> Self {
        let ledgers = [Ledger::new(), Ledger::new()];
        let bare = F::serve(&ledgers[0], routes(None, mode));
        Self { bare, guarded: F::serve(&ledgers[1], routes(Some(guard), mode)), ledgers }
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
        for path in POLICIES {
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

async fn guard_that_is_off_changes_nothing_without_store_commands<F: WebFramework>() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let store = || Redis::open(&redis.url()).unwrap();
    let everywhere = Guard::builder(store()).mode(Mode::Off).build();
    SideBySide::by_side::<F>(&everywhere, Mode::Enforce).same_for_everything().await;
    let is_ours = |command: &String| command.contains("onceward");
    assert_eq!(monitor.commands().into_iter().filter(is_ours).collect::<Vec<_>>(), [""; 0]);

    // Only these routes are off: the guard itself enforces.
    let here = Guard::new(store());
    SideBySide::by_side::<F>(&here, Mode::Off).same_for_everything().await;
    let is_for_records = |command: &String| is_ours(command) && !command.contains(":secret:");
    assert_eq!(monitor.commands().into_iter().filter(is_for_records).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((everywhere.would_have(), here.would_have()), (BTreeMap::new(), BTreeMap::new()));
}

async fn guard_that_is_off_ignores_an_unavailable_store<F: WebFramework>() {
    let mut redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Off).build();
    redis.kill();
    let side = SideBySide::by_side::<F>(&guard, Mode::Enforce);
    let begun = Instant::now();
    side.same_for_everything().await;
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

async fn observing_guard_changes_no_byte_of_any_response<F: WebFramework>() {
    let redis = RedisServer::start();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Observe).build();
    SideBySide::by_side::<F>(&guard, Mode::Enforce).same_for_everything().await;
    let here = Guard::new(Redis::open(&redis.url()).unwrap());
    SideBySide::by_side::<F>(&here, Mode::Observe).same_for_everything().await;
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

async fn observed_requests_run_while_the_store_is_down<F: WebFramework>() {
    let mut redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(200));
    let guard = Guard::builder(store).mode(Mode::Observe).build();
    redis.kill();
    let side = SideBySide::by_side::<F>(&guard, Mode::Enforce);
    for path in POLICIES {
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

async fn observing_guard_counts_rejections_by_reason<F: WebFramework>() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = F::serve(&ledger, routes(Some(&guard), Mode::Enforce));
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
async fn observed_duplicate_does_not_wait_for_the_first<F: WebFramework>() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = F::serve(&ledger, routes(Some(&guard), Mode::Enforce));
    let slow = tokio::spawn(send(under(&served.url, "/key/order", "k", "slow").header(TAKES, 1_500)));
    until("it has begun", LONG, || async { ledger.count("begun") == 1 }).await;
    assert_eq!(buy(&served.url, "/key/order", "k", "quick").await.status, 200);
    assert!(!slow.is_finished(), "the duplicate did not wait");
    assert_eq!(guard.would_have(), BTreeMap::from([("in_progress", 1)]));
    assert_eq!((slow.await.unwrap().status, ledger.count("slow"), ledger.count("quick")), (200, 1, 1));
}

async fn observed_handler_does_not_wait_for_an_ignored_body<F: WebFramework>() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let side = SideBySide::by_side::<F>(&guard, Mode::Enforce);
    let paths = POLICIES;
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
async fn observed_slow_body_is_checked_after_the_handler<F: WebFramework>() {
    let guard = Guard::builder(Memory::new()).mode(Mode::Observe).build();
    let ledger = Ledger::new();
    let served = F::serve(&ledger, routes(Some(&guard), Mode::Enforce));
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

async fn route_mode_never_exceeds_the_guard_mode<F: WebFramework>() {
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
        let served = F::serve(&ledger, routes(Some(&guard), here));
        buy(&served.url, "/key/order", "k", "ran").await;
        assert_eq!(buy(&served.url, "/key/order", "k", "ran").await.said(), said, "{everywhere:?} {here:?}");
        assert_eq!(ledger.count("ran"), if said == "200 replayed" { 1 } else { 2 });
        let is_observed = everywhere.min(here) == Observe;
        let expected = is_observed.then_some(("replayed", 1)).into_iter().collect();
        assert_eq!(guard.would_have(), expected, "{everywhere:?} {here:?}");
    }
}

/// Responds in place of the handler to clients that are not logged in.
fn logged_in(call: &Call) -> Option<Reply> {
    match (call.header(USER), call.header("accept")) {
        (Some(_), _) => None,
        (None, Some("text/html")) => Some(Reply::new(303)),
        (None, _) => Some(Reply::new(401)),
    }
}

/// A shop with some unprotected routes.
fn shop<F: WebFramework>(guard: &Guard) -> Routes<F> {
    let protect = || Protect::<F, _>::key(guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let order = || Handler::of_body(order);
    let inner = Routes::new().route(Route::post("/a/{id}", order())).route(Route::on([Method::PUT], "/b", order()));
    let tenant =
        Routes::new().route(Route::on([Method::DELETE], "/forgotten", order())).post("/protected", protect(), order());
    Routes::new()
        .post("/protected", protect(), order())
        .post("/off", protect().mode(Mode::Off), order())
        .route(Route::post("/search", order()).wrap(Exempt))
        .route(Route::on([Method::POST, Method::GET], "/forgotten/{id}", order()))
        .route(Route::on([Method::GET], "/page", order()))
        .scope("/guarded", Routes::new().scope("/inner", inner).wrap(protect()))
        .scope("/api", Routes::new().scope("/v1/{tenant}", tenant))
        .scope("/members", Routes::new().post("/orders", protect(), order()).wrap(Layer::answer(logged_in)))
}

/// The shop behind a [`RequireProtection`].
struct Net {
    served: TestServer,
    require: RequireProtection,
    ledger: Ledger,
}

impl Net {
    fn under<F: WebFramework>(guard: &Guard) -> Self {
        let (require, ledger) = (RequireProtection::new(guard), Ledger::new());
        let served = F::serve(&ledger, shop(guard).wrap(require.clone()));
        Self { served, require, ledger }
    }

    async fn send(&self, method: &str, path: &str) -> Answer {
        let request = http().request(method.parse().unwrap(), format!("{}{path}", self.served.url));
        send(request.header(KEY, uuid::Uuid::new_v4().to_string()).header(ORDER, path)).await
    }
}

async fn unprotected_submission_is_rejected_with_its_route<F: WebFramework>() {
    let net = Net::under::<F>(&Guard::new(Memory::new()));
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

async fn protected_exempt_and_safe_requests_pass_require_protection<F: WebFramework>() {
    let net = Net::under::<F>(&Guard::new(Memory::new()));
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
async fn unprotected_route_is_known_by_every_path_spelling<F: WebFramework>() {
    let net = Net::under::<F>(&Guard::new(Memory::new()));
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
async fn login_check_does_not_make_a_protected_route_rejected<F: WebFramework>() {
    for (accept, status) in [("application/json", 401), ("text/html", 303)] {
        let net = Net::under::<F>(&Guard::new(Memory::new()));
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

async fn require_protection_rejects_nothing_when_off_or_observing<F: WebFramework>() {
    for (mode, found) in [(Mode::Off, vec![]), (Mode::Observe, vec!["POST /forgotten/{id}"])] {
        let net = Net::under::<F>(&Guard::builder(Memory::new()).mode(mode).build());
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
async fn unprotected_submission_with_a_body_receives_the_rejection<F: WebFramework>() {
    let net = Net::under::<F>(&Guard::new(Memory::new()));
    let client = http();
    for _ in 0..10 {
        let request = client.post(format!("{}/forgotten/1", net.served.url)).body(vec![b'x'; 60_000]);
        let answer = Answer::of(request.send().await.expect("a response")).await;
        assert_eq!(answer.said(), "500 internal");
    }
    assert_eq!(net.ledger.count("order"), 1);
}

/// Starts an application that issues tokens and redeems them.
fn application<F: WebFramework>(guard: &Guard, ledger: &Ledger) -> TestServer {
    let protect = Protect::<F, _>::token(guard, SubjectFrom::anonymous());
    let routes = Routes::new().tokens(guard, SubjectFrom::anonymous());
    F::serve(ledger, routes.post("/it", protect, Handler::of_body(order)))
}

/// Pages fetch a token before they submit: a guard that is off or observes must not prevent that.
async fn tokens_are_issued_without_store_unless_enforcing<F: WebFramework>() {
    for (mode, fetched, submitted) in
        [(Mode::Off, 201, "200 "), (Mode::Observe, 201, "200 "), (Mode::Enforce, 503, "400 token_missing")]
    {
        let mut redis = RedisServer::start();
        let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(200));
        let guard = Guard::builder(store).mode(mode).build();
        redis.kill();
        let ledger = Ledger::new();
        let served = application::<F>(&guard, &ledger);
        let answer = ask_token(&served.url, r#"{"action": "POST /it"}"#).await;
        assert_eq!(answer.status, fetched, "{mode:?}");
        let token = serde_json::from_slice::<IssuedToken>(&answer.body).map(|issued| issued.token).unwrap_or_default();
        assert_eq!(token.is_empty(), mode == Mode::Enforce);
        assert_eq!(send(submit(&served.url, "/it", &token, "ran")).await.said(), submitted, "{mode:?}");
    }
}

async fn token_issued_while_off_is_invalid_not_used_later<F: WebFramework>() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let guard = |mode| {
        let secret = Secret::new("the same before and afterwards").unwrap();
        Guard::builder(Redis::open(&redis.url()).unwrap()).secret(secret).mode(mode).build()
    };
    let ledger = Ledger::new();
    let off = application::<F>(&guard(Mode::Off), &ledger);
    let token = token(&off.url).await;
    assert_eq!(send(submit(&off.url, "/it", &token, "ran")).await.said(), "200 ");
    assert_eq!(monitor.commands().into_iter().filter(|line| line.contains("onceward")).collect::<Vec<_>>(), [""; 0]);
    // A page that was open when the guard was switched on fetches a new token, as this one was not redeemed.
    let on = application::<F>(&guard(Mode::Enforce), &ledger);
    let later = send(submit(&on.url, "/it", &token, "ran")).await;
    assert_eq!((later.said().as_str(), later.problem().retry), ("403 token_invalid", Retry::NewToken));
}
