//! Named locks over several processes: an interval that its owner releases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::Redis;
use onceward::{Guard, Intent, IntervalRules, Key, Policy, RunError, Subject};
use onceward_tests::redis_server::RedisServer;
use tokio::time::sleep;

const BACKOFF: Duration = Duration::from_millis(5);

/// Runs the work while no other process runs work under this name. Waits for as long as the lock is held.
async fn with_lock<T>(guard: &Guard, name: &str, work: impl AsyncFn() -> T) -> T
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let key = Key::new(name).unwrap();
    let intent = Intent::new("lock", Subject::anonymous()).key(&key);
    let policy = Policy::interval(IntervalRules::new().every(Duration::from_secs(30)).unwrap().release_always());
    loop {
        match guard.run(&policy, &intent, async || Ok::<_, std::convert::Infallible>(work().await)).await {
            Ok(ran) => return ran.into_value(),
            Err(error) if error.is_temporary() => sleep(BACKOFF).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_admits_one_holder_per_name_over_several_guards() {
    let redis = RedisServer::start();
    let names = ["search index", "price list"];
    let inside = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let workers = (0..12).map(|worker| {
        let (guard, inside) = (Guard::new(Redis::open(&redis.url()).unwrap()), Arc::clone(&inside));
        async move {
            let at = worker % names.len();
            with_lock(&guard, names[at], async || {
                let others = inside[at].fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(10)).await;
                inside[at].fetch_sub(1, Ordering::SeqCst);
                others
            })
            .await
        }
    });
    assert_eq!(join_all(workers).await, [0; 12], "a worker was not alone");
}

#[tokio::test]
async fn locks_of_different_names_are_held_at_the_same_time() {
    let redis = RedisServer::start();
    let guards = [(); 2].map(|()| Guard::new(Redis::open(&redis.url()).unwrap()));
    let inner = async || with_lock(&guards[1], "price list", async || 2).await;
    assert_eq!(with_lock(&guards[0], "search index", inner).await, 2);
}

#[tokio::test]
async fn lock_is_free_after_its_holder_failed() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let key = Key::new("search index").unwrap();
    let intent = Intent::new("lock", Subject::anonymous()).key(&key);
    let policy = Policy::interval(IntervalRules::new().release_always());
    let failed = guard.run(&policy, &intent, async || Err::<(), _>("no disk")).await;
    assert!(matches!(failed, Err(RunError::Failed("no disk"))), "{failed:?}");
    assert_eq!(with_lock(&guard, "search index", async || 1).await, 1);
}
