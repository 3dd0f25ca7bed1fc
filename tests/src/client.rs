//! A client that says what it was told.

use std::time::Duration;

use onceward::Effect;
use onceward_api::{IssuedToken, Problem, header};
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, Response};
use tokio::time::sleep;

use crate::shop::ORDER;

/// What a client was told.
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
    /// Reads an answer to its end.
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let outcome = headers.get(header::OUTCOME).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        Self { status, outcome, headers, body: response.bytes().await.expect("a whole body") }
    }

    /// The body as a problem.
    pub fn problem(&self) -> Problem {
        assert_eq!(self.headers["content-type"], Problem::CONTENT_TYPE, "{self:?}");
        serde_json::from_slice(&self.body).expect("a problem")
    }

    /// The status and what became of it, as in `409 token_used`.
    pub fn said(&self) -> String {
        format!("{} {}", self.status, self.outcome)
    }

    /// The entries of its `Server-Timing` headers, as a browser reads them.
    pub fn timings(&self) -> Vec<String> {
        let values = self.headers.get_all(header::SERVER_TIMING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|entry| entry.trim().to_owned()).collect()
    }

    /// The outcome that the script of a page finds after a navigation: the last one.
    pub fn timing(&self) -> Option<String> {
        let entries = self.timings().into_iter();
        entries.filter_map(|entry| entry.strip_prefix("onceward;desc=").map(str::to_owned)).next_back()
    }
}

/// The status and the outcome of a run that had this effect, as [`Answer::said`] has them. The handler has no mark, so an error that is
/// kept may be another's.
pub fn ran(status: u16, effect: Effect) -> String {
    let outcome = match effect {
        Effect::Applied if status >= 400 => "replayable",
        Effect::Applied => "executed",
        Effect::NotApplied => "not_applied",
        Effect::Unknown => "unknown",
    };
    format!("{status} {outcome}")
}

/// Sends a request and reads the answer.
pub async fn send(request: RequestBuilder) -> Answer {
    Answer::of(request.send().await.expect("an answer")).await
}

/// How long a request waits that a busy store was late for. Many at once that come again sooner keep it busy.
const BACKOFF: Duration = Duration::from_millis(250);

/// The same, sent again as long as the store is late for it, as it may be for one of many at once.
pub async fn at_last(request: RequestBuilder) -> Answer {
    loop {
        let answer = send(request.try_clone().expect("a body that can be sent again")).await;
        if answer.outcome != "store_unavailable" {
            return answer;
        }
        sleep(BACKOFF).await;
    }
}

/// Asks for a token with this body.
pub async fn ask_token(url: &str, body: &'static str) -> Answer {
    let request = http().post(format!("{url}/token"));
    send(if body.is_empty() { request } else { request.header("content-type", "application/json").body(body) }).await
}

/// A token bound to nothing.
pub async fn token(url: &str) -> String {
    token_for(url, "").await
}

/// A token that this body asks for.
pub async fn token_for(url: &str, body: &'static str) -> String {
    let answer = ask_token(url, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    serde_json::from_slice::<IssuedToken>(&answer.body).expect("an issued token").token
}

/// A submission with a token, not sent yet.
pub fn submit(url: &str, path: &str, token: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(header::TOKEN, token).header(ORDER, order)
}

/// Orders once with a token.
pub async fn order(url: &str, token: &str, order: &str) -> Answer {
    send(submit(url, "/orders", token, order)).await
}

/// The content type of a form.
pub const URLENCODED: &str = "application/x-www-form-urlencoded";
/// The content type of what [`multipart`] makes.
pub const MULTIPART: &str = "multipart/form-data; boundary=between-the-parts";

/// A multipart form with these parts, in this order.
pub fn multipart(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in parts {
        let head = format!("--between-the-parts\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend([head.as_bytes(), value, b"\r\n"].concat());
    }
    body.extend(b"--between-the-parts--\r\n");
    body
}

/// A client without connections that another runtime has made.
pub fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}
