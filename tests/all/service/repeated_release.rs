//! A release that is retried after a lost response never frees a later run of the same attempt. The clock is frozen, so both runs
//! start in the same millisecond.

use std::time::Duration;

use onceward::store::{Memory, Redis, Sql};
use onceward::{Attempt, Binding, Guard, Intent, Key, KeyRules, ManualClock, Policy, RunId, Settled, Subject, Verdict};
use onceward_api::Code;
use onceward_tests::client::{Answer, token as service_token};
use onceward_tests::database::TestDatabase;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::{post, redeemed_by, release};
use serde_json::{Value, json};

const ROUNDS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(10);

/// The servers behind every kind of store.
struct Stores {
    redis: RedisServer,
    databases: [TestDatabase; 2],
}

impl Stores {
    async fn start() -> Self {
        Self { redis: RedisServer::start(), databases: TestDatabase::both().await }
    }

    fn addresses(&self) -> [String; 4] {
        let [postgres, sqlite] = self.databases.each_ref().map(TestDatabase::url);
        ["memory:".to_owned(), self.redis.url(), postgres, sqlite]
    }
}

/// Returns a guard on this store with a frozen clock.
async fn guard(address: &str) -> Guard {
    let clock = ManualClock::new();
    let builder = match address {
        "memory:" => Guard::builder(Memory::with_clock((&clock).into())),
        address if address.starts_with("redis:") => Guard::builder(Redis::open(address).unwrap().timeout(PATIENCE)),
        address => Guard::builder(Sql::open_within(address, PATIENCE).await.unwrap()),
    };
    builder.clock((&clock).into()).build()
}

/// Claims and returns the signed pass, or the code of the rejection.
async fn claim(guard: &Guard, rules: &KeyRules, key: &str, attempt: &str) -> Result<String, Code> {
    let (key, attempt) = (Key::new(key).unwrap(), Attempt::new(attempt).unwrap());
    let intent = Intent::new("pay", Subject::named("alice")).key(&key).attempt(&attempt);
    match guard.check(&Policy::key(rules.clone()), &intent).await.unwrap() {
        Verdict::Run(pass) => Ok(pass.into_signed().await.unwrap().unwrap()),
        Verdict::Reject(rejection) => Err(rejection.code()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_release_of_a_claim_frees_no_later_run() {
    let stores = Stores::start().await;
    for address in stores.addresses() {
        let guard = guard(&address).await;
        for rules in [KeyRules::retryable(), KeyRules::at_most_once()] {
            for round in 0..ROUNDS / 2 {
                let key = format!("{}-{round}", rules == KeyRules::retryable());
                let first = claim(&guard, &rules, &key, "one").await.unwrap();
                assert_eq!(claim(&guard, &rules, &key, "one").await, Ok(first.clone()), "the same run");
                let late = guard.open_pass(&first).await.unwrap().unwrap();
                assert_eq!(late.release().await.unwrap(), Settled::Released);
                let second = claim(&guard, &rules, &key, "one").await.unwrap();
                assert_ne!(first, second, "{address}, round {round}: one pass for two runs");
                let lost = Settled::Lost;
                assert_eq!(late.release().await.unwrap(), lost, "{address}, round {round}");
                assert!(!late.renew().await.unwrap());
                assert_eq!(late.complete(None).await.unwrap(), lost);
                assert_eq!(claim(&guard, &rules, &key, "two").await, Err(Code::InProgress), "{address}, round {round}");
                let pass = guard.open_pass(&second).await.unwrap().unwrap();
                assert_eq!(pass.release().await.unwrap(), Settled::Released);
            }
        }
    }
}

/// Redeems for an attempt and returns the run id.
async fn redeem(guard: &Guard, token: &str, attempt: &Attempt) -> Result<RunId, Code> {
    let intent = Intent::new("pay", Subject::anonymous()).credential(token).attempt(attempt);
    match guard.check(&Policy::token(), &intent).await.unwrap() {
        Verdict::Run(pass) => {
            let run = pass.run_id().unwrap();
            pass.complete(None).await.unwrap();
            Ok(run)
        }
        Verdict::Reject(rejection) => Err(rejection.code()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_release_of_a_token_frees_no_later_run() {
    let stores = Stores::start().await;
    let [one, two] = ["one", "two"].map(|name| Attempt::new(name).unwrap());
    for address in stores.addresses() {
        let guard = guard(&address).await;
        for round in 0..ROUNDS {
            let token = guard.issue(PATIENCE, Binding::none()).await.unwrap().as_str().to_owned();
            let first = redeem(&guard, &token, &one).await.unwrap();
            assert_eq!(redeem(&guard, &token, &one).await, Ok(first), "the same run");
            assert_eq!(guard.release(&token, &one, first).await.unwrap(), Settled::Released);
            let second = redeem(&guard, &token, &one).await.unwrap();
            assert_ne!(first, second, "{address}, round {round}: one run id for two runs");
            let lost = Settled::Lost;
            assert_eq!(guard.release(&token, &one, first).await.unwrap(), lost, "{address}, round {round}");
            assert_eq!(redeem(&guard, &token, &two).await, Err(Code::TokenUsed), "{address}, round {round}");
        }
    }
}

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_release_at_the_service_frees_no_later_run() {
    let stores = Stores::start().await;
    for address in stores.addresses() {
        let service = OncewardServer::start(&["--store", &address, "--store-timeout", "10s", "--rate-limit", "off"]);
        let url = &service.url;
        for round in 0..ROUNDS {
            let claim = async |attempt: &str| {
                let key = format!("k-{round}");
                let asked = json!({"key": key, "action": "pay", "subject": "alice", "attempt": attempt});
                post(url, "/claim", &asked).await
            };
            let free = async |pass: &Value| post(url, "/claim/release", &json!({ "pass": pass })).await.said();
            let first = body(&claim("one").await)["pass"].clone();
            assert_eq!(free(&first).await, "204 ");
            let second = body(&claim("one").await)["pass"].clone();
            assert!(second.is_string() && second != first, "{address}, round {round}: one pass for two runs");
            assert_eq!(free(&first).await, "409 claim_lost", "{address}, round {round}");
            assert_eq!(claim("two").await.said(), "409 in_progress", "{address}, round {round}");
        }
        for round in 0..ROUNDS {
            let token = service_token(url).await;
            let first = redeemed_by(url, &token, "one").await;
            assert_eq!(release(url, &token, "one", &first).await, "204 ");
            let second = redeemed_by(url, &token, "one").await;
            assert_ne!(first, second, "{address}, round {round}: one run id for two runs");
            assert_eq!(release(url, &token, "one", &first).await, "409 claim_lost", "{address}, round {round}");
            let other = post(url, "/token/redeem", &json!({"token": token, "attempt": "two"})).await;
            assert_eq!(other.said(), "409 token_used", "{address}, round {round}");
        }
    }
}
