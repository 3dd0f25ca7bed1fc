//! No secret is in a log, an error or the help, at any log level.

use std::fs::File;
use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{ServiceProcess, command, run};
use onceward_tests::service_calls::get;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

const SECOND: Duration = Duration::from_secs(1);

/// Secrets that must not appear anywhere.
const PASSWORD: &str = "canary-redis-password";
const SIGNING: &str = "canary-signing-secret-of-this-test";
const FORMER: &str = "canary-former-secret-of-this-test";
const API_KEY: &str = "canary-api-key-canary";

/// Every path, each also called with the wrong method.
const EVERYWHERE: [&str; 20] = [
    "/token",
    "/tokens",
    "/token/redeem",
    "/token/release",
    "/claim",
    "/claim/complete",
    "/claim/release",
    "/claim/renew",
    "/outcome",
    "/forward-auth",
    "/healthz",
    "/readyz",
    "/metrics",
    "/dashboard",
    "/",
    "/docs/",
    "/openapi.json",
    "/problems/token_used",
    "/problems/nowhere",
    "/nowhere",
];

/// Sends every request that contains a secret, also during a store outage. Returns the tokens and passes that must not be logged.
async fn handle_secrets(url: &str, redis: &mut RedisServer) -> Vec<String> {
    let (mut tokens, mut passes) = (Vec::new(), Vec::new());
    for round in 0..3 {
        if round == 1 {
            redis.kill();
        }
        if round == 2 {
            redis.restart();
            until("the service is ready again", 5 * SECOND, || async { get(url, "/readyz").await.status == 200 }).await;
        }
        let issued = send(http().post(format!("{url}/token")).bearer_auth(API_KEY)).await;
        if let Ok(Value::String(token)) =
            serde_json::from_slice::<Value>(&issued.body).map(|mut body| body["token"].take())
        {
            tokens.push(token);
        }
        let token = tokens.last().unwrap();
        use_up(url, token).await;
        passes.extend(claim(url, round, token).await);
        ask_everywhere(url, token).await;
    }
    assert!(tokens.len() >= 2 && passes.len() >= 2, "{} {}", tokens.len(), passes.len());
    tokens.append(&mut passes);
    let counted = get(url, "/metrics").await;
    assert_unseen(std::str::from_utf8(&counted.body).unwrap(), &tokens);
    tokens
}

/// Claims a key, looks it up and completes it, with valid and invalid requests. Returns the pass, if there is one.
async fn claim(url: &str, round: usize, token: &str) -> Option<String> {
    let whose = json!({"key": format!("canary-key-{round}"), "action": "pay", "subject": "canary-subject"});
    let ask = async |path: &str, body: &Value| {
        let answer = send(http().post(format!("{url}{path}")).bearer_auth(API_KEY).json(body)).await;
        assert_keeps_secrets(&answer);
        serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()
    };
    let mut asked = whose.clone();
    (asked["attempt"], asked["fingerprint"]) = ("canary-attempt".into(), "canary-content".into());
    let pass = ask("/claim", &asked).await["pass"].as_str().map(str::to_owned);
    let shown = pass.as_deref().unwrap_or(token);
    asked["fingerprint"] = "canary-other-content".into();
    ask("/claim", &asked).await;
    let reply = json!({"status": 200, "headers": [["location", "/canary"]], "body": "Y2FuYXJ5"});
    for (path, body) in [
        ("/claim/renew", json!({ "pass": shown })),
        ("/claim/renew", json!({ "pass": [shown] })),
        ("/claim/complete", json!({"pass": shown, "reply": [shown]})),
        ("/claim/complete", json!({"pass": shown, "reply": reply})),
        ("/claim/release", json!({ "pass": shown })),
        ("/outcome", whose.clone()),
        ("/outcome", json!({ "token": token })),
        ("/claim", json!({"key": "canary key", "action": "pay", "subject": "canary-subject"})),
        ("/claim", json!({"key": "canary-key", "action": "pay", "subject": ["canary-subject"]})),
        ("/claim", whose),
    ] {
        ask(path, &body).await;
    }
    pass
}

/// Redeems and releases a token with the right key and a wrong one, in valid and malformed bodies.
async fn use_up(url: &str, token: &str) {
    let client = http();
    for body in [
        json!({"token": token, "attempt": "one"}).to_string(),
        json!({"token": token, "attempt": "one", "run_id": uuid::Uuid::nil().to_string()}).to_string(),
        json!({ "token": token }).to_string(),
        json!({ "token": [token] }).to_string(),
        json!({"token": token, "bound": token}).to_string(),
        json!({"token": token, token: API_KEY}).to_string(),
        format!("{{\"token\":\"{token}"),
        token.repeat(400),
    ] {
        for (path, key) in [("/token/redeem", API_KEY), ("/token/release", API_KEY), ("/token/redeem", "canary-wrong")]
        {
            let request = client.post(format!("{url}{path}?_onceward={token}&key={API_KEY}")).bearer_auth(key);
            let request = request.header("onceward-token", token).header("content-type", "application/json");
            assert_keeps_secrets(&send(request.body(body.clone())).await);
        }
    }
}

/// Sends a token in query, headers and body to every path, with every method.
async fn ask_everywhere(url: &str, token: &str) {
    let client = http();
    for path in EVERYWHERE {
        for method in ["GET", "HEAD", "POST", "PUT", "OPTIONS", "CANARY"] {
            let request =
                client.request(method.parse().unwrap(), format!("{url}{path}?_onceward={token}&key={API_KEY}"));
            let request = request.header("onceward-token", token).header("x-request-id", format!("{token} {API_KEY}"));
            let request = request.header("origin", format!("canary://{token}")).header("cookie", API_KEY);
            let request = request.header("access-control-request-method", "POST");
            let request = request.header("access-control-request-headers", API_KEY).header("forwarded", API_KEY);
            let request = request.header("x-forwarded-for", token).header("content-type", format!("canary/{token}"));
            assert_keeps_secrets(&send(request.bearer_auth(token).body(token.to_owned())).await);
        }
    }
}

/// Asserts that a response shows no secret of the service; it may show the token that the client sent.
fn assert_keeps_secrets(answer: &Answer) {
    for secret in [PASSWORD, SIGNING, FORMER] {
        assert!(!String::from_utf8_lossy(&answer.body).contains(secret), "{answer:?}");
    }
}

fn assert_unseen(text: &str, tokens: &[String]) {
    for line in text.lines() {
        assert!(!line.contains("canary") && !line.contains("ow1_"), "{line}");
        for token in tokens {
            // Not one half of it either.
            assert!(!line.contains(&token[4..37]) && !line.contains(&token[37..]), "{line}");
        }
    }
}

/// The source of a setting.
#[derive(Debug, Clone, Copy)]
enum SettingSource {
    Flag,
    Variable,
    FileOfFlag,
    FileOfVariable,
}

impl SettingSource {
    /// Returns the arguments and environment variables for these settings.
    fn give(self, settings: &[(&str, String)]) -> (Vec<String>, Vec<(String, String)>) {
        let (mut arguments, mut variables) = (Vec::new(), Vec::new());
        for (name, value) in settings {
            let variable = format!("ONCEWARD_{}", name.replace('-', "_").to_uppercase());
            match self {
                Self::Flag => arguments.extend([format!("--{name}"), value.clone()]),
                Self::FileOfFlag => arguments.extend([format!("--{name}-file"), value.clone()]),
                Self::Variable => variables.push((variable, value.clone())),
                Self::FileOfVariable => variables.push((format!("{variable}_FILE"), value.clone())),
            }
        }
        (arguments, variables)
    }
}

/// Runs the service at the most verbose level with secrets in every request. Asserts that its output shows none.
async fn assert_tells_nothing(form: &str, way: SettingSource) {
    let mut redis = RedisServer::start_with(&["--requirepass", PASSWORD]);
    let store = format!("redis://:{PASSWORD}@127.0.0.1:{}", redis.port());
    let given = [("store", store.as_str()), ("secret", SIGNING), ("secret-previous", FORMER), ("api-key", API_KEY)];
    let files = given.map(|(_, value)| file(&format!("{value}\n")));
    let settings = given.iter().zip(&files).map(|((name, value), file)| match way {
        SettingSource::Flag | SettingSource::Variable => (*name, (*value).to_owned()),
        SettingSource::FileOfFlag | SettingSource::FileOfVariable => (*name, file.path().to_str().unwrap().to_owned()),
    });
    let (arguments, variables) = way.give(&settings.collect::<Vec<_>>());
    let always =
        ["--log", form, "--log-level", "trace", "--request-log", "all", "--cors-origins", "https://shop.example"];
    let arguments: Vec<_> = always.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let log = NamedTempFile::new().unwrap();
    let appended = || File::options().append(true).open(log.path()).unwrap().into();
    let service = ServiceProcess::start(&arguments, &variables, appended(), appended());
    let tokens = handle_secrets(&service.url, &mut redis).await;
    let said = || std::fs::read_to_string(log.path()).unwrap();
    let asked = 3 * 6;
    until("every request is logged", 5 * SECOND, || {
        std::future::ready(said().matches("/nowhere").count() >= 2 * asked)
    })
    .await;
    drop(service);
    let said = said();
    assert!(said.contains(&format!("redis://127.0.0.1:{}", redis.port())), "the banner names the store:\n{said}");
    assert!(said.contains("WARN"), "the outage was logged:\n{said}");
    assert!(said.contains("DEBUG"), "the log level applies:\n{said}");
    assert_unseen(&said, &tokens);
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn json_trace_log_contains_no_secret() {
    let ways = [SettingSource::Flag, SettingSource::Variable, SettingSource::FileOfFlag, SettingSource::FileOfVariable];
    join_all(ways.map(|way| assert_tells_nothing("json", way))).await;
}

#[tokio::test]
async fn human_trace_log_contains_no_secret() {
    join_all([SettingSource::Flag, SettingSource::FileOfVariable].map(|way| assert_tells_nothing("human", way))).await;
}

#[test]
fn help_and_setting_errors_contain_no_secret() {
    let store = format!("redis://:{PASSWORD}@127.0.0.1:1");
    let good = ["--store", &store, "--secret", SIGNING, "--secret-previous", FORMER, "--api-key", API_KEY];
    let files = [
        file(&format!("api_key = \"{API_KEY}\" x")),
        file(&format!("api_key = {API_KEY}")),
        file(&format!("secret = \"{SIGNING}\nlog = 1")),
        file(&format!("secret = [\"{SIGNING}\", 1]")),
        file("secret = \"canary\""),
        file(&format!("store = \"http://:{PASSWORD}@127.0.0.1\"")),
        file(&format!("api_key = \"{API_KEY}\"\napi_key = \"{API_KEY}\"")),
        file(&format!("apikey = \"{API_KEY}\"")),
    ];
    let mut wrong: Vec<Vec<&str>> = files.iter().map(|file| vec!["--config", file.path().to_str().unwrap()]).collect();
    wrong.extend([
        vec!["--token-ttl", "x"],
        vec!["--wait-for", "0s", "--listen", "127.0.0.1:0"],
        vec!["--listen", "nowhere"],
        vec!["--nonsense"],
    ]);
    let mut outputs = vec![run(&[&good[..], &["--help"]].concat()), run(&[&good[..], &["--version"]].concat())];
    assert!(outputs.iter().all(|output| output.status.success()));
    for arguments in &wrong {
        let is_file = arguments[0] == "--config";
        outputs.push(run(&[if is_file { &[] } else { &good[..] }, arguments].concat()));
    }
    for arguments in [
        ["--secret", "canary"],
        ["--secret-previous", "canary"],
        ["--store", "canary"],
        ["--store", "redis+nothing://:canary@127.0.0.1"],
        ["--store", "redis://:canary@127.0.0.1:port"],
        ["--api-keyy=canary", "--log=json"],
        ["--api_key=canary", "--log=json"],
        ["--api-key=canary", "--api-key=canary"],
        ["--secret=canary-canary-canary", "--secret-file=/nowhere"],
        ["--log-level=trace", "--store=redis://:canary@127.0.0.1:port"],
    ] {
        outputs.push(run(&[&["--listen", "127.0.0.1:0"], &arguments[..]].concat()));
    }
    let mut environment = command(&["--help"]);
    environment.env("ONCEWARD_API_KEY", API_KEY).env("ONCEWARD_SECRET", SIGNING).env("ONCEWARD_STORE", &store);
    outputs.push(environment.output().unwrap());
    let mut environment = command(&["--listen", "nowhere"]);
    environment.env("ONCEWARD_API_KEY", API_KEY).env("ONCEWARD_SECRET", "canary").env("ONCEWARD_APIKEY", API_KEY);
    outputs.push(environment.output().unwrap());
    assert_eq!(outputs.iter().filter(|output| output.status.success()).count(), 3, "{outputs:#?}");
    for output in outputs {
        assert_unseen(&String::from_utf8(output.stdout).unwrap(), &[]);
        assert_unseen(&String::from_utf8(output.stderr).unwrap(), &[]);
    }
}
