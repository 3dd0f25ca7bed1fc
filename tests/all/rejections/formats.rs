//! The formats of rejections under test, and what each has to say about a code: written from the texts, not from the library.

use onceward::Languages;
use onceward::http::{Envelope, Profile, RejectionFormat};
use onceward_api::Code;
use onceward_tests::client::Answer;
use serde_json::{Value, json};

/// The languages of requests, and those of their responses.
pub(super) const LANGUAGES: [(&str, &str); 3] = [("en", "en"), ("zh-CN", "zh-CN"), ("tlh", "en")];

/// The title of a code for a client that accepts this language.
pub(super) fn title(code: Code, accepted: &str) -> String {
    let title = Languages::negotiated().texts(code, Some(accepted.as_bytes())).title().to_owned();
    assert_eq!(title == code.title(), accepted != "zh-CN", "{code} in {accepted}: {title}");
    title
}

/// A format of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Problem,
    Envelope,
    Acp,
    Ucp,
    Stripe,
}

impl Format {
    pub(super) const ALL: [Self; 5] = [Self::Problem, Self::Envelope, Self::Acp, Self::Ucp, Self::Stripe];

    /// The name in paths and settings.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Envelope => "envelope",
            Self::Acp => "acp",
            Self::Ucp => "ucp",
            Self::Stripe => "stripe",
        }
    }

    /// The format of the library.
    pub(super) fn of_library(self) -> RejectionFormat {
        match self {
            Self::Problem => RejectionFormat::problem(),
            Self::Envelope => Envelope::new()
                .code(Code::TokenUsed, 20001)
                .code(Code::TooSoon, "A0506")
                .message_field("msg")
                .status_ok()
                .into(),
            Self::Acp => Profile::AgenticCommerce.into(),
            Self::Ucp => Profile::UniversalCommerce.into(),
            Self::Stripe => Profile::Stripe.into(),
        }
    }

    /// The status of a code.
    fn status(self, code: Code) -> u16 {
        match (self, code) {
            (Self::Envelope, _) => 200,
            (Self::Ucp, Code::KeyReused) => 409,
            (Self::Stripe, Code::KeyReused) => 400,
            _ => code.status(),
        }
    }

    /// The members of the body that are fixed.
    fn body(self, code: Code, title: &str) -> Value {
        let name = code.as_str();
        match self {
            Self::Problem => json!({ "code": name, "title": title, "status": code.status(), "retry": code.retry() }),
            Self::Envelope => {
                let own = match code {
                    Code::TokenUsed => json!(20001),
                    Code::TooSoon => json!("A0506"),
                    _ => json!(name),
                };
                json!({ "code": own, "msg": title, "data": null })
            }
            Self::Acp => {
                let kind = match code {
                    Code::OutcomeUnknown | Code::Internal | Code::UpstreamTimeout | Code::UpstreamFailed => {
                        "processing_error"
                    }
                    Code::StoreUnavailable | Code::Overloaded | Code::RedeemUnknown | Code::UpstreamUnavailable => {
                        "service_unavailable"
                    }
                    _ => "invalid_request",
                };
                let code = match code {
                    Code::KeyMissing => "idempotency_key_required",
                    Code::KeyReused => "idempotency_conflict",
                    Code::InProgress => "idempotency_in_flight",
                    _ => name,
                };
                json!({ "type": kind, "code": code, "message": title })
            }
            Self::Ucp => json!({ "code": name, "content": title }),
            Self::Stripe => {
                let (kind, code) = match code {
                    Code::KeyReused => ("idempotency_error", name),
                    Code::InProgress => ("invalid_request_error", "idempotency_key_in_use"),
                    _ if code.status() >= 500 => ("api_error", name),
                    _ => ("invalid_request_error", name),
                };
                json!({ "error": { "type": kind, "code": code, "message": title } })
            }
        }
    }

    /// Checks a rejection in this format, beside the same one in the default format.
    pub(super) fn check(self, code: Code, (accepted, language): (&str, &str), answer: &Answer, default: &Answer) {
        let what = &format!("{code} as {} in {accepted}", self.name());
        let header = |answer: &Answer, name: &str| {
            answer.headers.get(name).map(|value| value.to_str().expect("a header of text").to_owned())
        };
        assert_eq!(answer.outcome, code.as_str(), "{what}: {answer:?}");
        assert_eq!(header(answer, "onceward-retry").as_deref(), Some(code.retry().as_str()), "{what}");
        assert_eq!(answer.timing().as_deref(), Some(code.as_str()), "{what}");
        assert_eq!(answer.headers.contains_key("retry-after"), default.headers.contains_key("retry-after"), "{what}");
        self.check_shape(code, (accepted, language), answer);
    }

    /// Checks status and body of a rejection, and the headers that describe them.
    pub(super) fn check_shape(self, code: Code, (accepted, language): (&str, &str), answer: &Answer) {
        let what = &format!("{code} as {} in {accepted}", self.name());
        assert_eq!(answer.headers["cache-control"], "no-store", "{what}");
        assert_eq!(answer.headers["content-language"], language, "{what}");
        let vary = String::from_utf8_lossy(answer.headers["vary"].as_bytes()).to_ascii_lowercase();
        assert!(vary.contains("accept-language"), "{what}: {vary}");
        assert_eq!(answer.status, self.status(code), "{what}: {answer:?}");
        let kind = if self == Self::Problem { "application/problem+json" } else { "application/json" };
        assert_eq!(answer.headers["content-type"], kind, "{what}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = self.body(code, &title(code, accepted));
        match self {
            Self::Problem => {
                for (name, value) in expected.as_object().into_iter().flatten() {
                    assert_eq!(&body[name], value, "{what}: {name}");
                }
            }
            _ => assert_eq!(body, expected, "{what}"),
        }
    }
}
