//! Runs the demo's snippets for backends in Python and Node, unchanged, against the real service, and starts the proxy with its snippet.

use std::path::Path;
use std::process::{Command, Stdio};

use onceward_api::header;
use onceward_tests::client::{http, send, token};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::service::OncewardServer;
use serde_json::{Value, json};

/// No service listens on the first port.
const NOWHERE: &str = "http://127.0.0.1:1";

const POLICIES: [&str; 4] = ["remembered", "token", "key", "interval"];

/// Code that is appended to a snippet: the application's own `save`, which can be made to fail, and calls that print their results.
const PYTHON: &str = r#"
import sys
saved, broken = [], []
def save(order):
    if broken:
        raise RuntimeError("not saved")
    saved.append(order)
    return {"order": len(saved)}
def call(*arguments):
    try:
        return list(place_order(*arguments))
    except RuntimeError as error:
        return [500, {"code": str(error)}]
one, other = json.loads(sys.argv[1])
answers = [call(*one), call(*one)]
broken.append(True)
answers.append(call(*other))
broken.clear()
answers.append(call(*other))
print(json.dumps([answers, len(saved)]))
"#;

const NODE: &str = r#"
const saved = [];
let isBroken = false;
async function save(order) {
  if (isBroken) throw new Error("not saved");
  saved.push(order);
  return { order: saved.length };
}
const call = (...given) => placeOrder(...given).catch((error) => [500, { code: error.message }]);
const [one, other] = JSON.parse(process.argv[2]);
const answers = [await call(...one), await call(...one)];
isBroken = true;
answers.push(await call(...other));
isBroken = false;
answers.push(await call(...other));
console.log(JSON.stringify([answers, saved.length]));
"#;

/// Returns the text of a snippet as the page shows it for a service at this URL.
fn snippet(language: &str, policy: &str, origin: &str) -> String {
    let file = concat!("file://", env!("CARGO_MANIFEST_DIR"), "/../web-demo/assets/backend_snippets.js");
    let switches = json!({ "policy": policy, "origin": origin });
    let script = format!("import {{ {language} }} from {file:?}; process.stdout.write({language}({switches}));");
    succeeded(Command::new("node").args(["--input-type=module", "-e", &script]))
}

fn succeeded(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: apt-get install python3 nodejs"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the program that runs a language, its file extension, and the code that is appended to a snippet.
fn runtime(language: &str) -> (&'static str, &'static str, &'static str) {
    if language == "python" { ("python3", "py", PYTHON) } else { ("node", "mjs", NODE) }
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn backend_snippets_have_valid_syntax_and_are_short() {
    let folder = tempfile::tempdir().unwrap();
    for (language, policy) in ["python", "node"].into_iter().flat_map(|one| POLICIES.map(|policy| (one, policy))) {
        let text = snippet(language, policy, "http://127.0.0.1:8080");
        assert!(text.lines().count() <= 33, "{language} {policy}: {}", text.lines().count());
        let (program, end, _) = runtime(language);
        let file = written(folder.path(), &format!("with_{policy}.{end}"), &text);
        let check: &[&str] = if program == "node" { &["--check", &file] } else { &["-m", "py_compile", &file] };
        succeeded(Command::new(program).args(check));
    }
}

/// Returns the arguments of the snippet for two orders.
async fn arguments(service: &OncewardServer, policy: &str) -> Value {
    let [tea, coffee] = ["tea", "coffee"].map(|item| json!({ "item": item }));
    match policy {
        "token" => json!([[token(&service.url).await, tea], [token(&service.url).await, coffee]]),
        "remembered" => json!([[token(&service.url).await, "ada", tea], [token(&service.url).await, "ada", coffee]]),
        "key" => json!([["order-1", "ada", tea], ["order-2", "ada", coffee]]),
        _ => json!([["ada", tea], ["ada", coffee]]),
    }
}

#[tokio::test]
async fn backend_snippets_save_once_and_again_after_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    for (language, policy) in ["python", "node"].into_iter().flat_map(|one| POLICIES.map(|policy| (one, policy))) {
        let service = OncewardServer::start(&[]);
        let (program, end, behind) = runtime(language);
        let text = format!("{}\n{behind}", snippet(language, policy, &service.url));
        let file = written(folder.path(), &format!("with_{policy}.{end}"), &text);
        let given = arguments(&service, policy).await.to_string();
        let printed: Value = serde_json::from_str(&succeeded(Command::new(program).args([&file, &given]))).unwrap();
        let [first, second, failed, after] = [0, 1, 2, 3].map(|at| printed[0][at].clone());
        assert_eq!(first, json!([201, {"order": 1}]), "{language} {policy}");
        match policy {
            "token" => assert_eq!((&second[0], &second[1]["code"]), (&json!(409), &json!("token_used")), "{language}"),
            "interval" => assert_eq!((&second[0], &second[1]["code"]), (&json!(409), &json!("too_soon")), "{language}"),
            _ => assert_eq!(second, first, "{language} {policy}: the duplicate receives the stored response"),
        }
        assert_eq!(failed, json!([500, {"code": "not saved"}]), "{language} {policy}");
        assert_eq!(after, json!([201, {"order": 2}]), "{language} {policy}: a failure releases it");
        assert_eq!(printed[1], 2, "{language} {policy}: saved once for each");
    }
}

/// Without a response of the service, or without a valid API key, nothing runs, and the customer receives a 503.
#[tokio::test]
async fn backend_snippets_save_nothing_without_the_service_or_its_key() {
    let service = OncewardServer::start(&["--api-key", "a-key-of-the-backends"]);
    for origin in [NOWHERE, &service.url] {
        save_nothing_at(origin);
    }
}

fn save_nothing_at(origin: &str) {
    let folder = tempfile::tempdir().unwrap();
    for (language, policy) in ["python", "node"].into_iter().flat_map(|one| POLICIES.map(|policy| (one, policy))) {
        let (program, end, behind) = runtime(language);
        let text = format!("{}\n{behind}", snippet(language, policy, origin));
        let file = written(folder.path(), &format!("with_{policy}.{end}"), &text);
        let tea = json!({ "item": "tea" });
        let given = match policy {
            "token" => json!([["ow1_x", tea], ["ow1_y", tea]]),
            "interval" => json!([["ada", tea], ["ada", tea]]),
            _ => json!([["one", "ada", tea], ["two", "ada", tea]]),
        };
        let given = given.to_string();
        let printed: Value = serde_json::from_str(&succeeded(Command::new(program).args([&file, &given]))).unwrap();
        for answer in printed[0].as_array().unwrap() {
            assert_eq!(*answer, json!([503, {"code": "store_unavailable"}]), "{language} {policy}");
        }
        assert_eq!(printed[1], 0, "{language} {policy}");
    }
}

/// The settings of the proxy: two equal submissions are one order.
#[tokio::test]
async fn proxy_snippet_orders_once() {
    let folder = tempfile::tempdir().unwrap();
    for (policy, second) in [
        ("remembered", "201 replayed"),
        ("token", "409 token_used"),
        ("key", "201 replayed"),
        ("interval", "409 too_soon"),
    ] {
        let shop = LegacyShop::start();
        let text = snippet("proxy", policy, "");
        assert_eq!(text.matches("http://127.0.0.1:3000").count(), 1, "{text}");
        let file = written(folder.path(), "onceward.toml", &text.replace("http://127.0.0.1:3000", &shop.url));
        let proxy = OncewardServer::start(&["proxy", "--config", &file]);
        let token = token(&format!("{}/_onceward", proxy.url)).await;
        let submit = async || {
            let request = http().post(format!("{}/orders", proxy.url)).form(&[("item", "tea")]);
            send(match policy {
                "remembered" | "token" => request.header(header::TOKEN, &token),
                "key" => request.header(header::IDEMPOTENCY_KEY, "order-1"),
                _ => request,
            })
            .await
            .said()
        };
        assert_eq!((submit().await.as_str(), submit().await.as_str()), ("201 executed", second), "{policy}");
        assert_eq!(shop.orders().len(), 1, "{policy}");
        let page = send(http().get(&proxy.url)).await;
        let has_script = String::from_utf8_lossy(&page.body).contains("/_onceward/sdk/onceward.js");
        assert_eq!(has_script, ["remembered", "token"].contains(&policy), "{policy}");
    }
}
