use actix_web::{HttpMessage as _, HttpRequest, web};
use onceward_api::{Code, IssuedToken};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::rejection::Rejection;
use crate::token::Token;

/// How much of a body is read where nobody says otherwise.
const LIMIT: usize = 16 * 1024;

/// Reads the body of one of the contract's requests; `None` if there is none.
///
/// # Errors
/// What the client is to be told, with the field that is wrong.
pub async fn read_json<T: DeserializeOwned>(request: &HttpRequest, body: web::Payload) -> Result<Option<T>, Rejection> {
    read_json_up_to(request, body, LIMIT).await
}

/// The same of a body that may be larger, or has to be smaller.
///
/// # Errors
/// What the client is to be told, with the field that is wrong.
pub async fn read_json_up_to<T: DeserializeOwned>(
    request: &HttpRequest,
    body: web::Payload,
    limit: usize,
) -> Result<Option<T>, Rejection> {
    let body = body.to_bytes_limited(limit).await.map_err(|_| Rejection::new(Code::BodyTooLarge))?;
    let body = body.map_err(|_| Rejection::new(Code::BadRequest).detail("The body broke off."))?;
    if body.is_empty() {
        return Ok(None);
    }
    if !request.content_type().eq_ignore_ascii_case("application/json") {
        return Err(Code::UnsupportedMediaType.into());
    }
    // An array would be read as the fields in their order, which is nobody's contract.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Rejection::new(Code::BadRequest).detail("The body has to be a JSON object."));
    }
    serde_json::from_slice(&body).map(Some).map_err(|error| {
        Rejection::new(Code::BadRequest).detail(wrong_field::<T>(&body).unwrap_or_else(|| error.to_string()))
    })
}

/// What is wrong, with the name of the field; `None` if the body is no object of fields at all.
fn wrong_field<T: DeserializeOwned>(body: &[u8]) -> Option<String> {
    let fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let read = |fields: Map<String, Value>| T::deserialize(Value::Object(fields)).map_err(|error| error.to_string());
    let error = read(fields.clone()).err()?;
    // A field that is missing or unknown is named already.
    if error.starts_with("missing field") || error.starts_with("unknown field") {
        return Some(error);
    }
    // It is the field without which there is no error, or another one. If several are wrong alike, it is the first.
    let without = |field: &str| fields.clone().into_iter().filter(|(name, _)| name != field).collect();
    let up_to = |last: usize| fields.clone().into_iter().take(last + 1).collect();
    let is_said_of = |fields: Map<String, Value>| read(fields).err().as_ref() == Some(&error);
    let alone = fields.keys().find(|field| !is_said_of(without(field)));
    let first = || fields.keys().enumerate().find(|(at, _)| is_said_of(up_to(*at))).map(|(_, field)| field);
    match alone.or_else(first) {
        Some(field) if !error.contains(&format!("`{field}`")) => Some(format!("`{field}`: {error}")),
        _ => Some(error),
    }
}

/// A token as the contract has it.
pub fn issued(token: &Token, ttl: std::time::Duration) -> IssuedToken {
    IssuedToken {
        token: token.as_str().to_owned(),
        expires_at: jiff::Timestamp::try_from(token.expires_at()).unwrap_or(jiff::Timestamp::MAX),
        expires_in: ttl.as_secs(),
    }
}
