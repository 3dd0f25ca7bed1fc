//! Parsers for the values in a `[[proxy.route]]`, one function for each kind. The error states the fix, and not the field.

use std::time::Duration;

use http::{HeaderName, Method};
use onceward::Fields;
use onceward::http::Profile;
use onceward_api::duration;
use toml::Value;

use super::value;
use crate::proxy::route::{KeyLocation, RouteSubject};
use crate::proxy::settings::RejectionShape;

pub(super) fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("it must be a string, not {}", kind(value)))
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("it must be `true` or `false` without quotes, not {}", kind(value)))
}

/// Parses a duration that may be zero.
pub(super) fn any_duration(value: &Value) -> Result<Duration, String> {
    let text = value.as_str().ok_or_else(|| format!("it must be a duration such as \"90s\", not {}", kind(value)))?;
    duration::parse(text)
}

pub(super) fn positive_duration(value: &Value) -> Result<Duration, String> {
    match any_duration(value)? {
        Duration::ZERO => Err("it must be positive, as in \"90s\"".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a duration, or `true` for 24 hours; `None` is `false`.
pub(super) fn remember(value: &Value) -> Result<Option<Duration>, String> {
    match value {
        Value::Boolean(is_on) => Ok(is_on.then_some(Duration::from_secs(24 * 60 * 60))),
        Value::String(_) => positive_duration(value).map(Some),
        other => Err(format!("it must be a duration such as \"10m\", or `true` for \"24h\", not {}", kind(other))),
    }
}

pub(super) fn size(value: &Value) -> Result<usize, String> {
    let text = value.as_str().ok_or_else(|| format!("it must be a size such as \"8MiB\", not {}", kind(value)))?;
    value::size(text)
}

pub(super) fn profile(value: &Value) -> Result<Profile, String> {
    value::profile(text(value)?)
}

pub(super) fn rejections(value: &Value) -> Result<RejectionShape, String> {
    value::rejections(text(value)?)
}

pub(super) fn own_header(value: &Value) -> Result<Option<HeaderName>, String> {
    value::own_header(text(value)?)
}

pub(super) fn methods(value: &Value) -> Result<Vec<Method>, String> {
    let names = texts(value).ok_or_else(|| format!("it must be a list such as [\"POST\"], not {}", kind(value)))?;
    let methods = names.into_iter().map(method).collect::<Result<Vec<_>, _>>()?;
    if methods.is_empty() {
        return Err("the list is empty; remove it for every method but GET, HEAD and OPTIONS".to_owned());
    }
    match repeated(&methods) {
        Some(method) => Err(format!("{method} is in the list twice")),
        None => Ok(methods),
    }
}

/// Methods are case-sensitive: `post` would match no request.
fn method(name: &str) -> Result<Method, String> {
    let upper = name.to_ascii_uppercase();
    match Method::from_bytes(name.as_bytes()) {
        Ok(method) if upper == name => Ok(method),
        Ok(_) => Err(format!("`{name}` must be in upper case: \"{upper}\"")),
        Err(_) => Err(format!("`{name}` is not a method, such as \"POST\"")),
    }
}

pub(super) fn statuses(value: &Value) -> Result<Vec<u16>, String> {
    let wrong = || "it must be a list of statuses from 100 to 599, as in [404, 422]".to_owned();
    let status = |value: &Value| {
        let status = value.as_integer().and_then(|number| u16::try_from(number).ok());
        status.filter(|status| (100..600).contains(status)).ok_or_else(wrong)
    };
    let statuses = value.as_array().ok_or_else(wrong)?.iter().map(status).collect::<Result<Vec<_>, _>>()?;
    match repeated(&statuses) {
        Some(status) => Err(format!("{status} is in the list twice")),
        None => Ok(statuses),
    }
}

/// Parses a source of a key. A path parameter has to be one of these.
pub(super) fn key_location(value: &Value, parameters: &[&str]) -> Result<KeyLocation, String> {
    const FORM: &str =
        "write { header = \"X-Order\" }, { query = \"order\" }, { body = \"/order/id\" } or { path = \"id\" }";
    let (from, name) = pair(value).ok_or_else(|| FORM.to_owned())?;
    match from {
        "header" => header(name).map(KeyLocation::Header),
        "query" if !name.is_empty() => Ok(KeyLocation::Query(name.to_owned())),
        "body" if name.is_empty() => {
            Err("the pointer is empty; name a field, as in { body = \"/order/id\" }".to_owned())
        }
        "body" => pointers([name]).map(|_| KeyLocation::Body(name.to_owned())),
        "path" if parameters.contains(&name) => Ok(KeyLocation::Path(name.to_owned())),
        "path" => Err(format!("`path` has no parameter {{{name}}}; {}", listed(parameters))),
        _ => Err(FORM.to_owned()),
    }
}

fn listed(parameters: &[&str]) -> String {
    match parameters {
        [] => "add it to `path`, as in \"/orders/{id}\"".to_owned(),
        names => format!("it has {}", names.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")),
    }
}

pub(super) fn subject(value: &Value) -> Result<RouteSubject, String> {
    const FORM: &str =
        "write { header = \"X-User\" }, { cookie = \"session\" }, \"client_address\", \"anonymous\" or \"credentials\"";
    match (value.as_str(), pair(value)) {
        (Some("credentials"), _) => Ok(RouteSubject::Credentials),
        (Some("anonymous"), _) => Ok(RouteSubject::Anonymous),
        (Some("client_address"), _) => Ok(RouteSubject::ClientAddress),
        (_, Some(("header", name))) => header(name).map(RouteSubject::Header),
        // The name of a cookie is a token, as that of a header, but case-sensitive.
        (_, Some(("cookie", name))) => match header(name) {
            Ok(_) => Ok(RouteSubject::Cookie(name.to_owned())),
            Err(_) => Err(format!("`{name}` is not the name of a cookie")),
        },
        _ => Err(FORM.to_owned()),
    }
}

/// Parses a list of JSON pointers, or `{ except = [...] }`.
pub(super) fn fields(value: &Value) -> Result<Fields, String> {
    let wrong = || "write a list of JSON pointers such as [\"/amount\"], or { except = [\"/sent_at\"] }".to_owned();
    if let Some(only) = texts(value) {
        return pointers(only);
    }
    let (name, list) = entry(value).ok_or_else(wrong)?;
    let except = texts(list).filter(|_| name == "except").ok_or_else(wrong)?;
    Fields::all_but(except).map_err(|error| error.to_string())
}

fn pointers<'a>(pointers: impl IntoIterator<Item = &'a str>) -> Result<Fields, String> {
    Fields::only(pointers).map_err(|error| error.to_string())
}

fn header(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| format!("`{name}` is not the name of a header"))
}

/// Returns the only entry of a table, if its value is a string.
fn pair(value: &Value) -> Option<(&str, &str)> {
    entry(value).and_then(|(name, value)| Some((name, value.as_str()?)))
}

/// Returns the only entry of a table.
fn entry(value: &Value) -> Option<(&str, &Value)> {
    let table = value.as_table().filter(|table| table.len() == 1)?;
    table.iter().next().map(|(name, value)| (name.as_str(), value))
}

/// Returns a list of strings.
fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

pub(super) fn repeated<T: PartialEq>(items: &[T]) -> Option<&T> {
    items.iter().enumerate().find_map(|(at, item)| items[..at].contains(item).then_some(item))
}

/// Returns the kind of a value, for a sentence.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
