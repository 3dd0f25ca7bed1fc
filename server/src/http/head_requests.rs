//! HEAD support: a HEAD request is routed as GET, and the response has the same status and headers and no body.

use std::convert::Infallible;

use actix_web::Error;
use actix_web::body::{self, BodySize, BodyStream, BoxBody, EitherBody, MessageBody, SizedStream};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use futures_util::stream;

use super::forwarded_request::is_gateway_path;

/// Routes a HEAD request as GET, and drops the body of the response. The request of a gateway stays unchanged: its method may be that of
/// the original request.
pub async fn answer_as_get<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    if request.method() != Method::HEAD || is_gateway_path(request.path()) {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    request.head_mut().method = Method::GET;
    let answer = next.call(request).await?;
    Ok(answer.map_body(|_, body| EitherBody::right(announced(body.size()))))
}

/// Returns a body that announces its length and has no content. actix sends no body after a HEAD either, but it decides by the request that
/// it read last, which may be the next one on the connection.
fn announced(size: BodySize) -> BoxBody {
    let nothing = stream::empty::<Result<Bytes, Infallible>>();
    match size {
        BodySize::None => BoxBody::new(body::None::new()),
        BodySize::Sized(length) => BoxBody::new(SizedStream::new(length, nothing)),
        BodySize::Stream => BoxBody::new(BodyStream::new(nothing)),
    }
}
