//! The JSON bodies of the API's requests.

use onceward_api::Code;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::language::Language;
use crate::rejection::Rejection;

/// Parses the JSON body of one of the API's requests; `None` if it is empty. `content_type` is without its parameters.
///
/// # Errors
/// A rejection that names the invalid field.
pub fn parse_json<T: DeserializeOwned>(content_type: &str, body: &[u8]) -> Result<Option<T>, Rejection> {
    if body.is_empty() {
        return Ok(None);
    }
    if !content_type.eq_ignore_ascii_case("application/json") {
        return Err(Code::UnsupportedMediaType.into());
    }
    // serde would read an array as the fields in order, which the API does not allow.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Rejection::new(Code::BadRequest)
            .detail("The body has to be a JSON object.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "请求体必须是 JSON 对象。"));
    }
    serde_json::from_slice(body).map(Some).map_err(|error| {
        let reason = wrong_field::<T>(body).unwrap_or_else(|| error.to_string());
        let chinese = format!("请求体不符合要求：{reason}");
        Rejection::new(Code::BadRequest).detail(reason).detail_in(Language::SIMPLIFIED_CHINESE, chinese)
    })
}

/// Returns an error message that names the field; `None` if the body is not an object.
fn wrong_field<T: DeserializeOwned>(body: &[u8]) -> Option<String> {
    let fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let read = |fields: Map<String, Value>| T::deserialize(Value::Object(fields)).map_err(|error| error.to_string());
    let error = read(fields.clone()).err()?;
    // serde already names a missing or unknown field.
    if error.starts_with("missing field") || error.starts_with("unknown field") {
        return Some(error);
    }
    // The invalid field is the one without which the error disappears or changes. If several fields cause the same error, it is the
    // first.
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

#[cfg(test)]
mod tests {
    use onceward_api::TokenRequest;

    use super::*;

    fn parse(content_type: &str, body: &str) -> Result<Option<TokenRequest>, Code> {
        parse_json(content_type, body.as_bytes()).map_err(|rejection| rejection.code())
    }

    #[test]
    fn body_is_a_json_object_or_empty() {
        assert!(matches!(parse("", ""), Ok(None)));
        assert!(matches!(parse("application/json", "{\"action\":\"a\"}"), Ok(Some(_))));
        assert_eq!(parse("text/plain", "{}").unwrap_err(), Code::UnsupportedMediaType);
        for body in ["[\"a\"]", "1", "{", "{\"action\":1}"] {
            assert_eq!(parse("Application/JSON", body).unwrap_err(), Code::BadRequest, "{body}");
        }
    }

    #[test]
    fn rejection_names_the_invalid_field() {
        let wrong = parse_json::<TokenRequest>("application/json", b"{\"action\":1}").unwrap_err();
        assert!(wrong.problem().detail.contains("`action`"), "{}", wrong.problem().detail);
    }
}
