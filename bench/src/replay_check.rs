//! Checks that a server executes a request once and replays its response: figures of one that does not would mean nothing.

use std::path::Path;
use std::time::Duration;

use onceward::api::header::IDEMPOTENCY_KEY;
use reqwest::header::CONTENT_TYPE;
use tokio::runtime::{Builder, Runtime};

use crate::Failure;
use crate::http_connection::KEY_LENGTH;
use crate::wrk::BODY;

/// The header of a replayed response.
const REPLAYED: &str = "idempotent-replayed";
/// Maximum time for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client that sends single requests.
pub(crate) struct ReplayCheck {
    client: reqwest::Client,
    runtime: Runtime,
}

/// The part of a response that is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckedResponse {
    status: u16,
    is_replayed: bool,
    body: String,
}

impl ReplayCheck {
    /// Creates the client.
    pub(crate) fn new() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self { client, runtime })
    }

    /// Sends a new key, the same request again, and the key with another body.
    ///
    /// # Errors
    /// If the first request is not executed, the second not replayed, or the third not rejected.
    pub(crate) fn check_route(&self, url: &str) -> Result<(), Failure> {
        let [first, again] = [self.send(url, "first-key", BODY)?, self.send(url, "first-key", BODY)?];
        let other = self.send(url, "first-key", "{}")?;
        Ok(verdict(&first, &again, &other)?)
    }

    /// Sends the key of a measured request again.
    ///
    /// # Errors
    /// If the response is not replayed: then the measured request was not stored.
    pub(crate) fn check_key(&self, url: &str, tokens: &Path, line: usize) -> Result<(), Failure> {
        let tokens = std::fs::read_to_string(tokens)?;
        let key = key(&tokens, line).ok_or("the file has fewer tokens than requested")?;
        let response = self.send(url, key, BODY)?;
        if response.is_replayed { Ok(()) } else { Err(format!("a measured key is not replayed: {response:?}").into()) }
    }

    fn send(&self, url: &str, key: &str, body: &str) -> Result<CheckedResponse, Failure> {
        let request = self.client.post(url).header(IDEMPOTENCY_KEY, key).header(CONTENT_TYPE, "application/json");
        let request = request.body(body.to_owned());
        self.runtime.block_on(async {
            let response = request.send().await?;
            let is_replayed = response.headers().get(REPLAYED).is_some_and(|value| value == "true");
            Ok(CheckedResponse { status: response.status().as_u16(), is_replayed, body: response.text().await? })
        })
    }
}

/// Returns the key of the token in this line.
fn key(tokens: &str, line: usize) -> Option<&str> {
    tokens.lines().nth(line)?.get(..KEY_LENGTH)
}

fn verdict(first: &CheckedResponse, again: &CheckedResponse, other: &CheckedResponse) -> Result<(), String> {
    if first.status != 201 || first.is_replayed {
        return Err(format!("the first request is not executed: {first:?}"));
    }
    if *again != (CheckedResponse { is_replayed: true, ..first.clone() }) {
        return Err(format!("the second request is not replayed: {again:?} after {first:?}"));
    }
    if other.status != 400 {
        return Err(format!("the key with another body is not rejected: {other:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, is_replayed: bool, body: &str) -> CheckedResponse {
        CheckedResponse { status, is_replayed, body: body.to_owned() }
    }

    #[test]
    fn peer_that_executes_replays_and_rejects_is_accepted() {
        let (first, again) = (response(201, false, "a"), response(201, true, "a"));
        assert_eq!(verdict(&first, &again, &response(400, false, "")), Ok(()));
    }

    #[test]
    fn peer_that_does_not_deduplicate_is_rejected() {
        let (first, again, other) = (response(201, false, "a"), response(201, true, "a"), response(400, false, ""));
        let (failed, different) = (response(503, false, ""), response(201, true, "b"));
        let reason = |first, again, other| verdict(first, again, other).unwrap_err();
        assert!(reason(&again, &again, &other).contains("not executed"));
        assert!(reason(&failed, &again, &other).contains("not executed"));
        assert!(reason(&first, &first, &other).contains("not replayed"));
        assert!(reason(&first, &different, &other).contains("not replayed"));
        assert!(reason(&first, &again, &first).contains("not rejected"));
    }

    #[test]
    fn key_is_the_beginning_of_its_line() {
        let tokens = format!("{}\n{}tail\n", "a".repeat(40), "b".repeat(KEY_LENGTH));
        assert_eq!(key(&tokens, 1), Some("b".repeat(KEY_LENGTH).as_str()));
        assert_eq!((key(&tokens, 2), key("short\n", 0)), (None, None));
    }
}
