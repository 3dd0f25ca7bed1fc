//! The blocking client of the Rust SDK: what the async one does, on threads.

use std::sync::Arc;
use std::time::Duration;

use onceward::store::Memory;
use onceward_client::{Code, Key, OnUnknown, Outcome, RetryLimits, blocking};
use onceward_tests::claiming_shop::{API_KEY, ClaimingShop};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::polling::until_blocking;
use onceward_tests::sdk_client::builder;
use onceward_tests::shop::{ORDER, Shop, TAKES, USER};
use serde_json::json;

/// A runtime for the faulty proxies only.
fn proxies() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn client() -> blocking::Client {
    builder().build_blocking().unwrap()
}

/// The number of threads of blocking clients in this process, for the thread that asks: a client names its thread.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.trim() == "onceward-client").count()
}

#[test]
fn submission_blocks_until_its_response() {
    let (shop, client) = (Shop::on(Memory::new()), client());
    client.warm_up(shop.url(), 2).unwrap();
    let url = format!("{}/orders", shop.url());
    let requests = [client.post(&url), client.put(&url), client.patch(&url), client.delete(&url)];
    for submission in requests {
        let answer = submission.header(ORDER, "tea").json(&json!({"tea": 2})).send().unwrap();
        assert_eq!((answer.status().as_u16(), answer.outcome(), answer.attempts()), (200, Some(Outcome::Executed), 1));
        assert_eq!(answer.text().unwrap(), "ordered with 9 bytes");
    }
    assert_eq!(shop.ledger.count("tea"), 4);
    let streamed = client.post(&url).stream_response().body("tea").send().unwrap();
    assert_eq!(streamed.bytes().unwrap(), "ordered with 3 bytes");
}

#[test]
fn lost_response_is_replayed_and_unknown_outcome_reported() {
    let (shop, runtime) = (Shop::on(Memory::new()), proxies());
    let way = runtime.block_on(FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])));
    let url = format!("{}/keyed/orders", way.url);
    let answer = client().post(&url).with_key().header(ORDER, "lost").send().unwrap();
    assert!(answer.is_replayed() && answer.attempts() == 2, "{answer:?}");

    way.plan(first([HttpFault::CutAnswer(0)]));
    let once = RetryLimits::new().attempts(1);
    let unknown = client().post(&url).with_key().header(ORDER, "unknown").limits(once).send().unwrap_err();
    let key = unknown.key().cloned().expect("an error with the key");
    assert!(unknown.is_unknown());
    assert!(client().post(&url).resume(key).header(ORDER, "unknown").send().unwrap().is_replayed());
    assert_eq!((shop.ledger.count("lost"), shop.ledger.count("unknown")), (1, 1));
}

#[test]
fn unknown_outcome_is_looked_up_at_the_service() {
    let (shop, runtime) = (ClaimingShop::start(), proxies());
    let way = runtime.block_on(FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])));
    let looking = builder().with_keys().outcomes_from(&shop.service.url, Some(API_KEY)).on_unknown(OnUnknown::Look);
    let client = looking.limits(RetryLimits::new().attempts(1)).build_blocking().unwrap();
    let order = || client.post(format!("{}/orders", way.url)).header(USER, "ann");
    let answer = order().subject("ann").send().unwrap();
    assert!(answer.is_replayed() && answer.text().unwrap() == "ordered");
    assert!(order().send().unwrap_err().is_misuse(), "no subject");
    assert_eq!(shop.ledger.runs().len(), 1);
}

#[test]
fn concurrent_threads_with_one_key_have_one_effect() {
    let (shop, client, key) = (Shop::on(Memory::new()), client(), Key::new("order-4711").unwrap());
    let url = Arc::new(format!("{}/keyed/orders", shop.url()));
    let submit = |_| {
        let (client, key, url) = (client.clone(), key.clone(), Arc::clone(&url));
        std::thread::spawn(move || client.post(&*url).key(key).header(ORDER, "one").header(TAKES, 100).send())
    };
    let threads: Vec<_> = (0..32).map(submit).collect();
    let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let first = ends.iter().filter(|end| end.as_ref().is_ok_and(|answer| !answer.is_replayed())).count();
    assert_eq!((first, shop.ledger.count("one")), (1, 1), "{ends:?}");
    let others = |end: &Result<blocking::Response, _>| match end {
        Ok(answer) => answer.status() == 200,
        Err(error) => onceward_client::Error::code(error) == Some(Code::InProgress),
    };
    assert!(ends.iter().all(others), "{ends:?}");
}

#[test]
fn client_in_async_runtime_panics_before_it_sends() {
    let (shop, client, runtime) = (Shop::on(Memory::new()), client(), proxies());
    let url = format!("{}/keyed/orders", shop.url());
    let submission = client.post(&url).with_key();
    let panicked = runtime.block_on(async { tokio::spawn(async move { submission.send().map(drop) }).await });
    assert!(panicked.unwrap_err().is_panic());
    assert!(shop.ledger.runs().is_empty());

    let submission = client.post(&url).with_key();
    let answer = runtime.block_on(async { tokio::task::spawn_blocking(move || submission.send()).await });
    assert_eq!(answer.unwrap().unwrap().outcome(), Some(Outcome::Executed));
    // Dropped in a runtime, the last clone still ends its thread.
    runtime.block_on(async move { drop(client) });
}

#[test]
fn panic_of_a_callback_reaches_the_caller() {
    let (shop, client) = (Shop::on(Memory::new()), client());
    let url = format!("{}/orders", shop.url());
    let broken = client.post(&url).body_from(|| panic!("no body"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| broken.send().map(drop)));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"no body"));
    assert_eq!(client.post(&url).send().unwrap().outcome(), Some(Outcome::Executed), "the thread still runs");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
fn dropped_client_ends_its_thread() {
    // In a process of its own, so that no other test's client counts.
    if std::env::var_os("ONCEWARD_COUNTS_THREADS").is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "sdk::blocking::dropped_client_ends_its_thread";
        alone.args(["--exact", name]).env("ONCEWARD_COUNTS_THREADS", "1");
        let output = alone.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let shop = Shop::on(Memory::new());
    let (client, url) = (client(), format!("{}/orders", shop.url()));
    let answer = client.clone().post(&url).send().unwrap();
    assert_eq!(threads(), 1, "clones share the thread");
    drop(client);
    assert_eq!(threads(), 1, "the response reads its body on it");
    drop(answer);
    assert!(until_blocking(Duration::from_secs(3), || threads() == 0), "{} threads", threads());
}
