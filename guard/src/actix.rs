//! The guard for actix-web. It only translates: what is decided, is decided in [`Guard`](crate::Guard) and
//! [`Policy`](crate::Policy).
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
//! Authentication wraps outside of [`Protect`]: a token is no proof of who somebody is, nor protection against
//! requests that another site makes in a user's name.

mod answer;
mod answered;
mod arriving;
mod asked;
mod carrier;
mod entered;
mod form;
mod hidden_token;
mod json;
mod key_from;
mod not_entered;
mod passage;
mod peer;
mod protect;
mod reading;
#[cfg(feature = "sql")]
mod request_intent;
mod require_protection;
mod route_guard;
mod run_id;
mod run_to_completion;
mod serve;
mod subject;
mod token_route;
mod whole;
mod worker;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::form::scan_in_pieces;

pub use self::answer::{MarkEffect, reject, reject_at};
pub use self::asked::action_of;
pub use self::carrier::token_in;
pub use self::entered::entered;
pub use self::hidden_token::HiddenToken;
pub use self::json::{issued, read_json, read_json_up_to};
pub use self::key_from::KeyFrom;
pub use self::not_entered::ExtractorError;
pub use self::peer::Peer;
pub use self::protect::Protect;
#[cfg(feature = "sql")]
pub use self::request_intent::RequestIntent;
pub use self::require_protection::{Exempt, RequireProtection};
pub use self::route_guard::HasToken;
pub use self::serve::{serve, serve_on, serve_until};
pub use self::subject::SubjectFrom;
pub use self::token_route::token_route;
