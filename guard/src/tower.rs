//! A layer for [tower](https://docs.rs/tower) services over `http` types: hyper services, and axum's routers, for which
//! [`onceward::axum`](crate::axum) adds extractors and a token route (feature `axum`). This module translates requests and
//! responses; [`Guard`](crate::Guard) and [`Policy`](crate::Policy) make the decisions.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use onceward::tower::{GuardedBody, Protect, SubjectFrom};
//! use onceward::{KeyRules, testing};
//! use tower_layer::Layer as _;
//!
//! #[derive(Clone)]
//! struct PlaceOrder;
//!
//! impl<B> tower_service::Service<Request<GuardedBody<B>>> for PlaceOrder {
//!     type Response = Response<String>;
//!     type Error = Infallible;
//!     type Future = std::future::Ready<Result<Self::Response, Infallible>>;
//!
//!     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
//!         std::task::Poll::Ready(Ok(()))
//!     }
//!
//!     fn call(&mut self, _: Request<GuardedBody<B>>) -> Self::Future {
//!         std::future::ready(Ok(Response::new("ordered".to_owned())))
//!     }
//! }
//!
//! let (guard, _clock) = testing::guard();
//! let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
//! let orders = protect.layer(PlaceOrder);
//! # let _ = orders;
//! ```
//!
//! The runtime has to be tokio, of either flavor. gRPC is not supported: its status is in the trailers of a response, which the guard does
//! not judge.

mod body;
mod captured;
mod entered;
mod exchange;
mod middleware;
mod request;
mod require_protection;
mod response;

use http::request::Parts;

pub use self::body::{GuardedBody, ProtectedBody};
pub use self::entered::{Entered, MarkedService};
pub use self::middleware::Protected;
pub use self::require_protection::{Exempted, Required};
pub use self::response::{issue_token, reject};
use crate::http::{self as shared, KeySource, SubjectSource};
pub use crate::http::{Exempt, HiddenToken, MarkEffect, RequestIntent, RequireProtection, protect};

#[cfg(feature = "axum")]
pub(crate) use self::request::matched_route;

/// tower services over `http` types, as the rules of a route refer to them.
#[derive(Debug)]
pub enum Tower {}

/// The layer: [`http::Protect`](shared::Protect) for tower.
pub type Protect<P = protect::AnyPolicy> = shared::Protect<Tower, P>;

/// The source of a request's subject. There is no default: anonymous has to be written explicitly.
///
/// ```
/// use onceward::tower::SubjectFrom;
///
/// #[derive(Clone)]
/// struct User(String);
///
/// // A value that authentication middleware has put into the extensions of the request.
/// let user = SubjectFrom::resolver(|parts| parts.extensions.get::<User>().map(|user| user.0.clone()));
/// // A query that has to wait, for example for the session store.
/// let session = SubjectFrom::lookup(|parts| {
///     let cookie = parts.headers.get("cookie").cloned();
///     async move { user_of(cookie?).await }
/// });
/// # async fn user_of(_: http::HeaderValue) -> Option<String> { None }
/// # let _ = (user, session);
/// ```
///
/// The [client address](SubjectSource::client_address) is read from axum's `ConnectInfo<SocketAddr>`, or from a `SocketAddr` in the
/// extensions of the request.
pub type SubjectFrom = SubjectSource<Parts>;

/// The source of a submission's key: a header, or data of the submission itself. Path parameters are those of axum's router.
pub type KeyFrom = KeySource<Parts>;

/// The error of a body.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
