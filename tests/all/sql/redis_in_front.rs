//! Redis in front of a table: Redis answers fast, and the table is the source of truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use onceward::actix::{MarkEffect as _, Protect, RequestIntent, SubjectFrom, reject};
use onceward::store::{Redis, Sql};
use onceward::transaction::TxHandle;
use onceward::{Guard, IntervalRules, KeyRules, Mode, RunError};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::key_routes::KEY;
use onceward_tests::postgres::PostgresServer;
use onceward_tests::postgres_payments::{TABLES, figures, pay};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::TestServer;
use sqlx::{PgPool, Postgres};

async fn handle(
    request: HttpRequest,
    asked: RequestIntent,
    guard: web::Data<Guard>,
    pool: web::Data<PgPool>,
    body: web::Bytes,
) -> HttpResponse {
    let amount = &String::from_utf8(body.to_vec()).unwrap();
    let work = |mut transaction: TxHandle<Postgres>| async move { pay(&mut transaction, amount).await };
    match guard.transact(&pool, &KeyRules::retryable(), &asked.intent(), work).await {
        Ok(ran) => HttpResponse::Created().body(ran.into_value()),
        Err(RunError::Rejected(rejection)) => reject(&request, &guard, &rejection),
        Err(error) => HttpResponse::ServiceUnavailable().body(error.to_string()),
    }
}

/// Pays, and then fails on the first call.
async fn stumble(
    asked: RequestIntent,
    guard: web::Data<Guard>,
    pool: web::Data<PgPool>,
    runs: web::Data<Runs>,
) -> HttpResponse {
    let run = runs.0.fetch_add(1, Ordering::SeqCst);
    let work = |mut transaction: TxHandle<Postgres>| async move {
        let paid = pay(&mut transaction, "10").await?;
        if run == 0 { Err(sqlx::Error::RowNotFound) } else { Ok(paid) }
    };
    match guard.transact(&pool, &KeyRules::at_most_once(), &asked.intent(), work).await {
        Ok(ran) => HttpResponse::Created().body(ran.into_value()),
        Err(error) => HttpResponse::ServiceUnavailable().body(error.to_string()).effect(error.effect()),
    }
}

/// Number of runs of the failing handler.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

struct Shop {
    redis: RedisServer,
    database: PostgresServer,
    served: TestServer,
}

impl Shop {
    async fn open(mode: Mode) -> Self {
        let (redis, database) = (RedisServer::start(), PostgresServer::start());
        database.execute(TABLES).await;
        Sql::migrate(&database.url()).await.unwrap();
        let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(mode).build();
        let (url, runs) = (database.url(), Runs::default());
        let served = TestServer::run(move |listener| {
            let server = HttpServer::new(move || {
                let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
                let held = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
                let spaced = Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new());
                App::new()
                    .app_data(web::Data::new(runs.clone()))
                    .app_data(web::Data::new(guard.clone()))
                    .app_data(web::Data::new(PgPool::connect_lazy(&url).unwrap()))
                    .service(web::resource("/pay").wrap(protect).route(web::post().to(handle)))
                    .service(web::resource("/stumble").wrap(held).route(web::post().to(stumble)))
                    .service(web::resource("/spaced").wrap(spaced).route(web::post().to(handle)))
            });
            Ok(server.workers(1).listen(listener)?.run())
        });
        Self { redis, database, served }
    }

    async fn pay(&self, key: &str, amount: &'static str) -> Answer {
        send(http().post(format!("{}/pay", self.served.url)).header(KEY, key).body(amount)).await
    }
}

#[tokio::test]
async fn flushed_redis_causes_no_second_payment() {
    let shop = Shop::open(Mode::Enforce).await;
    let first = shop.pay("k", "10").await;
    assert_eq!((first.said().as_str(), &first.body[..]), ("201 executed", &b"paid 10"[..]));
    assert_eq!(shop.pay("k", "10").await.said(), "201 replayed", "from Redis");
    assert_eq!(shop.pay("k", "20").await.said(), "422 key_reused", "from Redis");

    shop.redis.ask::<()>("FLUSHALL");
    assert_eq!(shop.pay("k", "20").await.said(), "422 key_reused", "from the table");
    let again = shop.pay("k", "10").await;
    assert_eq!((again.status, &again.body), (first.status, &first.body), "from the table");
    assert_eq!(shop.pay("k", "10").await.said(), "201 replayed", "from Redis again");
    assert_eq!(figures(&shop.database).await, [1; 4]);
}

/// With *at most once* a 503 means an unknown outcome, unless the handler reports otherwise, as for a rolled-back transaction.
#[tokio::test]
async fn rolled_back_work_frees_an_at_most_once_key() {
    let shop = Shop::open(Mode::Enforce).await;
    let stumble = || send(http().post(format!("{}/stumble", shop.served.url)).header(KEY, "k"));
    assert_eq!(stumble().await.status, 503);
    assert_eq!(figures(&shop.database).await, [0; 4]);
    let second = stumble().await;
    assert_eq!((second.said().as_str(), &second.body[..]), ("201 executed", &b"paid 10"[..]));
    assert_eq!(stumble().await.said(), "201 replayed");
    assert_eq!(figures(&shop.database).await, [1; 4]);
}

#[tokio::test]
async fn route_without_a_key_is_rejected_unless_off() {
    let shop = Shop::open(Mode::Enforce).await;
    let spaced = |shop: &Shop| http().post(format!("{}/spaced", shop.served.url)).body("10");
    assert_eq!(send(spaced(&shop)).await.said(), "400 key_missing");

    let shop = Shop::open(Mode::Off).await;
    assert_eq!(send(spaced(&shop)).await.status, 201);
    assert_eq!(shop.pay("k", "10").await.status, 201);
    assert_eq!(figures(&shop.database).await, [2, 1, 0, 2]);
}
