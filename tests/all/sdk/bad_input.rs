//! Invalid input to the Rust SDK: the error names the next step, and nothing is sent.

use std::time::Duration;

use onceward::store::Memory;
use onceward::testing;
use onceward_client::{Client, Code, Error, OnUnknown, RetryLimits};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::listening_port::free_port;

use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, Shop};

/// Time to wait for a token while the server refuses connections.
const DEADLINE: Duration = Duration::from_secs(5);

fn says(error: &Error, what: &str) {
    assert!(error.to_string().contains(what), "`{what}` is not in: {error}");
}

#[tokio::test]
async fn invalid_url_is_rejected_before_sending() {
    for wrong in
        ["", "orders", "/orders", "shop.example/orders", "ftp://shop.example/", "http://", "http://[::1/", "data:,x"]
    {
        let error = client().post(wrong).body("tea").send().await.unwrap_err();
        assert!(error.is_misuse() && error.ran_nothing(), "{wrong}: {error:?}");
        says(&error, "is not a valid URL");
        assert!(builder().tokens_from(wrong).build().is_err(), "{wrong}");
        assert!(builder().send_tokens_to(wrong).build().is_err(), "{wrong}");
    }
    for wrong in ["https://shop.example/?a=b", "https://shop.example/#a"] {
        says(&builder().tokens_from(wrong).build().unwrap_err(), "`/token` is appended to it");
    }
    let password = client().post("https://ann:tea@shop.example/orders").send().await.unwrap_err();
    says(&password, "identity");
    assert!(!format!("{password} {password:?}").contains("ann:tea"), "{password:?}");
    let secret = client().post("shop.example/orders?password=tea").send().await.unwrap_err();
    assert!(!format!("{secret} {secret:?}").contains("password"), "{secret:?}");
}

#[tokio::test]
async fn contradictory_settings_are_rejected_at_once() {
    says(&builder().on_unknown(OnUnknown::Retry).build().unwrap_err(), "requires a key");
    says(&builder().with_keys_of("my shop").build().unwrap_err(), "the application name");
    let shop = Shop::on(Memory::new());
    let url = format!("{}/orders", shop.url());
    let per_call = client().post(&url).on_unknown(OnUnknown::Retry).send().await.unwrap_err();
    assert!(per_call.is_misuse(), "{per_call:?}");
    for ours in ["Onceward-Token", "Idempotency-Key", "Onceward-Look"] {
        says(&client().post(&url).header(ours, "x").send().await.unwrap_err(), "`key` or `resume`");
    }
    says(&client().post(&url).header("bad name", "x").send().await.unwrap_err(), "invalid header");
    says(&client().post(&url).header("x-ok", "bad\nvalue").send().await.unwrap_err(), "invalid header");
    assert!(shop.ledger.runs().is_empty());
}

/// Starts a server that sends these bytes in response to every request.
async fn answering(bytes: impl Into<Vec<u8>>) -> FaultyHttpProxy {
    let bytes = bytes.into();
    FaultyHttpProxy::to("http://127.0.0.1:1", move |_| HttpFault::Raw(bytes.clone())).await
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn without_token(url: &str) -> Error {
    let limits = RetryLimits::new().attempts(2).backoff(Duration::ZERO, Duration::ZERO).deadline(DEADLINE);
    let client = builder().limits(limits).build().unwrap();
    let error = client.post(format!("{url}/orders")).body("tea").send().await.unwrap_err();
    assert!(error.is_without_token() && error.ran_nothing(), "{error:?}");
    says(&error, "so nothing was sent");
    error
}

#[tokio::test]
async fn server_without_onceward_is_recognized() {
    for (status, kind, body) in [
        ("404 Not Found", "text/plain", "nothing here"),
        ("200 OK", "text/html", "<!doctype html><h1>Welcome</h1>"),
        ("200 OK", "application/json", "{\"status\":\"ok\"}"),
        ("200 OK", "application/json", "{\"tokens\":[{\"token\":\"t\"}]}"),
        ("201 Created", "application/json", "not json at all"),
        ("403 Forbidden", "text/html", "<h1>No</h1>"),
    ] {
        let server = answering(answer(status, kind, body)).await;
        let error = without_token(&server.url).await;
        says(&error, "Is this an Onceward server?");
        says(&error, "tokens_from");
        assert!(server.submissions().is_empty(), "nothing was submitted to the server");
    }
    let nonsense = answering("SSH-2.0-OpenSSH_9.2\r\n").await;
    says(&without_token(&nonsense.url).await, "failed (");
    let leading = answering("HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n").await;
    says(&without_token(&leading.url).await, "was redirected");
}

#[tokio::test]
async fn invalid_token_is_not_sent() {
    let batch = |token: &str, life: &str| {
        let one = format!("{{\"token\":\"{token}\",\"expires_at\":\"x\",\"expires_in\":{life}}}");
        answer("201 Created", "application/json", &format!("{{\"tokens\":[{one},{one},{one}]}}"))
    };
    for (token, life, what) in [
        ("a b", "60", "no header can carry"),
        ("", "60", "no header can carry"),
        ("a\\r\\nx: y", "60", "no header can carry"),
        ("ow1_x", "0", "expired already"),
        ("ow1_x", "-5", "without a token"),
    ] {
        let server = answering(batch(token, life)).await;
        says(&without_token(&server.url).await, what);
        assert!(server.submissions().is_empty());
    }
    // An overflowing lifetime is capped; the server judges the token.
    let endless = answering(batch("ow1_x", "18446744073709551615")).await;
    let _ = client().post(format!("{}/orders", endless.url)).send().await;
    assert!(!endless.submissions().is_empty());
}

#[tokio::test]
async fn endpoint_without_tokens_is_not_called_repeatedly() {
    let server = answering(answer("201 Created", "application/json", "{\"tokens\":[]}")).await;
    says(&without_token(&server.url).await, "no token at all");
    assert!(server.seen().len() <= 2, "{} requests", server.seen().len());
    assert!(client().warm_up(&server.url, 5).await.unwrap_err().is_without_token());
}

#[tokio::test]
async fn missing_token_error_names_the_reason() {
    says(&without_token(&format!("http://127.0.0.1:{}", free_port())).await, "Is the server running");
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), |_| HttpFault::RefuseFor(Code::RateLimited, 3600)).await;
    let limited = without_token(&way.url).await;
    says(&limited, "rate_limited");
    assert_eq!((limited.code(), limited.retry_after()), (Some(Code::RateLimited), Some(Duration::from_secs(3600))));
    way.plan(|_| HttpFault::Reject(Code::StoreUnavailable));
    says(&without_token(&way.url).await, "store_unavailable");
    way.plan(|_| HttpFault::Instead(500));
    says(&without_token(&way.url).await, "Try again in a moment");
    way.plan(|_| HttpFault::Instead(401));
    says(&without_token(&way.url).await, "Identify the client");
    way.plan(|_| HttpFault::Delay(Duration::from_secs(60)));
    let limits = RetryLimits::new().deadline(Duration::from_millis(200));
    let late = client().post(format!("{}/orders", way.url)).limits(limits).send().await.unwrap_err();
    says(&late, "no token within the deadline");
    assert!(shop.ledger.runs().is_empty() && way.submissions().is_empty());
}

#[tokio::test]
async fn temporary_token_outage_is_waited_out() {
    let shop = Shop::on(Memory::new());
    let down = std::sync::atomic::AtomicUsize::new(0);
    let way = FaultyHttpProxy::to(shop.url(), move |seen| {
        match seen.fetches() && down.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3 {
            true => HttpFault::CutBefore,
            false => HttpFault::None,
        }
    });
    assert!(client().post(format!("{}/orders", way.await.url)).send().await.is_ok());
}

#[tokio::test]
async fn ten_megabyte_problem_is_not_buffered() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([])).await;
    let filler = "x".repeat(10 * 1024 * 1024);
    let problem = |outcome: &str| {
        let body = format!(
            "{{\"type\":\"about:blank\",\"title\":\"t\",\"status\":409,\"detail\":\"{filler}\",\"code\":\"token_used\",\"retry\":\"no\"}}"
        );
        let head = format!("HTTP/1.1 409 Conflict\r\n{outcome}content-type: application/problem+json\r\n");
        HttpFault::Raw(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    };
    let url = format!("{}/orders", way.url);
    way.plan(first([problem("onceward-outcome: token_used\r\n")]));
    let marked = client().post(&url).send().await.unwrap_err();
    assert!(marked.is_duplicate() && marked.to_string().len() < 1000 && format!("{marked:?}").len() < 2000);
    assert!(marked.problem().unwrap().detail.len() < 1000);

    // Nothing marks this as a problem of Onceward: it is the application's response, for the caller to read.
    way.plan(first([problem("")]));
    let unmarked = client().post(&url).send().await.unwrap();
    assert_eq!(unmarked.status().as_u16(), 409);
    assert!(unmarked.bytes().await.unwrap().len() > filler.len());
}

#[tokio::test]
async fn client_tolerates_server_clock_skew() {
    // The clock of this guard is in 2027; the client ignores its dates.
    let (guard, clock) = testing::guard();
    let shop = Shop::with(guard);
    let (client, url) = (client(), format!("{}/orders", shop.url()));
    client.warm_up(&url, 4).await.unwrap();
    assert_eq!(client.post(&url).send().await.unwrap().attempts(), 1);
    // The server's clock jumps: the pooled tokens have expired there, and the client recovers.
    clock.advance(Duration::from_secs(24 * 3600));
    let tries =
        [client.post(&url).send().await, client.post(&url).send().await].map(|answer| answer.unwrap().attempts());
    assert_eq!(tries, [2, 1]);
}

#[tokio::test]
async fn servers_with_different_clocks_are_named_in_the_error() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), |seen| match seen.fetches() {
        true => HttpFault::None,
        false => HttpFault::Reject(Code::TokenExpired),
    });
    let error = client().post(format!("{}/orders", way.await.url)).header(ORDER, "a").send().await.unwrap_err();
    assert!(error.ran_nothing() && error.attempts() == 2, "{error:?}");
    says(&error, "clocks");
}

#[tokio::test]
async fn wrong_credential_kind_error_names_the_fix() {
    let shop = Shop::on(Memory::new());
    let keyed = client().post(format!("{}/keyed/orders", shop.url())).send().await.unwrap_err();
    assert_eq!(keyed.code(), Some(Code::KeyMissing));
    says(&keyed, "with_key");
    let keys = builder().with_keys().build().unwrap();
    let token = keys.post(format!("{}/orders", shop.url())).send().await.unwrap_err();
    assert!(token.code() == Some(Code::TokenMissing) && token.attempts() == 1, "{token:?}");
    assert!(shop.ledger.runs().is_empty());
}

#[test]
fn client_builds_without_a_runtime_and_debug_hides_secrets() {
    let client = Client::builder().tokens_from("https://tokens.example/base/").with_keys().build().unwrap();
    assert!(format!("{client:?}").starts_with("Client {"));
    let headers = [(reqwest::header::AUTHORIZATION, reqwest::header::HeaderValue::from_static("Bearer secret"))];
    let http = reqwest::Client::builder().default_headers(headers.into_iter().collect());
    let builder = Client::builder().http(http).tokens_from("https://ann:secret@tokens.example");
    assert!(!format!("{builder:?}").contains("secret"), "{builder:?}");
}
