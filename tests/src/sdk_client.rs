//! Clients of the Rust SDK with short backoff.

use std::time::Duration;

use onceward_client::{Client, ClientBuilder, RetryLimits};

/// A builder of clients that ignore the machine's proxy settings and have a maximum backoff of 50 ms.
pub fn builder() -> ClientBuilder {
    let (first, longest) = (Duration::from_millis(5), Duration::from_millis(50));
    let limits = RetryLimits::new().backoff(first, longest).attempt_timeout(Duration::from_secs(5));
    Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits)
}

/// Builds a client from [`builder`].
pub fn client() -> Client {
    builder().build().expect("valid settings")
}
