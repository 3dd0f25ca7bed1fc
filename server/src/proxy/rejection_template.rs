//! Rejections in a form of the operator's own: `rejections = "template"`.

use http::{HeaderName, StatusCode};
use onceward::http::{RejectedRequest, RejectionFormat, RejectionResponse};
use onceward_api::Code;

/// A text with fields in braces, such as `{code}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateText(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Field(TemplateField),
}

/// A value of a rejection that a template shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateField {
    /// The error code.
    Code,
    /// The short summary.
    Title,
    /// The cause and the next step.
    Detail,
    /// The HTTP status.
    Status,
    /// The next step, as in `Onceward-Retry`.
    Retry,
    /// Seconds, as in `Retry-After`.
    RetryAfter,
    /// The path of the request.
    Path,
    /// The language of title and detail.
    Language,
}

impl TemplateField {
    /// All fields, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("code", Self::Code),
        ("title", Self::Title),
        ("detail", Self::Detail),
        ("status", Self::Status),
        ("retry", Self::Retry),
        ("retry_after", Self::RetryAfter),
        ("path", Self::Path),
        ("language", Self::Language),
    ];

    /// Returns whether the value is a short ASCII word, which a header can have.
    fn is_word(self) -> bool {
        matches!(self, Self::Code | Self::Status | Self::Retry | Self::RetryAfter | Self::Language)
    }

    /// Returns whether the value is a number, which JSON need not quote.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Status | Self::RetryAfter)
    }

    /// Returns the value; `None` if the rejection does not have it.
    fn of(self, rejected: &RejectedRequest<'_>, status: StatusCode) -> Option<String> {
        Some(match self {
            Self::Code => rejected.code().as_str().to_owned(),
            Self::Title => rejected.title().to_owned(),
            Self::Detail => rejected.detail().to_owned(),
            Self::Status => status.as_u16().to_string(),
            Self::Retry => rejected.retry().as_str().to_owned(),
            Self::RetryAfter => rejected.retry_after()?.as_millis().div_ceil(1_000).to_string(),
            Self::Path => rejected.path()?.to_owned(),
            Self::Language => rejected.language().to_owned(),
        })
    }
}

impl TemplateText {
    /// Parses a text. Braces around anything but a name are part of the text, as in JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, name, after)) = next_field(rest) {
            let field = TemplateField::ALL.into_iter().find(|(known, _)| *known == name);
            let (_, field) = field.ok_or_else(|| {
                let known = TemplateField::ALL.map(|(known, _)| format!("{{{known}}}")).join(", ");
                format!("there is no field {{{name}}}; the fields are {known}")
            })?;
            parts.extend([Part::Literal(before.to_owned()), Part::Field(field)]);
            rest = after;
        }
        parts.push(Part::Literal(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Returns a field that a header cannot have.
    pub fn not_for_headers(&self) -> Option<&'static str> {
        let unfit = |field| self.0.contains(&Part::Field(field)) && !field.is_word();
        TemplateField::ALL.into_iter().find(|(_, field)| unfit(*field)).map(|(name, _)| name)
    }

    /// Returns the text, with these values.
    pub fn filled(&self, value: impl Fn(TemplateField) -> String) -> String {
        let text = |part: &Part| match part {
            Part::Literal(text) => text.clone(),
            Part::Field(field) => value(*field),
        };
        self.0.iter().map(text).collect()
    }
}

/// Returns the text before the next field, its name and the text behind it.
fn next_field(text: &str) -> Option<(&str, &str, &str)> {
    for (at, _) in text.match_indices('{') {
        let (name, after) = text[at + 1..].split_once('}')?;
        if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return Some((&text[..at], name, after));
        }
    }
    None
}

/// Returns whether a content type is HTML.
fn is_html(content_type: &str) -> bool {
    media_type(content_type) == "text/html"
}

/// Returns a content type without its parameters, in lower case.
fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The syntax of a body, by its content type: how values are written into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySyntax {
    /// The inside of a string; a value that is missing is `null`.
    Json,
    /// Text of an element or an attribute.
    Markup,
    /// As it is.
    Text,
}

impl BodySyntax {
    /// Returns the syntax of a content type.
    pub fn of(content_type: &str) -> Self {
        match media_type(content_type).as_str() {
            name if name.ends_with("/json") || name.ends_with("+json") => Self::Json,
            name if name.ends_with("html") || name.ends_with("xml") => Self::Markup,
            _ => Self::Text,
        }
    }

    /// Writes a value.
    pub fn escaped(self, value: Option<&str>) -> String {
        match (self, value) {
            (Self::Json, None) => "null".to_owned(),
            (Self::Json, Some(value)) => {
                let quoted = serde_json::Value::from(value).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            (Self::Markup, Some(value)) => {
                let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                value.replace('"', "&quot;").replace('\'', "&#39;")
            }
            (Self::Text, Some(value)) => value.to_owned(),
            (Self::Markup | Self::Text, None) => String::new(),
        }
    }
}

/// The status, headers and body of rejections. A client that prefers HTML receives the page, unless the template is HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectionTemplate {
    /// The `Content-Type` of the body.
    pub content_type: String,
    /// The body.
    pub body: TemplateText,
    /// Further headers.
    pub headers: Vec<(HeaderName, TemplateText)>,
    /// The statuses of codes that have another one than by default.
    pub statuses: Vec<(Code, StatusCode)>,
}

impl RejectionTemplate {
    fn write(&self, rejected: &RejectedRequest<'_>) -> Option<RejectionResponse> {
        let (syntax, is_page) = (BodySyntax::of(&self.content_type), is_html(&self.content_type));
        if rejected.prefers_html() && !is_page {
            return None;
        }
        let own = self.statuses.iter().find(|(code, _)| *code == rejected.code());
        let status = own.map_or_else(|| rejected.status(), |(_, status)| *status);
        let body = self.body.filled(|field| syntax.escaped(field.of(rejected, status).as_deref()));
        let response = RejectionResponse::new(status).body(self.content_type.clone(), body);
        let with = |response: RejectionResponse, (name, text): &(HeaderName, TemplateText)| {
            let value = text.filled(|field| field.of(rejected, status).unwrap_or_default());
            response.header(name.as_str().to_owned(), value)
        };
        Some(self.headers.iter().fold(response, with))
    }
}

impl From<RejectionTemplate> for RejectionFormat {
    fn from(template: RejectionTemplate) -> Self {
        Self::new(move |rejected| template.write(rejected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        TemplateText::parse(text).unwrap().filled(|field| format!("<{field:?}>"))
    }

    #[test]
    fn fields_are_filled_and_other_braces_stay() {
        assert_eq!(filled(r#"{"error": {"id": "{code}", "more": {}}}"#), r#"{"error": {"id": "<Code>", "more": {}}}"#);
        assert_eq!(filled("{title}{retry_after}"), "<Title><RetryAfter>");
        assert_eq!(filled("{ code } {Code} {"), "{ code } {Code} {");
        assert!(TemplateText::parse("{cod}").unwrap_err().contains("the fields are {code}, {title}"));
    }

    #[test]
    fn values_are_written_in_the_syntax_of_the_body() {
        for (content_type, expected) in [
            ("application/json", r#"a\"<b>\\"#),
            ("application/problem+json; charset=utf-8", r#"a\"<b>\\"#),
            ("text/html; charset=utf-8", r"a&quot;&lt;b&gt;\"),
            ("text/plain", r#"a"<b>\"#),
        ] {
            assert_eq!(BodySyntax::of(content_type).escaped(Some(r#"a"<b>\"#)), expected, "{content_type}");
        }
        assert_eq!(BodySyntax::Json.escaped(None), "null");
        assert_eq!(BodySyntax::Text.escaped(None), "");
    }

    #[test]
    fn headers_have_words_only() {
        let unfit = |text| TemplateText::parse(text).unwrap().not_for_headers();
        assert_eq!(
            [unfit("{code}; {retry}"), unfit("{code}: {title}"), unfit("{path}")],
            [None, Some("title"), Some("path")]
        );
    }
}
