//! Invalid requests to the service, and the pages that explain its problems.

use std::collections::HashSet;

use onceward_api::{Code, IssuedToken, IssuedTokens};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

const KEY: &str = "the-key-of-the-backends";
/// Maximum size of a body.
const LIMIT: usize = 16 * 1024;
/// The id of a run that does not exist.
const RUN: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const POSTED: [&str; 4] = ["/token", "/tokens", "/token/redeem", "/token/release"];

fn raw(service: &OncewardServer, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
    http().post(format!("{}{path}", service.url)).header("content-type", "application/json").body(body)
}

async fn get(service: &OncewardServer, path: &str) -> Answer {
    send(http().get(format!("{}{path}", service.url))).await
}

/// Asserts that a response is this problem for this path, in status, headers and body. Returns its detail.
fn assert_refused(answer: &Answer, code: Code, path: &str) -> String {
    let problem = answer.problem();
    assert_eq!((answer.status, problem.code, problem.status), (code.status(), code, code.status()), "{answer:?}");
    assert_eq!((answer.outcome.as_str(), problem.retry), (code.as_str(), code.retry()), "{answer:?}");
    assert_eq!((problem.kind, problem.instance), (format!("/problems/{code}"), Some(path.to_owned())), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{answer:?}");
    assert_eq!(answer.headers.contains_key("www-authenticate"), code == Code::Unauthorized, "{answer:?}");
    problem.detail
}

/// Asserts that a token is unused: it can be redeemed once.
async fn assert_unspent(service: &OncewardServer, body: &Value) {
    assert_eq!(post(&service.url, "/token/redeem", body).await.said(), "200 redeemed", "{body}");
    assert_eq!(post(&service.url, "/token/redeem", body).await.said(), "409 token_used", "{body}");
}

#[tokio::test]
async fn malformed_body_is_rejected_and_names_the_field() {
    let service = OncewardServer::start(&[]);
    let anywhere = ["{", "}", "null", "[]", "\"x\"", "1", "{} {}", "{\"action\":", "\u{feff}{}", "{'ttl':'1s'}"];
    for path in POSTED {
        for body in anywhere {
            assert_refused(&send(raw(&service, path, body)).await, Code::BadRequest, path);
        }
        let unknown = send(raw(&service, path, r#"{"actoin":"a"}"#)).await;
        assert!(assert_refused(&unknown, Code::BadRequest, path).contains("`actoin`"), "{path}: {unknown:?}");
        let not_text = send(raw(&service, path, [0xff, 0xfe, b'{', b'}'].as_slice())).await;
        assert_refused(&not_text, Code::BadRequest, path);
    }
    for (path, body, named) in [
        ("/token", r#"{"action":1}"#, "`action`"),
        ("/token", r#"{"subject":["s"]}"#, "`subject`"),
        ("/token", r#"{"action":"a","action":"b"}"#, "`action`"),
        ("/token", r#"{"count":1}"#, "`count`"),
        ("/token/redeem", r#"{"token":"t","bound":"yes"}"#, "`bound`"),
        ("/token/redeem", r#"{"token":1}"#, "`token`"),
        ("/token/redeem", r#"{"token":null}"#, "`token`"),
        ("/token/redeem", r#"{"token":"t","attempt":7}"#, "`attempt`"),
        ("/token", r#"{"ttl":90,"actoin":"a"}"#, "`actoin`"),
        ("/token", r#"{"ttl":90,"subject":"s"}"#, "`ttl`"),
        ("/token/release", r#"{"token":"t"}"#, "`attempt`"),
        ("/token/release", r#"{"attempt":"t"}"#, "`token`"),
        ("/token/release", r#"{"token":"t","attempt":"a"}"#, "`run_id`"),
        ("/token/release", r#"{"token":"t","attempt":"a","run_id":7}"#, "`run_id`"),
        ("/token/release", r#"{"token":"t","attempt":"a","run_id":""}"#, "`run_id`"),
        ("/token/release", r#"{"token":"t","attempt":"a","run_id":"one"}"#, "`run_id`"),
        ("/token/release", r#"{"token":"t","attempt":"a","action":"x"}"#, "`action`"),
    ] {
        let answer = send(raw(&service, path, body)).await;
        let detail = assert_refused(&answer, Code::BadRequest, path);
        assert!(detail.contains(named), "{path} {body}: {detail}");
    }
}

#[tokio::test]
async fn invalid_or_excessive_ttl_is_rejected() {
    let service = OncewardServer::start(&["--api-key", KEY]);
    let lives = [json!("0s"), json!("-5s"), json!("400d"), json!("x"), json!(""), json!(90), json!("999ms")];
    let more = [json!("31m"), json!("25h"), json!("1.5s"), json!("5"), json!(" 5s"), json!("99999999999999999999s")];
    for ttl in lives.iter().chain(&more) {
        for (path, body) in [("/token", json!({"ttl": ttl})), ("/tokens", json!({"count": 2, "ttl": ttl}))] {
            let answer = post(&service.url, path, &body).await;
            let detail = assert_refused(&answer, Code::BadRequest, path);
            assert!(detail.contains("`ttl`"), "{ttl}: {detail}");
        }
    }
    for (ttl, seconds) in [("1s", 1), ("30m", 1800)] {
        let answer = post(&service.url, "/token", &json!({"ttl": ttl})).await;
        assert_eq!(serde_json::from_slice::<IssuedToken>(&answer.body).unwrap().expires_in, seconds, "{answer:?}");
    }
}

#[tokio::test]
async fn longer_ttl_needs_the_api_key_up_to_a_day() {
    let service = OncewardServer::start(&["--api-key", KEY, "--token-ttl", "1m"]);
    let ask = async |ttl: &str, key: &str| {
        let request = raw(&service, "/token", json!({"ttl": ttl}).to_string());
        send(if key.is_empty() { request } else { request.bearer_auth(key) }).await
    };
    for (ttl, key) in [("61s", ""), ("24h", ""), ("24h", "another"), ("25h", KEY), ("2d", KEY), ("86401s", KEY)] {
        let answer = ask(ttl, key).await;
        let detail = assert_refused(&answer, Code::BadRequest, "/token");
        assert!(detail.contains("`ttl`"), "{detail}");
    }
    for (ttl, key, seconds) in [("60s", "", 60), ("60s", "another", 60), ("24h", KEY, 86_400), ("61s", KEY, 61)] {
        let answer = ask(ttl, key).await;
        assert_eq!(answer.status, 201, "{ttl} {key}: {answer:?}");
        assert_eq!(serde_json::from_slice::<IssuedToken>(&answer.body).unwrap().expires_in, seconds);
    }
}

#[tokio::test]
async fn batch_issues_1_to_100_distinct_valid_tokens() {
    let service = OncewardServer::start(&[]);
    for count in [json!(0), json!(101), json!(-1), json!("3"), json!(1.5), json!(null), json!(4_294_967_297_u64)] {
        let answer = post(&service.url, "/tokens", &json!({ "count": count })).await;
        let detail = assert_refused(&answer, Code::BadRequest, "/tokens");
        assert!(detail.contains("`count`"), "{count}: {detail}");
    }
    for body in ["{}", ""] {
        let answer = send(raw(&service, "/tokens", body)).await;
        assert!(assert_refused(&answer, Code::BadRequest, "/tokens").contains("`count`"), "{answer:?}");
    }
    let answer = post(&service.url, "/tokens", &json!({"count": 100, "action": "a", "ttl": "5m"})).await;
    assert_eq!((answer.status, &answer.headers["cache-control"]), (201, &"no-store".parse().unwrap()));
    let batch = serde_json::from_slice::<IssuedTokens>(&answer.body).unwrap().tokens;
    let different: HashSet<_> = batch.iter().map(|issued| &issued.token).collect();
    assert_eq!((batch.len(), different.len()), (100, 100));
    let client = http();
    for issued in &batch {
        assert_eq!(issued.expires_in, 300);
        let body = json!({"token": issued.token, "action": "a"}).to_string();
        let redeem = || client.post(format!("{}/token/redeem", service.url)).header("content-type", "application/json");
        assert_eq!(send(redeem().body(body.clone())).await.said(), "200 redeemed");
        assert_eq!(send(redeem().body(body)).await.said(), "409 token_used");
    }
}

#[tokio::test]
async fn wrong_method_is_rejected_with_allow() {
    let service = OncewardServer::start(&[]);
    let pages = ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/problems", "/problems/token_used"];
    let all = POSTED.map(|path| (path, "POST")).into_iter().chain(pages.map(|path| (path, "GET")));
    for (path, allowed) in all {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            if method == allowed {
                continue;
            }
            let answer = send(http().request(method.clone(), format!("{}{path}", service.url))).await;
            assert_refused(&answer, Code::MethodNotAllowed, path);
            let named = answer.headers["allow"].to_str().unwrap();
            assert!(named.split(", ").any(|name| name == allowed), "{method} {path}: {named}");
        }
    }
}

#[tokio::test]
async fn body_in_another_format_is_rejected() {
    let service = OncewardServer::start(&[]);
    let unspent = token(&service.url).await;
    for path in POSTED {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "application/json-patch+json",
            "nonsense",
        ] {
            let body = json!({"token": unspent}).to_string();
            let request = http().post(format!("{}{path}", service.url)).header("content-type", kind).body(body.clone());
            assert_refused(&send(request).await, Code::UnsupportedMediaType, path);
            let without = http().post(format!("{}{path}", service.url)).body(body);
            assert_refused(&send(without).await, Code::UnsupportedMediaType, path);
        }
    }
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        let request = http().post(format!("{}/token", service.url)).header("content-type", kind).body("{}");
        assert_eq!(send(request).await.status, 201, "{kind}");
    }
    assert_unspent(&service, &json!({"token": unspent})).await;
}

#[tokio::test]
async fn body_above_the_limit_is_rejected() {
    let service = OncewardServer::start(&[]);
    let unspent = token(&service.url).await;
    let padded = |object: &Value, length: usize| {
        let text = object.to_string();
        text.clone() + &" ".repeat(length - text.len())
    };
    for path in POSTED {
        let answer = send(raw(&service, path, padded(&json!({"token": unspent}), LIMIT + 1))).await;
        assert_refused(&answer, Code::BodyTooLarge, path);
    }
    assert_eq!(send(raw(&service, "/token", padded(&json!({}), LIMIT))).await.status, 201);
    let at_limit = padded(&json!({"token": unspent}), LIMIT);
    assert_eq!(send(raw(&service, "/token/redeem", at_limit)).await.said(), "200 redeemed");
}

#[tokio::test]
async fn backend_calls_need_the_api_key_and_issuing_never_does() {
    let service = OncewardServer::start(&["--api-key", KEY]);
    let unspent = token(&service.url).await;
    let longer = format!("Bearer {KEY}x");
    let basic = format!("Basic {KEY}");
    let bare = KEY.to_owned();
    let shorter = format!("Bearer {}", &KEY[1..]);
    let blank = format!("Bearer  {KEY}");
    let wrong = ["Bearer", "Bearer ", "Bearer wrong", "", &longer, &basic, &bare, &shorter, &blank];
    for sent in wrong {
        for (path, body) in [
            ("/token/redeem", json!({"token": unspent})),
            ("/token/redeem", json!({"token": "no token at all"})),
            ("/token/release", json!({"token": unspent, "attempt": "one", "run_id": RUN})),
        ] {
            let request = raw(&service, path, body.to_string()).header("authorization", sent);
            let answer = send(request).await;
            assert_refused(&answer, Code::Unauthorized, path);
            assert_eq!(answer.headers["www-authenticate"], "Bearer", "{sent}");
        }
        for (path, body) in [("/token", json!({})), ("/tokens", json!({"count": 1}))] {
            let answer = send(raw(&service, path, body.to_string()).header("authorization", sent)).await;
            assert_eq!(answer.status, 201, "{sent}: {answer:?}");
        }
    }
    let answer = send(raw(&service, "/token/redeem", json!({"token": unspent}).to_string())).await;
    assert_refused(&answer, Code::Unauthorized, "/token/redeem");
    // A malformed body and a wrong key: an unauthorized caller learns nothing about its body.
    assert_refused(&send(raw(&service, "/token/redeem", "{")).await, Code::Unauthorized, "/token/redeem");
    for scheme in ["Bearer", "bearer"] {
        let fresh = token(&service.url).await;
        let request = raw(&service, "/token/redeem", json!({"token": fresh}).to_string());
        let answer = send(request.header("authorization", format!("{scheme} {KEY}"))).await;
        assert_eq!(answer.said(), "200 redeemed", "{scheme}");
    }
    let answer = send(raw(&service, "/token/redeem", json!({"token": unspent}).to_string()).bearer_auth(KEY)).await;
    assert_eq!(answer.said(), "200 redeemed", "no rejection has used the token");
}

#[tokio::test]
async fn invalid_redeem_is_rejected_and_uses_no_token() {
    let service = OncewardServer::start(&["--rate-burst", "10000"]);
    let long = "a".repeat(256);
    let bound = json!({"action": "POST /orders", "subject": "alice"});
    let cases = [
        (json!({}), json!({"token": null}), Code::BadRequest),
        (bound.clone(), json!({"action": "POST /other"}), Code::TokenInvalid),
        (bound.clone(), json!({"action": "post /orders"}), Code::TokenInvalid),
        (bound.clone(), json!({"action": null}), Code::TokenInvalid),
        (bound.clone(), json!({"subject": "bob"}), Code::TokenInvalid),
        (bound.clone(), json!({"subject": ""}), Code::BadRequest),
        (bound.clone(), json!({"subject": null}), Code::TokenInvalid),
        (bound, json!({"bound": "true"}), Code::BadRequest),
        (json!({}), json!({"bound": true}), Code::BadRequest),
        (json!({}), json!({"action": ""}), Code::BadRequest),
        (json!({}), json!({"bound": true, "action": "POST /orders"}), Code::TokenInvalid),
        (json!({"action": "a"}), json!({"bound": true, "subject": "alice"}), Code::TokenInvalid),
        (json!({"subject": "alice"}), json!({"bound": true, "action": "a"}), Code::TokenInvalid),
        (json!({}), json!({"attempt": ""}), Code::BadRequest),
        (json!({}), json!({"attempt": long}), Code::BadRequest),
        (json!({}), json!({"attempt": "a b"}), Code::BadRequest),
        (json!({}), json!({"attempt": " "}), Code::BadRequest),
        (json!({}), json!({"attempt": "a\nb"}), Code::BadRequest),
        (json!({}), json!({"attempt": "é"}), Code::BadRequest),
        (json!({}), json!({"token": ""}), Code::TokenMalformed),
        (json!({}), json!({"token": "ow1_"}), Code::TokenMalformed),
        (json!({}), json!({"token": "nonsense"}), Code::TokenMalformed),
    ];
    for (asked, change, code) in cases {
        let issued = post(&service.url, "/token", &asked).await;
        let token = serde_json::from_slice::<IssuedToken>(&issued.body).unwrap().token;
        let mut good = asked.clone();
        good["token"] = token.into();
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        if change["token"].is_null() && change.get("token").is_some() {
            bad.as_object_mut().unwrap().remove("token");
        }
        let answer = post(&service.url, "/token/redeem", &bad).await;
        let detail = assert_refused(&answer, code, "/token/redeem");
        if code == Code::BadRequest {
            let named = change.as_object().unwrap().keys().next().unwrap();
            assert!(detail.contains(&format!("`{named}`")), "{bad}: {detail}");
        }
        if let Some(attempt) = change.get("attempt") {
            let body = json!({"token": good["token"], "attempt": attempt, "run_id": RUN});
            let answer = post(&service.url, "/token/release", &body).await;
            assert!(assert_refused(&answer, Code::BadRequest, "/token/release").contains("`attempt`"));
        }
        assert_unspent(&service, &good).await;
    }
    let fresh = token(&service.url).await;
    let named = json!({"token": fresh, "attempt": "a".repeat(255)});
    assert_eq!(post(&service.url, "/token/redeem", &named).await.said(), "200 redeemed", "255 are not too many");
}

#[tokio::test]
async fn release_of_an_unredeemed_token_changes_nothing() {
    let service = OncewardServer::start(&[]);
    let unspent = token(&service.url).await;
    let release = |token: &str| json!({"token": token, "attempt": "one", "run_id": RUN});
    for (sent, code) in [("", Code::TokenMalformed), ("ow1_x", Code::TokenMalformed)] {
        let answer = post(&service.url, "/token/release", &release(sent)).await;
        assert_refused(&answer, code, "/token/release");
    }
    // The token is not redeemed, so there is nothing to release.
    let answer = post(&service.url, "/token/release", &release(&unspent)).await;
    assert!([204, 409].contains(&answer.status), "{answer:?}");
    assert_unspent(&service, &json!({"token": unspent})).await;
    let answer = post(&service.url, "/token/release", &release(&unspent)).await;
    assert_refused(&answer, Code::ClaimLost, "/token/release");
    assert_eq!(post(&service.url, "/token/redeem", &json!({"token": unspent})).await.said(), "409 token_used");
}

#[tokio::test]
async fn index_of_problems_lists_every_code_with_title_status_and_retry() {
    let service = OncewardServer::start(&[]);
    let index = get(&service, "/problems").await;
    assert_eq!((index.status, &index.headers["content-type"]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    let policy = index.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    let text = String::from_utf8(index.body.to_vec()).unwrap();
    let rows: Vec<&str> = text.split("<tr>").skip(2).collect();
    assert_eq!(rows.len(), Code::ALL.len());
    for (code, row) in Code::ALL.into_iter().zip(rows) {
        let retry = json!(code.retry());
        for part in [&format!("href=\"/problems/{code}\""), code.title(), &format!(">{}<", code.status())] {
            assert!(row.contains(part), "{code}: {part} {row}");
        }
        assert!(row.contains(&format!("<code>{}</code>", retry.as_str().unwrap())), "{code}: {row}");
    }
}

/// The page is for customers; the id finds the line in the log.
#[tokio::test]
async fn page_of_a_rejection_shows_the_request_id_of_its_header() {
    let service = OncewardServer::start(&[]);
    let nowhere = || http().get(format!("{}/nowhere", service.url)).header("accept", "text/html");
    for (request, given) in [(nowhere(), None), (nowhere().header("x-request-id", "id-4711"), Some("id-4711"))] {
        let answer = send(request).await;
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert!(given.is_none_or(|given| given == id), "{id}");
        let page = String::from_utf8_lossy(&answer.body);
        assert!(page.contains(&format!("<dt>Request</dt><dd><code>{id}</code></dd>")), "{page}");
    }
}

#[tokio::test]
async fn every_problem_links_to_its_page() {
    let service = OncewardServer::start(&[]);
    for code in Code::ALL {
        let page = get(&service, &format!("/problems/{code}")).await;
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        assert_eq!((page.status, &page.headers["content-type"]), (200, &"text/html; charset=utf-8".parse().unwrap()));
        assert!(text.contains(code.title()) && text.contains(code.as_str()), "{code}: {text}");
        assert!(text.contains(&code.status().to_string()), "{code}: {text}");
        assert!(text.contains(r#"href="/problems""#), "{code} links to the index: {text}");
    }
    for path in [
        "/nowhere",
        "/token/",
        "/token/nowhere",
        "/problems/",
        "/problems/nowhere",
        "/docs/nowhere",
        "/.env",
        "/%2e%2e/x",
    ] {
        let answer = get(&service, path).await;
        let problem = answer.problem();
        assert_eq!((answer.status, problem.code), (404, Code::NotFound), "{path}: {answer:?}");
        assert_eq!(get(&service, &problem.kind).await.status, 200, "{path}");
    }
    let person = http().get(format!("{}/nowhere", service.url)).header("accept", "text/html");
    assert_eq!(send(person).await.headers["content-type"], "text/html; charset=utf-8");
}

#[tokio::test]
async fn start_page_names_only_the_requested_host() {
    let service = OncewardServer::start(&["--demo", "off", "--trusted-proxies", "127.0.0.1"]);
    let stranger = OncewardServer::start(&["--demo", "off"]);
    let page = async |service: &OncewardServer, name: &str, value: &str| {
        let answer = send(http().get(format!("{}/", service.url)).header(name, value)).await;
        String::from_utf8(answer.body.to_vec()).unwrap()
    };
    let own = stranger.url.trim_start_matches("http://");
    for (name, value) in [("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")] {
        let shown = page(&stranger, name, value).await;
        assert!(shown.contains(&format!("{own}/token")) && !shown.contains("evil"), "{name}: {shown}");
        assert!(page(&service, name, value).await.contains("evil.example/token"), "{name}: the proxy is trusted");
    }
    assert!(page(&service, "x-forwarded-host", "<script>").await.contains("localhost:8080/token"));
}

/// Returns the values of `src` and `href` in a page.
fn references(html: &str) -> Vec<String> {
    let behind = |mark: &str| {
        html.split(mark).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect::<Vec<_>>()
    };
    [behind("src=\""), behind("href=\"")].concat()
}

#[tokio::test]
async fn pages_load_nothing_from_other_hosts() {
    let (demo, plain) = (OncewardServer::start(&[]), OncewardServer::start(&["--demo", "off"]));
    let docs = get(&demo, "/docs").await;
    assert!(String::from_utf8_lossy(&docs.body).contains("swagger-ui"), "/docs redirects to /docs/");
    for (service, page) in [(&demo, "/"), (&plain, "/"), (&demo, "/docs/")] {
        let answer = get(service, page).await;
        assert_eq!(answer.status, 200, "{page}");
        let html = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(!html.contains("http://") && !html.contains("https://"), "{page}: {html}");
        let found = references(&html);
        assert!(found.len() >= 3, "{page}: {found:?}");
        for reference in found {
            assert!(!reference.contains("//"), "{page}: {reference}");
            let path = match reference.strip_prefix('/') {
                Some(path) => format!("/{path}"),
                None => format!("{page}{}", reference.trim_start_matches("./")),
            };
            let asset = get(service, &path).await;
            assert!(asset.status == 200 && !asset.body.is_empty(), "{page}: {path}: {}", asset.status);
            let kind = asset.headers["content-type"].to_str().unwrap();
            let expected = match path.rsplit('.').next().unwrap() {
                "css" => "text/css",
                "js" => "text/javascript",
                "png" => "image/png",
                "svg" => "image/svg+xml",
                "json" => "application/json",
                _ => "text/",
            };
            assert!(kind.starts_with(expected), "{path}: {kind}");
            if path.ends_with(".css") || path.ends_with("initializer.js") {
                let text = String::from_utf8(asset.body.to_vec()).unwrap();
                let loads = ["url(http", "@import", "url: \"http", "\"url\": \"http", "petstore"];
                assert!(loads.iter().all(|load| !text.contains(load)), "{path} loads from another host");
            }
            if path.ends_with("initializer.js") {
                // By default the page loads a validator badge from another host.
                let text = String::from_utf8(asset.body.to_vec()).unwrap();
                assert!(text.contains("\"validatorUrl\": \"none\""), "{text}");
                assert!(text.contains("\"/openapi.json\""), "{text}");
            }
        }
    }
}
