//! HEAD wherever GET works: the same status and headers, and no body.

use std::collections::BTreeMap;

use onceward_api::header;
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::raw_http;
use onceward_tests::service::OncewardServer;
use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Paths with GET that the specification does not list.
const PAGES: [&str; 14] = [
    "/",
    "/docs",
    "/docs/",
    "/docs/swagger-ui.css",
    "/openapi.json",
    "/problems",
    "/problems/token_used",
    "/problems/nothing",
    "/sdk/onceward.js",
    "/sdk/onceward.0123456789abcdef.js",
    "/demo/demo.js",
    "/demo/nothing.js",
    "/nowhere",
    "/token",
];
const SHOWN: [&str; 3] = ["/dashboard", "/dashboard/dashboard.js", "/dashboard/nothing.js"];

/// Returns the headers that GET and HEAD must share, without those that change with each response.
fn lasting(answer: &Answer) -> BTreeMap<String, Vec<u8>> {
    let headers =
        answer.headers.iter().filter(|(name, _)| !["date", "x-request-id", "set-cookie"].contains(&name.as_str()));
    headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

async fn assert_alike(url: &str, path: &str) {
    let get = raw_http::request("GET", url, path, &[], "").await;
    let head = raw_http::request("HEAD", url, path, &[], "").await;
    assert_eq!(head.status, get.status, "{path}: {head:?}");
    assert!(head.body.is_empty() && !get.body.is_empty() || get.status / 100 == 3, "{path}: {head:?}");
    let [mut wanted, mut told] = [lasting(&get), lasting(&head)];
    if path == "/metrics" {
        // A counter may have gained a digit.
        assert!(wanted.remove("content-length").is_some() == told.remove("content-length").is_some(), "{path}");
    }
    assert_eq!(told, wanted, "{path}");
    assert!(head.headers.contains_key("content-length"), "{path}: {head:?}");
}

#[tokio::test]
async fn head_is_answered_as_get_without_a_body_at_every_path() {
    let service = OncewardServer::start(&[]);
    let document = send(http().get(format!("{}/openapi.json", service.url))).await.body;
    let document: Value = serde_json::from_slice(&document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let read: Vec<_> =
        paths.iter().filter(|(_, item)| item["get"].is_object()).map(|(path, _)| path.as_str()).collect();
    assert_eq!(read.len(), 5, "{read:?}");
    for path in read.into_iter().filter(|path| *path != "/forward-auth").chain(PAGES).chain(SHOWN) {
        assert_alike(&service.url, path).await;
    }
    let apart = OncewardServer::start(&["--admin-listen", "127.0.0.1:0"]);
    for path in ["/", "/healthz", "/readyz", "/metrics", "/nowhere"].into_iter().chain(SHOWN) {
        assert_alike(&apart.admin(), path).await;
    }
}

#[tokio::test]
async fn head_is_rejected_on_post_only_paths() {
    let service = OncewardServer::start(&[]);
    for path in ["/token", "/tokens", "/token/redeem", "/token/release", "/claim", "/claim/complete", "/outcome"] {
        let head = raw_http::request("HEAD", &service.url, path, &[], "").await;
        assert_eq!(head.said(), "405 method_not_allowed", "{path}");
        assert_eq!((&head.headers["allow"], head.body.len()), (&"POST".parse().unwrap(), 0), "{path}");
    }
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/problems",
        "/problems/x",
        "/sdk/onceward.js",
        "/demo/demo.js",
    ] {
        let posted = raw_http::post(&service.url, path, &[], "").await;
        assert_eq!((posted.status, &posted.headers["allow"]), (405, &"GET, HEAD".parse().unwrap()), "{path}");
    }
}

#[tokio::test]
async fn gateway_may_send_head_and_forward_head() {
    let service = OncewardServer::start(&[]);
    let good = token(&service.url).await;
    let ask = || http().request(Method::HEAD, format!("{}/forward-auth", service.url)).header(header::TOKEN, &good);
    let about_post = || ask().header("x-original-method", "POST").header("x-original-uri", "/orders");
    assert_eq!(
        send(http().request(Method::HEAD, format!("{}/forward-auth/orders", service.url))).await.said(),
        "200 unprotected"
    );
    assert_eq!(send(about_post()).await.said(), "200 redeemed");
    assert_eq!(send(about_post()).await.said(), "409 token_used");
}

/// The server reads ahead (pipelining), and still sends no body for HEAD.
#[tokio::test]
async fn head_before_another_request_on_one_connection_has_no_body() {
    let service = OncewardServer::start(&[]);
    let mut stream = TcpStream::connect(service.url.trim_start_matches("http://")).await.unwrap();
    let request =
        |method: &str, close: &str| format!("{method} /problems/token_used HTTP/1.1\r\nhost: a\r\n{close}\r\n");
    stream.write_all((request("HEAD", "") + &request("GET", "connection: close\r\n")).as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    // The server may close the connection after the first response.
    let _ = stream.read_to_end(&mut answers).await;
    let answers = String::from_utf8(answers).unwrap();
    let (head, rest) = answers.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: "), "{head}");
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 200"), "{rest}");
}
