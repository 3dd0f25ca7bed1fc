//! One attempt: sends the request, follows redirects and reads the response.

use std::time::Duration;

use onceward_api::{Code, Outcome, header};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response, StatusCode, Url};

use crate::buffered_body::BufferedBody;
use crate::credential_state::CredentialState;
use crate::error::{BoxError, Error, ErrorKind};
use crate::redirect::{MAX_REDIRECTS, Redirect, drop_content, drop_credentials};
use crate::rejection::{
    LaterRejection, Rejection, ResponseClass, classify, is_rejection, later_rejection, may_be_rejection, outcome,
    retry_after,
};
use crate::retry_decision::{AttemptSummary, CredentialKind};
use crate::submission::Plan;
use crate::transport::{Transport, TransportError};

/// Headers that this client and reqwest add to each request, at most: room for them is allocated at once.
const FURTHER_HEADERS: usize = 4;

/// The result of an attempt.
pub(crate) enum AttemptResult {
    Response(AttemptResponse),
    Rejected(Rejection),
    /// A guard of a later version rejected the request, for a reason that this version does not know.
    RejectedLater(LaterRejection),
    NotSent(BoxError),
    Refused(BoxError),
    Lost(BoxError),
    /// The submission ends: the call is invalid, or the target of a redirect could not be read.
    Failed(Error),
}

/// A response of the application, with the part of its body that was read.
pub(crate) struct AttemptResponse {
    pub(crate) response: Response,
    /// The part of the body that was read, if any.
    pub(crate) buffered: Option<BufferedBody>,
    /// The outcome that a guard reported: in this response, or in the redirect that led to it.
    pub(crate) outcome: Option<Outcome>,
    /// True for the response to the submission itself, false for the target of a redirect to its result.
    pub(crate) is_submission: bool,
}

/// One attempt in flight.
pub(crate) struct Attempt<'a, T> {
    pub(crate) transport: &'a mut T,
    pub(crate) http: &'a reqwest::Client,
    pub(crate) key_header: &'a HeaderName,
    pub(crate) plan: &'a mut Plan,
    pub(crate) credential: &'a CredentialState,
    pub(crate) authorization: Option<HeaderValue>,
    /// `Nothing` after a redirect to another origin.
    pub(crate) carried: CredentialKind,
    /// True if the attempt only reads the stored outcome (`Onceward-Look`).
    pub(crate) is_look: bool,
    /// True if an earlier attempt may have run.
    pub(crate) in_doubt: bool,
    /// The outcome that a guard reported for the submission.
    pub(crate) outcome: Option<Outcome>,
    /// True while the submission itself is in flight, false for a `GET` of its result.
    pub(crate) is_submission: bool,
    /// The target of the last redirect.
    pub(crate) target: Option<Target>,
}

/// The target of a redirect.
pub(crate) struct Target {
    method: Method,
    url: Url,
}

impl<T: Transport> Attempt<'_, T> {
    /// Sends the request and reads the response.
    pub(crate) async fn send(&mut self) -> AttemptResult {
        match self.follow().await {
            Ok(response) => self.read(response).await,
            Err(result) => result,
        }
    }

    /// The result after a timeout.
    pub(crate) fn timed_out(&self, limit: Duration) -> AttemptResult {
        failure(TransportError::Lost(format!("no complete response within {limit:?}").into()), self.is_submission)
    }

    /// Sends the request and follows redirects.
    async fn follow(&mut self) -> Result<Response, AttemptResult> {
        let mut response = self.hop().await?;
        for _ in 0..MAX_REDIRECTS {
            // A rejection is the response, even if its format is a redirect: what is behind it does not tell that nothing ran.
            if self.is_submission && is_rejection(self.outcome, response.headers()) {
                return Ok(response);
            }
            let Some(redirect) = self.redirect(&response) else { return Ok(response) };
            let is_submission = self.is_submission && redirect.keeps_submission;
            // Another origin may not support `Onceward-Look`, and would run the request.
            if is_submission && !self.plan.body.is_repeatable() || redirect.crosses_origin && self.is_look {
                return Ok(response);
            }
            if is_submission && redirect.crosses_origin && self.in_doubt {
                let message = "the outcome is unknown: an earlier attempt may have run, and this one was redirected to another \
                    origin, where it would run again, since neither token nor key is sent there";
                return Err(AttemptResult::Failed(Error::new(ErrorKind::Unknown, message)));
            }
            self.redirect_to(redirect);
            response = self.hop().await?;
        }
        let kind = if self.in_doubt && self.is_submission { ErrorKind::Unknown } else { ErrorKind::Redirect };
        Err(AttemptResult::Failed(Error::new(kind, format!("the server sent more than {MAX_REDIRECTS} redirects"))))
    }

    /// The method and URL of the next request. `None` if the submission has no URL.
    fn target(&self) -> Option<(&Method, &Url)> {
        match &self.target {
            Some(Target { method, url }) => Some((method, url)),
            None => Some((&self.plan.method, self.plan.url.as_ref()?)),
        }
    }

    fn redirect(&self, response: &Response) -> Option<Redirect> {
        let (method, url) = self.target()?;
        Redirect::of(method, url, response.status(), response.headers())
    }

    fn redirect_to(&mut self, Redirect { url, keeps_submission, crosses_origin }: Redirect) {
        tracing::debug!(crosses_origin, keeps_submission, "following a redirect");
        if crosses_origin {
            self.carried = CredentialKind::Nothing;
        }
        self.is_submission &= keeps_submission;
        let submission_method = self.target.take().map_or_else(|| self.plan.method.clone(), |target| target.method);
        let method = if self.is_submission { submission_method } else { Method::GET };
        self.target = Some(Target { method, url });
    }

    async fn hop(&mut self) -> Result<Response, AttemptResult> {
        let request = self.request().map_err(AttemptResult::Failed)?;
        let response = self.transport.send(request).await.map_err(|error| failure(error, self.is_submission))?;
        if self.target().is_none_or(|(_, url)| !is_same_page(response.url(), url)) {
            let message = "the HTTP client followed a redirect itself, and may have sent the token or key to another \
                 origin: build it with `redirect(reqwest::redirect::Policy::none())`";
            return Err(AttemptResult::Failed(Error::new(ErrorKind::Unknown, message)));
        }
        if self.carried != CredentialKind::Nothing {
            self.credential.store_next_token(response.headers());
        }
        if self.is_submission {
            self.outcome = outcome(response.headers());
        }
        Ok(response)
    }

    fn request(&mut self) -> Result<Request, Error> {
        let (method, url) = self.target().ok_or_else(|| Error::misuse("the submission has no URL"))?;
        let mut request = Request::new(method.clone(), url.clone());
        let headers = request.headers_mut();
        *headers = HeaderMap::with_capacity(self.plan.headers.len() + self.plan.identity.len() + FURTHER_HEADERS);
        for (name, value) in &self.plan.headers {
            headers.append(name, value.clone());
        }
        for (name, value) in &self.plan.identity {
            headers.insert(name, value.clone());
        }
        if self.is_look {
            headers.insert(header::LOOK, HeaderValue::from_static("true"));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if self.carried == CredentialKind::Nothing {
            let identity: Vec<_> = self.plan.identity.keys().cloned().collect();
            drop_credentials(headers, &identity);
        } else if self.is_submission {
            self.credential.write_to(headers, self.key_header)?;
        }
        if !self.is_submission {
            drop_content(headers);
            return Ok(request);
        }
        let cannot = |error: reqwest::Error| Error::misuse("the body cannot be sent").with_source(Some(error.into()));
        let request = self.plan.body.put_into(request, self.http).map_err(cannot)?;
        request.ok_or_else(|| Error::misuse("the body was already sent, and cannot be sent again"))
    }

    /// Distinguishes a rejection from a response of the application, and buffers a short response.
    async fn read(&mut self, mut response: Response) -> AttemptResult {
        let (outcome, is_submission) = (self.outcome, self.is_submission);
        if let Some(rejection) = later_rejection(response.headers()).filter(|_| is_submission) {
            return AttemptResult::RejectedLater(rejection);
        }
        let lost = |error: reqwest::Error| failure(TransportError::Lost(error.without_url().into()), is_submission);
        if is_submission && may_be_rejection(outcome, &response) {
            match Box::pin(classify(response)).await {
                Err(error) => return lost(error),
                Ok(ResponseClass::Rejected(rejection)) => return AttemptResult::Rejected(rejection),
                Ok(ResponseClass::Application(application)) => response = application,
            }
        }
        match buffer(&mut response, self.plan.response_limit).await {
            Ok(buffered) => AttemptResult::Response(AttemptResponse { response, buffered, outcome, is_submission }),
            Err(error) => lost(error),
        }
    }
}

/// Buffers the body, unless it is longer than the limit.
async fn buffer(response: &mut Response, limit: usize) -> reqwest::Result<Option<BufferedBody>> {
    if limit == 0 || response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(None);
    }
    BufferedBody::read(response, limit).await.map(Some)
}

/// Returns true if two URLs differ in their fragments at most.
fn is_same_page(one: &Url, other: &Url) -> bool {
    one == other || without_fragment(one) == without_fragment(other)
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

/// The result of a request that failed. A failure after the response to the submission leaves its outcome known.
fn failure(error: TransportError, is_submission: bool) -> AttemptResult {
    match error {
        TransportError::Misuse(error) => {
            AttemptResult::Failed(Error::misuse(format!("the request is invalid: {error}")).with_source(Some(error)))
        }
        TransportError::NotSent(error) | TransportError::Refused(error) | TransportError::Lost(error)
            if !is_submission =>
        {
            let message = "the response was a redirect, and its target could not be read";
            AttemptResult::Failed(Error::new(ErrorKind::Redirect, message).with_source(Some(error)))
        }
        TransportError::NotSent(error) => AttemptResult::NotSent(error),
        TransportError::Refused(error) => AttemptResult::Refused(error),
        TransportError::Lost(error) => AttemptResult::Lost(error),
    }
}

impl AttemptResult {
    /// The summary that [`decide`](crate::retry_decision::decide) needs. `None` if the submission ends here.
    pub(crate) fn summary(&self) -> Option<AttemptSummary> {
        Some(match self {
            // The submission has its response, and is not sent again, whatever the result's URL returns.
            Self::Response(AttemptResponse { is_submission: false, .. }) => AttemptSummary::Response,
            Self::Response(AttemptResponse { response, .. }) => summarize(response.status(), response.headers()),
            Self::Rejected(Rejection { problem, .. }) if problem.code == Code::Unauthorized => {
                AttemptSummary::Unauthorized
            }
            Self::Rejected(Rejection { problem, retry_after }) => {
                AttemptSummary::Rejected { code: problem.code, retry: problem.retry, retry_after: *retry_after }
            }
            Self::RejectedLater(LaterRejection { retry, retry_after, .. }) => {
                AttemptSummary::RejectedLater { retry: *retry, retry_after: *retry_after }
            }
            Self::NotSent(_) => AttemptSummary::NotSent,
            Self::Refused(_) => AttemptSummary::Refused,
            Self::Lost(_) => AttemptSummary::Lost,
            Self::Failed(_) => return None,
        })
    }
}

/// Distinguishes a response of the application from one of a gateway: a guard marks the responses of its handlers, and those are final.
fn summarize(status: StatusCode, headers: &HeaderMap) -> AttemptSummary {
    let is_guarded = || outcome(headers).is_some_and(Outcome::is_handlers);
    match status {
        StatusCode::UNAUTHORIZED => AttemptSummary::Unauthorized,
        StatusCode::TOO_MANY_REQUESTS if !is_guarded() => {
            AttemptSummary::TooManyRequests { retry_after: retry_after(headers) }
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT if !is_guarded() => {
            AttemptSummary::GatewayError { retry_after: retry_after(headers) }
        }
        _ if (status.is_client_error() || status.is_server_error()) && !is_guarded() => AttemptSummary::UnmarkedFailure,
        _ => AttemptSummary::Response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_page_may_have_another_fragment_only() {
        let is_same = |one: &str, other: &str| is_same_page(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(is_same("http://a.example/x?y#1", "http://a.example/x?y#1"));
        assert!(is_same("http://a.example/x?y#1", "http://a.example/x?y"));
        assert!(!is_same("http://a.example/x?y", "http://a.example/x?z"));
        assert!(!is_same("http://a.example/x", "http://b.example/x"));
    }

    #[test]
    fn guard_mark_distinguishes_application_from_gateway_errors() {
        let mut marked = HeaderMap::new();
        marked.insert(header::OUTCOME, HeaderValue::from_static("executed"));
        for status in [502, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(summarize(status, &HeaderMap::new()), AttemptSummary::GatewayError { retry_after: None });
            assert_eq!(summarize(status, &marked), AttemptSummary::Response);
        }
        assert_eq!(
            summarize(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()),
            AttemptSummary::TooManyRequests { retry_after: None }
        );
        assert_eq!(summarize(StatusCode::TOO_MANY_REQUESTS, &marked), AttemptSummary::Response);
        assert_eq!(summarize(StatusCode::INTERNAL_SERVER_ERROR, &HeaderMap::new()), AttemptSummary::UnmarkedFailure);
        assert_eq!(summarize(StatusCode::FORBIDDEN, &marked), AttemptSummary::Response);
        assert_eq!(summarize(StatusCode::CREATED, &HeaderMap::new()), AttemptSummary::Response);
        assert_eq!(summarize(StatusCode::UNAUTHORIZED, &marked), AttemptSummary::Unauthorized);
        for outcome in ["replayable", "not_applied", "not_released", "unknown", "unprotected"] {
            marked.insert(header::OUTCOME, HeaderValue::from_static(outcome));
            assert_eq!(summarize(StatusCode::SERVICE_UNAVAILABLE, &marked), AttemptSummary::Response, "{outcome}");
        }
    }
}
