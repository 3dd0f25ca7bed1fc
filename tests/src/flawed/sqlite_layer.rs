//! An idempotency layer on a SQLite file that uses the wall clock, and is otherwise as good as possible.

use actix_web::body::to_bytes;
use actix_web::rt;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use onceward_api::header::OUTCOME;
use sqlx::SqlitePool;

use crate::actix_handlers::{header, purchase};
use crate::key_routes::{KEY, PATIENT};
use crate::ledger::Ledger;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS claims (name TEXT PRIMARY KEY, reply BLOB, until REAL NOT NULL)";
const CLAIM: &str = "INSERT INTO claims AS old VALUES (?1, NULL, unixepoch('subsec') + ?2)
    ON CONFLICT DO UPDATE SET reply = NULL, until = excluded.until WHERE old.until <= unixepoch('subsec')";
const RENEW: &str = "UPDATE claims SET until = unixepoch('subsec') + ?2 WHERE name = ?1 AND reply IS NULL";
const COMPLETE: &str = "UPDATE claims SET reply = ?3, until = unixepoch('subsec') + ?2 WHERE name = ?1";
const THERE: &str = "SELECT reply FROM claims WHERE name = ?1";
/// Retention of a response in seconds.
const RETAIN: f64 = 600.0;

/// A layer with this flaw.
#[derive(Clone)]
pub struct WallClockLayer {
    pool: SqlitePool,
}

impl WallClockLayer {
    /// Its name on the command line.
    pub const NAME: &str = "jumped_clock";

    /// Opens the file and creates its table.
    ///
    /// # Errors
    /// If SQLite cannot open the file or create the table.
    pub async fn open(url: &str) -> sqlx::Result<Self> {
        let pool = SqlitePool::connect(url).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// The same routes as the shop's.
    pub fn routes(&self, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
        let (file, ledger) = (Data::new(self.clone()), Data::new(ledger.clone()));
        move |config| {
            config.app_data(file.clone()).app_data(ledger.clone()).route("/keyed/{path:.*}", web::post().to(submit));
        }
    }

    /// Claims the key. Otherwise returns the stored response, if there is one yet.
    async fn claim(&self, name: &str) -> sqlx::Result<Result<(), Option<Vec<u8>>>> {
        let claimed = sqlx::query(CLAIM).bind(name).bind(PATIENT.as_secs_f64()).execute(&self.pool).await?;
        match claimed.rows_affected() {
            0 => sqlx::query_scalar(THERE).bind(name).fetch_one(&self.pool).await.map(Err),
            _ => Ok(Ok(())),
        }
    }

    async fn keep_renewed(self, name: String) {
        loop {
            rt::time::sleep(PATIENT / 3).await;
            // If it fails, the next renewal follows.
            let _ = sqlx::query(RENEW).bind(&name).bind(PATIENT.as_secs_f64()).execute(&self.pool).await;
        }
    }
}

async fn submit(
    request: HttpRequest,
    file: Data<WallClockLayer>,
    ledger: Data<Ledger>,
    body: web::Bytes,
) -> HttpResponse {
    let Some(key) = header(&request, KEY) else { return HttpResponse::BadRequest().finish() };
    let name = format!("{}:{key}", request.path());
    match file.claim(&name).await {
        Ok(Ok(())) => {}
        Ok(Err(Some(reply))) => return HttpResponse::Ok().insert_header((OUTCOME, "replayed")).body(reply),
        Ok(Err(None)) => return HttpResponse::Conflict().insert_header((OUTCOME, "in_progress")).finish(),
        Err(_) => return HttpResponse::ServiceUnavailable().insert_header((OUTCOME, "store_unavailable")).finish(),
    }
    let renewal = rt::spawn(WallClockLayer::clone(&file).keep_renewed(name.clone()));
    let answer = purchase(request, ledger, body).await;
    renewal.abort();
    let reply = to_bytes(answer.into_body()).await.unwrap_or_default().to_vec();
    // A response that is not stored is not replayed.
    let _ = sqlx::query(COMPLETE).bind(&name).bind(RETAIN).bind(&reply).execute(&file.pool).await;
    HttpResponse::Ok().insert_header((OUTCOME, "executed")).body(reply)
}
