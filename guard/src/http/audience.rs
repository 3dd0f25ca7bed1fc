//! The parts of a request that a later rejection needs.

use onceward_api::header;

use super::framework::Framework;
use super::response::GuardResponse;
use crate::guard::Guard;
use crate::rejection::Rejection;

/// The parts of a request that a later rejection needs. They are copied from every request and rarely used, so nothing is computed
/// here.
pub(crate) struct Audience<F: Framework> {
    accept: Option<F::HeaderValue>,
    request_id: Option<F::HeaderValue>,
    uri: F::Uri,
}

impl<F: Framework> Audience<F> {
    pub(crate) fn of(request: &F::Request) -> Self {
        let copy = |name| F::header_value(request, name);
        Self { accept: copy("accept"), request_id: copy(header::REQUEST_ID), uri: F::uri(request) }
    }

    pub(crate) fn path(&self) -> &str {
        F::path(&self.uri)
    }

    pub(crate) fn reject(&self, guard: &Guard, rejection: &Rejection) -> GuardResponse {
        let accept = self.accept.as_ref().map(AsRef::as_ref);
        let request_id = self.request_id.as_ref().map(AsRef::as_ref);
        GuardResponse::rejection(guard, rejection, self.path(), accept).with_request_id(request_id)
    }
}
