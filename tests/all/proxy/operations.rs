//! Operating the proxy: its own routes, metrics, limits, graceful shutdown, and the store or upstream out of reach.

use std::time::Duration;

use onceward_api::{IssuedToken, header};
use onceward_tests::client::{ask_token, http, send};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::{holds_for, until};
use onceward_tests::raw_http;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service_calls::get;
use onceward_tests::tls_redis::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::submission::{LONG, keyed, order, token, tokened};

#[tokio::test]
async fn metrics_count_requests_and_verdicts_on_the_admin_address() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--admin-listen", "127.0.0.1:0"]);
    let token = token(&proxy).await;
    for request in [
        tokened(&proxy, "/orders", &token),
        tokened(&proxy, "/orders", &token),
        keyed(&proxy, "/orders", "k"),
        order(&proxy, "/orders", "milk").header(header::IDEMPOTENCY_KEY, "k"),
    ] {
        send(request).await;
    }
    let is_counted = || async {
        let metrics = Metrics::of(&proxy.admin()).await;
        let verdicts = |code: &str| metrics.sum("onceward_verdicts_total", &[&format!("code=\"{code}\"")]);
        let rejected = metrics.sum("onceward_http_requests_total", &["status=\"4xx\""]);
        [verdicts("run"), verdicts("replay"), verdicts("key_reused"), rejected] == [2.0, 1.0, 1.0, 1.0]
    };
    until("the verdicts are counted", LONG, is_counted).await;
    assert!(Metrics::of(&proxy.admin()).await.sum("onceward_http_requests_total", &["status=\"2xx\""]) >= 4.0);
    assert_eq!(shop.orders().len(), 2);
    assert_eq!(get(&proxy.admin(), "/dashboard").await.status, 200);
    for path in ["/metrics", "/dashboard"] {
        let public = get(&proxy.url, path).await;
        assert_eq!(public.status, 404, "the application responds to {path}");
        assert!(String::from_utf8_lossy(&public.body).contains("Not found"), "{public:?}");
        assert_eq!(get(&proxy.url, &format!("/_onceward{path}")).await.said(), "404 not_found", "{path}");
    }
}

#[tokio::test]
async fn own_routes_never_reach_the_upstream() {
    let mut shop = LegacyShop::start();
    let proxy = shop.proxy(&[]);
    shop.kill();
    let own = |path: &str| format!("{}/_onceward{path}", proxy.url);
    assert_eq!(get(&proxy.url, "/_onceward/healthz").await.body, "alive\n");
    assert_eq!(get(&proxy.url, "/_onceward/readyz").await.body, "ready\n");
    let script = send(http().get(own("/sdk/onceward.js"))).await;
    let tag = script.headers["etag"].clone();
    assert!(script.status == 200 && !script.body.is_empty(), "{script:?}");
    let known = send(http().get(own("/sdk/onceward.js")).header("if-none-match", tag)).await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(get(&proxy.url, "/_onceward/problems/token_used").await.status, 200);
    for path in ["/", "/nothing", "/tokens", "/token/redeem", "/claim", "/problems/nothing"] {
        assert_eq!(get(&proxy.url, &format!("/_onceward{path}")).await.said(), "404 not_found", "{path}");
    }
    for (method, path, allow) in
        [("GET", "/token", "POST"), ("POST", "/healthz", "GET, HEAD"), ("PUT", "/sdk/onceward.js", "GET, HEAD")]
    {
        let answer = raw_http::request(method, &proxy.url, format!("/_onceward{path}"), &[], "").await;
        assert_eq!(
            (answer.said().as_str(), answer.headers["allow"].to_str().unwrap()),
            ("405 method_not_allowed", allow)
        );
    }
    assert_eq!(get(&proxy.url, "/").await.status, 502, "every other path belongs to the application");
}

#[tokio::test]
async fn proxy_path_moves_the_own_routes() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--proxy-path", "/guard/own"]);
    assert_eq!(get(&proxy.url, "/guard/own/healthz").await.body, "alive\n");
    assert_eq!(get(&proxy.url, "/_onceward/healthz").await.status, 404);
    let issued = ask_token(&format!("{}/guard/own", proxy.url), "").await;
    let token = serde_json::from_slice::<IssuedToken>(&issued.body).unwrap().token;
    assert_eq!(send(tokened(&proxy, "/orders", &token)).await.said(), "201 executed");
    let used = send(tokened(&proxy, "/others", &token)).await;
    assert_eq!(used.said(), "409 token_used");
    assert!(String::from_utf8_lossy(&used.body).contains("/guard/own/problems/token_used"), "{used:?}");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn token_rate_limit_rejects_a_greedy_client() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--rate-limit", "1/m", "--rate-burst", "3"]);
    let own = format!("{}/_onceward", proxy.url);
    for said in ["201 ", "201 ", "201 ", "429 rate_limited"] {
        let answer = ask_token(&own, "").await;
        assert_eq!(answer.said(), said);
        assert!(answer.headers.contains_key(header::RATE_LIMIT), "{answer:?}");
    }
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.status, 201, "the limit is for tokens only");
}

#[tokio::test]
async fn dead_store_rejects_submissions_and_forwards_nothing() {
    let (shop, mut redis) = (LegacyShop::start(), RedisServer::start());
    let proxy = shop.proxy(&["--store", &redis.url(), "--store-timeout", "100ms"]);
    let token = token(&proxy).await;
    assert_eq!(get(&proxy.url, "/_onceward/readyz").await.status, 200);
    redis.kill();
    for request in [tokened(&proxy, "/orders", &token), keyed(&proxy, "/orders", "k")] {
        assert_eq!(send(request).await.said(), "503 store_unavailable");
    }
    assert_eq!(shop.orders().len(), 0);
    let is_unready = || async { get(&proxy.url, "/_onceward/readyz").await.status == 503 };
    until("the proxy is not ready", LONG, is_unready).await;
    assert_eq!(get(&proxy.url, "/_onceward/healthz").await.status, 200);
    assert_eq!(get(&proxy.url, "/").await.status, 200, "pages need no store");
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "201 unprotected");
    redis.restart();
    let runs = || async { send(keyed(&proxy, "/orders", "k")).await.said() == "201 executed" };
    until("the key runs", LONG, runs).await;
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_shutdown_completes_and_stores_a_slow_submission() {
    let (shop, redis) = (LegacyShop::start(), RedisServer::start());
    let store = ["--store", &redis.url(), "--store-timeout", "5s"];
    let mut proxy = shop.proxy(&store);
    let token = token(&proxy).await;
    let target = "/api/orders?slow=1.5";
    let slow = tokio::spawn(send(tokened(&proxy, target, &token)));
    until("it runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    proxy.terminate();
    let is_running = || std::future::ready(proxy.ended().is_none());
    holds_for("the submission is in flight", Duration::from_millis(600), is_running).await;
    let answer = slow.await.unwrap();
    assert_eq!((answer.said().as_str(), answer.headers["connection"].to_str().unwrap()), ("201 executed", "close"));
    until("it ends", LONG, || std::future::ready(proxy.ended() == Some(0))).await;
    let address = proxy.url.trim_start_matches("http://");
    assert!(TcpStream::connect(address).await.is_err(), "new connections are refused");
    let next = shop.proxy(&store);
    let replayed = send(tokened(&next, target, &token)).await;
    assert_eq!((replayed.said().as_str(), &replayed.body), ("201 replayed", &answer.body));
    assert_eq!(shop.orders().len(), 1);
}

/// A client that is refused tries the next server at once.
#[tokio::test]
async fn new_connection_during_a_slow_download_is_refused_after_the_grace_period() {
    let shop = LegacyShop::start();
    let mut proxy = shop.proxy(&[]);
    let mut download = raw_http::connect(&proxy.url).await;
    download.write_all(b"GET /big?bytes=100000000 HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    download.read_exact(&mut [0; 1024]).await.unwrap();
    proxy.terminate();
    let address = proxy.url.trim_start_matches("http://").to_owned();
    let is_refused = || async {
        let connected = timeout(Duration::from_secs(2), TcpStream::connect(&address)).await;
        matches!(connected, Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    until("a new connection is refused", LONG, is_refused).await;
    assert_eq!(proxy.ended(), None, "the download is in flight");
    download.read_exact(&mut [0; 1024]).await.unwrap();
}

#[tokio::test]
async fn grace_period_serves_requests_and_closes_connections() {
    let shop = LegacyShop::start();
    let mut proxy = shop.proxy(&["--last-call", "2s"]);
    proxy.terminate();
    let is_last = || async {
        let answer = send(keyed(&proxy, "/orders", "k")).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.headers.get("connection").is_some_and(|value| value == "close")
    };
    until("responses close their connection", LONG, is_last).await;
    assert_eq!(shop.orders().len(), 1);
    until("it ends", LONG, || std::future::ready(proxy.ended() == Some(0))).await;
}

#[tokio::test]
async fn requests_over_max_in_flight_are_rejected() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--max-in-flight", "1"]);
    let slow = tokio::spawn(send(order(&proxy, "/orders?slow=1.5", "tea")));
    until("it runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    for request in [order(&proxy, "/orders", "tea"), keyed(&proxy, "/orders", "k"), http().get(&proxy.url)] {
        let answer = send(request).await;
        assert_eq!(answer.said(), "503 overloaded");
        assert!(answer.headers.contains_key(header::RETRY_AFTER), "{answer:?}");
    }
    assert_eq!(get(&proxy.url, "/_onceward/healthz").await.status, 200, "a health check needs no place");
    assert_eq!(slow.await.unwrap().status, 201);
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "201 executed");
    assert_eq!(shop.orders().len(), 2);
}

/// Otherwise a client could start any number of runs, and disconnect from each.
#[tokio::test]
async fn run_whose_client_has_disconnected_is_in_flight() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--max-in-flight", "1"]);
    let mut stream = raw_http::connect(&proxy.url).await;
    let request = "POST /orders?slow=1.5 HTTP/1.1\r\nhost: a\r\nidempotency-key: slow\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    until("it runs", LONG, || std::future::ready(shop.orders().len() == 1)).await;
    drop(stream);
    let is_rejected = || async { send(keyed(&proxy, "/orders", "k")).await.said() == "503 overloaded" };
    holds_for("the run is in flight", Duration::from_millis(300), is_rejected).await;
    until("the run has ended", LONG, || async { !is_rejected().await }).await;
    assert_eq!(shop.orders().len(), 2);
}

#[tokio::test]
async fn client_with_too_many_connections_gets_no_further_one() {
    let shop = LegacyShop::start();
    let proxy =
        shop.proxy(&["--max-connections", "8", "--max-connections-per-client", "2", "--admin-listen", "127.0.0.1:0"]);
    let ask = |mut stream: TcpStream| async move {
        let request = "GET /_onceward/healthz HTTP/1.1\r\nhost: a\r\n\r\n";
        let _ = stream.write_all(request.as_bytes()).await;
        let mut piece = [0; 1024];
        let read = timeout(LONG, stream.read(&mut piece)).await.expect("a response or the end");
        read.is_ok_and(|count| count > 0).then_some(stream)
    };
    let mut open = Vec::new();
    while let Some(stream) = ask(raw_http::connect(&proxy.url).await).await {
        open.push(stream);
        assert!(open.len() <= 4, "a client has half of the connections at most");
    }
    assert_eq!(open.len(), 4);
    let refused =
        || async { Metrics::of(&proxy.admin()).await.sum("onceward_http_connections_refused_total", &[]) >= 1.0 };
    until("the refusal is counted", LONG, refused).await;
    open.clear();
    until("a place is free", LONG, || async { ask(raw_http::connect(&proxy.url).await).await.is_some() }).await;
}

#[tokio::test]
async fn upstream_with_tls_needs_a_certificate_of_the_given_authority() {
    let (authority, other) = (Authority::new(), Authority::new());
    let shop = LegacyShop::start_with_tls(&authority);
    for (authority, said, count) in [(&other, "502 not_applied", 0), (&authority, "201 executed", 1)] {
        let proxy = shop.proxy(&["--upstream-ca", authority.certificate().to_str().unwrap()]);
        let token = token(&proxy).await;
        let answer = send(tokened(&proxy, "/orders", &token)).await;
        assert_eq!((answer.said().as_str(), shop.orders().len()), (said, count), "{answer:?}");
        let again = send(tokened(&proxy, "/orders", &token)).await.said();
        assert_eq!(again, if count == 0 { said } else { "201 replayed" });
    }
    let proxy = shop.proxy(&[]);
    assert_eq!(send(keyed(&proxy, "/orders", "k")).await.said(), "502 not_applied", "the system does not know it");
    assert_eq!(shop.orders().len(), 1);
}
