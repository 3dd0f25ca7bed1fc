//! One try: sent, led wherever its answer leads, and read.

use std::time::Duration;

use onceward_api::{Code, Outcome, header};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Response, StatusCode, Url};

use crate::credential_state::Held;
use crate::error::{BoxError, Error, Kind};
use crate::redirect::{self, Step, drop_content, drop_credentials, step};
use crate::rejection::{self, Read, Refusal, Told, outcome, retry_after, told};
use crate::retry_decision::{Came, Carries};
use crate::submission::Plan;
use crate::transport::{Failed, Transport};

/// What came of a try.
pub(crate) enum Tried {
    Answer(Answered),
    Refused(Refusal),
    NotSent(BoxError),
    Lost(BoxError),
    /// It ends here, whatever was decided: the call is wrong, or what its answer leads to could not be read.
    Over(Error),
}

/// An answer of the application, as far as it was read.
pub(crate) struct Answered {
    pub(crate) response: Response,
    /// What was read of its body, if that was begun.
    pub(crate) read: Option<Read>,
    /// What a guard said of the submission: here, or in the answer that has led here.
    pub(crate) outcome: Option<Outcome>,
    /// Whether it is the answer to the submission, or the result that the answer has led to.
    submits: bool,
}

/// Sends one try.
pub(crate) struct Sending<'a, T> {
    pub(crate) transport: &'a mut T,
    pub(crate) http: &'a reqwest::Client,
    pub(crate) key_header: &'a HeaderName,
    pub(crate) plan: &'a mut Plan,
    pub(crate) held: &'a Held,
    pub(crate) authorization: Option<HeaderValue>,
    /// Nothing any more once it was led to another origin.
    pub(crate) carries: Carries,
    /// Whether it only asks what is on record.
    pub(crate) looks: bool,
    /// Whether an earlier try may have run.
    pub(crate) in_doubt: bool,
    /// What a guard has said of the submission.
    pub(crate) outcome: Option<Outcome>,
    /// Whether it is still the submission that is under way, or a look at its result.
    pub(crate) submits: bool,
}

/// Where a try is on its way.
struct Place {
    method: Method,
    url: Url,
}

impl<T: Transport> Sending<'_, T> {
    /// Sends it and reads what comes back.
    pub(crate) async fn send(&mut self) -> Tried {
        match self.follow().await {
            Ok(response) => self.read(response).await,
            Err(tried) => tried,
        }
    }

    /// What comes of it if it took too long.
    pub(crate) fn late(&self, limit: Duration) -> Tried {
        fails(Failed::Lost(format!("there was no whole answer within {limit:?}").into()), self.submits)
    }

    /// Sends it, and on to wherever it is led.
    async fn follow(&mut self) -> Result<Response, Tried> {
        let Some(url) = self.plan.url.clone() else { return Err(Tried::Over(Error::misuse("there is no address"))) };
        let mut place = Place { method: self.plan.method.clone(), url };
        let mut response = self.hop(&place).await?;
        for _ in 0..redirect::MOST {
            let Some(step) = step(&place.method, &place.url, response.status(), response.headers()) else {
                return Ok(response);
            };
            let submits = self.submits && step.submits;
            // Another origin knows nothing of it, and might run what only asks.
            if submits && !self.plan.body.is_repeatable() || step.crosses && self.looks {
                return Ok(response);
            }
            if submits && step.crosses && self.in_doubt {
                let says = "it is not known whether it happened: an earlier try may have run, and this one was led to another \
                    origin, where it would run again, since neither token nor key is sent there";
                return Err(Tried::Over(Error::new(Kind::Unknown, says)));
            }
            place = self.go(place, step);
            response = self.hop(&place).await?;
        }
        let kind = if self.in_doubt && self.submits { Kind::Unknown } else { Kind::Followed };
        Err(Tried::Over(Error::new(kind, "it was answered with more redirects than are followed")))
    }

    fn go(&mut self, place: Place, Step { url, submits, crosses }: Step) -> Place {
        tracing::debug!(crosses, submits, "led on");
        if crosses {
            self.carries = Carries::Nothing;
        }
        self.submits &= submits;
        let method = if self.submits { place.method } else { Method::GET };
        Place { method, url }
    }

    async fn hop(&mut self, place: &Place) -> Result<Response, Tried> {
        let request = self.request(place).map_err(Tried::Over)?;
        let response = self.transport.carry(request).await.map_err(|failed| fails(failed, self.submits))?;
        if *response.url() != place.url && without_fragment(response.url()) != without_fragment(&place.url) {
            let says = "the HTTP client has followed a redirect by itself, and may have taken the token or key to another \
                 origin: build it with `redirect(reqwest::redirect::Policy::none())`";
            return Err(Tried::Over(Error::new(Kind::Unknown, says)));
        }
        if self.carries != Carries::Nothing {
            self.held.take_in(response.headers());
        }
        if self.submits {
            self.outcome = outcome(response.headers());
        }
        Ok(response)
    }

    fn request(&mut self, place: &Place) -> Result<Request, Error> {
        let mut request = Request::new(place.method.clone(), place.url.clone());
        let headers = request.headers_mut();
        *headers = self.plan.headers.clone();
        if !self.plan.identity.is_empty() {
            headers.extend(self.plan.identity.clone());
        }
        if self.looks {
            headers.insert(header::LOOK, HeaderValue::from_static("true"));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if self.carries == Carries::Nothing {
            let identity: Vec<_> = self.plan.identity.keys().cloned().collect();
            drop_credentials(headers, &identity);
        } else if self.submits {
            self.held.put_into(headers, self.key_header)?;
        }
        if !self.submits {
            drop_content(headers);
            return Ok(request);
        }
        let cannot = |error: reqwest::Error| Error::misuse("the body cannot be sent").with_source(Some(error.into()));
        let request = self.plan.body.put_into(request, self.http).map_err(cannot)?;
        request.ok_or_else(|| Error::misuse("the body was sent already, and cannot be sent again"))
    }

    /// Tells a refusal from an answer, and reads an answer to its end if it is not long.
    async fn read(&mut self, response: Response) -> Tried {
        let submits = self.submits;
        let lost = |error: reqwest::Error| fails(Failed::Lost(error.without_url().into()), submits);
        let told = if submits { told(response).await } else { Ok(Told::Answer(response)) };
        match told {
            Err(error) => lost(error),
            Ok(Told::Refused(refusal)) => Tried::Refused(refusal),
            Ok(Told::Answer(response)) => match whole(response, self.plan.answer_limit).await {
                Ok((response, read)) => Tried::Answer(Answered { response, read, outcome: self.outcome, submits }),
                Err(error) => lost(error),
            },
        }
    }
}

/// The answer, with all of its body at hand unless that is longer than the limit.
async fn whole(mut response: Response, limit: usize) -> reqwest::Result<(Response, Option<Read>)> {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if limit == 0 || length.is_some_and(|length: usize| length > limit) {
        return Ok((response, None));
    }
    let read = rejection::read(&mut response, limit).await?;
    Ok((response, Some(read)))
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}

/// What is known of a request that has failed. Once the submission itself is answered, that is no longer in doubt.
fn fails(failed: Failed, submits: bool) -> Tried {
    match failed {
        Failed::Misuse(error) => {
            Tried::Over(Error::misuse(format!("this cannot be sent: {error}")).with_source(Some(error)))
        }
        Failed::NotSent(error) | Failed::Lost(error) if !submits => {
            let says = "it was answered, and what its answer leads to could not be read";
            Tried::Over(Error::new(Kind::Followed, says).with_source(Some(error)))
        }
        Failed::NotSent(error) => Tried::NotSent(error),
        Failed::Lost(error) => Tried::Lost(error),
    }
}

impl Tried {
    /// What it comes to. `None` if there is nothing to decide.
    pub(crate) fn came(&self) -> Option<Came> {
        Some(match self {
            // The submission was answered already: whatever is said of its result, it is not sent again for that.
            Self::Answer(Answered { submits: false, .. }) => Came::Answer,
            Self::Answer(Answered { response, .. }) => answered(response.status(), response.headers()),
            Self::Refused(Refusal { problem, .. }) if problem.code == Code::Unauthorized => Came::Unauthorized,
            Self::Refused(Refusal { problem, retry_after }) => {
                Came::Refused { code: problem.code, retry: problem.retry, after: *retry_after }
            }
            Self::NotSent(_) => Came::NotSent,
            Self::Lost(_) => Came::Lost,
            Self::Over(_) => return None,
        })
    }
}

/// Whose answer it is: a guard marks what its handler says, and a handler's word is the last.
fn answered(status: StatusCode, headers: &HeaderMap) -> Came {
    let is_guarded = || outcome(headers).is_some_and(Outcome::is_handlers);
    match status {
        StatusCode::UNAUTHORIZED => Came::Unauthorized,
        StatusCode::TOO_MANY_REQUESTS if !is_guarded() => Came::Busy { after: retry_after(headers) },
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT if !is_guarded() => {
            Came::Between { after: retry_after(headers) }
        }
        _ if (status.is_client_error() || status.is_server_error()) && !is_guarded() => Came::Failure,
        _ => Came::Answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_is_told_from_the_application_by_the_guard_s_mark() {
        let mut marked = HeaderMap::new();
        marked.insert(header::OUTCOME, HeaderValue::from_static("executed"));
        for status in [502, 503, 504] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(answered(status, &HeaderMap::new()), Came::Between { after: None });
            assert_eq!(answered(status, &marked), Came::Answer);
        }
        assert_eq!(answered(StatusCode::TOO_MANY_REQUESTS, &HeaderMap::new()), Came::Busy { after: None });
        assert_eq!(answered(StatusCode::TOO_MANY_REQUESTS, &marked), Came::Answer);
        assert_eq!(answered(StatusCode::INTERNAL_SERVER_ERROR, &HeaderMap::new()), Came::Failure);
        assert_eq!(answered(StatusCode::FORBIDDEN, &marked), Came::Answer);
        assert_eq!(answered(StatusCode::CREATED, &HeaderMap::new()), Came::Answer);
        assert_eq!(answered(StatusCode::UNAUTHORIZED, &marked), Came::Unauthorized);
        for outcome in ["replayable", "not_applied", "not_released", "unknown", "unprotected"] {
            marked.insert(header::OUTCOME, HeaderValue::from_static(outcome));
            assert_eq!(answered(StatusCode::SERVICE_UNAVAILABLE, &marked), Came::Answer, "{outcome}");
        }
    }
}
