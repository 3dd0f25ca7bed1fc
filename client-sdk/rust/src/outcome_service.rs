//! The `/outcome` endpoint of the Onceward service: looks up a submission without sending it.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_api::{KeptReply, Outcome, OutcomeRequest, OutcomeResponse, header};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response, ResponseBuilderExt as _, StatusCode, Url};

use crate::attempt::AttemptResponse;
use crate::buffered_body::BufferedBody;
use crate::client::parse_base;
use crate::error::{BoxError, Error};
use crate::rejection::{Rejection, ResponseClass, classify, retry_after};

/// Maximum number of bytes read of a response: a reply of 1 MiB in base64, and the JSON around it.
const LIMIT: usize = 2 * 1024 * 1024;

/// The service that looks up outcomes, and the API key for it.
pub(crate) struct OutcomeService {
    url: Url,
    authorization: Option<HeaderValue>,
}

/// The reason why there is no outcome.
pub(crate) enum LookupError {
    /// The service rejected the lookup.
    Rejected(Rejection),
    /// The service cannot be reached, or is overloaded: a retry may succeed.
    Unavailable { reason: BoxError, retry_after: Option<Duration> },
    /// The response is not one of `/outcome`.
    Unusable(String),
}

impl OutcomeService {
    /// Appends `/outcome` to the URL.
    ///
    /// # Errors
    /// If the URL is invalid, or no header can carry the API key. The error does not contain the key.
    pub(crate) fn new(base: &str, api_key: Option<&str>) -> Result<Self, Error> {
        let mut url = parse_base(base, "outcomes_from", "/outcome")?;
        url.set_path(&format!("{}/outcome", url.path().trim_end_matches('/')));
        let authorization = api_key.map(bearer).transpose()?;
        Ok(Self { url, authorization })
    }

    /// Looks up the current state of a submission. Follows no redirect, so that the API key reaches this URL only.
    pub(crate) async fn look_up(
        &self,
        http: &reqwest::Client,
        asked: &OutcomeRequest,
        limit: Duration,
    ) -> Result<OutcomeResponse, LookupError> {
        let response = http.execute(self.request(asked, limit)).await.map_err(unavailable)?;
        if response.url() != &self.url {
            return Err(self.unusable("was redirected by the HTTP client: build it with `redirect(Policy::none())`"));
        }
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let mut response = match classify(response).await.map_err(unavailable)? {
            ResponseClass::Rejected(rejection) => return Err(LookupError::Rejected(rejection)),
            ResponseClass::Application(response) => response,
        };
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            let reason = format!("{} returned {status}", self.url).into();
            return Err(LookupError::Unavailable { reason, retry_after });
        }
        let body = BufferedBody::read(&mut response, LIMIT).await.map_err(unavailable)?;
        let outcome = serde_json::from_slice(body.bytes()).ok().filter(|_| body.is_whole() && status.is_success());
        outcome.ok_or_else(|| self.unusable(&format!("returned {status} without an outcome: is this the service?")))
    }

    fn request(&self, asked: &OutcomeRequest, limit: Duration) -> Request {
        let mut request = Request::new(Method::POST, self.url.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        *request.body_mut() = Some(serde_json::to_vec(asked).unwrap_or_default().into());
        *request.timeout_mut() = Some(limit);
        request
    }

    fn unusable(&self, what: &str) -> LookupError {
        LookupError::Unusable(format!("{} {what}", self.url))
    }
}

impl fmt::Debug for OutcomeService {
    /// Omits the API key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutcomeService").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Converts the stored reply into the response that a guard replays.
pub(crate) fn replayed(url: Option<&Url>, reply: &KeptReply) -> Option<AttemptResponse> {
    let body = STANDARD.decode(&reply.body).ok()?;
    let mut builder = http::Response::builder().status(reply.status);
    for [name, value] in &reply.headers {
        builder = builder.header(name, value);
    }
    if let Some(url) = url {
        builder = builder.url(url.clone());
    }
    let mut response = builder.body(reqwest::Body::from(body)).ok()?;
    for (name, value) in [(header::OUTCOME, "replayed"), (header::IDEMPOTENT_REPLAYED, "true")] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Some(AttemptResponse {
        response: Response::from(response),
        buffered: None,
        outcome: Some(Outcome::Replayed),
        is_submission: true,
    })
}

fn bearer(api_key: &str) -> Result<HeaderValue, Error> {
    let wrong =
        || Error::misuse("the API key in `outcomes_from` is empty, or contains a character that no header carries");
    let mut value = HeaderValue::from_str(&format!("Bearer {api_key}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    if api_key.is_empty() { Err(wrong()) } else { Ok(value) }
}

fn unavailable(error: reqwest::Error) -> LookupError {
    LookupError::Unavailable { reason: error.without_url().into(), retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_in_no_error_and_no_debug_output() {
        let secret = "a-secret-key\n";
        let error = OutcomeService::new("http://service.example", Some(secret)).unwrap_err();
        assert!(error.is_misuse() && !format!("{error} {error:?}").contains("a-secret"), "{error:?}");
        let service = OutcomeService::new("http://service.example/once/", Some("a-secret-key")).unwrap();
        let request = service.request(&OutcomeRequest::default(), Duration::from_secs(1));
        for shown in [format!("{service:?}"), format!("{request:?}")] {
            assert!(shown.contains("/once/outcome") || shown.contains("path"), "{shown}");
            assert!(!shown.contains("a-secret"), "{shown}");
        }
        assert!(OutcomeService::new("http://service.example", Some("")).is_err(), "an unset variable");
        assert!(OutcomeService::new("http://service.example?x", None).is_err());
    }

    #[tokio::test]
    async fn stored_reply_becomes_a_replayed_response() {
        let headers = vec![["location".to_owned(), "/orders/1".to_owned()], ["x".to_owned(), "1".to_owned()]];
        let reply = KeptReply { status: 201, headers, body: "AP8=".to_owned() };
        let url = "http://shop.example/orders".parse().unwrap();
        let response = crate::Response::new(replayed(Some(&url), &reply).unwrap(), 1);
        assert!(response.is_replayed() && response.status() == StatusCode::CREATED && response.url() == &url);
        assert_eq!(response.headers()["location"], "/orders/1");
        assert_eq!(response.bytes().await.unwrap().as_ref(), [0, 255]);
        let broken = [KeptReply { status: 99, ..reply.clone() }, KeptReply { body: "%".to_owned(), ..reply }];
        assert!(broken.iter().all(|reply| replayed(Some(&url), reply).is_none()));
    }
}
