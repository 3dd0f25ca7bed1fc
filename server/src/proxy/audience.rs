//! The parts of a request that the proxy needs to reject it after it was passed on.

use http::header::{ACCEPT, ACCEPT_LANGUAGE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, Uri};
use onceward::http::{GuardResponse, Preferences, RejectionFormat};
use onceward::{Guard, Rejection};
use onceward_api::header;

use super::body::{AnyBody, whole};

/// The parts of a request that the response to a failure needs.
pub(super) struct Audience {
    accept: Option<HeaderValue>,
    accept_language: Option<HeaderValue>,
    is_navigation: bool,
    request_id: Option<HeaderValue>,
    uri: Uri,
    /// The format of the route.
    format: RejectionFormat,
}

impl Audience {
    pub(super) fn of(parts: &Parts) -> Self {
        let copy = |name: &HeaderName| parts.headers.get(name).cloned();
        let request_id = copy(&HeaderName::from_static(header::REQUEST_ID));
        let format = parts.extensions.get::<RejectionFormat>().cloned().unwrap_or_default();
        let (accept, accept_language) = (copy(&ACCEPT), copy(&ACCEPT_LANGUAGE));
        let is_navigation = parts.headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
        Self { accept, accept_language, is_navigation, request_id, uri: parts.uri.clone(), format }
    }

    /// Creates the response to a rejection.
    pub(super) fn rejected(&self, guard: &Guard, rejection: &Rejection) -> Response<AnyBody> {
        let preferences = Preferences::none()
            .accept(self.accept.as_ref().map(HeaderValue::as_bytes))
            .accept_language(self.accept_language.as_ref().map(HeaderValue::as_bytes))
            .navigation(self.is_navigation);
        let id = self.request_id.as_ref().map(HeaderValue::as_bytes);
        let page = GuardResponse::formatted(&self.format, guard, rejection, self.uri.path(), preferences);
        let page = page.with_request_id(id);
        let mut response = Response::new(whole(page.body().clone()));
        *response.status_mut() = page.status();
        for (name, value) in page.headers() {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_ref()), HeaderValue::from_bytes(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}
