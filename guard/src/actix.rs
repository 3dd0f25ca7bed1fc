//! Middleware for actix-web. This module translates requests and responses; [`Guard`](crate::Guard) and [`Policy`](crate::Policy) make the
//! decisions.
//!
//! ```
//! use actix_web::{App, HttpResponse, web};
//! use onceward::Guard;
//! use onceward::actix::{Protect, SubjectFrom, token_route};
//! use onceward::store::Memory;
//!
//! async fn place_order() -> HttpResponse {
//!     HttpResponse::Created().body("ordered")
//! }
//!
//! let guard = Guard::new(Memory::new());
//! let app = App::new()
//!     .service(token_route(&guard, SubjectFrom::anonymous()))
//!     .service(
//!         web::resource("/orders")
//!             .wrap(Protect::token(&guard, SubjectFrom::anonymous()))
//!             .route(web::post().to(place_order)),
//!     );
//! # let _ = app;
//! ```
//!
//! Wrap authentication around [`Protect`], so that it runs first: a token does not authenticate a user, and does not protect against
//! cross-site request forgery.

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod annotated;
mod captured;
mod exchange;
mod extractors;
mod middleware;
mod peer;
mod request;
mod require_protection;
mod response;
mod route_guard;
mod serve;
mod token_route;
mod well_known;
mod worker_stores;

use actix_web::HttpRequest;

pub use self::extractors::{ExtractorError, entered};
pub use self::peer::Peer;
pub use self::response::reject;
pub use self::route_guard::HasToken;
pub use self::serve::{serve, serve_until_signal};
pub use self::token_route::token_route;
pub use self::well_known::well_known;
use crate::http::{self, KeySource, SubjectSource};
pub use crate::http::{Exempt, HiddenToken, MarkEffect, RequestIntent, RequireProtection, protect};

/// actix-web, as the rules of a route refer to it.
#[derive(Debug)]
pub enum Actix {}

/// The middleware: [`http::Protect`] for actix-web.
pub type Protect<P = protect::AnyPolicy> = http::Protect<Actix, P>;

/// The guard and the subject of the handlers with [`#[once]`](once): [`http::Protection`] for actix-web.
#[cfg(feature = "macros")]
pub type Protection = http::Protection<Actix>;

/// Protects a handler in one line.
///
/// The guard and the subject are those of the [`Protection`] in the data of the application:
///
/// ```
/// use actix_web::{App, HttpResponse, post, web};
/// use onceward::Guard;
/// use onceward::actix::{Protection, SubjectFrom, once, token_route};
/// use onceward::store::Memory;
///
/// #[post("/orders")]
/// #[once(token, remember = "10m")]
/// async fn place_order(order: web::Json<u32>) -> HttpResponse {
///     HttpResponse::Created().body(format!("order {order}"))
/// }
///
/// #[post("/payments")]
/// #[once(key)]
/// async fn pay(payment: web::Json<u32>) -> HttpResponse {
///     HttpResponse::Created().body(format!("paid {payment}"))
/// }
///
/// let guard = Guard::new(Memory::new());
/// let app = App::new()
///     .app_data(Protection::new(&guard, SubjectFrom::anonymous()))
///     .service(token_route(&guard, SubjectFrom::anonymous()))
///     .service(place_order)
///     .service(pay);
/// # let _ = app;
/// ```
///
/// Without a `Protection` the handler does not run: the client receives a 500 `internal`, and the log has an error that names the fix.
///
/// Write `#[once]` below `#[post]`, directly above the function. `#[post]` then registers the protected handler. Above `#[post]`, the
/// attribute would see only the function, and `#[post]` is what reads the path and creates the route; that order is a compile error.
/// Attributes that read the arguments of the function, such as `#[utoipa::path]`, belong above `#[once]` too: the attribute replaces
/// the function by one that takes the whole request. So a test calls the handler through an `App`, not as a function.
///
/// The handler runs inside of all middleware, unlike one behind a [`Protect`] in `wrap`.
#[cfg(feature = "macros")]
pub use onceward_macros::actix_once as once;

/// The source of a request's subject. There is no default: anonymous has to be written explicitly.
pub type SubjectFrom = SubjectSource<HttpRequest>;

/// The source of a submission's key: a header, or data of the submission itself.
///
/// ```
/// use onceward::actix::KeyFrom;
///
/// // The id that the client chose for the operation.
/// let header = KeyFrom::header("Idempotency-Key")?;
/// // Two messages with the same source and sequence number are duplicates.
/// let message = KeyFrom::parts([KeyFrom::body("/source")?, KeyFrom::body("/seq")?]);
/// // An order is paid once: `/orders/{order}/pay`.
/// let order = KeyFrom::path("order");
/// # let _ = (header, message, order);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type KeyFrom = KeySource<HttpRequest>;
