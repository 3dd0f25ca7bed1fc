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

mod entered;
mod extractors;
mod response;
mod serve;
mod token_route;

pub use self::entered::{MarkedHandler, entered};
pub use self::extractors::ExtractRejection;
pub use self::response::reject;
pub use self::serve::serve;
pub use self::token_route::token_route;
pub use crate::tower::{
    Exempt, HiddenToken, KeyFrom, MarkEffect, Protect, RequestIntent, RequireProtection, SubjectFrom, protect,
};
