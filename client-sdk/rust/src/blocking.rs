//! A client that blocks the thread until a submission has ended, for programs without an async runtime.
//!
//! The client runs the async one on a thread of its own, with the same settings, retries and token pool. Its clones share that thread, which
//! ends when the last clone, submission and response is dropped.
//!
//! In an async runtime, use the async [`Client`](crate::Client), or call this one inside `tokio::task::spawn_blocking`: elsewhere in a
//! runtime it panics.
//!
//! ```no_run
//! use onceward_client::{Client, OnUnknown};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().with_keys_of("billing").on_unknown(OnUnknown::Look).build_blocking()?;
//! match client.post("https://bank.example/transfers").body("42 to Ann").send() {
//!     Ok(response) => println!("{}: {}", response.status(), response.text()?),
//!     Err(error) if error.is_unknown() => println!("the transfer may have been made: {error}"),
//!     Err(error) => println!("not transferred: {error}"),
//! }
//! # Ok(())
//! # }
//! ```

mod client;
mod response;
mod runtime_thread;
mod submission;

pub use self::client::Client;
pub use self::response::Response;
pub use self::submission::Submission;
