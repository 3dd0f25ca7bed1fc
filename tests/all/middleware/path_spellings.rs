//! One path has many spellings, since any octet of it may be percent-encoded. All spellings that reach one handler with the same
//! parameters are one action.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{self, StreamExt as _};
use onceward::http::{KeySource as KeyFrom, Protect, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis, Store};
use onceward::{Guard, IntervalRules, KeyRules};
use onceward_api::header::TOKEN;
use onceward_api::{IssuedToken, header};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::{KEY, serve_at};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::raw_http::post;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::reply::Reply;
use onceward_tests::routes::{Route, Routes};
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::{Shop, TestServer};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

on_every_framework! {
    every_octet_in_all_its_spellings_is_one_action_in_memory (threads),
    every_octet_in_all_its_spellings_is_one_action_on_redis (threads),
    spellings_with_the_same_parameters_are_one_action (threads),
    percent_encoded_static_route_is_one_action,
    paths_that_differ_are_different_actions,
    percent_encoded_query_is_the_same_content,
    key_from_the_path_equals_the_handler_parameter,
}

const LONG: Duration = Duration::from_secs(30);
const JSON: (&str, &str) = ("content-type", "application/json");
/// Request header: the handler waits at the gate.
const WAITS: &str = "x-waits";

/// Blocks handlers whose request has [`WAITS`].
type Gate = Arc<Semaphore>;

/// Records its path parameters.
async fn called(policy: &'static str, gate: Gate, call: Call) -> Reply {
    // axum has no parameters if one of them is not UTF-8 after decoding; an extractor would reject the request.
    let Some(name) = call.parameters.get("name") else { return Reply::new(400) };
    if call.header(WAITS).is_some() {
        call.ledger.record("begun");
        gate.acquire().await.expect("the gate is never closed").forget();
    }
    call.ledger.record(&format!("{policy} {name:?}"));
    Reply::new(200).body(name.clone())
}

/// The handler of the route for a policy.
fn calling(policy: &'static str, gate: &Gate) -> Handler {
    let gate = Arc::clone(gate);
    Handler::of_head(move |call| called(policy, Arc::clone(&gate), call))
}

/// One route for each policy, all with the same handler and path parameters.
fn routes<F: WebFramework>(guard: &Guard, gate: &Gate) -> Routes<F> {
    let anyone = SubjectFrom::anonymous;
    let every = |every| IntervalRules::new().every(every).expect("an interval of 1 ms or more");
    let by_key = || Protect::<F, _>::key(guard, anyone(), KeyRules::retryable());
    let interval = |rules| Protect::<F, _>::interval(guard, anyone(), rules);
    let token = || Protect::<F, _>::token(guard, anyone());
    let open = Route::post("/open/{name}/end", calling("open", gate));
    let guarded: [(&'static str, Protect<F>); 9] = [
        ("path", by_key().from(KeyFrom::path("name")).into_any()),
        ("body", by_key().from(KeyFrom::body("/id").unwrap()).into_any()),
        ("header", by_key().into_any()),
        ("named", by_key().action("named").into_any()),
        ("name", interval(every(LONG * 20)).from(KeyFrom::path("name")).action("name").into_any()),
        ("interval", interval(every(LONG * 20)).into_any()),
        ("lock", interval(every(LONG).release_always()).into_any()),
        ("bound", token().bound().into_any()),
        ("remembered", token().remember(LONG).into_any()),
    ];
    guarded.into_iter().fold(Routes::new().tokens(guard, anyone()).route(open), |routes, (policy, protect)| {
        routes.post(&format!("/{policy}/{{name}}/end"), protect, calling(policy, gate))
    })
}

struct Bed {
    served: TestServer,
    ledger: Ledger,
    gate: Gate,
}

impl Bed {
    fn on<F: WebFramework>(store: impl Store) -> Self {
        let (ledger, gate) = (Ledger::new(), Gate::new(Semaphore::new(0)));
        Self { served: F::serve(&ledger, routes(&Guard::new(store), &gate)), ledger, gate }
    }

    /// Returns the path parameter of the handler for this spelling; `None` if the handler is not called.
    async fn parameter(&self, spelling: &[u8]) -> Option<String> {
        let answer = post(&self.served.url, target("open", spelling), &[], "").await;
        (answer.status == 200).then(|| String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Groups the spellings that reach the handler by its path parameter.
    async fn spellings(&self, spellings: &[Vec<u8>]) -> BTreeMap<String, Vec<Vec<u8>>> {
        let mut alike = BTreeMap::<_, Vec<_>>::new();
        for spelling in spellings {
            if let Some(parameter) = self.parameter(spelling).await {
                alike.entry(parameter).or_default().push(spelling.clone());
            }
        }
        alike
    }

    async fn ask(&self, policy: &str, spelling: &[u8], headers: &[(&str, &str)], body: &str) -> Answer {
        post(&self.served.url, target(policy, spelling), &[headers, &[JSON]].concat(), body).await
    }

    async fn token(&self, action: &[u8]) -> String {
        let action = Some(str::from_utf8(action).unwrap()).filter(|action| !action.is_empty());
        let body = json!({"action": action}).to_string();
        let issued = post(&self.served.url, "/token", &[JSON], &body).await;
        assert_eq!(issued.status, 201, "{issued:?}");
        serde_json::from_slice::<IssuedToken>(&issued.body).unwrap().token
    }

    /// Returns the number of runs of a policy's handler with this parameter.
    fn runs(&self, policy: &str, parameter: &str) -> usize {
        self.ledger.count(&format!("{policy} {parameter:?}"))
    }
}

fn target(policy: &str, spelling: &[u8]) -> Vec<u8> {
    [b"/", policy.as_bytes(), b"/x", spelling, b"y/end"].concat()
}

/// Returns all spellings of one octet.
fn spellings_of(octet: u8) -> Vec<Vec<u8>> {
    vec![format!("%{octet:02X}").into(), format!("%{octet:02x}").into(), vec![octet]]
}

/// Asserts that all spellings with the same path parameter have one effect, under every policy.
async fn one_effect_each<F: WebFramework>(store: impl Store, groups: Vec<Vec<Vec<u8>>>) {
    let bed = Bed::on::<F>(store);
    let alike: Vec<_> = stream::iter(&groups).then(|group| bed.spellings(group)).collect().await;
    let alike: Vec<_> = alike.into_iter().flatten().collect();
    stream::iter(&alike).for_each_concurrent(8, |(parameter, alike)| one_effect(&bed, parameter, alike)).await;
    for some in alike.chunks(64) {
        assert_locked(&bed, some).await;
    }
}

async fn one_effect(bed: &Bed, parameter: &str, alike: &[Vec<u8>]) {
    let what = format!("{parameter:?}, spelled {:?}", alike.iter().map(|spelling| text(spelling)).collect::<Vec<_>>());
    let own = uuid::Uuid::new_v4().to_string();
    let (body, key) = (json!({"id": own}).to_string(), [(KEY, own.as_str())]);
    let is_key = !parameter.contains(|part: char| part.is_control() || part == char::REPLACEMENT_CHARACTER);
    let bound = bed.token(&action_of(&alike[0])).await;
    let remembered = bed.token(b"").await;
    for (time, spelling) in alike.iter().enumerate() {
        let then = |again: &str| if time == 0 { "200 executed".to_owned() } else { again.to_owned() };
        let ask = async |policy: &str, headers: &[(&str, &str)]| bed.ask(policy, spelling, headers, &body).await.said();
        let by_path = if is_key { then("200 replayed") } else { "400 key_malformed".to_owned() };
        assert_eq!(ask("path", &[]).await, by_path, "{what}");
        let by_name = if is_key { then("409 too_soon") } else { "400 key_malformed".to_owned() };
        assert_eq!(ask("name", &[]).await, by_name, "{what}");
        assert_eq!(ask("body", &[]).await, then("200 replayed"), "{what}");
        assert_eq!(ask("header", &key).await, then("200 replayed"), "{what}");
        assert_eq!(ask("named", &key).await, then("200 replayed"), "{what}");
        assert_eq!(ask("interval", &[]).await, then("409 too_soon"), "{what}");
        assert_eq!(ask("bound", &[(TOKEN, &bound)]).await, then("409 token_used"), "{what}");
        assert_eq!(ask("remembered", &[(TOKEN, &remembered)]).await, then("200 replayed"), "{what}");
    }
    for other in alike.iter().skip(1) {
        let token = bed.token(&action_of(other)).await;
        let answer = bed.ask("bound", &alike[0], &[(TOKEN, &token)], "").await;
        assert_eq!(answer.said(), "200 executed", "a token for {} on {}", text(other), text(&alike[0]));
    }
    assert_eq!(bed.runs("path", parameter), usize::from(is_key), "{what}");
}

/// Asserts that the first spelling of each group takes the lock, and that the others are rejected while it runs.
async fn assert_locked(bed: &Bed, locks: &[(String, Vec<Vec<u8>>)]) {
    let begun = bed.ledger.count("begun");
    let held = locks.iter().map(|(_, alike)| bed.ask("lock", &alike[0], &[(WAITS, "yes")], ""));
    let beside = async {
        until("all have begun", LONG, || async { bed.ledger.count("begun") == begun + locks.len() }).await;
        for spelling in locks.iter().flat_map(|(_, alike)| alike) {
            let answer = bed.ask("lock", spelling, &[], "").await;
            assert_eq!(answer.said(), "429 locked", "{}", text(spelling));
        }
        bed.gate.add_permits(locks.len());
    };
    let (held, ()) = join(join_all(held), beside).await;
    held.iter().for_each(|answer| assert_eq!(answer.said(), "200 executed"));
}

fn action_of(spelling: &[u8]) -> Vec<u8> {
    [b"POST ", &target("bound", spelling)[..]].concat()
}

fn text(spelling: &[u8]) -> String {
    String::from_utf8_lossy(spelling).into_owned()
}

/// Returns every octet. Those above ASCII are not UTF-8 by themselves: they stay distinct actions, and are no valid keys.
fn every_octet() -> Vec<Vec<Vec<u8>>> {
    (0..=u8::MAX).map(spellings_of).collect()
}

/// Returns characters of several octets, and incomplete percent-encodings.
fn odd_ones() -> Vec<Vec<Vec<u8>>> {
    let groups: [&[&str]; 7] = [
        &["%C3%A9", "%c3%a9", "%C3%a9"],
        &["%E2%82%AC", "%e2%82%ac"],
        &["a%2Fb", "a%2fb", "a/b", "%61%2F%62"],
        &["%", "%25", "%%32%35", "%2%35", "%2525"],
        &["%41", "A", "%%34%31", "%4%31", "%%341", "%2541", "%25%34%31", "a"],
        &["%zz", "%25zz", "%25z%7A", "%ZZ"],
        &["+", "%2B", "%2b", "%20", "%252B"],
    ];
    groups.into_iter().map(|group| group.iter().map(|text| text.as_bytes().to_vec()).collect()).collect()
}

fn patient(redis: &RedisServer) -> Redis {
    Redis::open(&redis.url()).unwrap().timeout(LONG)
}

async fn every_octet_in_all_its_spellings_is_one_action_in_memory<F: WebFramework>() {
    one_effect_each::<F>(Memory::new(), every_octet()).await;
}

async fn every_octet_in_all_its_spellings_is_one_action_on_redis<F: WebFramework>() {
    let redis = RedisServer::start();
    one_effect_each::<F>(patient(&redis), every_octet()).await;
}

async fn spellings_with_the_same_parameters_are_one_action<F: WebFramework>() {
    let redis = RedisServer::start();
    one_effect_each::<F>(Memory::new(), odd_ones()).await;
    one_effect_each::<F>(patient(&redis), odd_ones()).await;
}

async fn percent_encoded_static_route_is_one_action<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let targets =
        ["/keybody", "/%6beybody", "/keybod%79", "/%6B%65%79%62%6f%64%79", "http://shop/%6beybody", "/keybody?"];
    let by_body = || {
        Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable())
            .from(KeyFrom::body("/id").unwrap())
    };
    let spaced =
        || Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new().every(LONG).unwrap());
    for protect in [by_body().into_any(), by_body().action("keys").into_any(), spaced().into_any()] {
        let ledger = Ledger::new();
        let served = serve_at(&ledger, "/keybody", protect);
        for (time, target) in targets.into_iter().enumerate() {
            let said = post(&served.url, target, &[JSON], "{\"id\":1}").await.said();
            let again = ["200 replayed", "409 too_soon"].contains(&said.as_str());
            match (time, F::DECODES_PATHS || !target.contains('%')) {
                (0, _) => assert_eq!(said, "200 executed", "{target}"),
                (_, true) => assert!(again, "{target}: {said}"),
                (_, false) => assert_eq!(said, "404 ", "{target}: the router matches one spelling"),
            }
        }
        assert_eq!(ledger.runs().len(), 1);
    }
}

/// Two paths that a router distinguishes are two actions, even if a file system or a proxy would treat them as one.
async fn paths_that_differ_are_different_actions<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = || Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let routes = F::EVERY_PATH
        .iter()
        .fold(Routes::new(), |routes, pattern| routes.any(pattern, protect(), Handler::of_body(purchase)));
    let served = F::serve(&ledger, routes);
    let targets = [
        "/a/b",
        "/a%2Fb",
        "/a%252Fb",
        "/a/./b",
        "/a/../b",
        "/b",
        "/A/b",
        "/a/b/",
        "//a/b",
        "/a//b",
        "/a/b;v=1",
        "/a/b;v=2",
        "/",
        "/%2e%2e%2fb",
        "/a%FF",
        "/a%FE",
        "/a%EF%BF%BD",
        "/a+b",
        "/a%20b",
    ];
    for target in targets {
        assert_eq!(post(&served.url, target, &[(KEY, "k")], "").await.said(), "200 executed", "{target}");
    }
    for target in targets {
        assert_eq!(post(&served.url, target, &[(KEY, "k")], "").await.said(), "200 replayed", "{target}");
    }
    for (target, same) in
        [("/a/%2e/b", "/a/./b"), ("http://shop", "/"), ("http://shop/a/b", "/a/b"), ("/a/b#c", "/a/b")]
    {
        assert_eq!(post(&served.url, target, &[(KEY, "k")], "").await.said(), "200 replayed", "{target} is {same}");
    }
    assert_eq!(ledger.runs().len(), targets.len());
    let asterisk = post(&served.url, "*", &[(KEY, "k")], "").await;
    assert!([400, 404].contains(&asterisk.status), "{asterisk:?}");
}

/// The query is compared by its decoded names and values.
async fn percent_encoded_query_is_the_same_content<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::<F, _>::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let served = serve_at(&ledger, "/it", protect);
    let ask = async |target: &str| post(&served.url, target, &[(KEY, "k")], "").await.said();
    assert_eq!(ask("/it?a=1&b=2").await, "200 executed");
    assert_eq!(ask("/it?b=2&%61=%31").await, "200 replayed");
    assert_eq!(ask("/%69t?b=2&%61=%31").await, if F::DECODES_PATHS { "200 replayed" } else { "404 " });
    assert_eq!(ask("/it?a=2&b=2").await, "422 key_reused");
    assert_eq!(ledger.runs().len(), 1);
}

/// A key from the path is the value that the framework passes to the handler.
async fn key_from_the_path_equals_the_handler_parameter<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    // One action, and only the key is compared: a rejected duplicate has the same key.
    let protect =
        Protect::<F, _>::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new().every(LONG * 20).unwrap());
    let protect = protect.from(KeyFrom::path("name")).action("one");
    let pattern = if F::HAS_PATTERNS { "/path/{name:.*}/end" } else { "/path/{name}/end" };
    let served =
        F::serve(&ledger, Routes::new().post(pattern, protect, calling("path", &Gate::new(Semaphore::new(0)))));
    let ask = async |spelling: &str| post(&served.url, target("path", spelling.as_bytes()), &[], "").await.said();
    for spelling in ["65674", "a%2Fb", "%2541", "%25", "%C3%A9", "%20", "1+1"] {
        assert_eq!(ask(spelling).await, "200 executed", "{spelling}");
    }
    assert_eq!(ask("a/b").await, if F::HAS_PATTERNS { "409 too_soon" } else { "404 " });
    for spelling in ["%365674", "a%2fb", "%25%34%31", "%", "%c3%a9", "%20", "1%2B1"] {
        assert_eq!(ask(spelling).await, "409 too_soon", "{spelling}");
    }
    for spelling in ["%FF", "%C3", "%EF%BF%BD", "%%46%46"] {
        assert_eq!(ask(spelling).await, "400 key_malformed", "{spelling}");
    }
}

async fn send_json(url: String, body: Value) -> Answer {
    send(http().post(url).json(&body)).await
}

/// The service redeems, claims and looks up by the same normalized action.
#[tokio::test]
async fn service_treats_spellings_of_an_action_as_one() {
    let service = OncewardServer::start(&["--demo", "off"]);
    let at = |path: &str| format!("{}{path}", service.url);
    let token = async |action: &str| {
        let issued = send_json(at("/token"), json!({"action": action})).await;
        serde_json::from_slice::<IssuedToken>(&issued.body).unwrap().token
    };
    for (issued, redeemed) in [
        ("POST /orders", "POST /%6Frders"),
        ("POST /%6frders", "POST /orders"),
        ("POST /caf%C3%A9", "POST /café"),
        ("PURGE /%6f", "PURGE /o"),
    ] {
        let asked = json!({"token": token(issued).await, "action": redeemed, "bound": true});
        assert_eq!(send_json(at("/token/redeem"), asked).await.said(), "200 redeemed", "{issued}, {redeemed}");
        let [method, path] = [0, 1].map(|at| redeemed.split(' ').nth(at).unwrap().to_owned());
        if path.is_ascii() {
            let asked = http().get(at("/forward-auth")).header(TOKEN, token(issued).await);
            let asked = asked.header("x-original-method", method).header("x-original-uri", path);
            assert_eq!(send(asked).await.said(), "200 redeemed", "{issued}, {redeemed}");
        }
    }
    for (issued, redeemed) in [("POST /a%2Fb", "POST /a/b"), ("pay /%6f", "pay %6f"), ("%6f", "o")] {
        let asked = json!({"token": token(issued).await, "action": redeemed, "bound": true});
        assert_eq!(send_json(at("/token/redeem"), asked).await.said(), "403 token_invalid", "{issued}, {redeemed}");
    }
    let claim = |action: &str| json!({"key": "k", "action": action, "subject": "alice"});
    let first = send_json(at("/claim"), claim("POST /pay")).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(send_json(at("/claim"), claim("POST /%70ay")).await.said(), "409 in_progress");
    let seen = send_json(at("/outcome"), claim("POST /p%61y")).await;
    assert!(String::from_utf8_lossy(&seen.body).contains("running"), "{seen:?}");
}

/// The Rust client names the action by its URL, in any spelling. axum's router matches one spelling of a fixed path.
#[tokio::test]
async fn client_token_is_valid_for_any_spelling() {
    let shop = Shop::on(Memory::new());
    let client = onceward_client::Client::builder().build().unwrap();
    for path in ["/bound", "/%62ound", "/bo%75n%64"] {
        let answer = client.post(format!("{}{path}", shop.url())).bound().send().await.unwrap();
        assert_eq!(answer.headers()[header::OUTCOME], "executed", "{path}");
    }
}
