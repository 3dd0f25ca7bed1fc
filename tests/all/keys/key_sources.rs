//! Sources of a key, its scope by subject and action, and the response to a second request under it.

use std::time::Duration;

use onceward::http::protect::KeyPolicy;
use onceward::http::{KeySource as KeyFrom, Protect, RequestHead as _, SubjectSource as SubjectFrom};
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, IntervalRules, Key, KeyRules};
use onceward_api::header::{LOOK, TOKEN};
use onceward_tests::client::{Answer, URLENCODED, http, send};
use onceward_tests::key_routes::{KEY, buy, serve_at, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, TAKES, TestServer, USER, text_of};
use onceward_tests::web_framework::WebFramework;
use reqwest::RequestBuilder;

on_every_framework! {
    key_is_equal_with_and_without_quotes,
    missing_malformed_or_repeated_key_is_rejected,
    optional_key_runs_unprotected_without_and_once_with_it,
    key_is_read_from_a_configured_header,
    key_is_read_from_path_and_query,
    key_is_read_from_a_body_field,
    key_may_combine_parts_or_come_from_a_function,
    duplicate_in_flight_gets_retry_after_and_other_content_422,
    subjects_with_the_same_key_and_body_share_nothing,
    key_is_scoped_to_its_path_or_named_action,
    bytes_of_the_application_are_part_of_the_content,
    lookup_without_the_bytes_of_the_application_is_rejected,
}

const JSON: &str = "application/json";
const LONG: Duration = Duration::from_secs(10);
const RETAIN: Duration = Duration::from_secs(600);

fn by_key<F: WebFramework>() -> Protect<F, KeyPolicy> {
    Protect::<F, _>::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), KeyRules::retryable())
}

fn served<F: WebFramework>(protect: Protect<F, KeyPolicy>) -> (TestServer, Ledger) {
    let ledger = Ledger::new();
    (serve_one(&ledger, protect), ledger)
}

/// Sends a request and its duplicate. Asserts that a replay has the body of the first response.
async fn twice(first: RequestBuilder, second: RequestBuilder) -> (Answer, Answer) {
    let (first, second) = (send(first).await, send(second).await);
    if second.outcome == "replayed" {
        assert_eq!((second.status, &second.body), (first.status, &first.body));
    }
    (first, second)
}

fn said((first, second): &(Answer, Answer)) -> [String; 2] {
    [first.said(), second.said()]
}

const REPLAY: [&str; 2] = ["200 executed", "200 replayed"];
const TWO: [&str; 2] = ["200 executed", "200 executed"];
const REUSED: [&str; 2] = ["200 executed", "422 key_reused"];

async fn key_is_equal_with_and_without_quotes<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>());
    let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    let first = buy(&served.url, "/it", uuid, "a").await;
    assert_eq!(first.said(), "200 executed");
    for same in [format!("\"{uuid}\""), uuid.to_owned(), format!("\"{uuid}\";v=1")] {
        let again = buy(&served.url, "/it", &same, "a").await;
        assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &first.body), "{same}");
        assert_eq!(again.headers["idempotent-replayed"], "true");
    }
    assert!(!first.headers.contains_key("idempotent-replayed"));
    assert_eq!(ledger.runs(), ["a"]);
}

async fn missing_malformed_or_repeated_key_is_rejected<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>());
    let bare = || http().post(format!("{}/it", served.url));
    for (request, code) in [
        (bare(), "key_missing"),
        (bare().header("x-other-key", "a"), "key_missing"),
        (bare().header(KEY, ""), "key_malformed"),
        (bare().header(KEY, "a").header(KEY, "a"), "key_malformed"),
        (bare().header(KEY, "a").header(KEY, "b"), "key_malformed"),
        (bare().header(KEY, "a, b"), "key_malformed"),
        (bare().header(KEY, "\"a"), "key_malformed"),
        (bare().header(KEY, "x".repeat(256)), "key_malformed"),
        (bare().header(KEY, b"\xff".as_slice()), "key_malformed"),
    ] {
        let refused = send(request).await;
        assert_eq!(refused.said(), format!("400 {code}"));
        assert_eq!(refused.headers["cache-control"], "no-store");
        assert_eq!(refused.problem().retry, onceward_api::Retry::No);
    }
    assert!(ledger.runs().is_empty());
}

async fn optional_key_runs_unprotected_without_and_once_with_it<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>().optional());
    for _ in 0..2 {
        let open = send(http().post(format!("{}/it", served.url)).header(ORDER, "open")).await;
        assert_eq!(open.said(), "200 unprotected");
    }
    let pair = twice(under(&served.url, "/it", "k", "kept"), under(&served.url, "/it", "k", "kept")).await;
    assert_eq!(said(&pair), REPLAY);
    let malformed = send(http().post(format!("{}/it", served.url)).header(KEY, "a b")).await;
    assert_eq!(malformed.said(), "400 key_malformed", "a key that is present must be valid");
    assert_eq!(ledger.runs(), ["open", "open", "kept"]);
}

async fn key_is_read_from_a_configured_header<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>().from(KeyFrom::header("X-Request-Token").unwrap()));
    let post = |key: &str| http().post(format!("{}/it", served.url)).header("x-request-token", key);
    assert_eq!(said(&twice(post("a"), post("\"a\"")).await), REPLAY);
    assert_eq!(buy(&served.url, "/it", "a", "b").await.said(), "400 key_missing");
    assert_eq!(ledger.runs().len(), 1);
}

async fn key_is_read_from_path_and_query<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = serve_at(&ledger, "/orders/{order}/pay", by_key::<F>().action("pay").from(KeyFrom::path("order")));
    let pay = |order: &str| http().post(format!("{}/orders/{order}/pay", served.url));
    assert_eq!(said(&twice(pay("1"), pay("1")).await), REPLAY);
    assert_eq!(send(pay("2")).await.said(), "200 executed");

    let (served, queried) = self::served(by_key::<F>().from(KeyFrom::query("id")));
    let ask = |query: &str| http().post(format!("{}/it{query}", served.url));
    assert_eq!(
        said(&twice(ask("?id=a%2Fb&x=1"), ask("?x=1&id=a%2fb")).await),
        REPLAY,
        "queries are sorted and decoded"
    );
    assert_eq!(said(&twice(ask("?id=c&x=1"), ask("?id=c&x=2")).await), REUSED);
    for (query, code) in [("", "key_missing"), ("?id=", "key_missing"), ("?id=a&id=b", "key_malformed")] {
        assert_eq!(send(ask(query)).await.said(), format!("400 {code}"), "{query}");
    }
    assert_eq!((ledger.runs().len(), queried.runs().len()), (2, 2));
}

async fn key_is_read_from_a_body_field<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>().from(KeyFrom::body("/order/id").unwrap()));
    let json =
        |body: &str| http().post(format!("{}/it", served.url)).header("content-type", JSON).body(body.to_owned());
    let pair = twice(json(r#"{"order":{"id":"o-1"},"n":1}"#), json(r#"{"n": 1, "order": {"id": "o-1"}}"#)).await;
    assert_eq!(said(&pair), REPLAY);
    assert_eq!(said(&twice(json(r#"{"order":{"id":7},"n":1}"#), json(r#"{"order":{"id":7},"n":2}"#)).await), REUSED);
    let many =
        |last: u8| json(&format!(r#"{{"order":{{"id":12345678901234567890123456789012345678901234567890{last}}}}}"#));
    assert_eq!(said(&twice(many(1), many(1)).await), REPLAY);
    assert_eq!(send(many(2)).await.said(), "200 executed", "every digit counts");
    for (body, code) in [
        ("{}", "key_missing"),
        (r#"{"order":{"id":null}}"#, "key_missing"),
        (r#"{"order":{"id":""}}"#, "key_missing"),
        (r#"{"order":{"id":1.5}}"#, "key_malformed"),
        (r#"{"order":{"id":1e3}}"#, "key_malformed"),
        (r#"{"order":{"id":["a"]}}"#, "key_malformed"),
        (r#"{"order":{"id":"a\nb"}}"#, "key_malformed"),
        ("not json", "key_missing"),
        ("", "key_missing"),
    ] {
        assert_eq!(send(json(body)).await.said(), format!("400 {code}"), "{body}");
    }
    let (forms, formed) = self::served(by_key::<F>().from(KeyFrom::body("/id").unwrap()));
    let form =
        |body: &'static str| http().post(format!("{}/it", forms.url)).header("content-type", URLENCODED).body(body);
    assert_eq!(said(&twice(form("id=a&n=1"), form("n=1&id=a")).await), REPLAY);
    assert_eq!(said(&twice(form("id=b&n=1"), form("id=b&n=2")).await), REUSED);
    assert_eq!(send(form("id=a&id=b")).await.said(), "400 key_malformed");
    assert_eq!(send(form("n=1")).await.said(), "400 key_missing");
    assert_eq!((ledger.runs().len(), formed.runs().len()), (4, 2));
}

async fn key_may_combine_parts_or_come_from_a_function<F: WebFramework>() {
    let parts = KeyFrom::parts([KeyFrom::body("/source").unwrap(), KeyFrom::body("/seq").unwrap()]);
    let (served, ledger) = served(by_key::<F>().from(parts));
    let send_message = |source: &str, seq: &str| {
        let body = serde_json::json!({"source": source, "seq": seq}).to_string();
        http().post(format!("{}/it", served.url)).header("content-type", JSON).body(body)
    };
    assert_eq!(said(&twice(send_message("a", "bc"), send_message("a", "bc")).await), REPLAY);
    assert_eq!(send(send_message("ab", "c")).await.said(), "200 executed");
    assert_eq!(send(send_message("ab", "")).await.said(), "400 key_missing");
    assert_eq!(ledger.runs().len(), 2);

    let mixed = KeyFrom::parts([KeyFrom::header("x-user").unwrap(), KeyFrom::query("op")]);
    let (served, ledger) = self::served(by_key::<F>().from(mixed));
    let ask = |user: &str, op: &str| http().post(format!("{}/it?op={op}", served.url)).header(USER, user);
    assert_eq!(said(&twice(ask("a", "1"), ask("a", "1")).await), REPLAY);
    assert_eq!(said(&twice(ask("b", "1"), ask("a", "2")).await), TWO);
    assert_eq!(ledger.runs().len(), 3);

    let choose = |request: &F::Request| Some(Key::new(text_of::<F>(request, "x-seq")?.to_owned()));
    let (served, ledger) = self::served(by_key::<F>().from(KeyFrom::chosen(choose)));
    let ask = |seq: &str| http().post(format!("{}/it", served.url)).header("x-seq", seq);
    assert_eq!(said(&twice(ask("1"), ask("1")).await), REPLAY);
    assert_eq!(send(ask("")).await.said(), "400 key_malformed");
    assert_eq!(send(http().post(format!("{}/it", served.url))).await.said(), "400 key_missing");
    assert_eq!(ledger.runs().len(), 1);
}

async fn duplicate_in_flight_gets_retry_after_and_other_content_422<F: WebFramework>() {
    let (served, ledger) = served(by_key::<F>());
    let slow = under(&served.url, "/it", "k", "slow").header(TAKES, 1_200).body("tea");
    let slow = tokio::spawn(send(slow));
    until("the handler runs", Duration::from_secs(5), || async { ledger.count("begun") == 1 }).await;
    let early = send(under(&served.url, "/it", "k", "early").body("tea")).await;
    assert_eq!((early.said().as_str(), &early.headers["retry-after"]), ("409 in_progress", &"1".parse().unwrap()));
    assert_eq!(early.problem().retry, onceward_api::Retry::Same);
    let other = send(under(&served.url, "/it", "k", "other").body("coffee")).await;
    assert_eq!(other.said(), "422 key_reused", "while the first still runs");
    assert!(!other.headers.contains_key("retry-after"));
    until("Retry-After grows", Duration::from_secs(2), || async {
        let late = send(under(&served.url, "/it", "k", "late").body("tea")).await;
        late.outcome == "in_progress" && late.headers["retry-after"] == "2"
    })
    .await;
    let first = slow.await.unwrap();
    let replay = send(under(&served.url, "/it", "k", "again").body("tea")).await;
    assert_eq!((replay.said().as_str(), &replay.body), ("200 replayed", &first.body));
    assert_eq!(ledger.runs(), ["begun", "slow"]);
}

async fn subjects_with_the_same_key_and_body_share_nothing<F: WebFramework>() {
    let redis = RedisServer::start();
    let shop = F::shop(Redis::open(&redis.url()).unwrap());
    let ask = |user: &str| under(shop.url(), "/keyed/mine", "the-same-key", user).header(USER, user).body("the same");
    let pair = twice(ask("alice"), ask("bob")).await;
    assert_eq!(said(&pair), TWO);
    for user in ["alice", "bob"] {
        let replay = send(ask(user)).await;
        let own = if user == "alice" { &pair.0.body } else { &pair.1.body };
        assert_eq!((replay.said().as_str(), &replay.body), ("200 replayed", own));
    }
    assert_eq!(send(under(shop.url(), "/keyed/mine", "the-same-key", "anonymous")).await.said(), "401 unauthorized");
    assert_eq!(shop.ledger.runs(), ["alice", "bob"]);

    let names: Vec<_> = redis.keys().into_iter().filter(|name| name.contains(":key:")).collect();
    let [one, other] = names.as_slice() else { panic!("two records: {names:?}") };
    let value = |name: &String| redis::cmd("GET").arg(name).query::<Vec<u8>>(&mut redis.connection()).unwrap();
    // Version and kind, then the run id, a flag for the fingerprint, and the fingerprint.
    let (one, other) = (value(one), value(other));
    assert_eq!((one[..2].to_vec(), one[18]), (other[..2].to_vec(), other[18]));
    assert_ne!(one[2..18], other[2..18], "run ids");
    assert_ne!(one[19..35], other[19..35], "fingerprints of the same content");
    for value in [&one, &other] {
        assert!(!value.windows(12).any(|window| window == b"the-same-key"), "the raw key is in the store");
    }
}

async fn key_is_scoped_to_its_path_or_named_action<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = F::serve(&ledger, onceward_tests::key_routes::routes(&guard));
    let pay = |kind: &str, order: &str| under(&served.url, &format!("/keyed/{kind}/{order}/pay"), "k", order).body("5");
    let pair = twice(pay("orders", "1"), pay("orders", "2")).await;
    assert_eq!(said(&pair), TWO);
    assert_ne!(pair.0.body, pair.1.body);
    let replay = send(pay("orders", "1")).await;
    assert_eq!((replay.said().as_str(), &replay.body), ("200 replayed", &pair.0.body));
    assert_eq!(said(&twice(pay("named", "3"), pay("named", "4")).await), REUSED);
    assert_eq!(ledger.runs(), ["1", "2", "3"]);
}

async fn bytes_of_the_application_are_part_of_the_content<F: WebFramework>() {
    let cookie = |request: &F::Request| request.header("cookie").next().map(<[u8]>::to_vec);
    let (served, ledger) = served(by_key::<F>().fingerprint_with(cookie));
    let pay = |key: &str, cookie: &str| match cookie {
        "" => under(&served.url, "/it", key, "tea"),
        cookie => under(&served.url, "/it", key, "tea").header("cookie", cookie),
    };
    assert_eq!(said(&twice(pay("a", "u=1"), pay("a", "u=1")).await), REPLAY);
    assert_eq!(said(&twice(pay("b", "u=1"), pay("b", "u=2")).await), REUSED);
    assert_eq!(said(&twice(pay("c", "u=1"), pay("c", "")).await), REUSED);
    assert_eq!(said(&twice(pay("d", ""), pay("d", "u=1")).await), REUSED);
    assert_eq!(said(&twice(pay("e", ""), pay("e", "")).await), REPLAY);
    assert_eq!(ledger.runs().len(), 5);
}

/// The bytes may be who the client is, so a client that knows nothing but the key must not receive the response.
async fn lookup_without_the_bytes_of_the_application_is_rejected<F: WebFramework>() {
    let cookie = |request: &F::Request| request.header("cookie").next().map(<[u8]>::to_vec);
    let guard = Guard::new(Memory::new());
    let anonymous = SubjectFrom::anonymous;
    let token = Protect::<F, _>::token(&guard, anonymous()).remember(RETAIN).fingerprint_with(cookie);
    let rules = IntervalRules::new().every(RETAIN).unwrap();
    let named = Protect::<F, _>::interval(&guard, anonymous(), rules).remember().fingerprint_with(cookie);
    let named = named.from(KeyFrom::header(KEY).unwrap()).into_any();
    let issued = guard.issue(guard.token_ttl(), Binding::none()).await.unwrap();
    for (protect, id, rejected) in [
        (by_key::<F>().fingerprint_with(cookie).into_any(), (KEY, "k"), "422 key_reused"),
        (named, (KEY, "k"), "422 key_reused"),
        (token.into_any(), (TOKEN, issued.as_str()), "409 token_used"),
    ] {
        let ledger = Ledger::new();
        let served = serve_one(&ledger, protect);
        let url = format!("{}/it", served.url);
        let request = |cookie: &str, body: &'static str| {
            http().post(&url).header(id.0, id.1).header(ORDER, "tea").header("cookie", cookie).body(body)
        };
        let look = async |cookie, body| send(request(cookie, body).header(LOOK, "true")).await;
        let first = tokio::spawn(send(request("u=1", "5").header(TAKES, 300)));
        until("the handler runs", LONG, || async { look("u=1", "5").await.said() == "409 in_progress" }).await;
        assert_eq!(look("u=2", "5").await.said(), rejected, "while the first request is in flight");
        let first = first.await.unwrap();
        assert_eq!(first.said(), "200 executed");
        for (cookie, body) in [("u=2", "5"), ("", "5"), ("u=1", ""), ("u=1", "6")] {
            let answer = look(cookie, body).await;
            assert_eq!(answer.said(), rejected, "{cookie:?}, {body:?}");
            assert_ne!(answer.body, first.body);
        }
        let seen = look("u=1", "5").await;
        assert_eq!((seen.said().as_str(), &seen.body), ("200 replayed", &first.body));
        assert_eq!(ledger.count("tea"), 1);
    }
}
