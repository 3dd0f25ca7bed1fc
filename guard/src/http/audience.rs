//! The parts of a request that a later rejection needs.

use bytes::Bytes;
use onceward_api::header;

use super::framework::Framework;
use super::preferences::{Preferences, is_navigation};
use super::rejection_format::RejectionFormat;
use super::response::GuardResponse;
use super::route_rules::RouteRules;
use crate::guard::Guard;
use crate::rejection::Rejection;

/// The parts of a request that a later rejection needs. They are copied from every request and rarely used, so nothing is computed
/// here.
pub(crate) struct Audience<F: Framework> {
    accept: Option<F::HeaderValue>,
    accept_language: Option<F::HeaderValue>,
    is_navigation: bool,
    request_id: Option<F::HeaderValue>,
    uri: F::Uri,
    /// The client's key, if the route sends it back.
    key: Option<Bytes>,
}

impl<F: Framework> Audience<F> {
    pub(crate) fn of(request: &F::Request) -> Self {
        let copy = |name| F::header_value(request, name);
        Self {
            accept: copy("accept"),
            accept_language: copy("accept-language"),
            is_navigation: is_navigation(copy("sec-fetch-mode").as_ref().map(AsRef::as_ref)),
            request_id: copy(header::REQUEST_ID),
            uri: F::uri(request),
            key: None,
        }
    }

    /// Like [`of`](Self::of), for a route that may send the key back.
    pub(crate) fn of_route(request: &F::Request, rules: &RouteRules<F>) -> Self {
        Self { key: rules.echoed_key(request), ..Self::of(request) }
    }

    pub(crate) fn path(&self) -> &str {
        F::path(&self.uri)
    }

    pub(crate) fn reject(&self, format: &RejectionFormat, guard: &Guard, rejection: &Rejection) -> GuardResponse {
        let preferences = Preferences::none()
            .accept(self.accept.as_ref().map(AsRef::as_ref))
            .accept_language(self.accept_language.as_ref().map(AsRef::as_ref))
            .navigation(self.is_navigation);
        let request_id = self.request_id.as_ref().map(AsRef::as_ref);
        let response = GuardResponse::formatted(format, guard, rejection, self.path(), preferences);
        response.with_request_id(request_id).with_key(self.key.clone())
    }
}
