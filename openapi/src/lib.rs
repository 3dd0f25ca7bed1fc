//! The wire contract of Onceward, version 1.
//!
//! Everything that crosses the wire has its name here and nowhere else: the guard, the service and the SDKs all
//! refer to this crate, so that a header or a problem code cannot be spelled in two ways.
//!
//! ```
//! use onceward_api::{Code, Problem, Retry};
//!
//! let problem = Problem::new(Code::TokenUsed).instance("/orders");
//! assert_eq!(problem.status, 409);
//! assert_eq!(problem.retry, Retry::No);
//! ```
#![warn(missing_docs)]

mod claim;
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
pub use outcome::Outcome;
pub use problem::{Code, Problem, Retry};
pub use token::{
    IssuedToken, IssuedTokens, RedeemRequest, RedeemResponse, ReleaseRequest, TokenRequest, TokensRequest,
};
