use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};

use crate::fingerprint::Fingerprint;
use crate::http::{ParsedRequest, action_of};
use crate::intent::{Intent, Subject};
use crate::key::Key;
use crate::run_id::RunId;

/// What a request under a key asks, as [`Protect`](super::Protect) has read it: for a handler that does it in a transaction, with
/// [`Guard::transact`](crate::Guard::transact).
///
/// Then the guard's store is the quick way to an answer, and the table beside the business rows is the truth. If the store is flushed, or was
/// behind when it took over, the handler runs again, and finds in the table that it was done, and what came of it:
///
/// ```
/// use actix_web::{HttpRequest, HttpResponse, web};
/// use onceward::actix::{RequestIntent, refuse};
/// use onceward::transaction::TxHandle;
/// use onceward::{Guard, KeyRules, RunError};
/// use sqlx::{Postgres, PgPool};
///
/// async fn pay(
///     request: HttpRequest,
///     asked: RequestIntent,
///     guard: web::Data<Guard>,
///     pool: web::Data<PgPool>,
/// ) -> HttpResponse {
///     let work = |mut transaction: TxHandle<Postgres>| async move {
///         sqlx::query("INSERT INTO payments VALUES (10)").execute(&mut *transaction).await?;
///         Ok::<_, sqlx::Error>("paid".to_owned())
///     };
///     match guard.transact(&pool, &KeyRules::retryable(), &asked.intent(), work).await {
///         Ok(ran) => HttpResponse::Created().body(ran.into_value()),
///         Err(RunError::Rejected(rejection)) => reject(&request, &guard, &rejection),
///         Err(_) => HttpResponse::ServiceUnavailable().finish(),
///     }
/// }
/// ```
///
/// On a route without a key there is none in it, and `transact` says so; with a guard that is switched off it runs all the same.
///
/// [`Guard::run`](crate::Guard::run) and [`Guard::check`](crate::Guard::check) keep their claims in the guard's store, where `Protect` holds the
/// same claim already: they are refused with `internal`, and the log says why.
#[derive(Clone)]
pub struct RequestIntent {
    action: String,
    subject: Subject<'static>,
    key: Option<Key>,
    fingerprint: Option<Fingerprint>,
    run: Option<RunId>,
}

impl RequestIntent {
    pub(super) fn new(
        action: &str,
        subject: &Subject<'static>,
        key: Option<&Key>,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        Self { action: action.to_owned(), subject: subject.clone(), key: key.cloned(), fingerprint, run: None }
    }

    pub(super) fn of(asked: &ParsedRequest) -> Self {
        Self::new(asked.action(), asked.subject(), asked.key(), asked.fingerprint())
    }

    /// The same, asked within a run.
    pub(super) fn within(self, run: RunId) -> Self {
        Self { run: Some(run), ..self }
    }

    /// What is asked.
    pub fn intent(&self) -> Intent<'_> {
        let mut intent = Intent::new(&self.action, self.subject.borrowed());
        intent.key = self.key.as_ref();
        intent.fingerprint = self.fingerprint;
        intent.within = self.run;
        intent
    }
}

impl FromRequest for RequestIntent {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let read = request.extensions().get::<Self>().cloned();
        let none = || {
            Self::new(&action_of(request.method().as_str(), request.uri().path()), &Subject::anonymous(), None, None)
        };
        ready(Ok(read.unwrap_or_else(none)))
    }
}

impl fmt::Debug for RequestIntent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.intent(), f)
    }
}
