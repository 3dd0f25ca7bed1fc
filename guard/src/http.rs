//! HTTP without a web framework: the code that all adapters share.
//!
//! An adapter implements [`RequestHead`] for its requests. The decisions are functions over plain data: where a token or key is read from,
//! how a request becomes an [`Intent`](crate::Intent), which [`Effect`](crate::Effect) a response implies, which part of a response is
//! stored, and how a rejection or a stored response is sent.

mod body;
mod decide;
mod effect;
mod guarded_request;
mod json;
mod key_source;
mod nested;
mod rejection_page;
mod request;
mod response;
mod stored_response;
mod token_source;

pub use http::StatusCode;

pub use self::json::parse_json;
pub use self::key_source::KeySource;
pub use self::request::{RequestHead, action_of};
pub use self::response::{GuardResponse, issued};
pub use self::token_source::token_in;

pub(crate) use self::body::{BodyEnd, RequestBody, drain};
pub(crate) use self::decide::{AdmittedRequest, Decision, Route};
pub(crate) use self::effect::{Entry, ErrorSource, Judgement, ResponseFacts, judge};
pub(crate) use self::guarded_request::GuardedRequest;
pub(crate) use self::rejection_page::escape;
pub(crate) use self::request::{ParsedRequest, RequestReader};
pub(crate) use self::response::OutcomeHeaders;
pub(crate) use self::stored_response::{BodyLength, capture, read_limit};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::token_source::form::scan_in_pieces;
