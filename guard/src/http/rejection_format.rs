//! The format of rejections: status, headers and body.

pub(super) mod envelope;

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, StatusCode};
use onceward_api::{Code, Problem, Retry};
use serde::Serialize;

use super::preferences::Preferences;
use crate::rejection::Rejection;

type Write = Arc<dyn Fn(&RejectedRequest<'_>) -> Option<RejectionResponse> + Send + Sync>;

/// The format of a route's rejections: how a rejection is said, never what was decided.
///
/// The default is a problem of RFC 9457, or a short page for a client that prefers HTML. [`Envelope`](super::Envelope) and
/// [`Profile`](super::Profile) convert into other formats, and [`new`](Self::new) takes a function of the application. Set it with
/// [`Protect::rejections`](super::Protect::rejections).
///
/// Whatever the format, a rejection carries `Onceward-Outcome` (the code), `Onceward-Retry` (the next step), `Retry-After` where waiting
/// helps, and `Cache-Control: no-store`. The SDKs use these headers only.
///
/// A format may redirect a browser that [navigates](RejectedRequest::is_navigation), for example back to the form. For every other client,
/// the status 3xx is replaced by the one of the code: `fetch` and HTTP libraries follow a redirect, and lose the rejection.
///
/// ```
/// use onceward::http::{RejectionFormat, RejectionResponse, StatusCode};
/// use serde_json::json;
///
/// let format = RejectionFormat::new(|rejected| {
///     let body = json!({ "error": rejected.code().as_str(), "reason": rejected.title() });
///     // `None` keeps the default: here the page for a browser.
///     (!rejected.prefers_html()).then(|| RejectionResponse::new(StatusCode::BAD_REQUEST).json(&body))
/// });
/// # let _ = format;
/// ```
#[derive(Clone, Default)]
pub struct RejectionFormat {
    /// `None` is the default format.
    write: Option<Write>,
    /// The name of a format of this crate.
    name: Option<&'static str>,
}

impl RejectionFormat {
    /// Creates the default format: a problem of RFC 9457, or a page.
    pub fn problem() -> Self {
        Self::default()
    }

    /// Creates a format by a function of the application. If it returns `None`, the rejection has the default format.
    ///
    /// If it panics, the rejection has the default format, and the log has an error.
    pub fn new(write: impl Fn(&RejectedRequest<'_>) -> Option<RejectionResponse> + Send + Sync + 'static) -> Self {
        Self { write: Some(Arc::new(write)), name: None }
    }

    /// Names a format of this crate.
    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Returns the name, as in a description: `problem`, `envelope`, that of a profile, or `own`.
    pub(super) fn name(&self) -> &'static str {
        if self.is_own() { self.name.unwrap_or("own") } else { "problem" }
    }

    /// Returns false for the default format.
    pub(super) fn is_own(&self) -> bool {
        self.write.is_some()
    }

    /// Returns the response in this format; `None` means the default.
    pub(super) fn write(&self, rejected: &RejectedRequest<'_>) -> Option<RejectionResponse> {
        let write = self.write.as_ref()?;
        // A panic here would be reported as one of the handler, whose outcome is unknown.
        let written = catch_unwind(AssertUnwindSafe(|| write(rejected))).unwrap_or_else(|_| {
            tracing::error!(code = %rejected.code(), "the function of a rejection format panicked; sending the default format");
            None
        });
        written.map(|mut written| {
            // HTTP allows no body and no further response after an informational status. A program that follows a redirect loses the
            // rejection, and sends the submission elsewhere after a 307 or 308: only a browser that navigates receives one. `Accept`
            // does not tell: Turbo prefers HTML, and follows redirects with `fetch`.
            if written.status.is_informational() || written.status.is_redirection() && !rejected.is_navigation {
                written.status = rejected.status();
                written.headers.retain(|(name, _)| name != "location");
            }
            // HTTP allows no body with these. A client would take it for the beginning of the next response on the connection.
            if matches!(written.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED) {
                written.body = Bytes::new();
                written.headers.retain(|(name, _)| name != "content-type");
            }
            written
        })
    }
}

impl fmt::Debug for RejectionFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.write.is_some() { "RejectionFormat(own)" } else { "RejectionFormat(problem)" })
    }
}

/// A rejected request, as a [`RejectionFormat`] presents it.
#[derive(Debug)]
pub struct RejectedRequest<'a> {
    problem: &'a Problem,
    rejection: &'a Rejection,
    language: &'a str,
    prefers_html: bool,
    is_navigation: bool,
}

impl<'a> RejectedRequest<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        rejection: &'a Rejection,
        language: &'a str,
        preferences: &Preferences<'_>,
        prefers_html: bool,
    ) -> Self {
        Self { problem, rejection, language, prefers_html, is_navigation: preferences.is_navigation }
    }

    /// Returns the reason, for programs.
    pub fn code(&self) -> Code {
        self.problem.code
    }

    /// Returns the next step for the client.
    pub fn retry(&self) -> Retry {
        self.problem.retry
    }

    /// Returns the time after which the client may retry.
    pub fn retry_after(&self) -> Option<Duration> {
        self.rejection.retry_after()
    }

    /// Returns the status that the default format has.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the short summary: the route's own message, if it has one, or the title of the code.
    pub fn title(&self) -> &str {
        self.rejection.message_for_people().unwrap_or(&self.problem.title)
    }

    /// Returns the cause and the next step, for developers.
    pub fn detail(&self) -> &str {
        &self.problem.detail
    }

    /// Returns the tag of the language of [`title`](Self::title) and [`detail`](Self::detail), such as `en` or `zh-CN`. A text of the
    /// application itself is in the application's language.
    pub fn language(&self) -> &str {
        self.language
    }

    /// Returns the path of the request, if it is known.
    pub fn path(&self) -> Option<&str> {
        self.problem.instance.as_deref()
    }

    /// Returns true if the client prefers HTML, by `Accept`: a browser that navigates, or a library such as Turbo, which shows the response.
    pub fn prefers_html(&self) -> bool {
        self.prefers_html
    }

    /// Returns true if a browser navigates, by `Sec-Fetch-Mode`, which every current browser sends over HTTPS and on localhost. Only then is
    /// a redirect sent.
    pub fn is_navigation(&self) -> bool {
        self.is_navigation
    }

    /// Returns the problem of RFC 9457 that the default format sends.
    pub fn problem(&self) -> &Problem {
        self.problem
    }
}

/// The status, headers and body that a [`RejectionFormat`] gives to a rejection.
#[derive(Debug, Clone)]
pub struct RejectionResponse {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(Cow<'static, str>, Bytes)>,
    pub(super) body: Bytes,
}

impl RejectionResponse {
    /// Creates a response without a body. An informational status is replaced by the one of the code, and so is a redirect, without its
    /// `Location`, unless the client is a browser that [navigates](RejectedRequest::is_navigation).
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// Adds a header. A header that the guard sets itself (`Onceward-…`, `Retry-After`, `Cache-Control`) cannot be replaced, and an invalid
    /// header is not sent.
    #[must_use]
    pub fn header(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        let name = name.into();
        let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        let name = if is_lower { name } else { Cow::Owned(name.to_ascii_lowercase()) };
        if HeaderName::from_bytes(name.as_bytes()).is_ok() {
            self.headers.push((name, value.into()));
        }
        self
    }

    /// Sets the body and its `Content-Type`. Neither is sent with status 204, 205 or 304, which allow no body.
    #[must_use]
    pub fn body(mut self, content_type: impl Into<Bytes>, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.headers.retain(|(name, _)| name != "content-type");
        self.header("content-type", content_type)
    }

    /// Sets a JSON body. A value that cannot be serialized becomes `null`.
    #[must_use]
    pub fn json(self, value: &impl Serialize) -> Self {
        self.body("application/json", serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec()))
    }
}
