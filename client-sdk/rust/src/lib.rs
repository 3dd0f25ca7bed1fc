#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod attempt;
mod authorization;
mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
mod body;
mod buffered_body;
mod client;
mod credential;
mod credential_state;
mod error;
mod key;
#[cfg(feature = "middleware")]
mod middleware;
mod on_unknown;
mod outcome_service;
mod redirect;
mod rejection;
mod response;
mod retry_decision;
mod retry_limits;
mod retry_loop;
mod submission;
mod token;
mod token_pool;
mod transport;

pub use client::{Client, ClientBuilder};
pub use error::Error;
pub use key::{BadKey, Key, generate_key, generate_ordered_key};
#[cfg(feature = "middleware")]
pub use middleware::OncewardMiddleware;
pub use on_unknown::OnUnknown;
pub use onceward_api::{Code, Outcome, Problem, Retry};
pub use response::Response;
pub use retry_limits::RetryLimits;
pub use submission::Submission;
