//! Naive implementations, each with the one flaw of a row of the museum and otherwise as good as possible. Each museum test
//! must fail on its naive implementation: otherwise it proves nothing about Onceward.

mod clients;
mod consumers;
mod key_layers;
mod memory_layer;
mod sqlite_layer;

use std::time::Duration;

use actix_web::body::to_bytes;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncTypedCommands as _, RedisError, RedisResult, Script};
use serde_json::{Value, json};

pub use self::clients::{CarelessClient, ClientFlaw};
pub use self::consumers::HastyConsumer;
pub use self::key_layers::{KeyFlaw, NaiveKeyLayer};
pub use self::memory_layer::MemoryLayer;
pub use self::sqlite_layer::WallClockLayer;
use crate::actix_handlers::{header, order, purchase};
use crate::interval_routes::HALF;
use crate::ledger::Ledger;

/// The flaw of a token implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Checks that the token is unused, then marks it as used in a second command.
    CheckThenSet,
    /// Sends EXISTS, then DEL, and ignores the result of DEL.
    ExistsThenDel,
    /// Sends SET, then EXPIRE.
    SetThenExpire,
    /// Uses the client's string as the Redis key.
    RawKey,
    /// Ignores a store error and issues a token that was never stored.
    SwallowedIssue,
    /// Does not give the token back after a validation error.
    BurnedToken,
    /// Retries DEL after a lost reply, and treats 0 as a duplicate.
    LostReply,
    /// Retries the put-back after a lost reply.
    RevivedToken,
    /// Has no attempts: every retry is a duplicate.
    NoAttempts,
    /// Stores the mark of an attempt or a run in the token, while other routes treat any token that they can delete as unused.
    SpentElsewhere,
    /// Releases by the attempt's name alone, so a late release also releases a later redeem.
    ReleaseByName,
    /// Rounds an interval down to whole seconds.
    SubSecondInterval,
}

impl Flaw {
    /// Every flaw, by its name on the command line.
    pub const ALL: [(&'static str, Self); 12] = [
        ("check_then_set", Self::CheckThenSet),
        ("exists_then_del", Self::ExistsThenDel),
        ("set_then_expire", Self::SetThenExpire),
        ("raw_key", Self::RawKey),
        ("swallowed_issue", Self::SwallowedIssue),
        ("burned_token", Self::BurnedToken),
        ("lost_reply", Self::LostReply),
        ("revived_token", Self::RevivedToken),
        ("no_attempts", Self::NoAttempts),
        ("spent_elsewhere", Self::SpentElsewhere),
        ("release_by_name", Self::ReleaseByName),
        ("sub_second_interval", Self::SubSecondInterval),
    ];
}

/// A shop with a flaw.
#[derive(Clone)]
pub struct FlawedShop {
    flaw: Flaw,
    redis: ConnectionManager,
}

impl FlawedShop {
    /// Creates the shop. It connects on the first command.
    pub fn open(flaw: Flaw, url: &str) -> RedisResult<Self> {
        let redis = redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?;
        Ok(Self { flaw, redis })
    }

    /// The same routes as the shop's.
    pub fn routes(&self, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
        let (flawed, ledger) = (Data::new(self.clone()), Data::new(ledger.clone()));
        move |config| {
            config
                .app_data(flawed.clone())
                .app_data(ledger.clone())
                .route("/token", web::post().to(issue))
                .route("/token/redeem", web::post().to(redeem))
                .route("/token/release", web::post().to(release))
                .route("/orders", web::post().to(submit))
                .route("/remembered/orders", web::post().to(remembering))
                .route("/spaced/half", web::post().to(spacing));
        }
    }

    fn key(&self, token: &str) -> String {
        if self.flaw == Flaw::RawKey { token.to_owned() } else { format!("flawed:{token}") }
    }

    async fn put(&self, token: &str) -> RedisResult<()> {
        let (mut redis, key) = (self.redis.clone(), self.key(token));
        match self.flaw {
            Flaw::SetThenExpire => {
                redis.set(&key, "unused").await?;
                redis.expire(&key, 600).await.map(drop)
            }
            Flaw::SwallowedIssue => {
                let _ = redis.set_ex(&key, "unused", 600).await;
                Ok(())
            }
            _ => redis.set_ex(&key, "unused", 600).await,
        }
    }

    /// Returns true if the submission may run.
    async fn enter(&self, token: &str) -> RedisResult<bool> {
        let (mut redis, key) = (self.redis.clone(), self.key(token));
        match self.flaw {
            Flaw::CheckThenSet => {
                let is_unused = redis.get(&key).await?.as_deref() == Some("unused");
                if is_unused {
                    redis.set_ex(&key, "used", 600).await?;
                }
                Ok(is_unused)
            }
            Flaw::ExistsThenDel => {
                let exists = redis.exists(&key).await?;
                if exists {
                    redis.del(&key).await?;
                }
                Ok(exists)
            }
            Flaw::LostReply => Ok(insist(|| async { redis.clone().del(&key).await }).await? == 1),
            _ => Ok(redis.del(&key).await? == 1),
        }
    }

    /// Redeems a token, by an attempt if the request names one. Returns true if the caller may use the token.
    async fn redeem(&self, asked: &Value) -> RedisResult<bool> {
        let token = asked["token"].as_str().unwrap_or_default();
        match asked["attempt"].as_str() {
            Some(attempt) if [Flaw::SpentElsewhere, Flaw::ReleaseByName].contains(&self.flaw) => {
                self.mark(token, attempt).await
            }
            _ => self.enter(token).await,
        }
    }

    async fn mark(&self, token: &str, attempt: &str) -> RedisResult<bool> {
        let mark = Script::new(
            "local there = redis.call('GET', KEYS[1])
            if there == 'unused' then redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL') end
            return there == 'unused' or there == ARGV[1]",
        );
        mark.key(self.key(token)).arg(format!("used by {attempt}")).invoke_async(&mut self.redis.clone()).await
    }

    /// Releases a token that an attempt of this name has redeemed. Returns true if the token is valid again.
    async fn unmark(&self, token: &str, attempt: &str) -> RedisResult<bool> {
        let unmark = Script::new(
            "local there = redis.call('GET', KEYS[1])
            if there == ARGV[1] then redis.call('SET', KEYS[1], 'unused', 'KEEPTTL') end
            return there == 'unused' or there == ARGV[1]",
        );
        unmark.key(self.key(token)).arg(format!("used by {attempt}")).invoke_async(&mut self.redis.clone()).await
    }

    /// Claims a token for this run. Returns the existing record if the token is not free.
    async fn claim(&self, token: &str) -> RedisResult<Option<String>> {
        let claim = Script::new(
            "local there = redis.call('GET', KEYS[1])
            if there == 'unused' then redis.call('SET', KEYS[1], 'running', 'KEEPTTL') return false end
            return there or 'gone'",
        );
        let claim = || async { claim.key(self.key(token)).invoke_async(&mut self.redis.clone()).await };
        if self.flaw == Flaw::LostReply { insist(claim).await } else { claim().await }
    }

    /// Returns true if no interval of this name is running, and starts one.
    async fn is_over(&self, what: &str, every: Duration) -> RedisResult<bool> {
        let claim = Script::new(
            "local is_new = redis.call('SETNX', KEYS[1], '')
            if is_new == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
            return is_new == 1",
        );
        let seconds = every.as_secs();
        claim.key(format!("flawed:{what}")).arg(seconds).invoke_async(&mut self.redis.clone()).await
    }

    /// Makes the token valid again after a run without effect.
    async fn put_back(&self, token: &str) -> RedisResult<()> {
        match self.flaw {
            Flaw::BurnedToken => Ok(()),
            Flaw::RevivedToken => insist(|| self.put(token)).await,
            _ => self.put(token).await,
        }
    }
}

/// Time before a retry, long enough for another request to use the token in between.
const REPEATED_AFTER: Duration = Duration::from_millis(800);

/// Retries a command once if its reply was lost.
async fn insist<T, F: Future<Output = Result<T, RedisError>>>(send: impl Fn() -> F) -> RedisResult<T> {
    match send().await {
        Err(error) if error.is_connection_dropped() || error.is_timeout() => {
            actix_web::rt::time::sleep(REPEATED_AFTER).await;
            send().await
        }
        answer => answer,
    }
}

async fn issue(flawed: Data<FlawedShop>) -> HttpResponse {
    let token = uuid::Uuid::new_v4().to_string();
    match flawed.put(&token).await {
        Ok(()) => HttpResponse::Created()
            .json(json!({"token": token, "expires_at": "2030-01-01T00:00:00Z", "expires_in": 600})),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

async fn redeem(flawed: Data<FlawedShop>, asked: web::Json<Value>) -> HttpResponse {
    let outcome = onceward_api::header::OUTCOME;
    match flawed.redeem(&asked).await {
        Ok(true) => HttpResponse::Ok().insert_header((outcome, "redeemed")).finish(),
        Ok(false) => HttpResponse::Conflict().insert_header((outcome, "token_used")).finish(),
        Err(_) => HttpResponse::ServiceUnavailable().insert_header((outcome, "store_unavailable")).finish(),
    }
}

async fn release(flawed: Data<FlawedShop>, asked: web::Json<Value>) -> HttpResponse {
    let [token, attempt] = ["token", "attempt"].map(|name| asked[name].as_str().unwrap_or_default());
    match flawed.unmark(token, attempt).await {
        Ok(true) => HttpResponse::NoContent().finish(),
        Ok(false) => HttpResponse::Conflict().finish(),
        Err(_) => HttpResponse::ServiceUnavailable().finish(),
    }
}

/// Replays the first response, with the flaw.
async fn remembering(
    request: HttpRequest,
    flawed: Data<FlawedShop>,
    ledger: Data<Ledger>,
    body: web::Bytes,
) -> HttpResponse {
    let outcome = onceward_api::header::OUTCOME;
    let Some(token) = header(&request, onceward_api::header::TOKEN).map(str::to_owned) else {
        return HttpResponse::BadRequest().finish();
    };
    match flawed.claim(&token).await {
        Ok(None) => {}
        Ok(Some(there)) => {
            return match there.strip_prefix("done:") {
                Some(reply) => HttpResponse::Ok().insert_header((outcome, "replayed")).body(reply.to_owned()),
                None => HttpResponse::Conflict().insert_header((outcome, "token_used")).finish(),
            };
        }
        Err(_) => return HttpResponse::ServiceUnavailable().insert_header((outcome, "store_unavailable")).finish(),
    }
    let answer = purchase(request, ledger, body).await;
    let reply = to_bytes(answer.into_body()).await.unwrap_or_default();
    let done = format!("done:{}", String::from_utf8_lossy(&reply));
    // A response that is not stored is not replayed.
    let _ = flawed.redis.clone().set_ex(flawed.key(&token), done, 600).await;
    HttpResponse::Ok().insert_header((outcome, "executed")).body(reply)
}

async fn spacing(
    request: HttpRequest,
    flawed: Data<FlawedShop>,
    ledger: Data<Ledger>,
    body: web::Bytes,
) -> HttpResponse {
    let outcome = onceward_api::header::OUTCOME;
    match flawed.is_over(request.path(), HALF).await {
        Ok(true) => order(request, ledger, body).await,
        Ok(false) => HttpResponse::Conflict().insert_header((outcome, "too_soon")).finish(),
        Err(_) => HttpResponse::ServiceUnavailable().insert_header((outcome, "store_unavailable")).finish(),
    }
}

async fn submit(
    request: HttpRequest,
    flawed: Data<FlawedShop>,
    ledger: Data<Ledger>,
    body: web::Bytes,
) -> HttpResponse {
    let outcome = onceward_api::header::OUTCOME;
    let Some(token) = header(&request, onceward_api::header::TOKEN).map(str::to_owned) else {
        return HttpResponse::BadRequest().finish();
    };
    match flawed.enter(&token).await {
        Ok(true) => {}
        Ok(false) => return HttpResponse::Conflict().insert_header((outcome, "token_used")).finish(),
        Err(_) => return HttpResponse::ServiceUnavailable().insert_header((outcome, "redeem_unknown")).finish(),
    }
    let answer = order(request, ledger, body).await;
    if answer.status().is_client_error() {
        // It runs in the background, as in a client library that retries commands.
        actix_web::rt::spawn(async move { flawed.put_back(&token).await });
        actix_web::rt::time::sleep(Duration::from_millis(50)).await;
    }
    answer
}
