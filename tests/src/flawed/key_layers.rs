//! Layers that give the first answer again, each with the one flaw that its row of the museum tells of.

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

use crate::charging_app::charge;
use crate::key_routes::{BRIEF, KEY, LEASE, purchase};
use crate::ledger::Ledger;
use crate::shop::{block, header};

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFlaw {
    /// A lease that nobody renews: a live owner is taken over.
    LiveOrphan,
    /// It renews its lease from the thread that the handler runs on.
    RenewedInside,
    /// It claims for as long as it keeps an answer, so that a crash is told as 409 for that long.
    Forever409,
    /// It deletes the claim when it is done, whosever it is by then.
    StolenClaim,
    /// It runs with the connection, and dies with it.
    CancelledRecord,
    /// It sends 500 and frees the key if it cannot write down an answer.
    EffectThen500,
    /// It does not keep what is too large, and frees the key.
    BigAnswer,
    /// It takes the Authorization header for whoever is asking.
    TokenRefresh,
    /// It knows a key without the path it was sent to.
    OtherOrder,
    /// It takes an error that looks like one of a broken request for one, and frees the key.
    PassedOnError,
    /// It knows a key by the path as it was sent, which can be percent-encoded in many ways.
    PercentEncodedPath,
    /// It takes back every claim whose answer is late, each by itself, as often as the answer to that is late too.
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

/// How long an answer is kept, in seconds.
const RETAIN: u64 = 600;
/// How long it waits for its Redis where it waits for a while only.
const PATIENCE: Duration = Duration::from_millis(250);
/// How large an answer is kept.
const LIMIT: usize = 1024 * 1024;

/// Writes over the own claim only.
const COMPLETE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1";
/// Removes the own claim only.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])";
/// Prolongs the own claim only.
const RENEW: &str =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// An idempotency layer with one flaw.
#[derive(Clone)]
pub struct NaiveKeyLayer {
    flaw: KeyFlaw,
    redis: ConnectionManager,
}

/// A run that has begun.
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
    /// Connects when it is first asked something.
    pub fn open(flaw: KeyFlaw, url: &str) -> RedisResult<Self> {
        let redis = redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?;
        Ok(Self { flaw, redis })
    }

    /// Its routes, of the same form as the shop's.
    pub fn routes(&self, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
        let (naive, ledger) = (Data::new(self.clone()), Data::new(ledger.clone()));
        move |config| {
            config.app_data(naive.clone()).app_data(ledger.clone()).route("/keyed/{path:.*}", web::post().to(submit));
        }
    }

    /// What the key is known by.
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

    /// Claims; otherwise gives what is there.
    async fn claim(&self, name: &str, owner: &str, lease: Duration) -> RedisResult<Option<String>> {
        let life = if self.flaw == KeyFlaw::Forever409 { Duration::from_secs(RETAIN) } else { lease };
        let mut claim = redis::cmd("SET");
        claim.arg(name).arg(owner).arg("PX").arg(life.as_millis() as u64).arg("NX").arg("GET");
        claim.query_async(&mut self.redis.clone()).await
    }

    async fn script(&self, text: &str, name: &str, arguments: &[&str]) -> RedisResult<()> {
        Script::new(text).key(name).arg(arguments).invoke_async(&mut self.redis.clone()).await
    }

    /// Removes a claim, again and again until that is answered in time.
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
                // It is tried again before the lease is over.
                let _ = naive.script(RENEW, &name, &[&owner, &lease.as_millis().to_string()]).await;
            }
        };
        Some(rt::spawn(renewal))
    }
}

impl Run {
    /// Runs the handler, writes down its answer, and gives it.
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
            // The store is back in a moment, and then nothing is left of it.
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
