//! Failures of the upstream, and the responses to them.

use std::error::Error;
use std::fmt;

use http::Response;
use hyper_util::client::legacy;
use onceward::tower::MarkEffect as _;
use onceward::{Clock, Effect, Guard, Language, Rejection, WarningLimits};
use onceward_api::{Code, header};

use crate::proxy::audience::Audience;
use crate::proxy::body::{AnyBody, BoxError, is_timeout};
use crate::proxy::settings::UpstreamAddress;

/// A request without a response of the upstream.
#[derive(Debug)]
pub(super) enum UpstreamError {
    /// No connection could be opened. The upstream received nothing.
    Unavailable(BoxError),
    /// The upstream did not respond in time. It may have carried out the request.
    TimedOut,
    /// The connection failed after the request was sent. The upstream may have carried it out.
    Failed(BoxError),
    /// The body of the client broke off while it was passed on. The upstream may have acted on the part that it received.
    BodyBroken,
}

impl UpstreamError {
    /// Sorts an error of the client.
    pub(super) fn of(error: legacy::Error) -> Self {
        if error.is_connect() { Self::Unavailable(error.into()) } else { Self::Failed(error.into()) }
    }

    /// Sorts the error of a response body.
    pub(super) fn of_body(error: BoxError) -> Self {
        if is_timeout(&error) { Self::TimedOut } else { Self::Failed(error) }
    }

    fn code(&self) -> Code {
        match self {
            Self::Unavailable(_) => Code::UpstreamUnavailable,
            Self::TimedOut => Code::UpstreamTimeout,
            Self::Failed(_) => Code::UpstreamFailed,
            Self::BodyBroken => Code::BadRequest,
        }
    }

    fn rejection(&self) -> Rejection {
        let rejection = Rejection::new(self.code());
        match self {
            Self::BodyBroken => rejection.detail(
                "The body broke off, or did not arrive in time. The application received the part before that; it is unknown \
                 whether the request took effect.",
            ).detail_in(
                Language::SIMPLIFIED_CHINESE,
                "请求体中断，或没有按时到达。应用已收到中断之前的部分，无法确定请求是否已生效。",
            ),
            Self::Unavailable(_) | Self::TimedOut | Self::Failed(_) => rejection,
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Unavailable(_) => Effect::NotApplied,
            Self::TimedOut | Self::Failed(_) | Self::BodyBroken => Effect::Unknown,
        }
    }

    /// Creates the response. It states the effect and not the outcome: the guard reports whether it could release the token or key.
    pub(super) fn response(&self, guard: &Guard, audience: &Audience) -> Response<AnyBody> {
        let mut response = audience.rejected(guard, &self.rejection());
        for name in REPORTS {
            response.headers_mut().remove(name);
        }
        response.effect(self.effect())
    }
}

/// Headers by which the guard reports the outcome.
const REPORTS: [&str; 2] = [header::OUTCOME, header::SERVER_TIMING];

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(_) => f.write_str("could not connect"),
            Self::TimedOut => f.write_str("no response in time"),
            Self::Failed(_) => f.write_str("the connection failed before the response was complete"),
            Self::BodyBroken => f.write_str("the body of the client broke off"),
        }
    }
}

impl Error for UpstreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unavailable(error) | Self::Failed(error) => Some(&**error),
            Self::TimedOut | Self::BodyBroken => None,
        }
    }
}

/// The log of failures, limited in number.
pub(super) struct ErrorReport {
    upstream: String,
    warnings: WarningLimits,
}

impl ErrorReport {
    pub(super) fn new(address: &UpstreamAddress) -> Self {
        let upstream = format!("{}://{}", address.scheme, address.authority);
        Self { upstream, warnings: WarningLimits::new(Clock::system()) }
    }

    /// Logs a failure, with its causes. One of the client is no failure of the upstream.
    pub(super) fn log(&self, error: &UpstreamError) {
        if matches!(error, UpstreamError::BodyBroken) {
            tracing::debug!("{error}");
            return;
        }
        let Some(suppressed) = self.warnings.admit(&error.to_string()) else { return };
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        let advice = match error {
            UpstreamError::Unavailable(_) => {
                "nothing was sent; check that the application runs, and the setting `upstream`"
            }
            UpstreamError::TimedOut => "its outcome is unknown; see upstream_read_timeout and upstream_timeout",
            UpstreamError::Failed(_) | UpstreamError::BodyBroken => {
                "its outcome is unknown; if the application closes idle connections early, lower upstream_keep_alive"
            }
        };
        let upstream = &self.upstream;
        tracing::warn!(
            upstream,
            causes = causes.join(": "),
            suppressed,
            "a request to the upstream failed: {error}; {advice}"
        );
    }
}
