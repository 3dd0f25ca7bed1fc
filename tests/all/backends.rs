//! Backends in other languages, made idempotent by the claim API: the examples in `docs/backends`, as they stand.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::ledger::Ledger;
use onceward_tests::mishap::{Mishap, RoughWay, Seen, smooth};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::wait::until;
use serde_json::json;

const EXAMPLES: [(&str, &str); 2] = [("python3", "payments.py"), ("node", "payments.mjs")];

/// A backend in a process of its own.
struct Backend {
    child: Child,
    url: String,
}

impl Backend {
    fn start((program, file): (&str, &str), onceward: &str, ledger: &Ledger) -> Self {
        let path = format!("{}/../docs/backends/{file}", env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(program)
            .arg(path)
            .envs([("ONCEWARD_URL", onceward), ("ONCEWARD_API_KEY", KEY)])
            .env("LEDGER", ledger.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start ({error}): apt-get install python3 nodejs"));
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }

    /// Kills it, as a crash would.
    fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("its own child");
    }

    async fn pay(&self, key: &str, order: &str, takes: f64) -> Answer {
        let body = json!({"order": order, "takes": takes}).to_string();
        send(http().post(format!("{}/payments", self.url)).header("idempotency-key", key).body(body)).await
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: &str = "a-key-of-the-backends";

async fn is_running(service: &OncewardServer, key: &str) -> bool {
    let asked = json!({"key": key, "action": "POST /payments", "subject": "anonymous"}).to_string();
    let request = http().post(format!("{}/outcome", service.url)).bearer_auth(KEY);
    let answer = send(request.header("content-type", "application/json").body(asked)).await;
    serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["state"] == "running"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_in_another_language_pays_once() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let backends = [(); 2].map(|()| Backend::start(example, &service.url, &ledger));
        let racers = (0..32).map(|racer| backends[racer % 2].pay("k", "tea", 0.2));
        let told = join_all(racers).await;
        let is_first = |answer: &&Answer| answer.status == 201 && !answer.headers.contains_key("idempotent-replayed");
        assert_eq!(told.iter().filter(is_first).count(), 1, "{example:?}: {told:?}");
        assert!(told.iter().all(|answer| [201, 409].contains(&answer.status)), "{told:?}");
        let again = backends[1].pay("k", "tea", 0.2).await;
        assert_eq!((again.status, &again.headers["idempotent-replayed"]), (201, &"true".parse().unwrap()));
        assert_eq!(again.body, r#"{"paid": "tea"}"#.replace(' ', if example.0 == "node" { "" } else { " " }));
        assert_eq!(backends[0].pay("k", "coffee", 0.2).await.status, 422);
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_that_was_killed_frees_its_key_and_one_that_is_slow_keeps_it() {
    let redis = RedisServer::start();
    for example in EXAMPLES {
        let ledger = Ledger::new();
        let service = OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY, "--prefix", example.0]);
        let (mut one, other) =
            (Backend::start(example, &service.url, &ledger), Backend::start(example, &service.url, &ledger));
        // Slower than its lease of two seconds: its claim is renewed.
        let (slow, duplicate) = tokio::join!(one.pay("slow", "slow", 3.0), async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            other.pay("slow", "slow", 3.0).await
        });
        assert_eq!((slow.status, duplicate.status), (201, 409), "{example:?}: {duplicate:?}");

        let body = json!({"order": "dead", "takes": 60}).to_string();
        let request = http().post(format!("{}/payments", one.url)).header("idempotency-key", "dead").body(body);
        let cut_off = tokio::spawn(request.send());
        until("it is claimed", Duration::from_secs(5), || is_running(&service, "dead")).await;
        one.kill();
        assert!(cut_off.await.unwrap().is_err());
        let is_paid = || async {
            let body = json!({"order": "dead", "takes": 60}).to_string();
            let request = http().post(format!("{}/payments", other.url)).header("idempotency-key", "dead").body(body);
            // Whoever gets to run takes a minute, which nobody waits for here.
            tokio::time::timeout(Duration::from_secs(1), request.send()).await.is_err()
        };
        until("the lease is over, and the next one runs", Duration::from_secs(6), is_paid).await;
        assert_eq!(ledger.runs(), ["slow"], "{example:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_server_whose_last_word_gets_lost_says_it_again_and_keeps_its_key_meanwhile() {
    for example in EXAMPLES {
        let (ledger, service) = (Ledger::new(), OncewardServer::start(&["--api-key", KEY]));
        let lost =
            |seen: &Seen| if seen.line.contains("/claim/complete") { Mishap::Instead(503) } else { Mishap::None };
        let way = RoughWay::to(&service.url, lost).await;
        let backend = Backend::start(example, &way.url, &ledger);
        assert_eq!(
            backend.pay("k", "tea", 0.0).await.status,
            201,
            "{example:?}: it has happened, and its caller is told"
        );
        // Longer than its lease of two seconds.
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(backend.pay("k", "tea", 0.0).await.status, 409, "{example:?}");
        }
        way.plan(smooth);
        let is_replayed = || async { backend.pay("k", "tea", 0.0).await.headers.contains_key("idempotent-replayed") };
        until("it was heard", Duration::from_secs(5), is_replayed).await;
        assert_eq!(ledger.runs(), ["tea"], "{example:?}");
    }
}
