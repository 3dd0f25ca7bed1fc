//! The wire contract of Onceward, version 1.
//!
//! This crate is the only place that names headers, JSON bodies, problem codes and metrics. The guard, the service and the
//! Rust client SDK all use it, so no name is spelled in two ways.
//!
//! ```
//! use onceward_api::{Code, Problem, Retry};
//!
//! let problem = Problem::new(Code::TokenUsed).instance("/orders");
//! assert_eq!(problem.status, 409);
//! assert_eq!(problem.retry, Retry::No);
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod claim;
mod description;
pub mod duration;
pub mod header;
pub mod metric;
mod outcome;
pub mod path;
mod problem;
mod token;

pub use claim::{
    ClaimRequest, ClaimResponse, CompleteRequest, KeptReply, OutcomeRequest, OutcomeResponse, PassRequest, State,
};
#[cfg(feature = "utoipa")]
pub use description::NotDocumented;
pub use description::{
    ClaimLimits, DescribedPolicy, DescribedRoute, Description, DurationLimits, HeaderNames, KeyPlace, TokenLimits,
};
pub use outcome::Outcome;
pub use problem::{Code, Problem, Retry};
pub use token::{
    IssuedToken, IssuedTokens, RedeemRequest, RedeemResponse, ReleaseRequest, TokenRequest, TokensRequest,
};

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
