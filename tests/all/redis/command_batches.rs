//! A thread sends the commands of one event loop turn to Redis as one batch (pipeline). Each command still succeeds or fails alone.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use onceward::store::{Bytes, Compared, Redis, Room, Store as _, StoreError};
use onceward::{Kind, Ticket};
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
/// More commands than one batch holds.
const MANY: usize = 300;

fn ticket(name: impl ToString) -> Ticket {
    Ticket::of(Kind::Key, name.to_string().as_bytes())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Sends commands until there are two connections: the shared one and this thread's own.
async fn warm(store: &Redis, redis: &RedisServer) {
    // The first write probes for native commands.
    store.insert(&ticket("warm"), b"x", MINUTE, Room::Free).await.expect("the store answers");
    let is_warm = || async {
        store.look(&ticket("warm")).await.expect("the store answers");
        redis.ask::<String>("CLIENT LIST").lines().filter(|line| line.contains(" cmd=get ")).count() == 2
    };
    until("this thread has its own connection", SOON, is_warm).await;
}

/// Polls the command once, so that it is queued.
fn begin<T>(asked: std::pin::Pin<&mut impl Future<Output = T>>) {
    assert!(matches!(asked.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
}

#[tokio::test]
async fn each_command_of_a_batch_has_its_own_result() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    // A value of another type is an error for every verb.
    let spoilt = |number: usize| number % 7 == 3;
    for number in (0..MANY).filter(|number| spoilt(*number)) {
        redis.ask::<i64>(&format!("LPUSH {} x", ticket(number).name("onceward")));
    }
    let insert =
        async |number: usize| store.insert(&ticket(number), number.to_string().as_bytes(), MINUTE, Room::Free).await;
    let inserted = join_all((0..MANY).map(insert)).await;
    let swap = async |number: usize| {
        let held = if number.is_multiple_of(2) { number } else { MANY };
        store.swap(&ticket(number), held.to_string().as_bytes(), b"swapped", MINUTE, Room::Free, None).await
    };
    let swapped = join_all((0..MANY).map(swap)).await;
    for (number, (inserted, swapped)) in inserted.into_iter().zip(swapped).enumerate() {
        if spoilt(number) {
            assert!(matches!(inserted, Err(StoreError::NotExecuted(_))), "{number}: {inserted:?}");
            assert!(matches!(swapped, Err(StoreError::NotExecuted(_))), "{number}: {swapped:?}");
            continue;
        }
        assert_eq!(inserted.unwrap(), None);
        let found = Compared::Found(Bytes::from(number.to_string()));
        assert_eq!(swapped.unwrap(), if number.is_multiple_of(2) { Compared::Done } else { found });
    }
}

#[tokio::test]
async fn dropped_command_is_not_sent() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    for number in 0..10 {
        let (gone, kept) = (ticket(format!("gone {number}")), ticket(format!("kept {number}")));
        let mut kept_asked = pin!(store.insert(&kept, b"kept", MINUTE, Room::Free));
        begin(kept_asked.as_mut());
        {
            let mut asked = pin!(store.insert(&gone, b"gone", MINUTE, Room::Free));
            begin(asked.as_mut());
        }
        assert_eq!(kept_asked.await.unwrap(), None);
        assert_eq!(store.look(&gone).await.unwrap(), None);
        assert_eq!(store.look(&kept).await.unwrap().as_deref(), Some(&b"kept"[..]));
    }
}

#[tokio::test]
async fn each_command_of_a_batch_has_its_own_timeout() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    let (hasty, patient) = (store.clone().timeout(Duration::from_millis(100)), store.timeout(SOON));
    redis.ask::<String>("CLIENT PAUSE 1000 WRITE");
    let begun = Instant::now();
    let timed = async |store: &Redis, name: &str| {
        let answer = store.insert(&ticket(name), b"x", MINUTE, Room::Free).await;
        (answer, begun.elapsed())
    };
    let ((hasty, hasty_took), (patient, patient_took)) = join(timed(&hasty, "hasty"), timed(&patient, "patient")).await;
    assert!(matches!(hasty, Err(StoreError::Unknown(_))), "{hasty:?}");
    assert!(hasty_took < Duration::from_millis(700), "{hasty_took:?}");
    assert_eq!(patient.expect("its timeout is long enough"), None);
    assert!(patient_took > Duration::from_millis(700), "{patient_took:?}");
}

#[test]
fn ended_runtime_leaves_no_command_waiting() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    let (first, second) = (runtime(), runtime());
    first.block_on(warm(&store, &redis));
    let x = ticket("x");
    let mut asked = pin!(store.insert(&x, b"x", MINUTE, Room::Free));
    {
        let _entered = first.enter();
        begin(asked.as_mut());
    }
    drop(first);
    let answer = second.block_on(async { tokio::time::timeout(SOON, asked).await });
    let answer = answer.expect("a result in time");
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

#[tokio::test]
async fn broken_connection_leaves_the_whole_batch_unknown() {
    let redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap();
    warm(&store, &redis).await;
    redis.ask::<String>("CLIENT PAUSE 1000 WRITE");
    let asked = join_all((0..10).map(|number| {
        let store = store.clone();
        async move { store.insert(&ticket(number), b"x", MINUTE, Room::Free).await }
    }));
    let cut = async {
        let are_there = || async { redis.ask::<String>("INFO clients").contains("blocked_clients:1") };
        until("the connections are open", SOON, are_there).await;
        redis.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes")
    };
    let (answers, _) = join(asked, cut).await;
    for answer in answers {
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    }
}
