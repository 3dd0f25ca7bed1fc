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
mod worker_stores;

use actix_web::HttpRequest;

pub use self::extractors::{ExtractorError, entered};
pub use self::peer::Peer;
pub use self::response::reject;
pub use self::route_guard::HasToken;
pub use self::serve::{serve, serve_until_signal};
pub use self::token_route::token_route;
use crate::http::{self, KeySource, SubjectSource};
pub use crate::http::{Exempt, HiddenToken, MarkEffect, RequestIntent, RequireProtection, protect};

/// actix-web, as the rules of a route refer to it.
#[derive(Debug)]
pub enum Actix {}

/// The middleware: [`http::Protect`] for actix-web.
pub type Protect<P = protect::AnyPolicy> = http::Protect<Actix, P>;

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
