//! The [layer](crate::tower) for axum, with the token route, extractors and a graceful shutdown.
//!
//! ```
//! use axum::Router;
//! use axum::routing::post;
//! use onceward::axum::{Protect, SubjectFrom, entered, token_route};
//! use onceward::store::Memory;
//! use onceward::Guard;
//!
//! async fn place_order() -> &'static str {
//!     "ordered"
//! }
//!
//! let guard = Guard::new(Memory::new());
//! let protect = Protect::token(&guard, SubjectFrom::anonymous());
//! let app: Router = Router::new()
//!     .merge(token_route(&guard, SubjectFrom::anonymous()))
//!     .route("/orders", post(entered(place_order)).layer(protect));
//! # let _ = app;
//! ```
//!
//! Add the layer of authentication after [`Protect`], so that it runs first: a token does not authenticate a user, and does not protect
//! against cross-site request forgery.

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod annotated;
mod entered;
mod extractors;
mod response;
mod serve;
mod token_route;
mod well_known;

pub use self::entered::{MarkedHandler, entered};
pub use self::extractors::ExtractRejection;
pub use self::response::reject;
pub use self::serve::serve;
pub use self::token_route::token_route;
pub use self::well_known::well_known;
pub use crate::tower::{
    Exempt, HiddenToken, KeyFrom, MarkEffect, Protect, RequestIntent, RequireProtection, SubjectFrom, protect,
};

/// The guard and the subject of the handlers with [`#[once]`](once): [`http::Protection`](crate::http::Protection) for axum.
#[cfg(feature = "macros")]
pub type Protection = crate::http::Protection<crate::tower::Tower>;

/// Protects a handler in one line.
///
/// The guard and the subject are those of the [`Protection`] in the state of the router:
///
/// ```
/// use axum::Router;
/// use axum::routing::post;
/// use onceward::Guard;
/// use onceward::axum::{Protection, SubjectFrom, once, token_route};
/// use onceward::store::Memory;
///
/// #[once(token, remember = "10m")]
/// async fn place_order(order: String) -> String {
///     format!("order {order}")
/// }
///
/// #[once(key)]
/// async fn pay(payment: String) -> String {
///     format!("paid {payment}")
/// }
///
/// let guard = Guard::new(Memory::new());
/// let app: Router = Router::new()
///     .route("/orders", post(place_order))
///     .route("/payments", post(pay))
///     .with_state(Protection::new(&guard, SubjectFrom::anonymous()))
///     .merge(token_route(&guard, SubjectFrom::anonymous()));
/// # let _ = app;
/// ```
///
/// If the router has a state of its own, a `Protection` is a part of it: implement `FromRef`, or derive it. A router without one does not
/// compile.
///
/// Write `#[once]` directly above the function, below attributes that read its arguments, such as `#[utoipa::path]`: it replaces the
/// function by one that takes the whole request. So a test calls the handler through a `Router`, not as a function.
///
/// The handler runs inside of all layers, unlike one behind a [`Protect`] in `layer`.
#[cfg(feature = "macros")]
pub use onceward_macros::axum_once as once;
