//! Clients of the Rust SDK with short waits.

use std::time::Duration;

use onceward_client::{Client, ClientBuilder, RetryLimits};

/// A builder of clients that ignore the proxy settings of the machine and wait 50 ms at most between tries.
pub fn builder() -> ClientBuilder {
    let (first, longest) = (Duration::from_millis(5), Duration::from_millis(50));
    let limits = RetryLimits::new().backoff(first, longest).attempt_timeout(Duration::from_secs(5));
    Client::builder().http(reqwest::Client::builder().no_proxy()).limits(limits)
}

/// A client of [`builder`].
pub fn client() -> Client {
    builder().build().expect("valid settings")
}
