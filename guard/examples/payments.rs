//! A payment that is committed together with its record: `cargo run -p onceward --example payments --features actix,sql`.
//!
//! The guard's store is in memory and loses its data when the program stops. The table does not: start the program again, send the same
//! payment, and the response is the same.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use onceward::actix::{MarkEffect as _, Protect, RequestIntent, SubjectFrom, entered, reject, serve};
use onceward::store::{Memory, Sql};
use onceward::transaction::{TxHandle, keep_clean};
use onceward::{Guard, KeyRules, RunError};
use sqlx::{Sqlite, SqlitePool};

const DATABASE: &str = "sqlite:payments.db";

async fn pay(
    request: HttpRequest,
    asked: RequestIntent,
    guard: web::Data<Guard>,
    pool: web::Data<SqlitePool>,
) -> HttpResponse {
    let work = |mut transaction: TxHandle<Sqlite>| async move {
        sqlx::query("INSERT INTO payments (amount) VALUES (10)").execute(&mut *transaction).await?;
        let number: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut *transaction).await?;
        Ok::<_, sqlx::Error>(format!("paid, as number {number}\n"))
    };
    match guard.transact(&pool, &KeyRules::retryable(), &asked.intent(), work).await {
        Ok(ran) => HttpResponse::Created().body(ran.into_value()),
        Err(RunError::Rejected(rejection)) => reject(&request, &guard, &rejection),
        // The transaction was rolled back, so the client may retry at once, or the outcome is unknown.
        Err(error) => HttpResponse::ServiceUnavailable().body(format!("{error}\n")).effect(error.effect()),
    }
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Sql::migrate(DATABASE).await?;
    let pool = SqlitePool::connect(DATABASE).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)").execute(&pool).await?;
    let cleaned = pool.clone();
    actix_web::rt::spawn(async move { keep_clean(&cleaned).await });

    let guard = Guard::new(Memory::new());
    let (shared, pool) = (web::Data::new(guard.clone()), web::Data::new(pool));
    let server = HttpServer::new(move || {
        // Retryable is safe here: the payment and its record are committed in one transaction. After a crash a retry runs the handler
        // again, and `transact` finds the record if the first run was committed. A handler that pays outside of the transaction needs
        // `at_most_once`.
        let protect = Protect::key(&shared, SubjectFrom::anonymous(), KeyRules::retryable());
        let route = web::resource("/payments").wrap(protect).route(web::post().to(entered(pay)));
        App::new().app_data(shared.clone()).app_data(pool.clone()).service(route)
    });
    let server = server.bind(("127.0.0.1", 8080))?;
    println!("curl -X POST -H 'Idempotency-Key: order-4711' http://127.0.0.1:8080/payments");
    Ok(serve(server, &guard).await?)
}
