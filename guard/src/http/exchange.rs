//! One request, its handler and the handler's response, as an adapter presents them to the shared [middleware](super::middleware).

use bytes::Bytes;
use onceward_api::Outcome;

use super::body::RequestBody;
use super::effect::ErrorSource;
use super::framework::Framework;
use super::response::GuardResponse;
use super::signature::Signature;
use crate::effect::Effect;
use crate::reply::NoReply;

/// A request on its way to its handler.
pub(crate) trait Exchange: Sized {
    /// The framework.
    type Framework: Framework;
    /// The body of the request.
    type Body: RequestBody;
    /// The captured response of the handler.
    type Captured: HandlerResponse<Self::Framework, Sent = Self::Sent>;
    /// A response, as the adapter sends it.
    type Sent;

    /// Returns the head of the request.
    fn head(&self) -> &<Self::Framework as Framework>::Request;

    /// Returns the head and the body.
    fn parts_mut(&mut self) -> (&<Self::Framework as Framework>::Request, &mut Self::Body);

    /// Attaches a value to the request, for inner guards and the handler.
    fn attach<T: Clone + Send + Sync + 'static>(&mut self, value: T);

    /// Returns the attached value of this type.
    fn attached<T: Clone + Send + Sync + 'static>(&self) -> Option<T>;

    /// Keeps the head, so that [`HandlerResponse::request`] returns it.
    fn keep_head(&mut self);

    /// Calls the handler, and captures its response. Reads the body if its length is known and within `limit`.
    fn call(self, limit: Option<usize>) -> impl Future<Output = Self::Captured>;

    /// Responds in place of the handler.
    fn respond(self, response: GuardResponse) -> Self::Sent;
}

/// The response of a handler. A service that fails without a response has an unknown effect.
pub(crate) trait HandlerResponse<F: Framework> {
    /// A response, as the adapter sends it.
    type Sent;

    /// Returns the status.
    fn status(&self) -> u16;

    /// Returns the head, if there is a response.
    fn head(&self) -> Option<&F::ResponseHead>;

    /// Returns the headers, with names in lower case.
    fn headers(&self) -> impl Iterator<Item = (&str, &[u8])>;

    /// Returns the body, or the reason why it was not read.
    fn body(&self) -> Result<&Bytes, NoReply>;

    /// Returns the head of the request, if the framework returns it with the response, or [`Exchange::keep_head`] was called.
    fn request(&self) -> Option<&F::Request>;

    /// Returns the path by which the handler was found, if it may differ from the one that the guard has read.
    fn path(&self) -> Option<&str>;

    /// Returns the effect that the handler stated itself.
    fn effect(&self) -> Option<Effect>;

    /// Returns the outcome that the handler or an inner guard reported itself: a rejection or a replay.
    fn outcome(&self) -> Option<Outcome>;

    /// Returns the origin of the error behind the response.
    fn source(&self) -> ErrorSource;

    /// Sends the response, with what the guard adds to it.
    fn send(self, signature: Signature) -> Self::Sent;
}
