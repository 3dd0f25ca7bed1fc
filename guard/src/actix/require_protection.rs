//! A safety net for routes: detects submissions that no guard has seen.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::Method;
use actix_web::{Error, HttpMessage as _, HttpRequest};
use futures_util::future::LocalBoxFuture;
use onceward_api::Code;

use super::request::drain;
use super::response::{Audience, reject};
use crate::guard::Guard;
use crate::mode::Mode;
use crate::rejection::Rejection;

/// True once a guard, or [`Exempt`], has seen the request.
#[derive(Clone, Default)]
struct SeenMark(Rc<Cell<bool>>);

/// Records that a guard has seen the request.
pub(super) fn mark_seen(request: &HttpRequest) {
    if let Some(seen) = request.extensions().get::<SeenMark>() {
        seen.0.set(true);
    }
}

/// Returns whether a method is safe (read-only).
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}

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
/// it there and not on the route itself.
///
/// Two resources with the same pattern, distinguished by a routing guard, count as one route, and a guard on either counts for both.
/// Run your own tests with this middleware; [`unprotected`](Self::unprotected) returns the routes that they found. With a guard that
/// observes, nothing is rejected; with one that is off, nothing is detected.
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

impl RequireProtection {
    /// Creates the middleware; the mode of `guard` applies.
    pub fn new(guard: &Guard) -> Self {
        Self { guard: guard.clone(), found: Arc::default() }
    }

    /// Returns the routes that were found without protection, as `POST /orders/{id}`, sorted. For your own tests: call every route with
    /// sufficient permissions, and assert that this is empty.
    pub fn unprotected(&self) -> Vec<String> {
        let found = self.found();
        let all: BTreeSet<_> = found.bare.iter().chain(&found.doubtful).collect();
        all.into_iter().filter(|route| !found.guarded.contains(*route)).cloned().collect()
    }

    fn has_found(&self, route: &str) -> bool {
        let found = self.found();
        found.bare.contains(route) && !found.guarded.contains(route)
    }

    /// Records a response, and returns whether to reject it.
    fn note<B>(&self, route: &str, answer: &ServiceResponse<B>, is_seen: bool) -> bool {
        let status = answer.status();
        // A response that was given before the route was reached says nothing about the route.
        let is_there = answer.request().match_info().unprocessed().is_empty();
        let has_no_route = pattern(answer.request()).is_none();
        let mut found = self.found();
        let known = match is_seen {
            true => &mut found.guarded,
            // A guard was seen on the route before: this response comes from middleware outside of that guard.
            false if found.guarded.contains(route) => return false,
            false if status.is_success() && (is_there || has_no_route) => &mut found.bare,
            false if status.is_redirection() && is_there => &mut found.doubtful,
            false => return false,
        };
        if !known.contains(route) {
            known.insert(route.to_owned());
            if !is_seen {
                tracing::error!(
                    route,
                    "a route responded to a submission that no guard has seen; wrap the route in Protect or Exempt"
                );
            }
        }
        !is_seen && status.is_success()
    }

    fn found(&self) -> MutexGuard<'_, RouteFindings> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a route, or `(no route)` if a default service accepts submissions.
fn name(method: &Method, request: &HttpRequest) -> String {
    format!("{method} {}", pattern(request).as_deref().unwrap_or("(no route)"))
}

/// Returns the pattern of the route that the request has reached. Before the request reaches a route, `match_pattern` would look up the
/// path as it was sent, not as the router decodes it.
fn pattern(request: &HttpRequest) -> Option<String> {
    let path = request.match_info();
    if path.unprocessed().is_empty() {
        request.match_pattern()
    } else {
        request.resource_map().match_pattern(path.as_str())
    }
}

fn rejection(route: &str) -> Rejection {
    Rejection::new(Code::Internal).detail(format!(
        "`{route}` accepts submissions without protection. Wrap it in Protect, or in Exempt if it needs none."
    ))
}

impl fmt::Debug for RequireProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequireProtection").field("unprotected", &self.unprotected()).finish_non_exhaustive()
    }
}

impl<S, B> Transform<S, ServiceRequest> for RequireProtection
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Required<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Required { require: self.clone(), service: Rc::new(service) }))
    }
}

/// A service behind [`RequireProtection`].
pub struct Required<S> {
    require: RequireProtection,
    service: Rc<S>,
}

impl<S> fmt::Debug for Required<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.require.fmt(f)
    }
}

impl<S, B> Service<ServiceRequest> for Required<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, mut request: ServiceRequest) -> Self::Future {
        let (require, service) = (self.require.clone(), Rc::clone(&self.service));
        Box::pin(async move {
            let mode = require.guard.mode();
            if is_safe(request.method()) || mode == Mode::Off {
                return Ok(service.call(request).await?.map_into_left_body());
            }
            let method = request.method().clone();
            let route = name(&method, request.request());
            if mode == Mode::Enforce && require.has_found(&route) {
                let answer = reject(request.request(), &require.guard, &rejection(&route));
                Box::pin(drain(&mut request)).await;
                return Ok(request.into_response(answer).map_into_right_body());
            }
            let (seen, audience) = (SeenMark::default(), Audience::of(request.request()));
            request.extensions_mut().insert(seen.clone());
            let answer = service.call(request).await?;
            let route = name(&method, answer.request());
            if !require.note(&route, &answer, seen.0.get()) || mode != Mode::Enforce {
                return Ok(answer.map_into_left_body());
            }
            let refused = audience.reject(&require.guard, &rejection(&route)).into();
            Ok(answer.into_response(refused).map_into_right_body())
        })
    }
}

/// Middleware for a route that accepts submissions and needs no protection, such as a search by POST.
#[derive(Debug, Clone, Copy)]
pub struct Exempt;

impl<S, B> Transform<S, ServiceRequest> for Exempt
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Transform = Exempted<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Exempted { service }))
    }
}

/// A service behind [`Exempt`].
#[derive(Debug)]
pub struct Exempted<S> {
    service: S,
}

impl<S, B> Service<ServiceRequest> for Exempted<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<B>;
    type Error = Error;
    type Future = S::Future;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        mark_seen(request.request());
        self.service.call(request)
    }
}
