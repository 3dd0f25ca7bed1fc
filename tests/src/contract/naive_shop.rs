//! Contract shops whose middleware is naive: cases of the table must fail on them, otherwise the table proves nothing.
//!
//! All of them send each command once, and collect the whole response before they store it.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BoxBody, to_bytes};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderName, LINK, LOCATION};
use actix_web::middleware::Next;
use onceward_api::header::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, OUTCOME};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncTypedCommands as _, RedisResult};

use crate::shop_handlers::USER;

/// The flaw of a middleware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NaiveFlaw {
    /// Runs every request.
    RunsAlways,
    /// Sends GET, and SET after the handler.
    ExistsThenSet,
    /// Claims atomically, and removes the claim after every error.
    ReleasesEveryError,
    /// Claims the key alone, without the subject and the action.
    SharesKeys,
    /// Claims with a lease, and never renews it.
    NeverRenews,
    /// Claims without a lease, so that the claim of a crashed process stays. Nearly all others do the same.
    ClaimsForever,
    /// Runs the handler while its store is unavailable.
    FailsOpen,
    /// Frees the key if the client disconnects, which drops the handler.
    FreesKeyOnDisconnect,
    /// Frees the key if a streamed response breaks.
    FreesKeyOfBrokenStream,
}

impl NaiveFlaw {
    /// Every flaw, by its name on the command line.
    pub const ALL: [(&'static str, Self); 9] = [
        ("runs_always", Self::RunsAlways),
        ("exists_then_set", Self::ExistsThenSet),
        ("releases_every_error", Self::ReleasesEveryError),
        ("shares_keys", Self::SharesKeys),
        ("never_renews", Self::NeverRenews),
        ("claims_forever", Self::ClaimsForever),
        ("fails_open", Self::FailsOpen),
        ("frees_key_on_disconnect", Self::FreesKeyOnDisconnect),
        ("frees_key_of_broken_stream", Self::FreesKeyOfBrokenStream),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, flaw)| *flaw == self).map_or("", |(name, _)| name)
    }
}

/// A naive middleware.
#[derive(Clone)]
pub struct NaiveLayer {
    flaw: NaiveFlaw,
    redis: ConnectionManager,
    /// Life of a claim in milliseconds.
    lease: u64,
}

/// The value of a claim in flight.
const CLAIM: &str = "claim";
/// Retention of a response in seconds.
const RETAIN: u64 = 600;
/// Life of a claim that is never renewed, unless the shop has a setting for it.
const LEASE: Duration = Duration::from_secs(15);

impl NaiveLayer {
    /// Creates the middleware. It connects on the first command.
    pub fn open(flaw: NaiveFlaw, url: &str, lease: Option<Duration>) -> RedisResult<Self> {
        let redis = redis::Client::open(url)?.get_connection_manager_lazy(ConnectionManagerConfig::new())?;
        let life = match flaw {
            NaiveFlaw::NeverRenews => lease.unwrap_or(LEASE),
            _ => Duration::from_secs(RETAIN),
        };
        Ok(Self { flaw, redis, lease: life.as_millis() as u64 })
    }

    /// Runs a request, or replays the response of an earlier one.
    pub async fn pass(
        mut self,
        request: ServiceRequest,
        next: Next<BoxBody>,
    ) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
        let Some(key) = self.key_of(&request) else { return next.call(request).await.map(executed) };
        let known = match self.flaw {
            NaiveFlaw::ExistsThenSet => self.redis.get(&key).await,
            _ => self.claim(&key).await,
        };
        match known {
            Ok(Some(known)) => Ok(request.into_response(duplicate(&known))),
            Ok(None) => {
                let freed = (self.flaw == NaiveFlaw::FreesKeyOnDisconnect).then(|| self.frees(&key));
                let response = next.call(request).await?;
                freed.into_iter().for_each(FreedKey::keep);
                self.run(&key, response).await
            }
            Err(_) if self.flaw == NaiveFlaw::FailsOpen => next.call(request).await.map(executed),
            Err(_) => Ok(request.into_response(unavailable())),
        }
    }

    /// Returns the name of the claim, if the request has one.
    fn key_of(&self, request: &ServiceRequest) -> Option<String> {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let key = header(IDEMPOTENCY_KEY)?;
        match self.flaw {
            NaiveFlaw::RunsAlways => None,
            NaiveFlaw::SharesKeys => Some(key.to_owned()),
            _ => Some(format!("{} {} {key}", request.path(), header(USER).unwrap_or_default())),
        }
    }

    async fn claim(&mut self, key: &str) -> RedisResult<Option<String>> {
        let mut claim = redis::cmd("SET");
        claim.arg(key).arg(CLAIM).arg("PX").arg(self.lease).arg("NX").arg("GET");
        claim.query_async(&mut self.redis).await
    }

    /// Frees a key when it is dropped.
    fn frees(&self, key: &str) -> FreedKey {
        FreedKey(Some((self.redis.clone(), key.to_owned())))
    }

    /// Stores the response, or removes the claim if it is an error.
    async fn run(
        mut self,
        key: &str,
        response: ServiceResponse<BoxBody>,
    ) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
        let (request, response) = response.into_parts();
        let (head, body) = response.into_parts();
        let body = to_bytes(body).await;
        let (is_broken, body) = (body.is_err(), body.unwrap_or_default());
        let kept = head.headers().iter().filter(|(name, _)| [LOCATION, CONTENT_TYPE, LINK].contains(name));
        let kept = kept.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let stored = (head.status().as_u16(), kept.collect::<Vec<_>>(), body.to_vec());
        let stored = serde_json::to_string(&stored).expect("plain data");
        let written = match self.flaw {
            NaiveFlaw::ReleasesEveryError if head.status().as_u16() >= 400 => self.redis.del(key).await.map(drop),
            NaiveFlaw::FreesKeyOfBrokenStream if is_broken => self.redis.del(key).await.map(drop),
            _ => self.redis.set_ex(key, stored, RETAIN).await,
        };
        if written.is_err() {
            return Ok(ServiceResponse::new(request, unavailable()));
        }
        Ok(executed(ServiceResponse::new(request, head.set_body(BoxBody::new(body)))))
    }
}

/// A key that is freed when this is dropped.
struct FreedKey(Option<(ConnectionManager, String)>);

impl FreedKey {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for FreedKey {
    fn drop(&mut self) {
        if let Some((mut redis, key)) = self.0.take() {
            actix_web::rt::spawn(async move { redis.del(key).await });
        }
    }
}

fn executed(mut response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let outcome = match response.status().as_u16() {
        ..400 => "executed",
        500.. => "unknown",
        _ => "not_applied",
    };
    response.headers_mut().insert(HeaderName::from_static(OUTCOME), outcome.parse().expect("a header value"));
    response
}

fn unavailable() -> HttpResponse {
    HttpResponse::ServiceUnavailable().insert_header((OUTCOME, "store_unavailable")).finish()
}

fn duplicate(known: &str) -> HttpResponse {
    let Ok((status, headers, body)) = serde_json::from_str::<(u16, Vec<(String, String)>, Vec<u8>)>(known) else {
        return HttpResponse::Conflict().insert_header((OUTCOME, "in_progress")).finish();
    };
    let mut response = HttpResponse::build(StatusCode::from_u16(status).unwrap_or_default());
    response.insert_header((OUTCOME, "replayed")).insert_header((IDEMPOTENT_REPLAYED, "true"));
    for header in headers {
        response.append_header(header);
    }
    response.body(body)
}
