//! What a guard says in an answer: read from the head, and from a problem's body up to a limit.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use onceward_api::{Outcome, Problem, header};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode};

/// The most that is read of a problem.
const LIMIT: usize = 64 * 1024;

/// A refusal of a guard.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) problem: Problem,
    pub(crate) retry_after: Option<Duration>,
}

/// What the head of an answer says became of the request.
pub(crate) fn outcome(headers: &HeaderMap) -> Option<Outcome> {
    Outcome::parse(headers.get(header::OUTCOME)?.to_str().ok()?)
}

/// How long the answer asks to wait. A date is not understood: clocks may differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// An answer, or the refusal that it is.
pub(crate) enum Told {
    Answer(Response),
    Refused(Refusal),
}

/// Tells a refusal from an answer. What was read of an answer is put back.
///
/// The head goes first: what a handler answers is its own, also if it hands on the problem of somebody else; and a refusal is
/// one, also if its body is a page, or endless.
///
/// # Errors
/// If an answer breaks off while it is being read.
pub(crate) async fn told(mut response: Response) -> reqwest::Result<Told> {
    let said = outcome(response.headers());
    if !matches!(said, Some(Outcome::Rejected(_)) | None) {
        return Ok(Told::Answer(response));
    }
    let retry_after = retry_after(response.headers());
    let refused = |problem| Ok(Told::Refused(Refusal { problem, retry_after }));
    match said {
        Some(Outcome::Rejected(code)) => {
            // The head has said it: what becomes of the body does not matter.
            let read = read(&mut response, LIMIT).await.map(Read::into_bytes).unwrap_or_default();
            let problem = serde_json::from_slice(&read).ok().filter(|problem: &Problem| problem.code == code);
            refused(problem.unwrap_or_else(|| Problem::new(code)))
        }
        None if is_problem(&response) => {
            let status = response.status().as_u16();
            let read = read(&mut response, LIMIT).await?;
            let problem =
                serde_json::from_slice(read.bytes()).ok().filter(|problem: &Problem| problem.status == status);
            match problem {
                Some(problem) => refused(problem),
                None => Ok(Told::Answer(read.back_into(response))),
            }
        }
        _ => Ok(Told::Answer(response)),
    }
}

fn is_problem(response: &Response) -> bool {
    let is_failure = response.status() >= StatusCode::BAD_REQUEST;
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    is_failure && content_type.is_some_and(|text| text.starts_with(Problem::CONTENT_TYPE))
}

/// What was read of a body.
#[derive(Debug)]
pub(crate) struct Read {
    bytes: Bytes,
    is_whole: bool,
}

impl Read {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The answer as it was before it was read.
    pub(crate) fn back_into(self, response: Response) -> Response {
        use futures_util::{StreamExt as _, stream};
        use reqwest::{Body, ResponseBuilderExt as _};
        let (url, read, is_whole) = (response.url().clone(), self.bytes, self.is_whole);
        let (parts, rest) = http::Response::<Body>::from(response).into_parts();
        let body = if is_whole {
            Body::from(read)
        } else {
            let rest = Response::from(http::Response::new(rest)).bytes_stream();
            Body::wrap_stream(stream::iter([Ok(read)]).chain(rest))
        };
        let mut again = http::Response::new(body);
        if let Ok(named) = http::response::Builder::new().url(url).body(()) {
            *again.extensions_mut() = named.into_parts().0.extensions;
        }
        (*again.status_mut(), *again.version_mut(), *again.headers_mut()) =
            (parts.status, parts.version, parts.headers);
        again.extensions_mut().extend(parts.extensions);
        Response::from(again)
    }
}

/// Reads a body to its end, or somewhat beyond a limit.
///
/// # Errors
/// If it breaks off.
pub(crate) async fn read(response: &mut Response, limit: usize) -> reqwest::Result<Read> {
    // Most bodies come in one piece, and need not be copied.
    let first = response.chunk().await?.unwrap_or_default();
    if first.len() > limit {
        return Ok(Read { bytes: first, is_whole: false });
    }
    let Some(second) = response.chunk().await? else { return Ok(Read { bytes: first, is_whole: true }) };
    let mut bytes = BytesMut::from(first);
    bytes.extend_from_slice(&second);
    while bytes.len() <= limit {
        match response.chunk().await? {
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => return Ok(Read { bytes: bytes.freeze(), is_whole: true }),
        }
    }
    Ok(Read { bytes: bytes.freeze(), is_whole: false })
}

#[cfg(test)]
mod tests {
    use onceward_api::Code;

    use super::*;

    fn response(status: u16, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Response {
        let mut builder = http::Response::builder().status(status);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        Response::from(builder.body(body.into()).unwrap())
    }

    fn problem(code: Code) -> String {
        serde_json::to_string(&Problem::new(code).detail("this time")).unwrap()
    }

    const PROBLEM: (&str, &str) = ("content-type", "application/problem+json; charset=utf-8");

    async fn refusal(response: Response) -> Option<Problem> {
        match told(response).await.unwrap() {
            Told::Refused(refusal) => Some(refusal.problem),
            Told::Answer(_) => None,
        }
    }

    #[tokio::test]
    async fn a_refusal_is_known_by_its_head_or_by_its_body() {
        let marked = response(409, &[("onceward-outcome", "token_used"), PROBLEM], problem(Code::TokenUsed));
        assert_eq!(refusal(marked).await.unwrap().detail, "this time");
        let page = response(409, &[("onceward-outcome", "in_progress"), ("content-type", "text/html")], "<h1>no</h1>");
        assert_eq!(refusal(page).await, Some(Problem::new(Code::InProgress)));
        let stripped = response(410, &[PROBLEM], problem(Code::TokenExpired));
        assert_eq!(refusal(stripped).await.unwrap().code, Code::TokenExpired);
    }

    #[tokio::test]
    async fn what_a_handler_hands_on_of_somebody_else_is_its_answer() {
        let handed_on = response(409, &[("onceward-outcome", "executed"), PROBLEM], problem(Code::TokenUsed));
        assert!(refusal(handed_on).await.is_none());
        assert!(refusal(response(200, &[PROBLEM], problem(Code::TokenUsed))).await.is_none());
        assert!(refusal(response(500, &[PROBLEM], problem(Code::TokenUsed))).await.is_none(), "another status");
    }

    #[tokio::test]
    async fn a_problem_of_the_application_s_own_keeps_its_body_however_large() {
        for size in [10, LIMIT + 10, 3 * LIMIT] {
            let text = format!("{{\"title\":\"{}\"}}", "x".repeat(size));
            let url: reqwest::Url = "http://shop.example/orders".parse().unwrap();
            use reqwest::ResponseBuilderExt as _;
            let chunks: Vec<_> = text.as_bytes().chunks(1000).map(|c| Ok::<_, std::io::Error>(c.to_vec())).collect();
            let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
            let made = http::Response::builder().status(400).header(PROBLEM.0, PROBLEM.1).url(url.clone()).body(body);
            let Told::Answer(answer) = told(Response::from(made.unwrap())).await.unwrap() else { panic!("an answer") };
            assert_eq!((answer.status().as_u16(), answer.url()), (400, &url));
            assert_eq!(answer.text().await.unwrap(), text);
        }
    }

    #[tokio::test]
    async fn an_endless_problem_is_not_read_to_its_end() {
        let (piece, read) = (Bytes::from(vec![b'x'; 16 * 1024]), std::sync::Arc::new(std::sync::Mutex::new(0)));
        let count = read.clone();
        let endless = futures_util::stream::repeat_with(move || {
            *count.lock().unwrap() += 1;
            Ok::<_, std::io::Error>(piece.clone())
        });
        let body = reqwest::Body::wrap_stream(endless);
        let refused = refusal(response(503, &[("onceward-outcome", "overloaded"), PROBLEM], body)).await;
        assert_eq!(refused, Some(Problem::new(Code::Overloaded)));
        assert!(*read.lock().unwrap() <= 5, "{:?}", read);
    }

    #[test]
    fn a_wait_is_whole_seconds_and_nothing_else() {
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait(" 3 "), Some(Duration::from_secs(3)));
        assert_eq!(wait("Fri, 31 Dec 2027 23:59:59 GMT"), None);
        assert_eq!(wait("-1"), None);
        assert_eq!(wait("99999999999999999999999"), None);
    }
}
