//! Parses `[proxy.envelope]`: the object that rejections have with `rejections = "envelope"`. Each error states the fix.

use onceward::http::Envelope;
use onceward_api::Code;
use serde_json::Value as Json;
use toml::{Table, Value};

/// The fields of the table: name, example and description.
pub const FIELDS: [(&str, &str, &str); 4] = [
    (
        "codes",
        "{ token_used = 20001, too_soon = 20001 }",
        "The code of the API for one of Onceward, a number or a string",
    ),
    ("default_code", "20000", "The code of the API for every other rejection. Default: the name of Onceward's code"),
    ("message_field", "\"msg\"", "The member for the message. Default: `message`"),
    ("status", "200", "`200`: every rejection has this HTTP status. Default: the status of its code"),
];

/// Parses the table.
pub(super) fn parse(table: &Table) -> Result<Envelope, String> {
    if let Some(name) = table.keys().find(|name| FIELDS.iter().all(|(field, ..)| field != name)) {
        let known = FIELDS.map(|(field, ..)| format!("`{field}`")).join(", ");
        return Err(format!("there is no `{name}` in [proxy.envelope]; it has {known}"));
    }
    let mut envelope = Envelope::new();
    if let Some(value) = table.get("codes") {
        let Value::Table(codes) = value else {
            return Err("`codes`: write a table such as { token_used = 20001 }".to_owned());
        };
        for (name, own) in codes {
            let named = |error: String| format!("`codes.{name}`: {error}");
            envelope = envelope.code(code(name).map_err(named)?, own_code(own).map_err(named)?);
        }
    }
    if let Some(value) = table.get("default_code") {
        envelope = envelope.default_code(own_code(value).map_err(|error| format!("`default_code`: {error}"))?);
    }
    match table.get("message_field").map(Value::as_str) {
        None => {}
        Some(Some(name)) if !matches!(name, "" | "code" | "data") => envelope = envelope.message_field(name.to_owned()),
        Some(_) => {
            return Err("`message_field`: write a name other than \"code\" and \"data\", such as \"msg\"".to_owned());
        }
    }
    match table.get("status").map(Value::as_integer) {
        None => Ok(envelope),
        Some(Some(200)) => Ok(envelope.status_ok()),
        Some(_) => {
            Err("`status`: it can only be 200; remove it to send each rejection with the status of its code".to_owned())
        }
    }
}

/// Returns the error code with this name.
pub(super) fn code(name: &str) -> Result<Code, String> {
    let known = Code::ALL.into_iter().find(|code| code.as_str() == name);
    known.ok_or_else(|| {
        let by_likeness = |code: &Code| (strsim::jaro_winkler(code.as_str(), name) * 1000.0) as u32;
        let nearest = Code::ALL.into_iter().max_by_key(by_likeness).map(Code::as_str).unwrap_or_default();
        format!("there is no such error code; did you mean `{nearest}`?")
    })
}

fn own_code(value: &Value) -> Result<Json, String> {
    match value {
        Value::Integer(number) => Ok((*number).into()),
        Value::String(text) => Ok(text.as_str().into()),
        _ => Err("it must be a number or a string, such as 20001 or \"A0506\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Envelope, String> {
        parse(&text.parse().unwrap())
    }

    #[test]
    fn every_field_of_an_envelope_is_read() {
        let text: String = FIELDS.iter().map(|(name, example, _)| format!("{name} = {example}\n")).collect();
        let expected = Envelope::new().code(Code::TokenUsed, 20001).code(Code::TooSoon, 20001).default_code(20000);
        let expected = expected.message_field("msg").status_ok();
        assert_eq!(format!("{:?}", parsed(&text).unwrap()), format!("{expected:?}"));
        assert_eq!(format!("{:?}", parsed("").unwrap()), format!("{:?}", Envelope::new()));
    }

    #[test]
    fn wrong_envelope_is_rejected_with_the_fix() {
        for (wrong, fix) in [
            ("code = 7", "it has `codes`"),
            ("codes = 7", "{ token_used = 20001 }"),
            ("codes = { token_usd = 7 }", "did you mean `token_used`"),
            ("codes = { token_used = true }", "a number or a string"),
            ("default_code = [1]", "a number or a string"),
            ("message_field = \"data\"", "such as \"msg\""),
            ("message_field = 7", "such as \"msg\""),
            ("status = 201", "only be 200"),
            ("status = \"200\"", "only be 200"),
        ] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains(fix), "{wrong}: {error}");
        }
    }
}
