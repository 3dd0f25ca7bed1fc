//! Parses `[proxy.template]`: status, headers and body of rejections with `rejections = "template"`. Each error states the fix.

use http::{HeaderName, HeaderValue, StatusCode};
use onceward_api::Code;
use toml::{Table, Value};

use super::envelope;
use super::value::TAKEN_HEADERS;
use crate::proxy::rejection_template::{BodySyntax, RejectionTemplate, TemplateText};

/// The fields of the table: name, example and description.
pub const FIELDS: [(&str, &str, &str); 4] = [
    (
        "body",
        r#"'{"error": {"id": "{code}", "text": "{title}"}}'"#,
        "The body. Fields: `{code}`, `{title}`, `{detail}`, `{status}`, `{retry}`, `{retry_after}`, `{path}`, `{language}`",
    ),
    (
        "content_type",
        "\"application/json\"",
        "The `Content-Type` of the body, which says how values are escaped. Default: `application/json`",
    ),
    (
        "headers",
        "{ X-Error = \"{code}\" }",
        "Further headers; their fields are `{code}`, `{status}`, `{retry}`, `{retry_after}` and `{language}`",
    ),
    ("status", "{ key_reused = 409, locked = 409 }", "The HTTP status of a code. Default: that of the error codes"),
];

/// Parses the table.
pub(super) fn parse(table: &Table) -> Result<RejectionTemplate, String> {
    if let Some(name) = table.keys().find(|name| FIELDS.iter().all(|(field, ..)| field != name)) {
        let known = FIELDS.map(|(field, ..)| format!("`{field}`")).join(", ");
        return Err(format!("there is no `{name}` in [proxy.template]; it has {known}"));
    }
    let content_type = match table.get("content_type") {
        None => "application/json",
        Some(Value::String(text)) if HeaderValue::from_str(text).is_ok() && text.contains('/') => text,
        Some(_) => return Err("`content_type`: write a media type, such as \"application/json\"".to_owned()),
    };
    Ok(RejectionTemplate {
        content_type: content_type.to_owned(),
        body: body(table.get("body"), content_type).map_err(|error| format!("`body`: {error}"))?,
        headers: entries(table, "headers", FIELDS[2].1, header)?,
        statuses: entries(table, "status", FIELDS[3].1, status)?,
    })
}

/// Parses the body. One in JSON has to be valid with any values.
fn body(value: Option<&Value>, content_type: &str) -> Result<TemplateText, String> {
    let Some(Value::String(text)) = value else {
        return Err(format!("write the text of the body, such as {}", FIELDS[0].1));
    };
    let body = TemplateText::parse(text)?;
    if BodySyntax::of(content_type) == BodySyntax::Json {
        let filled = body.filled(|field| if field.is_number() { "7" } else { "a" }.to_owned());
        serde_json::from_str::<serde_json::Value>(&filled)
            .map_err(|error| format!("it is not JSON ({error}); quote the fields that are text, as in \"{{code}}\""))?;
    }
    Ok(body)
}

/// Parses a table of the template.
fn entries<T>(
    table: &Table,
    name: &str,
    example: &str,
    parse: fn(&str, &Value) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match table.get(name) {
        None => Ok(Vec::new()),
        Some(Value::Table(entries)) => {
            let parse =
                |(key, value): (&String, &Value)| parse(key, value).map_err(|error| format!("`{name}.{key}`: {error}"));
            entries.iter().map(parse).collect()
        }
        Some(_) => Err(format!("`{name}`: write a table such as {example}")),
    }
}

fn header(name: &str, value: &Value) -> Result<(HeaderName, TemplateText), String> {
    let parsed = HeaderName::try_from(name).map_err(|_| "this is not the name of a header".to_owned())?;
    let framing = ["idempotency-key", "trailer", "upgrade"];
    if parsed.as_str().starts_with("onceward-")
        || TAKEN_HEADERS.iter().chain(&framing).any(|taken| *taken == parsed.as_str())
    {
        return Err("a template cannot set this header; remove it".to_owned());
    }
    let text = value.as_str().filter(|text| HeaderValue::from_str(text).is_ok());
    let text = TemplateText::parse(text.ok_or("write the value as a text on one line")?)?;
    match text.not_for_headers() {
        Some(field) => Err(format!("a header cannot have the field {{{field}}}; use {{code}}")),
        None => Ok((parsed, text)),
    }
}

fn status(name: &str, value: &Value) -> Result<(Code, StatusCode), String> {
    let code = envelope::code(name)?;
    let status = value.as_integer().and_then(|status| u16::try_from(status).ok());
    match status.and_then(|status| StatusCode::from_u16(status).ok()) {
        Some(status) if status == StatusCode::OK || (400..600).contains(&status.as_u16()) => Ok((code, status)),
        _ => Err("write 200, or a status from 400 to 599".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<RejectionTemplate, String> {
        parse(&text.parse().unwrap())
    }

    #[test]
    fn every_field_of_a_template_is_read() {
        let text: String = FIELDS.iter().map(|(name, example, _)| format!("{name} = {example}\n")).collect();
        let template = parsed(&text).unwrap();
        assert_eq!(template.content_type, "application/json");
        assert_eq!(template.headers[0].0, "x-error");
        let statuses = [(Code::KeyReused, StatusCode::CONFLICT), (Code::Locked, StatusCode::CONFLICT)];
        assert_eq!(template.statuses, statuses);
        assert_eq!(parsed("body = \"{title}\"\ncontent_type = \"text/plain\"").unwrap().content_type, "text/plain");
    }

    #[test]
    fn wrong_template_is_rejected_with_the_fix() {
        for (wrong, fix) in [
            ("text = 7", "it has `body`"),
            ("", "write the text of the body"),
            ("body = '{cod}'", "the fields are {code}"),
            ("body = '{\"id\": {code}'", "it is not JSON"),
            ("body = '{\"id\": {path}}'", "quote the fields"),
            ("body = '{title}'\ncontent_type = 7", "\"application/json\""),
            ("body = '\"{code}\"'\nheaders = 7", "X-Error"),
            ("body = '\"{code}\"'\nheaders = { \"X Y\" = \"a\" }", "not the name of a header"),
            ("body = '\"{code}\"'\nheaders = { X-A = \"{title}\" }", "use {code}"),
            ("body = '\"{code}\"'\nheaders = { Onceward-Retry = \"same\" }", "cannot set this header"),
            ("body = '\"{code}\"'\nheaders = { Content-Encoding = \"gzip\" }", "cannot set this header"),
            ("body = '\"{code}\"'\nheaders = { Location = \"/\" }", "cannot set this header"),
            ("body = '\"{code}\"'\nheaders = { X-A = 7 }", "a text on one line"),
            ("body = '\"{code}\"'\nstatus = 200", "{ key_reused = 409"),
            ("body = '\"{code}\"'\nstatus = { key_reusd = 409 }", "did you mean `key_reused`"),
            ("body = '\"{code}\"'\nstatus = { key_reused = 302 }", "from 400 to 599"),
        ] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains(fix), "{wrong}: {error}");
        }
    }
}
