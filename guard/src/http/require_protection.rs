//! A safety net for routes: detects submissions that no guard has seen.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use onceward_api::Code;

use super::rejection_format::RejectionFormat;
use crate::guard::Guard;
use crate::language::Language;
use crate::mode::Mode;
use crate::rejection::Rejection;

/// True once a guard, or [`Exempt`], has seen the request.
#[derive(Clone, Default)]
pub(crate) struct SeenMark(Arc<AtomicBool>);

impl SeenMark {
    /// Records that a guard has seen the request.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Middleware for a route that accepts submissions and needs no protection, such as a search by POST.
#[derive(Debug, Clone, Copy)]
pub struct Exempt;

/// Middleware for the whole application: rejects a submission that neither a [`Protect`](super::Protect) nor an [`Exempt`] has seen,
/// with a 500 that names the route.
///
/// The middleware of a route is known only when the route is called. So an unprotected route is detected by its first successful
/// submission, after its handler has run. From then on requests to that route are rejected before the handler runs, unless a guard was
/// seen on the route before.
///
/// A redirect may come from the handler, or from a login check outside of the guard: its route is reported too, until a guard is seen
/// on it, but not rejected. Any other response proves nothing, nor does a response that middleware of the application or of a scope
/// gave before the route was reached. So if middleware responds with success in place of a handler, such as a maintenance page, install
/// it there and not on the route itself. A layer of axum's router runs after the route has matched: add such a layer after this one.
///
/// Two resources of actix-web with the same pattern, distinguished by a routing guard, count as one route, and a guard on either counts
/// for both.
/// Run your own tests with this middleware; [`unprotected`](Self::unprotected) returns the routes that they found. With a guard that
/// observes, nothing is rejected; with one that is off, nothing is detected.
///
/// On axum, add the layer after the routes: `Router::layer` wraps those that exist already. Around a whole router, or around a service
/// without one, the layer does not know the route: it judges each submission by itself, after the handler has run.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::Router;
/// use axum::routing::post;
/// use onceward::Guard;
/// use onceward::axum::{Exempt, Protect, RequireProtection, SubjectFrom, entered};
/// use onceward::store::Memory;
///
/// let guard = Guard::new(Memory::new());
/// let protect = Protect::token(&guard, SubjectFrom::anonymous());
/// let app: Router = Router::new()
///     .route("/orders", post(entered(async || "ordered")).layer(protect))
///     .route("/search", post(async || "found").layer(Exempt))
///     .layer(RequireProtection::new(&guard));
/// # let _ = app;
/// # }
/// ```
///
/// On actix-web:
///
/// ```
/// use actix_web::{App, HttpResponse, web};
/// use onceward::Guard;
/// use onceward::actix::{Exempt, Protect, RequireProtection, SubjectFrom};
/// use onceward::store::Memory;
///
/// let guard = Guard::new(Memory::new());
/// let app = App::new()
///     .wrap(RequireProtection::new(&guard))
///     .service(
///         web::resource("/orders")
///             .wrap(Protect::token(&guard, SubjectFrom::anonymous()))
///             .route(web::post().to(HttpResponse::Created)),
///     )
///     .service(web::resource("/search").wrap(Exempt).route(web::post().to(HttpResponse::Ok)));
/// # let _ = app;
/// ```
#[derive(Clone)]
pub struct RequireProtection {
    guard: Guard,
    format: RejectionFormat,
    found: Arc<Mutex<RouteFindings>>,
}

/// The findings about routes, by their names.
#[derive(Default)]
struct RouteFindings {
    /// Routes that accepted a submission which no guard has seen.
    bare: HashSet<String>,
    /// Routes that responded with a redirect.
    doubtful: HashSet<String>,
    /// Routes on which a guard was seen.
    guarded: HashSet<String>,
}

/// A submission on its way to its route.
pub(crate) struct Submission {
    method: String,
    pub(crate) seen: SeenMark,
}

/// How far a submission came that was answered.
pub(crate) enum Reached<'a> {
    /// The route with this pattern.
    Route(&'a str),
    /// Middleware in front of the route with this pattern.
    BeforeRoute(&'a str),
    /// No route: a default service.
    NoRoute,
    /// Unknown: no router has matched the submission before.
    Unknown,
}

impl Reached<'_> {
    fn pattern(&self) -> &str {
        match self {
            Self::Route(pattern) | Self::BeforeRoute(pattern) => pattern,
            Self::NoRoute | Self::Unknown => "(no route)",
        }
    }
}

impl RequireProtection {
    /// Creates the middleware; the mode of `guard` applies.
    pub fn new(guard: &Guard) -> Self {
        Self { guard: guard.clone(), format: RejectionFormat::problem(), found: Arc::default() }
    }

    /// Sets the format of the rejection, as [`Protect::rejections`](super::Protect::rejections) does for a route.
    #[must_use]
    pub fn rejections(mut self, format: impl Into<RejectionFormat>) -> Self {
        self.format = format.into();
        self
    }

    /// Returns the routes that were found without protection, as `POST /orders/{id}`, sorted. For your own tests: call every route with
    /// sufficient permissions, and assert that this is empty.
    pub fn unprotected(&self) -> Vec<String> {
        let found = self.found();
        let all: BTreeSet<_> = found.bare.iter().chain(&found.doubtful).collect();
        all.into_iter().filter(|route| !found.guarded.contains(*route)).cloned().collect()
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn format(&self) -> &RejectionFormat {
        &self.format
    }

    /// Begins to watch a request; `None` if its method is safe, or the guard is off.
    pub(crate) fn watch(&self, method: &str) -> Option<Submission> {
        let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
        (!is_safe && self.guard.mode() != Mode::Off)
            .then(|| Submission { method: method.to_owned(), seen: SeenMark::default() })
    }

    /// Returns the rejection of a submission to a route that is known to be unprotected.
    pub(crate) fn known(&self, submission: &Submission, reached: &Reached<'_>) -> Option<Rejection> {
        // One name would stand for all routes.
        if let Reached::Unknown = reached {
            return None;
        }
        let route = submission.route(reached);
        let is_bare = {
            let found = self.found();
            found.bare.contains(&route) && !found.guarded.contains(&route)
        };
        (is_bare && self.guard.mode() == Mode::Enforce).then(|| rejection(&route))
    }

    /// Records a response. Returns the rejection to send in its place, if no guard has seen the submission.
    pub(crate) fn note(&self, submission: &Submission, reached: &Reached<'_>, status: u16) -> Option<Rejection> {
        let route = submission.route(reached);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let is_seen = submission.seen.0.load(Ordering::Relaxed);
        let mut found = self.found();
        let known = match is_seen {
            true if matches!(reached, Reached::Unknown) => return None,
            true => &mut found.guarded,
            // A guard was seen on the route before: this response comes from middleware outside of that guard.
            false if found.guarded.contains(&route) => return None,
            // A response that was given before the route was reached says nothing about the route.
            false if status.is_success() && !matches!(reached, Reached::BeforeRoute(_)) => &mut found.bare,
            false if status.is_redirection() && matches!(reached, Reached::Route(_)) => &mut found.doubtful,
            false => return None,
        };
        if !known.contains(&route) {
            known.insert(route.clone());
            if !is_seen {
                tracing::error!(
                    route,
                    "a route responded to a submission that no guard has seen; wrap the route in Protect or Exempt"
                );
            }
        }
        let is_rejected = !is_seen && status.is_success() && self.guard.mode() == Mode::Enforce;
        is_rejected.then(|| rejection(&route))
    }

    fn found(&self) -> MutexGuard<'_, RouteFindings> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Submission {
    /// Returns the name of the route.
    fn route(&self, reached: &Reached<'_>) -> String {
        format!("{} {}", self.method, reached.pattern())
    }
}

fn rejection(route: &str) -> Rejection {
    Rejection::new(Code::Internal)
        .detail(format!(
            "`{route}` accepts submissions without protection. Wrap it in Protect, or in Exempt if it needs none."
        ))
        .detail_in(
            Language::SIMPLIFIED_CHINESE,
            format!("`{route}` 在没有保护的情况下接受提交。请用 Protect 包裹该路由；如不需要保护，请用 Exempt。"),
        )
}

impl fmt::Debug for RequireProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequireProtection").field("unprotected", &self.unprotected()).finish_non_exhaustive()
    }
}
