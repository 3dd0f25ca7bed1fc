//! Rejections by a guard, read from the headers of a response and from the problem in its body.

use std::time::Duration;

use onceward_api::{Code, Outcome, Problem, Retry, header};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::{Response, StatusCode};

use crate::buffered_body::BufferedBody;

static OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);

/// Maximum number of bytes read of a problem.
const LIMIT: usize = 64 * 1024;

/// A rejection by a guard.
#[derive(Debug, Clone)]
pub(crate) struct Rejection {
    pub(crate) problem: Problem,
    pub(crate) retry_after: Option<Duration>,
}

/// A rejection whose outcome is of a later version of the contract.
#[derive(Debug)]
pub(crate) struct LaterRejection {
    pub(crate) outcome: String,
    pub(crate) retry: Retry,
    pub(crate) retry_after: Option<Duration>,
}

/// The outcome in the headers of a response.
pub(crate) fn outcome(headers: &HeaderMap) -> Option<Outcome> {
    Outcome::parse(headers.get(&OUTCOME)?.to_str().ok()?)
}

/// The next step in the headers of a rejection.
fn next_step(headers: &HeaderMap) -> Option<Retry> {
    Retry::parse(headers.get(header::RETRY)?.to_str().ok()?)
}

/// The `Retry-After` of a response, in seconds. A date is ignored: clocks may differ.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The rejection in the headers of a response, if its outcome is of a later version of the contract. Only a rejection names the next step.
pub(crate) fn later_rejection(headers: &HeaderMap) -> Option<LaterRejection> {
    let outcome = headers.get(&OUTCOME)?.to_str().ok()?;
    let is_later = Outcome::parse(outcome).is_none() && headers.contains_key(header::RETRY);
    let retry = next_step(headers).unwrap_or(Retry::No);
    is_later.then(|| LaterRejection { outcome: outcome.to_owned(), retry, retry_after: retry_after(headers) })
}

/// The origin of a response.
pub(crate) enum ResponseClass {
    /// The application responded.
    Application(Response),
    /// A guard rejected the request.
    Rejected(Rejection),
}

/// Returns true if a response with this outcome may be a rejection: [`classify`] tells, and reads its body for that.
pub(crate) fn may_be_rejection(outcome: Option<Outcome>, response: &Response) -> bool {
    outcome.is_some_and(|outcome| !codes(outcome, response.headers()).is_empty())
        || outcome.is_none() && is_problem(response)
}

/// Returns true if the headers alone show that a response is a rejection.
pub(crate) fn is_rejection(outcome: Option<Outcome>, headers: &HeaderMap) -> bool {
    match outcome {
        Some(outcome) => !codes(outcome, headers).is_empty(),
        None => later_rejection(headers).is_some(),
    }
}

/// The codes that a response with this outcome may have, the usual one first; empty if the response is not a rejection.
///
/// If the application sends no usable response, a proxy rejects the request after its guard has let it through. The outcome is the effect
/// then, and only a rejection names the next step.
fn codes(outcome: Outcome, headers: &HeaderMap) -> Vec<Code> {
    match outcome {
        Outcome::Rejected(code) => vec![code],
        _ if !headers.contains_key(header::RETRY) => Vec::new(),
        Outcome::NotApplied | Outcome::NotReleased => vec![Code::UpstreamUnavailable],
        Outcome::Unknown => vec![Code::OutcomeUnknown, Code::UpstreamTimeout, Code::UpstreamFailed],
        Outcome::Executed | Outcome::Replayable | Outcome::Replayed | Outcome::Unprotected | Outcome::Redeemed => {
            Vec::new()
        }
    }
}

/// Distinguishes a rejection from a response of the application, whose body stays complete.
///
/// The headers take precedence over the body and the status, since a route chooses the format of its rejections: an envelope may have the
/// status 200. A response that the guard marks as the handler's is the application's, even if the handler forwards the problem of another
/// service; but not if it may be the proxy's and names the next step. A response marked as a rejection is one, even if its body is a page
/// or endless.
///
/// # Errors
/// If the connection fails while the body is read.
pub(crate) async fn classify(mut response: Response) -> reqwest::Result<ResponseClass> {
    let outcome = outcome(response.headers());
    if !may_be_rejection(outcome, &response) {
        return Ok(ResponseClass::Application(response));
    }
    let (retry, retry_after) = (next_step(response.headers()), retry_after(response.headers()));
    let rejected = |problem| Ok(ResponseClass::Rejected(Rejection { problem, retry_after }));
    let codes = outcome.map(|outcome| codes(outcome, response.headers())).unwrap_or_default();
    match codes.first() {
        Some(&usual) => {
            // The body may be missing or unreadable: the headers suffice.
            let body = BufferedBody::read(&mut response, LIMIT).await.map(BufferedBody::into_bytes).unwrap_or_default();
            let problem = serde_json::from_slice(&body).ok().filter(|problem: &Problem| codes.contains(&problem.code));
            let mut problem = problem.unwrap_or_else(|| Problem::new(usual));
            problem.retry = retry.unwrap_or(problem.retry);
            rejected(problem)
        }
        None => {
            let status = response.status().as_u16();
            let body = BufferedBody::read(&mut response, LIMIT).await?;
            let problem =
                serde_json::from_slice(body.bytes()).ok().filter(|problem: &Problem| problem.status == status);
            match problem {
                Some(problem) => rejected(problem),
                None => Ok(ResponseClass::Application(body.put_back(response))),
            }
        }
    }
}

fn is_problem(response: &Response) -> bool {
    let is_failure = response.status() >= StatusCode::BAD_REQUEST;
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    is_failure && content_type.is_some_and(|text| text.starts_with(Problem::CONTENT_TYPE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

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

    async fn rejection(response: Response) -> Option<Problem> {
        match classify(response).await.unwrap() {
            ResponseClass::Rejected(rejection) => Some(rejection.problem),
            ResponseClass::Application(_) => None,
        }
    }

    #[tokio::test]
    async fn rejection_is_recognized_by_header_or_body() {
        let marked = response(409, &[("onceward-outcome", "token_used"), PROBLEM], problem(Code::TokenUsed));
        assert_eq!(rejection(marked).await.unwrap().detail, "this time");
        let page = response(409, &[("onceward-outcome", "in_progress"), ("content-type", "text/html")], "<h1>no</h1>");
        assert_eq!(rejection(page).await, Some(Problem::new(Code::InProgress)));
        let stripped = response(410, &[PROBLEM], problem(Code::TokenExpired));
        assert_eq!(rejection(stripped).await.unwrap().code, Code::TokenExpired);
    }

    #[tokio::test]
    async fn rejection_of_any_status_and_shape_is_recognized_by_its_headers() {
        let headers =
            [("onceward-outcome", "redeem_unknown"), ("onceward-retry", "no"), ("content-type", "application/json")];
        let wrapped = response(200, &headers, r#"{"code":20001,"message":"later","data":null}"#);
        assert_eq!(rejection(wrapped).await, Some(Problem { retry: Retry::No, ..Problem::new(Code::RedeemUnknown) }));
        let later = [("onceward-outcome", "token_used"), ("onceward-retry", "of a later version"), PROBLEM];
        let said = rejection(response(409, &later, problem(Code::TokenUsed))).await.unwrap();
        assert_eq!((said.retry, &*said.detail), (Retry::No, "this time"));
    }

    #[tokio::test]
    async fn rejection_after_the_guard_is_recognized_by_its_next_step() {
        let said = |status, outcome: &'static str, retry: Option<&'static str>| {
            let headers = retry.map(|retry| ("onceward-retry", retry));
            let headers: Vec<_> = [("onceward-outcome", outcome)].into_iter().chain(headers).collect();
            rejection(response(status, &headers, r#"{"code":20001,"message":"later","data":null}"#))
        };
        for status in [200, 303, 502, 504] {
            for outcome in ["not_applied", "not_released"] {
                let unavailable = Some(Problem::new(Code::UpstreamUnavailable));
                assert_eq!(said(status, outcome, Some("same")).await, unavailable, "{status} {outcome}");
            }
            assert_eq!(said(status, "unknown", Some("no")).await, Some(Problem::new(Code::OutcomeUnknown)), "{status}");
            for outcome in ["not_applied", "not_released", "unknown"] {
                assert_eq!(said(status, outcome, None).await, None, "{status} {outcome} is the handler's");
            }
            // A handler that took effect, and passes on the headers of another service.
            for outcome in ["executed", "replayable", "replayed", "unprotected", "redeemed"] {
                assert_eq!(said(status, outcome, Some("same")).await, None, "{status} {outcome}");
            }
        }
        let headers = [("onceward-outcome", "unknown"), ("onceward-retry", "no"), PROBLEM];
        let timed_out = rejection(response(504, &headers, problem(Code::UpstreamTimeout))).await.unwrap();
        assert_eq!((timed_out.code, &*timed_out.detail), (Code::UpstreamTimeout, "this time"));
    }

    #[tokio::test]
    async fn forwarded_problem_of_a_handler_is_its_response() {
        let handed_on = response(409, &[("onceward-outcome", "executed"), PROBLEM], problem(Code::TokenUsed));
        assert!(rejection(handed_on).await.is_none());
        assert!(rejection(response(200, &[PROBLEM], problem(Code::TokenUsed))).await.is_none());
        assert!(rejection(response(500, &[PROBLEM], problem(Code::TokenUsed))).await.is_none(), "another status");
    }

    #[tokio::test]
    async fn application_problem_keeps_its_body_of_any_size() {
        for size in [10, LIMIT + 10, 3 * LIMIT] {
            let text = format!("{{\"title\":\"{}\"}}", "x".repeat(size));
            let url: reqwest::Url = "http://shop.example/orders".parse().unwrap();
            use reqwest::ResponseBuilderExt as _;
            let chunks: Vec<_> = text.as_bytes().chunks(1000).map(|c| Ok::<_, std::io::Error>(c.to_vec())).collect();
            let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
            let made = http::Response::builder().status(400).header(PROBLEM.0, PROBLEM.1).url(url.clone()).body(body);
            let ResponseClass::Application(response) = classify(Response::from(made.unwrap())).await.unwrap() else {
                panic!("expected a response of the application")
            };
            assert_eq!((response.status().as_u16(), response.url()), (400, &url));
            assert_eq!(response.text().await.unwrap(), text);
        }
    }

    #[tokio::test]
    async fn endless_problem_body_is_not_read_completely() {
        let (piece, read) = (Bytes::from(vec![b'x'; 16 * 1024]), std::sync::Arc::new(std::sync::Mutex::new(0)));
        let count = read.clone();
        let endless = futures_util::stream::repeat_with(move || {
            *count.lock().unwrap() += 1;
            Ok::<_, std::io::Error>(piece.clone())
        });
        let body = reqwest::Body::wrap_stream(endless);
        let rejected = rejection(response(503, &[("onceward-outcome", "overloaded"), PROBLEM], body)).await;
        assert_eq!(rejected, Some(Problem::new(Code::Overloaded)));
        assert!(*read.lock().unwrap() <= 5, "{:?}", read);
    }

    #[test]
    fn retry_after_is_whole_seconds_only() {
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
