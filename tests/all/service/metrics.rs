//! Prometheus metrics: they match the responses, cover every query of the dashboard and the alerts, and contain no data of a
//! client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{http, send, token};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use regex_lite::Regex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[tokio::test]
async fn metrics_match_the_responses() {
    let service = OncewardServer::start(&["--rate-limit", "1/h", "--rate-burst", "3"]);
    let url = &service.url;
    let [one, _, _] = [token(url).await, token(url).await, token(url).await];
    assert_eq!(post(url, "/token", &json!({})).await.said(), "429 rate_limited");
    for said in ["200 redeemed", "409 token_used", "409 token_used"] {
        assert_eq!(post(url, "/token/redeem", &json!({ "token": one })).await.said(), said);
    }
    assert_eq!(post(url, "/token/redeem", &json!({"token": "x"})).await.said(), "400 token_malformed");
    let claim = json!({"key": "k", "action": "a", "subject": "s", "lease": "1m"});
    let claimed = post(url, "/claim", &claim).await;
    let pass = serde_json::from_slice::<Value>(&claimed.body).unwrap()["pass"].clone();
    assert_eq!(post(url, "/claim", &claim).await.said(), "409 in_progress");
    assert_eq!(post(url, "/claim/renew", &json!({ "pass": pass })).await.status, 204);
    let reply = json!({"status": 200, "headers": [], "body": ""});
    assert_eq!(post(url, "/claim/complete", &json!({"pass": pass, "reply": reply})).await.status, 204);
    assert_eq!(post(url, "/claim", &claim).await.status, 200);

    let metrics = Metrics::of(url).await;
    let verdicts = |policy: &str, code: &str| {
        metrics.sum("onceward_verdicts_total", &[&format!("policy=\"{policy}\""), &format!("code=\"{code}\"")])
    };
    let told = ["run", "token_used", "token_malformed"].map(|code| verdicts("token", code));
    assert_eq!(told, [1.0, 2.0, 1.0], "{}", metrics.text);
    assert_eq!(["run", "in_progress", "replay"].map(|code| verdicts("key", code)), [1.0, 1.0, 1.0]);
    assert_eq!(metrics.sum("onceward_verdicts_total", &[]), 7.0, "no other verdict");
    assert_eq!(metrics.sum("onceward_tokens_issued_total", &[]), 3.0);
    assert_eq!(metrics.sum("onceward_rate_limited_total", &["scope=\"client\""]), 1.0);
    assert_eq!(metrics.sum("onceward_renewals_total", &["outcome=\"renewed\""]), 1.0);
    assert_eq!(metrics.sum("onceward_claims_total", &["event=\"completed\""]), 1.0);
    assert_eq!(metrics.sum("onceward_claims_total", &["event=\"lost\""]), 0.0);
    assert_eq!(metrics.sum("onceward_http_requests_total", &["status=\"4xx\""]), 5.0);
    assert!(metrics.sum("onceward_store_duration_seconds_count", &["verb=\"remove\""]) >= 3.0);
    assert!(metrics.sum("onceward_memory_records", &[]) >= 3.0);
    assert!(metrics.sum("onceward_memory_bytes", &["kind=\"key\""]) > 0.0);
}

#[tokio::test]
async fn every_metric_has_help_and_durations_are_histograms() {
    let service = OncewardServer::start(&[]);
    let metrics = Metrics::of(&service.url).await;
    let all: Vec<_> =
        onceward_api::metric::OF_THE_LIBRARY.into_iter().chain(onceward_api::metric::OF_THE_SERVICE).collect();
    for metric in &all {
        let name = metric.name;
        assert!(metrics.text.contains(&format!("# HELP {name} {}\n", metric.help)), "{name}: {}", metrics.text);
        let kind = format!("{:?}", metric.kind).to_lowercase();
        assert!(metrics.text.contains(&format!("# TYPE {name} {kind}\n")), "{name}: {}", metrics.text);
    }
    for series in metrics.series.keys() {
        let name = series.split('{').next().unwrap();
        let is_known = |suffix: &str| all.iter().any(|metric| name.strip_suffix(suffix) == Some(metric.name));
        assert!(["", "_bucket", "_sum", "_count"].iter().any(|suffix| is_known(suffix)), "{series} is not in the list");
        assert!(!series.contains("quantile"), "{series}");
    }
}

/// Returns every expression of the dashboard and the alerts, with its location.
fn expressions() -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/onceward.json")).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            all.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    all.extend(
        variables.filter_map(|variable| Some(("a variable".to_owned(), variable["definition"].as_str()?.to_owned()))),
    );
    let alerts: Value = serde_yaml_ng::from_str(&read("deploy/prometheus/alerts.yml")).unwrap();
    for rule in alerts["groups"][0]["rules"].as_array().unwrap() {
        for said in ["summary", "description"] {
            assert!(rule["annotations"][said].as_str().is_some_and(|said| said.ends_with(['.', '?'])), "{rule}");
        }
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        all.push((rule["alert"].to_string(), rule["expr"].as_str().unwrap().to_owned()));
    }
    all
}

#[tokio::test]
async fn metrics_of_dashboard_and_alerts_exist_at_startup() {
    let service = OncewardServer::start(&[]);
    let metrics = Metrics::of(&service.url).await;
    let (selector, label) =
        (Regex::new(r"(onceward_\w+)(\{[^}]*\})?").unwrap(), Regex::new(r#"(\w+)(=~?)"([^"]*)""#).unwrap());
    let expressions = expressions();
    let mut named = Vec::new();
    for (place, expression) in &expressions {
        assert!(selector.is_match(expression), "{place}: {expression}");
        for found in selector.captures_iter(expression) {
            let (name, labels) = (&found[1], found.get(2).map_or("", |labels| labels.as_str()));
            // Prometheus adds the instance label.
            let labels: Vec<String> = label
                .captures_iter(labels)
                .filter(|label| &label[1] != "instance")
                .map(|label| format!("{}=\"{}\"", &label[1], &label[3]))
                .collect();
            let is_there = metrics.series.keys().any(|series| {
                let (own, rest) = series.split_once('{').unwrap_or((series, ""));
                own == name && labels.iter().all(|label| rest.contains(label))
            });
            assert!(is_there, "{place} queries {name} {labels:?}, which is not in\n{}", metrics.text);
            named.push(name.to_owned());
        }
        let grouped = Regex::new(r"by \(([^)]*)\)").unwrap();
        for by in grouped.captures_iter(expression) {
            for label in by[1].split(", ").filter(|label| *label != "instance") {
                assert!(metrics.text.contains(&format!("{label}=\"")), "{place}: no series has the label {label}");
            }
        }
    }
    for metric in onceward_api::metric::OF_THE_LIBRARY.into_iter().chain(onceward_api::metric::OF_THE_SERVICE) {
        assert!(named.iter().any(|name| name.starts_with(metric.name)), "{} is on no panel or alert", metric.name);
    }
    println!("{} expressions with {} selectors: all have series", expressions.len(), named.len());
}

/// Sends a request with a unique value in every field that could reach a label.
async fn ask(client: &reqwest::Client, url: &str, number: usize) -> u16 {
    let canary = format!("canary-{:016x}-{number}", fastrand::u64(..));
    let body = json!({"key": canary, "action": canary, "subject": canary, "fingerprint": canary, "attempt": canary});
    let (path, body) = match number % 5 {
        0 => ("/token/redeem", json!({"token": canary, "action": canary, "subject": canary, "attempt": canary})),
        1 => ("/outcome", json!({"key": canary, "action": canary, "subject": canary})),
        2 => (canary.as_str(), json!({})),
        _ => ("/claim", body),
    };
    let path = path.strip_prefix('/').unwrap_or(path);
    let request = client.post(format!("{url}/{path}?_onceward={canary}")).header("content-type", "application/json");
    let address = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
    let request =
        request.header("x-forwarded-for", address).header("user-agent", &canary).header("onceward-token", &canary);
    send(request.body(body.to_string())).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_random_keys_add_no_series() {
    const MANY: usize = 10_000;
    let service = OncewardServer::start(&["--trusted-proxies", "127.0.0.1"]);
    let (client, next) = (http(), Arc::new(AtomicUsize::new(0)));
    for number in 0..10 {
        ask(&client, &service.url, number).await;
    }
    let series = |metrics: Metrics| metrics.series.into_keys().collect::<Vec<_>>();
    let before = series(Metrics::of(&service.url).await);
    let mut senders = JoinSet::new();
    for _ in 0..16 {
        let (client, next, url) = (client.clone(), Arc::clone(&next), service.url.clone());
        senders.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= MANY {
                    break;
                }
                let status = ask(&client, &url, number).await;
                assert!([200, 400, 404].contains(&status), "{number}: {status}");
            }
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender.unwrap();
    }
    let after = Metrics::of(&service.url).await;
    assert!(!after.text.contains("canary") && !after.text.contains("10."), "{}", after.text);
    assert_eq!(after.sum("onceward_verdicts_total", &["policy=\"key\"", "code=\"run\""]), 0.4 * MANY as f64 + 4.0);
    let after = series(after);
    assert_eq!(after, before);
    println!("{MANY} requests, each with its own key: {} series before and after", after.len());
}

#[tokio::test]
async fn store_errors_are_counted_by_verb() {
    let mut redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url(), "--demo"]);
    let url = &service.url;
    let token = token(url).await;
    let metrics = Metrics::of(url).await;
    assert!(!metrics.series.keys().any(|series| series.starts_with("onceward_memory_")), "{}", metrics.text);
    assert_eq!(metrics.sum("onceward_store_errors_total", &["verb=\"remove\""]), 0.0);
    redis.kill();
    until("the outage is noticed", Duration::from_secs(10), || async {
        let said = post(url, "/token/redeem", &json!({ "token": token })).await;
        assert_eq!(said.status, 503, "{said:?}");
        let metrics = Metrics::of(url).await;
        // After a lost connection, the store reads the replication id first.
        let failed = |verb| metrics.sum("onceward_store_errors_total", &[verb, "kind=\"not_executed\""]);
        failed("verb=\"remove\"") + failed("verb=\"epoch\"") > 0.0
    })
    .await;
    let metrics = Metrics::of(url).await;
    let verdicts = metrics.sum("onceward_verdicts_total", &["policy=\"token\""]);
    let failed = ["store_unavailable", "redeem_unknown"]
        .map(|code| metrics.sum("onceward_verdicts_total", &["policy=\"token\"", &format!("code=\"{code}\"")]));
    assert_eq!(failed.iter().sum::<f64>(), verdicts, "{}", metrics.text);
}

#[tokio::test]
async fn library_route_counts_rejections_before_a_decision() {
    let service = OncewardServer::start(&[]);
    let order = |key: &'static str| {
        let request = http().post(format!("{}/demo/orders/key", service.url));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
        send(request.body("item=tea&quantity=1&name=Ada"))
    };
    for (key, said) in
        [("", "400 key_missing"), ("\"unclosed", "400 key_malformed"), ("k", "201 executed"), ("k", "201 replayed")]
    {
        assert_eq!(order(key).await.said(), said);
    }
    let metrics = Metrics::of(&service.url).await;
    for code in ["key_missing", "key_malformed", "run", "replay"] {
        let labels = ["policy=\"key\"", &format!("code=\"{code}\"")];
        assert_eq!(metrics.sum("onceward_verdicts_total", &labels), 1.0, "{code}");
    }
    assert_eq!(metrics.sum("onceward_verdicts_total", &[]), 4.0);
}
