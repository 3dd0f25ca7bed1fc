//! The types of a web framework that the shared code refers to.

use std::fmt;

use super::request::RequestHead;
use super::sealed::Sealed;
use crate::guard::Guard;

/// A web framework, as the rules of its routes refer to it. Each adapter of this crate implements it for a type without values.
pub trait Framework: Sealed + Sized + 'static {
    /// The head of a request.
    type Request: RequestHead + fmt::Debug + 'static;
    /// The head of a response.
    type ResponseHead: 'static;
    /// The name of a header.
    type HeaderName: AsRef<str> + Clone + Send + Sync + 'static;
    /// The value of a header.
    type HeaderValue: AsRef<[u8]> + Clone + Send + 'static;
    /// The target of a request.
    type Uri: Clone + Send + 'static;

    /// Returns the value of a request header. `name` is in lower case.
    fn header_value(request: &Self::Request, name: &'static str) -> Option<Self::HeaderValue>;

    /// Returns the target of a request, with the path as [`RequestHead::path`] returns it.
    fn uri(request: &Self::Request) -> Self::Uri;

    /// Returns the path of a target.
    fn path(uri: &Self::Uri) -> &str;

    /// Completes once the client of a request has closed its connection, if the framework does not drop the request by itself then.
    fn client_closed(request: &Self::Request) -> impl Future<Output = ()>;

    /// Panics if this guard cannot protect a route, because every worker of the server has a store of its own.
    fn assert_shared(guard: &Guard);
}
