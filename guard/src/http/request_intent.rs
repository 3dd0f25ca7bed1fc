//! The intent of a request, for its handler.

use std::fmt;
use std::sync::Arc;

use onceward_api::Code;

use super::framework::Framework;
use super::guarded_request::GuardedRequest;
use super::request::RequestHead as _;
use super::response::GuardResponse;
use super::route_rules::RouteRules;
use crate::fingerprint::Fingerprint;
use crate::intent::Intent;
use crate::key::Key;
use crate::mode::Mode;
use crate::rejection::Rejection;
use crate::run_id::RunId;
use crate::subject::Subject;

/// The intent of a request with a key, as [`Protect`](super::Protect) has read it, for a handler that runs its work in a
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
/// On axum the handler extracts `http::request::Parts`, and [`axum::reject`](crate::axum::reject) takes them in place of the request.
///
/// On a route without a key the intent has none, and `transact` rejects with `key_missing`. If [`Protect`](super::Protect) does
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
    /// Creates the intent of a request, from what its guards have attached to it.
    pub(crate) async fn of<F: Framework>(
        request: &F::Request,
        guarded: Option<Arc<GuardedRequest>>,
        unchecked: Option<UncheckedRoute<F>>,
        route: &str,
    ) -> Result<Self, Rejection> {
        match (guarded, unchecked) {
            (Some(guarded), _) => Ok(Self::of_checked(&guarded)),
            (None, Some(UncheckedRoute(rules))) => Self::of_unchecked(&rules, request).await,
            (None, None) => Err(outside(request.method(), route)),
        }
    }

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
    async fn of_unchecked<F: Framework>(rules: &RouteRules<F>, request: &F::Request) -> Result<Self, Rejection> {
        let subject = match (rules.subject.resolve(request).await, rules.route.guard.mode()) {
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

/// The rules of a route that lets a request through unchecked, attached to the request so that its handler can still extract the subject.
pub(crate) struct UncheckedRoute<F: Framework>(pub(super) Arc<RouteRules<F>>);

impl<F: Framework> UncheckedRoute<F> {
    /// Returns the rules for a request that no guard checks.
    pub(crate) fn new(rules: &Arc<RouteRules<F>>) -> Self {
        Self(Arc::clone(rules))
    }

    /// Rejects a request in the format of the route.
    pub(crate) fn reject(&self, request: &F::Request, rejection: &Rejection) -> GuardResponse {
        self.0.reject(request, rejection)
    }
}

impl<F: Framework> Clone for UncheckedRoute<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Reports that no guard has read the request. Without a subject, the requests of all clients would count as one client's.
fn outside(method: &str, route: &str) -> Rejection {
    tracing::error!(
        target: "onceward::http",
        method,
        route,
        "a handler extracts RequestIntent from a request that no Protect has read; wrap its route in Protect, which reads every \
         method but GET, HEAD and OPTIONS"
    );
    Rejection::new(Code::Internal)
}

impl fmt::Debug for RequestIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.intent(), f)
    }
}
