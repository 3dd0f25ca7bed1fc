//! A test client that keeps the whole response.

use std::time::Duration;

use onceward::Effect;
use onceward_api::{IssuedToken, Problem, header};
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use tokio::time::sleep;

use crate::shop::ORDER;

/// A response, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The `Onceward-Outcome` header.
    pub outcome: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: bytes::Bytes,
}

impl Answer {
    /// Reads a response to its end.
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let outcome = headers.get(header::OUTCOME).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        Self { status, outcome, headers, body: response.bytes().await.expect("a whole body") }
    }

    /// Parses the body as a problem.
    pub fn problem(&self) -> Problem {
        assert_eq!(self.headers["content-type"], Problem::CONTENT_TYPE, "{self:?}");
        serde_json::from_slice(&self.body).expect("a problem")
    }

    /// Returns the status and the outcome, as in `409 token_used`.
    pub fn said(&self) -> String {
        format!("{} {}", self.status, self.outcome)
    }

    /// Returns the entries of the `Server-Timing` headers, as a browser reads them.
    pub fn timings(&self) -> Vec<String> {
        let values = self.headers.get_all(header::SERVER_TIMING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|entry| entry.trim().to_owned()).collect()
    }

    /// Returns the outcome that a page's script finds after a navigation: the last one.
    pub fn timing(&self) -> Option<String> {
        let entries = self.timings().into_iter();
        entries.filter_map(|entry| entry.strip_prefix("onceward;desc=").map(str::to_owned)).next_back()
    }
}

/// Returns the status and the outcome of a run with this effect, in the form of [`Answer::said`]. The handler does not mark its
/// responses, so a stored error may come from a middleware.
pub fn ran(status: u16, effect: Effect) -> String {
    let outcome = match effect {
        Effect::Applied if status >= 400 => "replayable",
        Effect::Applied => "executed",
        Effect::NotApplied => "not_applied",
        Effect::Unknown => "unknown",
    };
    format!("{status} {outcome}")
}

/// Sends a request and reads the response.
pub async fn send(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.expect("a response")).await
}

/// Backoff after a store timeout. With a shorter one, many concurrent retries would keep the store busy.
const BACKOFF: Duration = Duration::from_millis(250);

/// Like [`send`], but retries while the store is unavailable, as it may be under many concurrent requests.
pub async fn at_last(request: RequestBuilder) -> Answer {
    loop {
        let answer = send(request.try_clone().expect("a body that can be sent again")).await;
        if answer.outcome != "store_unavailable" {
            return answer;
        }
        sleep(BACKOFF).await;
    }
}

/// Requests a token with this body.
pub async fn ask_token(url: &str, body: &'static str) -> Answer {
    let request = http().post(format!("{url}/token"));
    send(if body.is_empty() { request } else { request.header("content-type", "application/json").body(body) }).await
}

/// Fetches an unbound token.
pub async fn token(url: &str) -> String {
    token_for(url, "").await
}

/// Fetches a token with this request body.
pub async fn token_for(url: &str, body: &'static str) -> String {
    let answer = ask_token(url, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    serde_json::from_slice::<IssuedToken>(&answer.body).expect("an issued token").token
}

/// Builds a submission with a token, without sending it.
pub fn submit(url: &str, path: &str, token: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(header::TOKEN, token).header(ORDER, order)
}

/// Sends one order with a token.
pub async fn order(url: &str, token: &str, order: &str) -> Answer {
    send(submit(url, "/orders", token, order)).await
}

/// The content type of a form.
pub const URLENCODED: &str = "application/x-www-form-urlencoded";
/// The content type of a body from [`multipart`].
pub const MULTIPART: &str = "multipart/form-data; boundary=between-the-parts";

/// Builds a multipart form with these parts, in this order.
pub fn multipart(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parts {
        let head = format!("--between-the-parts\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend([head.as_bytes(), value, b"\r\n"].concat());
    }
    body.extend(b"--between-the-parts--\r\n");
    body
}

/// A new HTTP client, without pooled connections of another runtime.
pub fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}
