//! HTTP without a web framework: the code that all adapters share.
//!
//! An adapter implements [`Framework`] and [`RequestHead`] for the types of its framework. The decisions are functions over plain data: where
//! a token or key is read from, how a request becomes an [`Intent`](crate::Intent), which [`Effect`](crate::Effect) a response implies,
//! which part of a response is stored, and how a rejection or a stored response is sent. [`Protect`] is the builder of a route's rules.

#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod annotated;
mod audience;
mod body;
mod body_defect;
mod decide;
mod describe;
mod effect;
mod effect_mark;
mod exchange;
mod framework;
mod guarded_request;
mod handler_mark;
mod hidden_token;
mod json;
mod kept_headers;
mod key_source;
mod middleware;
mod nested;
mod observed_body;
mod preferences;
mod profile;
pub mod protect;
mod protected_call;
#[cfg(feature = "macros")]
mod protection;
mod rejection_format;
mod rejection_page;
mod request;
mod request_intent;
mod require_protection;
mod response;
mod retention_header;
mod route_rules;
mod run_to_completion;
pub(crate) mod sealed;
mod signature;
mod stored_response;
mod subject_source;
mod token_request;
mod token_source;

pub use http::StatusCode;

pub use self::effect_mark::MarkEffect;
pub use self::framework::Framework;
pub use self::hidden_token::HiddenToken;
pub use self::json::parse_json;
pub use self::key_source::KeySource;
pub use self::preferences::Preferences;
pub use self::profile::Profile;
pub use self::protect::Protect;
pub use self::protected_call::ProtectedCall;
#[cfg(feature = "macros")]
pub use self::protection::Protection;
pub use self::rejection_format::envelope::Envelope;
pub use self::rejection_format::{RejectedRequest, RejectionFormat, RejectionResponse};
pub use self::request::{RequestHead, action_of};
pub use self::request_intent::RequestIntent;
pub use self::require_protection::{Exempt, RequireProtection};
pub use self::response::{GuardResponse, issued};
pub use self::subject_source::SubjectSource;
pub use self::token_source::token_in;

pub(crate) use self::audience::Audience;
pub(crate) use self::body::{BodyEnd, Pieces, RequestBody, drain};
pub(crate) use self::describe::body_of;
pub(crate) use self::effect::ErrorSource;
pub(crate) use self::exchange::{Exchange, HandlerResponse};
pub(crate) use self::guarded_request::GuardedRequest;
pub(crate) use self::handler_mark::{HandlerMark, MarkedRun};
pub(crate) use self::middleware::run;
pub(crate) use self::observed_body::BodyTap;
pub(crate) use self::request_intent::UncheckedRoute;
pub(crate) use self::require_protection::{Reached, SeenMark, Submission};
pub(crate) use self::route_rules::{RouteRules, Treatment};
pub(crate) use self::run_to_completion::{Idle, RunToCompletion};
pub(crate) use self::signature::{InnerOutcome, Signature, SignedHeaders};
pub(crate) use self::stored_response::BodyLength;
pub(crate) use self::token_request::answer_token_request;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::token_source::form::scan_in_pieces;
