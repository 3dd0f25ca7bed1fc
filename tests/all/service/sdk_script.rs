//! The browser SDK as the service serves it: the committed file, at a stable path and at one with a content hash.

use onceward_api::Code;
use onceward_tests::client::{http, send};
use onceward_tests::service::OncewardServer;
use reqwest::Method;

const HTMX: &[u8] = include_bytes!("../../../client-sdk/web/dist/onceward-htmx.js");
const TURBO: &[u8] = include_bytes!("../../../client-sdk/web/dist/onceward-turbo.js");
const COMMITTED: &[u8] = include_bytes!("../../../client-sdk/web/dist/onceward.js");

#[tokio::test]
async fn script_is_the_committed_file_with_an_etag() {
    let service = OncewardServer::start(&[]);
    let url = format!("{}/sdk/onceward.js", service.url);
    let script = send(http().get(&url)).await;
    assert_eq!((script.status, &script.body[..]), (200, COMMITTED));
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(script.headers["cache-control"], "public, no-cache");
    for known in [script.headers["etag"].to_str().unwrap(), "\"another\", *", "*"] {
        let again = send(http().get(&url).header("if-none-match", known)).await;
        let is_known = known != "\"another\", *";
        assert_eq!(again.status, if is_known { 304 } else { 200 }, "{known}");
        assert_eq!(again.body.is_empty(), is_known);
    }
    let head = send(http().head(&url)).await;
    assert_eq!((head.status, head.headers["content-length"].to_str().unwrap()), (200, &*COMMITTED.len().to_string()));
}

#[tokio::test]
async fn hashed_script_path_is_immutable_and_others_redirect() {
    let service = OncewardServer::start(&[]);
    let script = send(http().get(format!("{}/sdk/onceward.js", service.url))).await;
    let named = script.headers["content-location"].to_str().unwrap().to_owned();
    let kept = send(http().get(format!("{}{named}", service.url))).await;
    assert_eq!((kept.status, &kept.body[..]), (200, COMMITTED));
    assert_eq!(kept.headers["cache-control"], "public, max-age=31536000, immutable");

    let before = send(http().get(format!("{}/sdk/onceward.0123456789abcdef.js", service.url))).await;
    assert_eq!((before.status, &before.body[..]), (200, COMMITTED), "the client followed the redirect");
    assert_eq!(before.headers["cache-control"], "public, no-cache");

    for path in ["/sdk/onceward.js", &*named] {
        let posted = send(http().request(Method::POST, format!("{}{path}", service.url))).await;
        assert_eq!((posted.status, posted.problem().code), (405, Code::MethodNotAllowed), "{path}");
    }
    let nothing = send(http().get(format!("{}/sdk/other.js", service.url))).await;
    assert_eq!((nothing.status, nothing.problem().code), (404, Code::NotFound));
}

#[tokio::test]
async fn scripts_for_htmx_and_turbo_are_the_committed_files() {
    let service = OncewardServer::start(&[]);
    for (name, committed) in [("onceward-htmx", HTMX), ("onceward-turbo", TURBO)] {
        let url = format!("{}/sdk/{name}.js", service.url);
        let script = send(http().get(&url)).await;
        assert_eq!((script.status, &script.body[..]), (200, committed), "{name}");
        let named = script.headers["content-location"].to_str().unwrap();
        let kept = send(http().get(format!("{}{named}", service.url))).await;
        assert_eq!((kept.status, &kept.body[..]), (200, committed), "{named}");
        let posted = send(http().post(&url)).await;
        assert_eq!((posted.status, posted.problem().code), (405, Code::MethodNotAllowed), "{name}");
    }
}
