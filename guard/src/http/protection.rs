//! The guard and the subject of the handlers with `#[once]`.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::framework::Framework;
use super::protect::{IntervalPolicy, KeyPolicy, Protect, TokenPolicy};
use super::rejection_format::RejectionFormat;
use super::route_rules::RouteRules;
use super::subject_source::SubjectSource;
use crate::guard::Guard;
use crate::policy::{IntervalRules, KeyRules};

type HandlerRules<F> = HashMap<TypeId, Arc<RouteRules<F>>>;

/// The guard and the subject of all handlers with the attribute `once` ([actix-web](crate::actix::once), [axum](crate::axum::once)).
///
/// Build one, and give it to the application: `App::app_data` of actix-web, the state of a router of axum. The methods `token`, `key` and
/// `interval` create middleware with the same guard and subject, for a route that needs more than the attribute offers.
pub struct Protection<F: Framework> {
    guard: Guard,
    subject: SubjectSource<F::Request>,
    format: RejectionFormat,
    /// The rules of each handler, which are built when it receives its first request.
    handlers: Arc<RwLock<HandlerRules<F>>>,
}

impl<F: Framework> Protection<F> {
    /// Protects handlers with this guard. `subject` identifies the sender of a request, unless an attribute names another source.
    ///
    /// # Panics
    /// If every worker of an actix-web server builds its own memory store: build the guard before `HttpServer::new`.
    #[track_caller]
    pub fn new(guard: &Guard, subject: SubjectSource<F::Request>) -> Self {
        F::assert_shared(guard);
        Self { guard: guard.clone(), subject, format: RejectionFormat::problem(), handlers: Arc::default() }
    }

    /// Sets another source of the subject.
    #[must_use]
    pub fn subject(self, subject: SubjectSource<F::Request>) -> Self {
        Self { subject, handlers: Arc::default(), ..self }
    }

    /// Sets the format of rejections, as [`Protect::rejections`] does for one route.
    #[must_use]
    pub fn rejections(self, format: impl Into<RejectionFormat>) -> Self {
        Self { format: format.into(), handlers: Arc::default(), ..self }
    }

    /// Requires a one-time token; see [`Protect::token`].
    pub fn token(&self) -> Protect<F, TokenPolicy> {
        Protect::token_of_shared(&self.guard, self.subject.clone()).rejections(self.format.clone())
    }

    /// Requires a key; see [`Protect::key`].
    pub fn key(&self, rules: KeyRules) -> Protect<F, KeyPolicy> {
        Protect::key_of_shared(&self.guard, self.subject.clone(), rules).rejections(self.format.clone())
    }

    /// Accepts at most one equivalent request per subject and interval; see [`Protect::interval`].
    pub fn interval(&self, rules: IntervalRules) -> Protect<F, IntervalPolicy> {
        Protect::interval_of_shared(&self.guard, self.subject.clone(), rules).rejections(self.format.clone())
    }

    /// Returns the rules of a handler, which `protect` builds for its first request.
    pub(crate) fn rules_of<H: 'static>(&self, protect: fn(Self) -> Protect<F>) -> Arc<RouteRules<F>> {
        let handler = TypeId::of::<H>();
        if let Some(rules) = self.handlers.read().unwrap_or_else(PoisonError::into_inner).get(&handler) {
            return Arc::clone(rules);
        }
        let mut handlers = self.handlers.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(handlers.entry(handler).or_insert_with(|| protect(self.clone()).shared_rules()))
    }
}

impl<F: Framework> Clone for Protection<F> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
            subject: self.subject.clone(),
            format: self.format.clone(),
            handlers: Arc::clone(&self.handlers),
        }
    }
}

impl<F: Framework> fmt::Debug for Protection<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection").field("subject", &self.subject).finish_non_exhaustive()
    }
}
