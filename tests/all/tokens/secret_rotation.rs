//! Secret rotation in a rolling restart, one process at a time: in the documented order no process rejects what another has signed,
//! at any moment.

use onceward_tests::client::{http, send, submit, token};
use onceward_tests::interval_routes::plainly;
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use onceward_tests::shop::USER;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::PEER;

const OLD: &str = "the-old-secret-of-all-processes";
const NEW: &str = "the-new-secret-of-all-processes";
const NONE: &str = "-";

/// The signing secret, and the previous one that is still accepted.
type SecretPair = (&'static str, &'static str);

/// From one configured secret to another.
const ROTATION: [SecretPair; 4] = [(OLD, NONE), (OLD, NEW), (NEW, OLD), (NEW, NONE)];
/// From the secret shared through the store to a configured one.
const TO_SET: [SecretPair; 4] = [(NONE, NONE), (NONE, NEW), (NEW, "shared"), (NEW, NONE)];
/// From a configured secret to the shared one.
const TO_SHARED: [SecretPair; 4] = [(OLD, NONE), (OLD, "shared"), (NONE, OLD), (NONE, NONE)];
/// Without the first step: the old process does not know the new secret yet.
const HASTY: [SecretPair; 2] = [(OLD, NONE), (NEW, OLD)];

/// A process of the service or of the library.
trait Process: Sized {
    /// The tokens and passes that a process has signed.
    type Signed;

    fn start(redis: &RedisServer, ledger: &Ledger, signing: SecretPair) -> Self;

    /// Has the process sign one of each kind.
    async fn sign(&self) -> Self::Signed;

    /// Presents them and returns the rejections.
    async fn present(&self, signed: Self::Signed) -> Vec<String>;
}

/// Restarts two processes through all steps, one at a time, and returns every rejection. Credentials signed before a restart are
/// presented to both after it, and those signed before the step once both have restarted. Then each process receives the credentials
/// of the other.
async fn roll<P: Process>(steps: &[SecretPair]) -> Vec<String> {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let start = |signing| P::start(&redis, &ledger, signing);
    let mut processes = [start(steps[0]), start(steps[0])];
    let mut refused = Vec::new();
    for step in &steps[1..] {
        // Presented to the other process, once both have restarted.
        let before = [processes[0].sign().await, processes[1].sign().await];
        for at in 0..2 {
            let mut held = Vec::new();
            for process in &processes {
                held.push([process.sign().await, process.sign().await]);
            }
            processes[at] = start(*step);
            for [one, two] in held {
                refused.extend(processes[0].present(one).await);
                refused.extend(processes[1].present(two).await);
            }
            for (signer, other) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                let signed = processes[signer].sign().await;
                let said = processes[other].present(signed).await;
                refused.extend(said.into_iter().map(|said| format!("{step:?} {at}: {signer} to {other}: {said}")));
            }
        }
        let [one, other] = before;
        refused.extend(processes[1].present(one).await);
        refused.extend(processes[0].present(other).await);
    }
    refused
}

/// Returns the result if it is not the expected one.
fn unless(said: String, good: &str) -> Option<String> {
    (said != good).then_some(said)
}

/// The service: tokens, bound ones, next ones, and passes.
struct Service(OncewardServer);

impl Process for Service {
    type Signed = (Vec<(String, Value)>, Value);

    fn start(redis: &RedisServer, _: &Ledger, (secret, previous): SecretPair) -> Self {
        let mut arguments = vec!["--store".to_owned(), redis.url(), "--store-timeout".to_owned(), "5s".to_owned()];
        for (flag, secret) in [("--secret", secret), ("--secret-previous", previous)] {
            if secret != NONE {
                arguments.extend([flag.to_owned(), secret.to_owned()]);
            }
        }
        Self(OncewardServer::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    async fn sign(&self) -> Self::Signed {
        let url = &self.0.url;
        let bound = json!({"action": "pay", "subject": "alice"});
        let mut tokens = Vec::new();
        for asked in [json!({}), bound] {
            let issued: Value = serde_json::from_slice(&post(url, "/token", &asked).await.body).unwrap();
            tokens.push((issued["token"].as_str().unwrap().to_owned(), asked));
        }
        let asked =
            http().get(format!("{url}/forward-auth?next_token=true")).header("onceward-token", token(url).await);
        let passed = send(asked.header("x-original-method", "POST").header("x-original-uri", "/orders")).await;
        assert_eq!(passed.said(), "200 redeemed");
        tokens.push((passed.headers["onceward-next-token"].to_str().unwrap().to_owned(), json!({})));
        let claim = json!({"key": Uuid::new_v4().to_string(), "action": "pay", "subject": "alice", "lease": "60s"});
        let claimed: Value = serde_json::from_slice(&post(url, "/claim", &claim).await.body).unwrap();
        (tokens, json!({"pass": claimed["pass"]}))
    }

    async fn present(&self, (tokens, pass): Self::Signed) -> Vec<String> {
        let mut refused = Vec::new();
        for (token, mut asked) in tokens {
            asked["token"] = token.into();
            refused.extend(unless(post(&self.0.url, "/token/redeem", &asked).await.said(), "200 redeemed"));
        }
        for path in ["/claim/renew", "/claim/complete"] {
            refused.extend(unless(post(&self.0.url, path, &pass).await.said(), "204 "));
        }
        refused
    }
}

/// An application with the library: forms with a hidden token, next tokens, remembered ones, and intervals by content.
impl Process for Peer {
    type Signed = (String, String, String, String);

    fn start(redis: &RedisServer, ledger: &Ledger, (secret, previous): SecretPair) -> Self {
        Peer::start_signing(PEER, &redis.url(), ledger, secret, previous)
    }

    async fn sign(&self) -> Self::Signed {
        let page = send(http().get(format!("{}/web/pages/rendered", self.url))).await;
        let page = String::from_utf8(page.body.to_vec()).unwrap();
        let hidden = page.split("name=\"_onceward\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let next = send(submit(&self.url, "/next", &token(&self.url).await, "next")).await;
        let next = next.headers["onceward-next-token"].to_str().unwrap().to_owned();
        let remembered = token(&self.url).await;
        let first = send(submit(&self.url, "/remembered/orders", &remembered, "remembered")).await;
        assert_eq!(first.said(), "200 executed");
        let content = Uuid::new_v4().to_string();
        let spaced = plainly(&self.url, "/spaced/mine", "spaced").header(USER, "alice").body(content.clone());
        assert_eq!(send(spaced).await.said(), "200 executed");
        (hidden, next, remembered, content)
    }

    async fn present(&self, (hidden, next, remembered, content): Self::Signed) -> Vec<String> {
        let fields = [("_onceward", hidden.as_str()), ("item", "rendered")];
        let form = send(http().post(format!("{}/web/orders", self.url)).form(&fields)).await;
        let next = send(submit(&self.url, "/orders", &next, "next")).await;
        let again = send(submit(&self.url, "/remembered/orders", &remembered, "remembered")).await;
        let spaced = plainly(&self.url, "/spaced/mine", "spaced").header(USER, "alice").body(content);
        let told = [
            unless(form.said(), "200 executed"),
            unless(next.said(), "200 executed"),
            unless(again.said(), "200 replayed"),
            unless(send(spaced).await.said(), "409 too_soon"),
        ];
        told.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_rotation_in_three_steps_rejects_no_service_client() {
    assert_eq!(roll::<Service>(&ROTATION).await, [""; 0]);
    let refused = roll::<Service>(&HASTY).await;
    assert!(refused.iter().any(|said| said.contains("403 token_invalid")), "without the first step: {refused:?}");
    assert!(refused.iter().any(|said| said.contains("400 bad_request")), "passes too: {refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_rotation_in_three_steps_rejects_no_library_client() {
    assert_eq!(roll::<Peer>(&ROTATION).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_from_shared_to_configured_secret_rejects_no_client() {
    assert_eq!(roll::<Service>(&TO_SET).await, [""; 0]);
    assert_eq!(roll::<Peer>(&TO_SET).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_from_configured_to_shared_secret_rejects_no_client() {
    assert_eq!(roll::<Service>(&TO_SHARED).await, [""; 0]);
    assert_eq!(roll::<Peer>(&TO_SHARED).await, [""; 0]);
}

/// Parses the settings of a cell, as in `secret = new`, `secret_previous = old`.
fn settings_of(cell: &str) -> SecretPair {
    let value = |name: &str| {
        let set = cell.split('`').find_map(|set| set.strip_prefix(name)?.strip_prefix(" = ")).unwrap_or(NONE);
        [("old", OLD), ("new", NEW), ("shared", "shared"), (NONE, NONE)]
            .into_iter()
            .find(|(word, _)| *word == set)
            .unwrap()
            .1
    };
    (value("secret"), value("secret_previous"))
}

#[test]
fn documented_rotation_steps_are_the_tested_ones() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md")).unwrap();
    let section = readme.split("## Changing the secret").nth(1).unwrap().split("\n#").next().unwrap();
    let rows: Vec<Vec<_>> = section
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|row| row.split('|').skip(2).collect())
        .collect();
    for (column, tested) in [ROTATION, TO_SET, TO_SHARED].into_iter().enumerate() {
        let documented: Vec<_> = rows.iter().map(|row| settings_of(row[column])).collect();
        assert_eq!(documented, tested, "column {column}");
    }
}
