//! The OpenAPI specification is the committed one, and requests and responses conform to it.

use onceward_api::{IssuedToken, header};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::{post, redeemed_by};
use reqwest::Method;
use serde_json::{Value, json};

const KEY: &str = "the-key-of-the-backends";
const POSTED: [&str; 9] = [
    "/token",
    "/tokens",
    "/token/redeem",
    "/token/release",
    "/claim",
    "/claim/complete",
    "/claim/release",
    "/claim/renew",
    "/outcome",
];

async fn specification(service: &OncewardServer) -> Value {
    serde_json::from_slice(&send(http().get(format!("{}/openapi.json", service.url))).await.body).unwrap()
}

/// Returns the headers documented for a response, and asserts that each has a schema and a description.
fn described(specification: &Value, operation: &str, status: u16) -> Vec<String> {
    let (method, path) = operation.split_once(' ').unwrap();
    let answer = &specification["paths"][path][method.to_lowercase()]["responses"][status.to_string()];
    let headers = answer["headers"].as_object().unwrap_or_else(|| panic!("{operation} {status} is not described"));
    for reference in headers.values() {
        let pointer = reference["$ref"].as_str().unwrap().trim_start_matches('#');
        let header = specification.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is not described"));
        assert!(header["schema"]["type"].is_string() && header["description"].is_string(), "{header}");
    }
    headers.keys().cloned().collect()
}

/// Asserts that a response has exactly its documented headers.
fn assert_described(specification: &Value, operation: &str, answer: &Answer) {
    let own = described(specification, operation, answer.status);
    for name in specification["components"]["headers"].as_object().unwrap().keys() {
        assert_eq!(answer.headers.contains_key(name), own.contains(name), "{operation}: {name} {answer:?}");
    }
}

#[tokio::test]
async fn every_response_has_its_documented_headers() {
    let mut redis = RedisServer::start();
    let quota = ["--rate-limit", "1/h", "--rate-burst", "2"];
    let service = OncewardServer::start(&[&["--store", &redis.url(), "--api-key", KEY], &quota[..]].concat());
    let specification = specification(&service).await;
    let (good, stranger) = (token(&service.url).await, OncewardServer::start(&[]));
    let long = " ".repeat(20_000);
    let [bare, used] = [String::new(), json!({"token": good, "attempt": "one"}).to_string()];
    let release = |run: &Value| json!({"token": good, "attempt": "one", "run_id": run}).to_string();
    let asked = |operation: &str, kind: &str, key: &str, body: &str| {
        let (method, path) = operation.split_once(' ').unwrap();
        let request = http().request(method.parse().unwrap(), format!("{}{path}", service.url)).body(body.to_owned());
        send(request.header("content-type", kind).bearer_auth(key))
    };
    let json = "application/json";
    for (operation, kind, key, body, status) in [
        ("POST /token", json, "", &bare, 201),
        ("POST /token", json, "", &bare, 429),
        ("POST /tokens", json, "", &"{\"count\":1}".to_owned(), 429),
        ("POST /token", json, "", &"{".to_owned(), 400),
        ("POST /token", json, "", &long, 413),
        ("POST /token", "text/plain", "", &used, 415),
        ("POST /token/redeem", json, KEY, &used, 200),
        ("POST /token/redeem", json, KEY, &json!({ "token": good }).to_string(), 409),
        ("POST /token/redeem", json, "", &used, 401),
        ("POST /token/redeem", json, KEY, &"{}".to_owned(), 400),
        ("POST /token/release", json, "", &release(&Value::Null), 401),
        ("POST /token/release", json, KEY, &release(&"x".into()), 400),
        ("POST /token/release", json, KEY, &release(&"8e03978e-40d5-43dd-bc93-6894a57f9324".into()), 409),
        ("GET /healthz", json, "", &bare, 200),
        ("GET /readyz", json, "", &bare, 200),
        ("GET /metrics", json, "", &bare, 200),
    ] {
        let answer = asked(operation, kind, key, body).await;
        assert_eq!(answer.status, status, "{operation} {answer:?}");
        assert_described(&specification, operation, &answer);
    }
    let redeemed = asked("POST /token/redeem", json, KEY, &used).await;
    let run = serde_json::from_slice::<Value>(&redeemed.body).unwrap()["run_id"].clone();
    let released = asked("POST /token/release", json, KEY, &release(&run)).await;
    assert_eq!(released.status, 204, "{released:?}");
    assert_described(&specification, "POST /token/release", &released);
    let said = |fingerprint: &str| {
        json!({"key": "k", "action": "a", "subject": "s", "fingerprint": fingerprint, "lease": "1m"}).to_string()
    };
    let claimed = asked("POST /claim", json, KEY, &said("one")).await;
    assert_described(&specification, "POST /claim", &claimed);
    let pass: Value = serde_json::from_slice(&claimed.body).unwrap();
    let pass = json!({"pass": pass["pass"]}).to_string();
    let look = json!({"key": "k", "action": "a", "subject": "s"}).to_string();
    for (operation, key, body, status) in [
        ("POST /claim", KEY, said("one"), 409),
        ("POST /claim", KEY, said("two"), 422),
        ("POST /claim", "", said("one"), 401),
        ("POST /claim", KEY, "{}".to_owned(), 400),
        ("POST /outcome", KEY, look.clone(), 200),
        ("POST /outcome", "", look, 401),
        ("POST /outcome", KEY, "{}".to_owned(), 400),
        ("POST /outcome", KEY, json!({"token": token(&stranger.url).await}).to_string(), 403),
        ("POST /claim/renew", KEY, pass.clone(), 204),
        ("POST /claim/complete", KEY, pass.clone(), 204),
        ("POST /claim/complete", KEY, "{}".to_owned(), 400),
        ("POST /claim/complete", "", pass.clone(), 401),
        ("POST /claim/release", KEY, pass.clone(), 409),
        ("POST /claim/renew", KEY, pass.clone(), 409),
        ("POST /claim", KEY, said("one"), 409),
    ] {
        let answer = asked(operation, json, key, &body).await;
        assert_eq!(answer.status, status, "{operation} {answer:?}");
        // The reply was not stored, so there is no Retry-After.
        if answer.outcome != "reply_not_kept" {
            assert_described(&specification, operation, &answer);
        }
    }
    let spent = ("onceward-token", good.as_str());
    let original = [("x-original-method", "POST"), ("x-original-uri", "/orders"), ("onceward-attempt", "one")];
    for (path, key, headers, status) in [
        ("", KEY, vec![spent], 400),
        ("?style=traefik", "", original.to_vec(), 503),
        ("", KEY, [&original[..2], &[spent]].concat(), 200),
        ("", KEY, [&original[..2], &[spent]].concat(), 409),
        ("?style=nginx", KEY, [&original[..2], &[spent]].concat(), 403),
        ("?style=nginx", KEY, vec![("x-original-method", "GET"), ("x-original-uri", "/")], 204),
    ] {
        let request = http().get(format!("{}/forward-auth{path}", service.url)).bearer_auth(key);
        let answer = send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_described(&specification, "GET /forward-auth", &answer);
    }
    for path in POSTED {
        let answer = send(http().get(format!("{}{path}", service.url))).await;
        assert_described(&specification, &format!("POST {path}"), &answer);
        described(&specification, &format!("POST {path}"), 500);
    }
    redis.kill();
    let [claim, look] = [said("one"), json!({"key": "k", "action": "a", "subject": "s"}).to_string()];
    for (operation, body) in [
        ("POST /token", ""),
        ("POST /token/redeem", &used),
        ("POST /token/release", &release(&run)),
        ("POST /claim", &claim),
        ("POST /claim/complete", &pass),
        ("POST /claim/release", &pass),
        ("POST /claim/renew", &pass),
        ("POST /outcome", &look),
        ("GET /readyz", ""),
    ] {
        let answer = asked(operation, json, KEY, body).await;
        assert_eq!(answer.status, 503, "{operation} {answer:?}");
        assert_described(&specification, operation, &answer);
    }
    let names = [header::RATE_LIMIT, header::RATE_LIMIT_POLICY, header::RETRY_AFTER, header::OUTCOME, "cache-control"];
    let limited = described(&specification, "POST /token", 429);
    assert!(names.iter().all(|name| limited.iter().any(|own| own == name)), "{limited:?}");
}

#[tokio::test]
async fn served_openapi_is_the_committed_one_with_working_examples() {
    let service = OncewardServer::start(&[]);
    let served = specification(&service).await;
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(committed).unwrap()).unwrap();
    assert_eq!(served, committed);

    let mut sent = Vec::new();
    for (path, methods) in served["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let body = &operation["requestBody"]["content"]["application/json"];
            let several = body["examples"].as_object().into_iter().flatten().map(|(_, example)| &example["value"]);
            let examples: Vec<_> = several.chain(body.get("example")).cloned().collect();
            for example in if examples.is_empty() { vec![Value::Null] } else { examples } {
                send_example(&service, method, path, operation, example).await;
            }
            sent.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    assert!(sent.contains(&"GET /forward-auth".to_owned()), "{sent:?}");
    for path in POSTED {
        assert!(sent.contains(&format!("POST {path}")), "{path} is not in {sent:?}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(sent.contains(&format!("GET {path}")), "{path} is not in {sent:?}");
    }
}

/// Sends the example of an operation and expects the first documented response and its example.
async fn send_example(service: &OncewardServer, method: &str, path: &str, operation: &Value, mut example: Value) {
    if example["token"].is_string() {
        let asked = example.get("action").map_or(json!({}), |action| json!({ "action": action }));
        let issued = post(&service.url, "/token", &asked).await;
        example["token"] = serde_json::from_slice::<IssuedToken>(&issued.body).unwrap().token.into();
    }
    if example["pass"].is_string() {
        let claim = json!({"key": path, "action": "a", "subject": "s"});
        let claimed = post(&service.url, "/claim", &claim).await;
        example["pass"] = serde_json::from_slice::<Value>(&claimed.body).unwrap()["pass"].clone();
    }
    if path == "/token/release" {
        let (token, attempt) = (example["token"].as_str().unwrap(), example["attempt"].as_str().unwrap());
        example["run_id"] = redeemed_by(&service.url, token, attempt).await;
    }
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let mut request = http().request(method.clone(), format!("{}{path}", service.url));
    if !example.is_null() {
        request = request.header("content-type", "application/json").body(example.to_string());
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|told| told["in"] == "header") {
        let (name, example) = (parameter["name"].as_str().unwrap(), parameter["example"].as_str().unwrap());
        let issued = if name == header::TOKEN { Some(token(&service.url).await) } else { None };
        request = request.header(name, issued.as_deref().unwrap_or(example));
    }
    let answer = send(request).await;
    let (status, described) = operation["responses"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(answer.status.to_string(), *status, "{method} {path}: {answer:?}");
    if let Some(shown) = described["content"]["application/json"].get("example") {
        let mut told = serde_json::from_slice::<Value>(&answer.body).unwrap();
        // Each pass is unique, and the lease of an interval is the interval.
        if let Some(pass) = told.get_mut("pass").filter(|pass| pass.as_str().unwrap().starts_with("owp")) {
            *pass = "owp1_…".into();
        }
        if example["interval"].is_string() {
            assert_eq!(told["lease"], example["interval"], "{method} {path}");
            (told["lease"], told["renew_every"]) = (shown["lease"].clone(), shown["renew_every"].clone());
        }
        assert_eq!(told, *shown, "{method} {path}");
    }
}
