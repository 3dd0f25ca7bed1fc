//! Writes that continue in the background after the request has ended, and comparison of bodies above the limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::error::{InternalError, JsonPayloadError};
use actix_web::web::{self, Json, JsonConfig, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use onceward::actix::{ExtractorError, KeyFrom, Protect, SubjectFrom, entered};
use onceward::store::{Bytes, Compared, Epoch, Memory, Redis, Room, Store, StoreError, async_trait};
use onceward::{
    Effect, Guard, Intent, Key, KeyRules, Pass, Policy, RecordState, Reply, Settled, Subject, Ticket, Verdict,
};
use onceward_tests::actix_handlers::order;
use onceward_tests::client::{http, send};
use onceward_tests::key_routes::{LEASE, buy, serve, serve_at, serve_one, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, TAKES};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(5);
const BRIEF: Duration = Duration::from_millis(300);

/// A memory store whose compare-and-swap commands fail on demand.
struct MoodyStore {
    memory: Memory,
    mood: Mutex<Mood>,
    refused: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Fine,
    /// Fails after this delay.
    Refuses(Duration),
    /// Executes the command and never replies.
    Mute,
    /// Neither executes the command nor replies.
    Deaf,
}

impl MoodyStore {
    fn new() -> Arc<Self> {
        Arc::new(Self { memory: Memory::new(), mood: Mutex::new(Mood::Fine), refused: AtomicUsize::new(0) })
    }

    fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Returns the number of failed commands so far.
    fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    async fn mood(&self, act: impl Future<Output = Result<Compared, StoreError>>) -> Result<Compared, StoreError> {
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Fine => act.await,
            Mood::Refuses(after) => {
                sleep(after).await;
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::not_executed("the test store rejects this command"))
            }
            Mood::Mute => {
                act.await?;
                std::future::pending().await
            }
            Mood::Deaf => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Store for MoodyStore {
    async fn insert(
        &self,
        ticket: &Ticket,
        value: &[u8],
        ttl: Duration,
        room: Room,
    ) -> Result<Option<Bytes>, StoreError> {
        self.memory.insert(ticket, value, ttl, room).await
    }
    async fn swap(
        &self,
        ticket: &Ticket,
        held: &[u8],
        value: &[u8],
        ttl: Duration,
        room: Room,
        epoch: Option<Epoch>,
    ) -> Result<Compared, StoreError> {
        self.mood(self.memory.swap(ticket, held, value, ttl, room, epoch)).await
    }
    async fn remove(&self, ticket: &Ticket, held: &[u8], epoch: Option<Epoch>) -> Result<Compared, StoreError> {
        self.mood(self.memory.remove(ticket, held, epoch)).await
    }
    async fn look(&self, ticket: &Ticket) -> Result<Option<Bytes>, StoreError> {
        self.memory.look(ticket).await
    }
}

fn intent(key: &Key) -> Intent<'_> {
    Intent::new("pay", Subject::anonymous()).key(key)
}

fn key() -> Key {
    Key::new("k").unwrap()
}

async fn enter(guard: &Guard, rules: &KeyRules) -> Pass {
    match guard.check(&Policy::key(rules.clone()), &intent(&key())).await.unwrap() {
        Verdict::Run(pass) => pass,
        other => panic!("the key is free: {other:?}"),
    }
}

async fn seen(guard: &Guard, rules: &KeyRules) -> RecordState {
    guard.look(&Policy::key(rules.clone()), &intent(&key())).await.unwrap().state
}

#[tokio::test]
async fn claim_is_renewed_while_its_completion_is_retried() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let served =
        serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().lease(LEASE).unwrap()));
    let slow = tokio::spawn(send(under(&served.url, "/it", "k", "effect").header(TAKES, 1_500)));
    until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
    outlast(LEASE).await;
    redis.ask::<()>("CONFIG SET maxmemory 1");
    assert_eq!(slow.await.unwrap().said(), "200 unprotected");
    let is_claimed = || async { redis.keys().iter().filter(|name| name.contains(":key:")).count() == 1 };
    holds_for("the claim is renewed, which a full Redis allows", LEASE * 2, is_claimed).await;
}

#[tokio::test]
async fn completion_is_retried_without_a_ceiling() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::retryable().lease(BRIEF).unwrap().ceiling(Duration::MAX);
    let pass = enter(&guard, &rules).await;
    store.be(Mood::Refuses(Duration::ZERO));
    assert!(pass.complete(Some(Reply::new(200, "paid"))).await.is_err());
    outlast(BRIEF).await;
    store.be(Mood::Fine);
    until("it is stored", LONG, || async { matches!(seen(&guard, &rules).await, RecordState::Done(_)) }).await;
}

#[tokio::test]
async fn pending_writes_finish_after_the_guard_is_dropped() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::retryable().lease(BRIEF).unwrap();
    let pass = enter(&guard, &rules).await;
    store.be(Mood::Refuses(Duration::from_millis(250)));
    assert!(pass.complete(Some(Reply::new(200, "paid"))).await.is_err());
    drop(guard);
    let before = store.refused();
    until("the write is retried without the guard", LONG, || async { store.refused() > before + 2 }).await;
    store.be(Mood::Fine);
    let other = Guard::new(Arc::clone(&store));
    until("it is stored", LONG, || async { matches!(seen(&other, &rules).await, RecordState::Done(_)) }).await;
}

#[tokio::test]
async fn dropped_completion_is_retried_in_the_background() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::at_most_once().lease(BRIEF).unwrap();
    let pass = enter(&guard, &rules).await;
    store.be(Mood::Deaf);
    assert!(timeout(Duration::from_millis(50), pass.complete(Some(Reply::new(200, "paid")))).await.is_err());
    store.be(Mood::Fine);
    until("it is stored", LONG, || async { matches!(seen(&guard, &rules).await, RecordState::Done(_)) }).await;
}

#[tokio::test]
async fn claim_of_a_dropped_check_is_removed() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::at_most_once().lease(BRIEF).unwrap();
    store.be(Mood::Mute);
    let policy = Policy::key(rules.clone());
    let key = key();
    assert!(timeout(Duration::from_millis(50), guard.check(&policy, &intent(&key))).await.is_err());
    store.be(Mood::Fine);
    until("the key is free", LONG, || async { matches!(seen(&guard, &rules).await, RecordState::Absent) }).await;
}

#[tokio::test]
async fn extractor_rejection_may_be_corrected_with_a_custom_message() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let served = serve(&ledger, move |config: &mut ServiceConfig| {
        // The example in the documentation of `JsonConfig`.
        let worded = JsonConfig::default().error_handler(|error: JsonPayloadError, _| {
            InternalError::from_response(error, HttpResponse::BadRequest().body("no JSON")).into()
        });
        let json = async |request: HttpRequest, ledger: web::Data<Ledger>, _: Json<Vec<u32>>| {
            order(request, ledger, Bytes::new()).await
        };
        let not_entered = JsonConfig::default().error_handler(|error: JsonPayloadError, _| {
            ExtractorError::new(InternalError::from_response(error, HttpResponse::BadRequest().body("no JSON"))).into()
        });
        let on = |path: &str| web::resource(path.to_owned()).wrap(protect.clone());
        config
            .service(on("/marked").app_data(worded.clone()).route(web::post().to(entered(json))))
            .service(on("/bare").app_data(worded).route(web::post().to(json)))
            .service(on("/says-so").app_data(not_entered).route(web::post().to(json)));
    });
    let ask = async |path: &str, body: &'static str| {
        send(under(&served.url, path, "k", path).header("content-type", "application/json").body(body)).await
    };
    for path in ["/marked", "/says-so"] {
        assert_eq!(ask(path, "[1").await.status, 400);
        assert_eq!(ask(path, "[1]").await.said(), "200 executed", "{path}: the handler had not run");
    }
    assert_eq!(ask("/bare", "[1").await.said(), "400 replayable");
    assert_eq!(ask("/bare", "[1").await.said(), "400 replayed", "a handler may have sent it");
    assert_eq!(ledger.runs(), ["/marked", "/says-so"]);
}

#[tokio::test]
async fn path_and_query_are_compared_for_oversized_bodies() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).action("pay");
    let served = serve_at(&ledger, "/orders/{id}/pay", protect.body_limit(1_000).skip_large_bodies());
    let pay = async |order: &str, size: usize| {
        send(under(&served.url, &format!("/orders/{order}/pay"), "k", order).body(vec![b'a'; size])).await.said()
    };
    assert_eq!(pay("1", 5_000).await, "200 executed");
    assert_eq!(pay("2", 5_000).await, "422 key_reused", "never the response to the other order");
}

#[tokio::test]
async fn body_under_the_limit_differs_from_one_above() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let served = serve_one(&ledger, protect.body_limit(1_000).skip_large_bodies());
    let ask = async |size: usize| send(under(&served.url, "/it", "k", "a").body(vec![b'a'; size])).await.said();
    assert_eq!(ask(500).await, "200 executed");
    assert_eq!(ask(5_000).await, "422 key_reused");
}

#[tokio::test]
async fn key_twice_in_the_body_is_rejected() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect =
        Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).from(KeyFrom::body("/id").unwrap());
    let served = serve_one(&ledger, protect);
    let json = http().post(format!("{}/it", served.url)).header("content-type", "application/json");
    assert_eq!(send(json.body(r#"{"id":"a","id":"b"}"#)).await.said(), "400 key_malformed");
}

#[tokio::test]
async fn draining_waits_for_unprotected_runs() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let served = serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).optional());
    let slow = http().post(format!("{}/it", served.url)).header(ORDER, "effect").header(TAKES, 500);
    let slow = tokio::spawn(async move { timeout(Duration::from_millis(200), slow.send()).await });
    until("the handler runs", LONG, || async { ledger.count("begun") == 1 }).await;
    assert!(slow.await.unwrap().is_err(), "the client has disconnected");
    guard.drain().await;
    assert_eq!(ledger.count("effect"), 1, "the handler has finished");
}

#[tokio::test]
async fn draining_waits_for_claims_being_removed() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::at_most_once().lease(BRIEF).unwrap();
    store.be(Mood::Refuses(Duration::ZERO));
    let policy = Policy::key(rules.clone());
    let key = key();
    assert!(guard.check(&policy, &intent(&key)).await.is_err());
    store.be(Mood::Fine);
    guard.drain().await;
    assert_eq!(seen(&guard, &rules).await, RecordState::Absent);
}

#[tokio::test]
async fn settling_twice_is_idempotent() {
    let guard = Guard::new(Memory::new());
    let rules = KeyRules::at_most_once();
    enter(&guard, &rules).await.unknown().await.unwrap();
    let key = key();
    let RecordState::Unknown(run) = seen(&guard, &rules).await else { panic!("the outcome is not unknown") };
    let free = async || guard.settle(&rules, &intent(&key), Some(run), Effect::NotApplied, None).await.unwrap();
    assert_eq!(free().await, Settled::Released);
    // The key runs again, and the outcome of that second run is unknown.
    enter(&guard, &rules).await.unknown().await.unwrap();
    assert_eq!(free().await, Settled::Lost, "the settlement was for the first run");
    assert!(matches!(seen(&guard, &rules).await, RecordState::Unknown(_)));
}

#[tokio::test]
async fn unknown_outcome_is_stored_after_an_outage_with_data_loss() {
    let store = MoodyStore::new();
    let guard = Guard::new(Arc::clone(&store));
    let rules = KeyRules::at_most_once().lease(BRIEF).unwrap();
    let pass = enter(&guard, &rules).await;
    let ticket = pass.ticket();
    store.be(Mood::Refuses(Duration::ZERO));
    assert!(pass.unknown().await.is_err());
    let there = store.memory.look(&ticket).await.unwrap().expect("a claim");
    store.memory.remove(&ticket, &there, None).await.unwrap();
    store.be(Mood::Fine);
    until("it is stored", LONG, || async { matches!(seen(&guard, &rules).await, RecordState::Unknown(_)) }).await;
}

#[tokio::test]
async fn invalid_key_source_is_rejected_at_configuration() {
    assert!(KeyFrom::body("id").is_err() && KeyFrom::header("a header").is_err(), "neither is valid");
}

#[tokio::test]
async fn redis_full_beyond_the_lease_leaves_one_effect() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    let served =
        serve_one(&ledger, Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable().lease(LEASE).unwrap()));
    let mut slow = Vec::new();
    for number in 0..10 {
        let key = format!("k{number}");
        slow.push(tokio::spawn(send(under(&served.url, "/it", &key, &key).header(TAKES, 300))));
    }
    until("all handlers have started", LONG, || async { ledger.count("begun") == 10 }).await;
    redis.ask::<()>("CONFIG SET maxmemory 1");
    for slow in slow {
        assert_eq!(slow.await.unwrap().said(), "200 unprotected");
    }
    outlast(LEASE).await;
    redis.ask::<()>("CONFIG SET maxmemory 0");
    let retries = (0..10).map(|number| format!("k{number}"));
    let said = futures_util::future::join_all(retries.map(|key| {
        let url = served.url.clone();
        async move { buy(&url, "/it", &key, &key).await.said() }
    }))
    .await;
    let effects: Vec<_> = (0..10).map(|number| ledger.count(&format!("k{number}"))).collect();
    assert_eq!(effects, [1; 10], "{said:?}");
}
