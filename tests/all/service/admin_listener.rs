//! `admin_listen`: a separate listener for operators.

use std::net::TcpListener;
use std::time::Duration;

use onceward_tests::client::{http, send};
use onceward_tests::metrics::Metrics;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, command, run};
use onceward_tests::service_calls::get;

const LONG: Duration = Duration::from_secs(10);
const PAGES: [&str; 4] = ["/metrics", "/dashboard", "/dashboard/dashboard.js", "/dashboard/dashboard.css"];

#[tokio::test]
async fn metrics_and_dashboard_are_on_the_main_listener_by_default() {
    let service = OncewardServer::start(&[]);
    for path in PAGES {
        assert_eq!(get(&service.url, path).await.status, 200, "{path}");
    }
    assert_eq!(get(&service.url, "/dashboard/nothing.js").await.said(), "404 not_found");
    for path in ["/dashboard", "/dashboard/dashboard.js"] {
        let posted = http().post(format!("{}{path}", service.url));
        assert_eq!(send(posted).await.said(), "404 not_found", "every rejection is a problem: {path}");
    }
}

#[tokio::test]
async fn admin_listener_serves_metrics_alone_and_health_checks_too() {
    let service = OncewardServer::start(&["--admin-listen", "127.0.0.1:0"]);
    let (url, admin) = (&service.url, service.admin());
    for path in PAGES {
        assert_eq!(get(url, path).await.said(), "404 not_found", "{path}");
        assert_eq!(get(&admin, path).await.status, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!((get(url, path).await.status, get(&admin, path).await.status), (200, 200), "{path}");
    }
    for path in ["/token", "/docs/", "/openapi.json", "/demo/demo.js", "/nowhere"] {
        assert_eq!(get(&admin, path).await.said(), "404 not_found", "{path}");
    }
    let start = get(&admin, "/").await;
    assert!(String::from_utf8_lossy(&start.body).contains("<h1>Live metrics</h1>"), "it redirects to the dashboard");
    assert!(Metrics::of(&admin).await.sum("onceward_build_info", &[]) == 1.0);
}

#[tokio::test]
async fn dashboard_loads_nothing_from_other_hosts() {
    let service = OncewardServer::start(&[]);
    let page = get(&service.url, "/dashboard").await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'self';"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    for file in ["dashboard.js", "dashboard.css", "chart.js", "history.js", "metrics.js", "icon.svg"] {
        let answer = get(&service.url, &format!("/dashboard/{file}")).await;
        assert_eq!(answer.status, 200, "{file}");
        let file = String::from_utf8(answer.body.to_vec()).unwrap().replace("http://www.w3.org/2000/svg", "");
        assert!(!file.contains("http:") && !file.contains("https:"), "{file}");
    }
    assert!(!text.contains("http") && !text.contains("style=") && !text.contains("<style"), "{text}");
}

#[tokio::test]
async fn invalid_or_used_admin_address_is_rejected_with_a_fix() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = |arguments: &[&str]| String::from_utf8(run(arguments).stderr).unwrap();
    let error = said(&["--listen", "127.0.0.1:0", "--admin-listen", &address]);
    assert!(error.starts_with(&format!("onceward: admin_listen: {address}: ")), "{error}");
    assert!(
        error.contains("Is another process using the port? Choose another address with --admin-listen."),
        "{error}"
    );
    let error = said(&["--listen", "127.0.0.1:7", "--admin-listen", "127.0.0.1:7"]);
    assert!(error.contains("admin_listen: 127.0.0.1:7 is already the address of `listen`"), "{error}");
    let error = said(&["--admin-listen", "nowhere"]);
    assert!(error.contains("admin_listen (from --admin-listen): `nowhere` is not an address"), "{error}");
}

#[tokio::test]
async fn exposed_metrics_are_logged_as_a_warning() {
    let warned = |service: &OncewardServer, what: &str| {
        service.log().iter().any(|line| line.contains("WARN") && line.contains(what))
    };
    let open = ["--listen", "0.0.0.0:0", "--log", "json", "--api-key", "a-key-of-the-backends"];
    assert!(warned(&OncewardServer::spawn(command(&open)), "set admin_listen to serve them on another address"));
    let apart = OncewardServer::spawn(command(&[&open[..], &["--admin-listen", "127.0.0.1:0"]].concat()));
    assert!(!warned(&apart, "admin_listen"), "{:#?}", apart.log());
    let exposed = OncewardServer::start(&["--admin-listen", "0.0.0.0:0"]);
    assert!(warned(&exposed, "/metrics and /dashboard need no API key"), "{:#?}", exposed.log());
}

#[tokio::test]
async fn admin_listener_reports_shutdown_until_its_end() {
    let redis = RedisServer::start();
    let arguments = ["--admin-listen", "127.0.0.1:0", "--store", &redis.url(), "--store-timeout", "20s"];
    let mut service = OncewardServer::start(&arguments);
    let (url, admin) = (service.url.clone(), service.admin());
    assert_eq!(get(&admin, "/readyz").await.status, 200);
    redis.freeze();
    // The request waits for the store, and the service waits for the request.
    let last = tokio::spawn(async move {
        onceward_tests::service_calls::post(&url, "/token", &serde_json::json!({})).await.status
    });
    let in_flight = || async { Metrics::of(&admin).await.sum("onceward_http_requests_in_flight", &[]) == 1.0 };
    until("the request is in flight", LONG, in_flight).await;
    service.terminate();
    // Before the shutdown starts, a readiness check would wait for the store too.
    let readiness = || http().get(format!("{admin}/readyz")).timeout(Duration::from_millis(200)).send();
    let is_stopping = || async { matches!(readiness().await, Ok(answer) if answer.status() == 503) };
    until("the service is not ready", LONG, is_stopping).await;
    assert_eq!(get(&admin, "/readyz").await.said(), "503 overloaded");
    assert_eq!(get(&admin, "/healthz").await.status, 200);
    assert_eq!(service.ended(), None);
    redis.thaw();
    assert_eq!(last.await.unwrap(), 201);
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
}
