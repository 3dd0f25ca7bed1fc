#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod answer;
mod authorization;
mod body;
mod client;
mod credential;
mod error;
mod held;
mod id;
mod key;
mod limits;
#[cfg(feature = "middleware")]
mod middleware;
mod pool;
mod redirect;
mod refusal;
mod retry;
mod run;
mod submission;
mod token;
mod transport;
mod tried;
mod undecided;

pub use answer::Answer;
pub use client::{Client, ClientBuilder};
pub use error::Error;
pub use id::generate_key;
pub use key::{BadKey, Key};
pub use limits::Limits;
#[cfg(feature = "middleware")]
pub use middleware::Submitting;
pub use onceward_api::{Code, Outcome, Problem, Retry};
pub use submission::Submission;
pub use undecided::Undecided;
