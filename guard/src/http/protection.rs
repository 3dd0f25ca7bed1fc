//! The guard and the subject of the handlers with `#[once]`.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::framework::Framework;
use super::profile::Profile;
use super::protect::{IntervalPolicy, KeyPolicy, Protect, TokenPolicy};
use super::rejection_format::RejectionFormat;
use super::retention_header::RetentionHeader;
use super::route_rules::RouteRules;
use super::subject_source::SubjectSource;
use crate::guard::Guard;
use crate::policy::{IntervalRules, KeyRules};

type HandlerRules<F> = HashMap<TypeId, Arc<RouteRules<F>>>;

/// The guard and the subject of all handlers with the attribute `once` ([actix-web](crate::actix::once), [axum](crate::axum::once)).
///
/// Build one, and give it to the application: `App::app_data` of actix-web, the state of a router of axum. The methods `token`, `key` and
/// `interval` create middleware with the same guard, subject and settings, for a route that needs more than the attribute offers, and for
/// the [description](Protect::describe) of a handler with the attribute.
pub struct Protection<F: Framework> {
    guard: Guard,
    subject: SubjectSource<F::Request>,
    format: RejectionFormat,
    profile: Profile,
    /// The name of the header that says how long a response is stored; `None` if no response says so.
    retention_header: Option<Cow<'static, str>>,
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
        Self {
            guard: guard.clone(),
            subject,
            format: RejectionFormat::problem(),
            profile: Profile::Ietf,
            retention_header: None,
            handlers: Arc::default(),
        }
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

    /// Applies a published contract to all handlers with a key, as [`Protect::profile`] does for one route. Rejections of handlers with a
    /// token or an interval have its format. What the contract demands takes precedence over the attribute: a longer retention, and a
    /// key where the attribute has `optional`.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }.rejections(profile)
    }

    /// Says how long a response is stored, as [`Protect::show_retention`] does for one route.
    #[must_use]
    pub fn show_retention(self) -> Self {
        Self { retention_header: Some(RetentionHeader::NAME), handlers: Arc::default(), ..self }
    }

    /// Like [`show_retention`](Self::show_retention), in a header with this name.
    #[must_use]
    pub fn retention_header(self, name: &F::HeaderName) -> Self {
        Self { retention_header: Some(name.as_ref().to_owned().into()), handlers: Arc::default(), ..self }
    }

    /// Requires a one-time token; see [`Protect::token`].
    pub fn token(&self) -> Protect<F, TokenPolicy> {
        self.set_up(Protect::token_of_shared(&self.guard, self.subject.clone()))
    }

    /// Requires a key; see [`Protect::key`].
    pub fn key(&self, rules: KeyRules) -> Protect<F, KeyPolicy> {
        self.set_up(Protect::key_of_shared(&self.guard, self.subject.clone(), rules).profile(self.profile))
    }

    /// Accepts at most one equivalent request per subject and interval; see [`Protect::interval`].
    pub fn interval(&self, rules: IntervalRules) -> Protect<F, IntervalPolicy> {
        self.set_up(Protect::interval_of_shared(&self.guard, self.subject.clone(), rules))
    }

    fn set_up<P>(&self, protect: Protect<F, P>) -> Protect<F, P> {
        protect.with_retention_header(self.retention_header.clone()).rejections(self.format.clone())
    }

    /// Returns the rules of a handler, which `protect` builds for its first request.
    pub(crate) fn rules_of<H: 'static>(&self, protect: fn(Self) -> Protect<F>) -> Arc<RouteRules<F>> {
        let handler = TypeId::of::<H>();
        if let Some(rules) = self.handlers.read().unwrap_or_else(PoisonError::into_inner).get(&handler) {
            return Arc::clone(rules);
        }
        let mut handlers = self.handlers.write().unwrap_or_else(PoisonError::into_inner);
        let build = || protect(self.clone()).with_profile(self.profile).shared_rules();
        Arc::clone(handlers.entry(handler).or_insert_with(build))
    }
}

impl<F: Framework> Clone for Protection<F> {
    fn clone(&self) -> Self {
        Self {
            guard: self.guard.clone(),
            subject: self.subject.clone(),
            format: self.format.clone(),
            profile: self.profile,
            retention_header: self.retention_header.clone(),
            handlers: Arc::clone(&self.handlers),
        }
    }
}

impl<F: Framework> fmt::Debug for Protection<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protection").field("subject", &self.subject).finish_non_exhaustive()
    }
}
