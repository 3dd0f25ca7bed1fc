//! The JSON body of a request.

use actix_web::{HttpMessage as _, HttpRequest, web};
use onceward::http::parse_json;
use onceward::{Language, Rejection};
use onceward_api::Code;
use serde::de::DeserializeOwned;

/// The largest body of most requests.
const LIMIT: usize = 16 * 1024;

/// Reads the JSON body of a request; `None` if it is empty.
///
/// # Errors
/// A rejection that names the invalid field.
pub(crate) async fn read_json<T: DeserializeOwned>(
    request: &HttpRequest,
    body: web::Payload,
) -> Result<Option<T>, Rejection> {
    read_json_up_to(request, body, LIMIT).await
}

/// Like [`read_json`], with another limit on the size of the body.
///
/// # Errors
/// A rejection that names the invalid field.
pub(crate) async fn read_json_up_to<T: DeserializeOwned>(
    request: &HttpRequest,
    body: web::Payload,
    limit: usize,
) -> Result<Option<T>, Rejection> {
    let body = body.to_bytes_limited(limit).await.map_err(|_| Rejection::new(Code::BodyTooLarge))?;
    let body = body.map_err(|_| {
        Rejection::new(Code::BadRequest)
            .detail("The connection failed before the body was complete.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "请求体尚未接收完整，连接已中断。")
    })?;
    parse_json(request.content_type(), &body)
}
