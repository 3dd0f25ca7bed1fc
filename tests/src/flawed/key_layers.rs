//! Idempotency layers that replay the first response, each with the one flaw of a row of the museum.

use std::time::Duration;

use actix_web::body::to_bytes;
use actix_web::http::StatusCode;
use actix_web::rt;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use onceward_api::header::OUTCOME;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncTypedCommands as _, RedisResult, Script};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::actix_handlers::{block, header, purchase};
use crate::charging_app::charge;
use crate::key_routes::{BRIEF, KEY, LEASE};
use crate::ledger::Ledger;

/// The flaw of an idempotency layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFlaw {
    /// Does not renew its lease, so another request takes over from a live owner.
    LiveOrphan,
    /// Renews its lease on the thread that the handler runs on.
    RenewedInside,
    /// Claims for the whole retention, so retries receive 409 for that long after a crash.
    Forever409,
    /// Deletes the claim when it is done, even if another run owns it by then.
    StolenClaim,
    /// Runs the handler in the connection's task, which is cancelled when the client disconnects.
    CancelledRecord,
    /// Responds with 500 and releases the key if it cannot store a response.
    EffectThen500,
    /// Does not store a response that is too large, and releases the key.
    BigAnswer,
    /// Uses the whole Authorization header as the subject.
    TokenRefresh,
    /// Identifies a key without the path of the request.
    OtherOrder,
    /// Treats a 400 that the handler forwards as a malformed request, and releases the key.
    PassedOnError,
    /// Identifies a key by the raw path, which can be percent-encoded in many ways.
    PercentEncodedPath,
    /// Releases every claim that timed out, each with its own command, and retries that without backoff.
    RetryStorm,
}

impl KeyFlaw {
    /// Every flaw, by its name on the command line.
    pub const ALL: [(&'static str, Self); 12] = [
        ("live_orphan", Self::LiveOrphan),
        ("renewed_inside", Self::RenewedInside),
        ("forever_409", Self::Forever409),
        ("stolen_claim", Self::StolenClaim),
        ("cancelled_record", Self::CancelledRecord),
        ("effect_then_500", Self::EffectThen500),
        ("big_answer", Self::BigAnswer),
        ("token_refresh", Self::TokenRefresh),
        ("other_order", Self::OtherOrder),
        ("passed_on_error", Self::PassedOnError),
        ("percent_encoded_path", Self::PercentEncodedPath),
        ("retry_storm", Self::RetryStorm),
    ];
}

/// Retention of a response in seconds.
const RETAIN: u64 = 600;
/// Redis timeout of the retry storm.
const PATIENCE: Duration = Duration::from_millis(250);
/// Maximum size of a stored response.
const LIMIT: usize = 1024 * 1024;

/// Replaces only its own claim.
const COMPLETE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1";
/// Removes only its own claim.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])";
/// Renews only its own claim.
const RENEW: &str =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// An idempotency layer with one flaw.
#[derive(Clone)]
pub struct NaiveKeyLayer {
    flaw: KeyFlaw,
    redis: ConnectionManager,
}

/// A run in flight.
struct Run {
    naive: NaiveKeyLayer,
    name: String,
    owner: String,
    renewal: Option<JoinHandle<()>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.renewal.iter().for_each(JoinHandle::abort);
    }
}

impl NaiveKeyLayer {
    /// Creates the layer. It connects on the first command.
    pub fn open(flaw: KeyFlaw, url: &str) -> RedisResult<Self> {
        let redis = redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?;
        Ok(Self { flaw, redis })
    }

    /// The same routes as the shop's.
    pub fn routes(&self, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
        let (naive, ledger) = (Data::new(self.clone()), Data::new(ledger.clone()));
        move |config| {
            config.app_data(naive.clone()).app_data(ledger.clone()).route("/keyed/{path:.*}", web::post().to(submit));
        }
    }

    /// Returns the name of a request's claim in Redis.
    fn name(&self, request: &HttpRequest) -> Option<String> {
        let key = header(request, KEY)?;
        let path = match self.flaw {
            KeyFlaw::OtherOrder => "",
            KeyFlaw::PercentEncodedPath => request.path(),
            // As the router has decoded it.
            _ => request.match_info().as_str(),
        };
        let caller = header(request, "authorization").unwrap_or_default();
        let caller = if self.flaw == KeyFlaw::TokenRefresh { Some(caller) } else { caller.split('.').next() };
        Some(format!("naive:{}:{path}:{key}", caller.unwrap_or_default()))
    }

    /// Claims the key. Returns the existing record if there is one.
    async fn claim(&self, name: &str, owner: &str, lease: Duration) -> RedisResult<Option<String>> {
        let life = if self.flaw == KeyFlaw::Forever409 { Duration::from_secs(RETAIN) } else { lease };
        let mut claim = redis::cmd("SET");
        claim.arg(name).arg(owner).arg("PX").arg(life.as_millis() as u64).arg("NX").arg("GET");
        claim.query_async(&mut self.redis.clone()).await
    }

    async fn script(&self, text: &str, name: &str, arguments: &[&str]) -> RedisResult<()> {
        Script::new(text).key(name).arg(arguments).invoke_async(&mut self.redis.clone()).await
    }

    /// Removes a claim, with retries until Redis replies in time.
    async fn insist(self, name: String, owner: String) {
        while !matches!(timeout(PATIENCE, self.script(RELEASE, &name, &[&owner])).await, Ok(Ok(()))) {
            tokio::time::sleep(PATIENCE).await;
        }
    }

    fn renew(&self, name: &str, owner: &str, lease: Duration) -> Option<JoinHandle<()>> {
        if self.flaw == KeyFlaw::LiveOrphan {
            return None;
        }
        let (naive, name, owner) = (self.clone(), name.to_owned(), owner.to_owned());
        let renewal = async move {
            loop {
                tokio::time::sleep(lease / 3).await;
                // The next renewal comes before the lease expires.
                let _ = naive.script(RENEW, &name, &[&owner, &lease.as_millis().to_string()]).await;
            }
        };
        Some(rt::spawn(renewal))
    }
}

impl Run {
    /// Runs the handler, stores its response and returns it.
    async fn finish(self, request: HttpRequest, ledger: Data<Ledger>, body: web::Bytes) -> HttpResponse {
        let answer = match request.path() {
            "/keyed/block" => block(request, ledger).await,
            "/keyed/charge" => charge(request).await.unwrap_or_else(HttpResponse::from_error),
            _ => purchase(request, ledger, body).await,
        };
        let status = answer.status();
        let body = to_bytes(answer.into_body()).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let written = match status.as_u16() {
            500.. => self.free().await,
            400 | 413 if self.naive.flaw == KeyFlaw::PassedOnError => self.free().await,
            _ if body.len() > LIMIT && self.naive.flaw == KeyFlaw::BigAnswer => self.free().await,
            _ if body.len() > LIMIT => self.write("done:409:").await,
            code => self.write(&format!("done:{code}:{text}")).await,
        };
        if written.is_err() && self.naive.flaw == KeyFlaw::EffectThen500 {
            // The store is back soon, and then the claim is removed.
            while self.free().await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            return HttpResponse::InternalServerError().finish();
        }
        HttpResponse::build(status).insert_header((OUTCOME, "executed")).body(body)
    }

    async fn write(&self, reply: &str) -> RedisResult<()> {
        self.naive.script(COMPLETE, &self.name, &[&self.owner, reply, &RETAIN.to_string()]).await
    }

    async fn free(&self) -> RedisResult<()> {
        if self.naive.flaw == KeyFlaw::StolenClaim {
            return self.naive.redis.clone().del(&self.name).await.map(drop);
        }
        self.naive.script(RELEASE, &self.name, &[&self.owner]).await
    }
}

async fn submit(
    request: HttpRequest,
    naive: Data<NaiveKeyLayer>,
    ledger: Data<Ledger>,
    body: web::Bytes,
) -> HttpResponse {
    let Some(name) = naive.name(&request) else { return HttpResponse::BadRequest().finish() };
    let is_brief = ["/keyed/brief", "/keyed/block"].contains(&request.path());
    let (owner, lease) = (format!("run:{}", uuid::Uuid::new_v4()), if is_brief { BRIEF } else { LEASE });
    let unavailable = || HttpResponse::ServiceUnavailable().insert_header((OUTCOME, "store_unavailable")).finish();
    let claim = naive.claim(&name, &owner, lease);
    let claimed = match naive.flaw {
        KeyFlaw::RetryStorm => match timeout(PATIENCE, claim).await {
            Ok(claimed) => claimed,
            Err(_) => {
                rt::spawn(naive.as_ref().clone().insist(name, owner));
                return unavailable();
            }
        },
        _ => claim.await,
    };
    match claimed {
        Ok(None) => {}
        Ok(Some(there)) => return duplicate(&there),
        Err(_) => return unavailable(),
    }
    let renewal = naive.renew(&name, &owner, lease);
    let run = Run { naive: naive.as_ref().clone(), name, owner, renewal };
    if naive.flaw == KeyFlaw::CancelledRecord {
        return run.finish(request, ledger, body).await;
    }
    rt::spawn(run.finish(request, ledger, body)).await.unwrap_or_else(|_| HttpResponse::InternalServerError().finish())
}

fn duplicate(there: &str) -> HttpResponse {
    let mut pieces = there.splitn(3, ':');
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some("done"), Some(code), Some(body)) => {
            let status = StatusCode::from_bytes(code.as_bytes()).unwrap_or_default();
            HttpResponse::build(status).insert_header((OUTCOME, "replayed")).body(body.to_owned())
        }
        _ => HttpResponse::Conflict().insert_header((OUTCOME, "in_progress")).finish(),
    }
}
