use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;

use actix_web::dev::Payload;
use actix_web::error::InternalError;
use actix_web::http::header::{ACCEPT, HeaderValue};
use actix_web::{Error, FromRequest, HttpMessage as _, HttpRequest, HttpResponse};
use onceward_api::Code;

use super::super::middleware::{RouteRules, guarded};
use super::ExtractorError;
use crate::fingerprint::Fingerprint;
use crate::http::GuardResponse;
use crate::http::GuardedRequest;
use crate::intent::Intent;
use crate::key::Key;
use crate::mode::Mode;
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::subject::Subject;

/// The intent of a request with a key, as [`Protect`](crate::actix::Protect) has read it, for a handler that runs its work in a
/// transaction with `Guard::transact` (feature `sql`).
///
/// The guard's store is then the fast path to a response, and the table next to the business rows is the source of truth. If the store
/// is flushed, or fails over to a replica that lags behind, the handler runs again, finds in the table that the work was done, and
/// reads its result:
///
/// ```
/// # #[cfg(feature = "sql")] {
/// use actix_web::{HttpRequest, HttpResponse, web};
/// use onceward::actix::{RequestIntent, reject};
/// use onceward::transaction::TxHandle;
/// use onceward::{Guard, KeyRules, RunError};
/// use sqlx::{Postgres, PgPool};
///
/// async fn pay(
///     request: HttpRequest,
///     intent: RequestIntent,
///     guard: web::Data<Guard>,
///     pool: web::Data<PgPool>,
/// ) -> HttpResponse {
///     let work = |mut transaction: TxHandle<Postgres>| async move {
///         sqlx::query("INSERT INTO payments VALUES (10)").execute(&mut *transaction).await?;
///         Ok::<_, sqlx::Error>("paid".to_owned())
///     };
///     match guard.transact(&pool, &KeyRules::at_most_once(), &intent.intent(), work).await {
///         Ok(ran) => HttpResponse::Created().body(ran.into_value()),
///         Err(RunError::Rejected(rejection)) => reject(&request, &guard, &rejection),
///         Err(_) => HttpResponse::ServiceUnavailable().finish(),
///     }
/// }
/// # }
/// ```
///
/// On a route without a key the intent has none, and `transact` rejects with `key_missing`. If [`Protect`](crate::actix::Protect) does
/// not check the request, because it is [off](crate::Mode::Off), or because the key is optional and missing, the intent has the subject
/// and the action of the route and no key; with a guard that is off `transact` runs nevertheless.
///
/// Without a `Protect` around the handler the subject is unknown. Then the client receives a 500 `internal`, and the log names the fix.
/// The same applies to GET, HEAD and OPTIONS, which `Protect` does not read.
///
/// [`Guard::run`](crate::Guard::run) and [`Guard::check`](crate::Guard::check) would store their claim in the guard's store, where
/// `Protect` already holds the same claim: they are rejected with `internal`, and the log names the reason.
#[derive(Clone)]
pub struct RequestIntent {
    action: String,
    subject: Subject<'static>,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    run: Option<RunId>,
}

impl RequestIntent {
    /// Creates the intent of a request that one or more guards have admitted.
    fn of_checked(request: &GuardedRequest) -> Self {
        let guarded = request.with_run();
        let parsed = guarded.parsed();
        Self {
            action: parsed.action().to_owned(),
            subject: parsed.subject().clone(),
            key: parsed.key().cloned(),
            fingerprint: parsed.fingerprint(),
            run: guarded.run(),
        }
    }

    /// Creates the intent of a request that no guard has checked, from its head alone.
    fn of_unchecked(rules: &RouteRules, request: &HttpRequest) -> Result<Self, Rejection> {
        let subject = match (rules.subject.resolve(request), rules.route.guard.mode()) {
            (Ok(subject), _) => subject,
            (Err(rejection), Mode::Enforce) => return Err(rejection),
            // Without enforcement the subject has no effect, and the client must not notice the guard.
            (Err(_), Mode::Observe | Mode::Off) => Subject::anonymous(),
        };
        Ok(Self { action: rules.reader.action(request), subject, key: None, fingerprint: None, run: None })
    }

    /// Returns the intent.
    pub fn intent(&self) -> Intent<'_> {
        let mut intent = Intent::new(&self.action, self.subject.borrowed());
        intent.key = self.key.as_ref();
        intent.fingerprint = self.fingerprint;
        intent.within = self.run;
        intent
    }
}

/// The rules of a route that lets a request through unchecked.
struct UncheckedRoute(Rc<RouteRules>);

/// Attaches the rules of the route to a request that is let through unchecked, so that its handler can still extract the subject.
pub(in crate::actix) fn leave_rules(rules: &Rc<RouteRules>, request: &HttpRequest) {
    request.extensions_mut().insert(UncheckedRoute(Rc::clone(rules)));
}

impl FromRequest for RequestIntent {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        if let Some(guarded) = guarded(request) {
            return ready(Ok(Self::of_checked(&guarded)));
        }
        let rules = request.extensions().get::<UncheckedRoute>().map(|route| Rc::clone(&route.0));
        let intent = match rules {
            Some(rules) => Self::of_unchecked(&rules, request),
            None => Err(outside(request)),
        };
        ready(intent.map_err(|rejection| error(request, &rejection)))
    }
}

/// Reports that no guard has read the request. Without a subject, the requests of all clients would count as one client's.
fn outside(request: &HttpRequest) -> Rejection {
    tracing::error!(
        target: "onceward::actix",
        method = %request.method(),
        route = request.match_pattern().unwrap_or_default(),
        "a handler extracts RequestIntent from a request that no Protect has read; wrap its route in Protect, which reads every \
         method but GET, HEAD and OPTIONS"
    );
    Rejection::new(Code::Internal)
}

fn error(request: &HttpRequest, rejection: &Rejection) -> Error {
    let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes);
    let response = HttpResponse::from(GuardResponse::without_guard(rejection, request.uri().path(), accept));
    ExtractorError::new(InternalError::from_response("no intent", response)).into()
}

impl fmt::Debug for RequestIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.intent(), f)
    }
}
