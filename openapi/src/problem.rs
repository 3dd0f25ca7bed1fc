use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason for a rejection: the `code` of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the title and detail below describe each code")]
pub enum Code {
    TokenMissing,
    TokenMalformed,
    TokenInvalid,
    TokenExpired,
    TokenUsed,
    TokenRevoked,
    TokenStale,
    RedeemUnknown,
    KeyMissing,
    KeyMalformed,
    KeyReused,
    InProgress,
    OutcomeUnknown,
    NotFound,
    ReplyNotKept,
    ClaimLost,
    StoreUnavailable,
    TooSoon,
    Locked,
    RateLimited,
    Overloaded,
    Unauthorized,
    BadRequest,
    BodyTooLarge,
    MethodNotAllowed,
    UnsupportedMediaType,
    UpstreamUnavailable,
    UpstreamTimeout,
    UpstreamFailed,
    Internal,
}

/// The next step for a client that received a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Send the same request again, after `Retry-After`.
    Same,
    /// *This* request ran nothing: fetch a new token and send again, unless an earlier attempt is still without a response.
    NewToken,
    /// Do not retry.
    No,
}

impl Retry {
    /// Returns the name on the wire, in the member `retry` of a problem and in the header `Onceward-Retry`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::NewToken => "new_token",
            Self::No => "no",
        }
    }

    /// Parses the name. Returns `None` for a value of a later version of the contract.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Same, Self::NewToken, Self::No].into_iter().find(|retry| retry.as_str() == text)
    }
}

/// The entry of one code.
struct Line {
    name: &'static str,
    status: u16,
    retry: Retry,
    title: &'static str,
    detail: &'static str,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 30] = [
        Self::TokenMissing,
        Self::TokenMalformed,
        Self::TokenInvalid,
        Self::TokenExpired,
        Self::TokenUsed,
        Self::TokenRevoked,
        Self::TokenStale,
        Self::RedeemUnknown,
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::KeyReused,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::NotFound,
        Self::ReplyNotKept,
        Self::ClaimLost,
        Self::StoreUnavailable,
        Self::TooSoon,
        Self::Locked,
        Self::RateLimited,
        Self::Overloaded,
        Self::Unauthorized,
        Self::BadRequest,
        Self::BodyTooLarge,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::UpstreamUnavailable,
        Self::UpstreamTimeout,
        Self::UpstreamFailed,
        Self::Internal,
    ];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        self.line().name
    }

    /// Returns the HTTP status of a response with this code.
    pub const fn status(self) -> u16 {
        self.line().status
    }

    /// Returns the next step for the client.
    pub const fn retry(self) -> Retry {
        self.line().retry
    }

    /// Returns a short summary.
    pub const fn title(self) -> &'static str {
        self.line().title
    }

    /// Returns the default detail: the cause and the next step, in a sentence or two.
    pub const fn detail(self) -> &'static str {
        self.line().detail
    }

    const fn line(self) -> Line {
        const fn line(
            name: &'static str,
            status: u16,
            retry: Retry,
            title: &'static str,
            detail: &'static str,
        ) -> Line {
            Line { name, status, retry, title, detail }
        }
        use Retry::{NewToken, No, Same};
        match self {
            Self::TokenMissing => line(
                "token_missing",
                400,
                NewToken,
                "A token is missing",
                "This submission needs a one-time token, in the Onceward-Token header or the _onceward field. Fetch one and send again.",
            ),
            Self::TokenMalformed => line(
                "token_malformed",
                400,
                NewToken,
                "The token is malformed",
                "The value sent as the token is not in the format of a token. Fetch a token and send again.",
            ),
            Self::TokenInvalid => line(
                "token_invalid",
                403,
                NewToken,
                "The token is not valid here",
                "The token was not issued by this service, or it was issued for another action or subject. It was not used. Fetch one for this submission.",
            ),
            Self::TokenExpired => line(
                "token_expired",
                410,
                NewToken,
                "The token has expired",
                "The token expired without being used. Fetch a new one and send again.",
            ),
            Self::TokenUsed => line(
                "token_used",
                409,
                No,
                "This was already sent",
                "The token was used before, so this submission was already received. It did not run a second time.",
            ),
            Self::TokenRevoked => line(
                "token_revoked",
                410,
                No,
                "The token was revoked",
                "An operator revoked the token before it was used. Nothing ran.",
            ),
            Self::TokenStale => line(
                "token_stale",
                410,
                NewToken,
                "The token was issued before a restart",
                "The store restarted after the token was issued, so it is unknown whether the token was used. Fetch a new one and send again.",
            ),
            Self::RedeemUnknown => line(
                "redeem_unknown",
                503,
                NewToken,
                "The check could not be finished",
                "The reply of the store was lost while the token was being redeemed. This request ran nothing, but its token may be used. Fetch a new one and send again.",
            ),
            Self::KeyMissing => line(
                "key_missing",
                400,
                No,
                "The idempotency key is missing",
                "This submission needs an idempotency key, chosen by the client and the same for every retry.",
            ),
            Self::KeyMalformed => line(
                "key_malformed",
                400,
                No,
                "The idempotency key is malformed",
                "An idempotency key is 1 to 255 visible ASCII characters, sent once.",
            ),
            Self::KeyReused => line(
                "key_reused",
                422,
                No,
                "The idempotency key was used for another request",
                "The same idempotency key was sent before with different content. A new submission needs a new key.",
            ),
            Self::InProgress => line(
                "in_progress",
                409,
                Same,
                "The first request is still running",
                "The same submission is still in flight. Send the same request again in a moment.",
            ),
            Self::OutcomeUnknown => line(
                "outcome_unknown",
                409,
                No,
                "The outcome is unknown",
                "The first request started, and its outcome was never recorded. It does not run again until the application or an operator settles it.",
            ),
            Self::NotFound => line("not_found", 404, No, "Not found", "No record exists for this submission."),
            Self::ReplyNotKept => line(
                "reply_not_kept",
                409,
                No,
                "The first response was not stored",
                "It was carried out; no response was stored, so it cannot be sent again.",
            ),
            Self::ClaimLost => line(
                "claim_lost",
                409,
                No,
                "The claim was lost",
                "The claim expired or was settled, and may belong to another run. Nothing was changed.",
            ),
            Self::StoreUnavailable => line(
                "store_unavailable",
                503,
                Same,
                "The store is unavailable",
                "The store is unavailable, so duplicates cannot be detected. Nothing ran. Send the same request again in a moment.",
            ),
            Self::TooSoon => line(
                "too_soon",
                // Not 429: common retry layers retry a 429 whatever the method and the headers, and then the duplicate runs.
                409,
                No,
                "Too soon",
                "The same request was sent a moment ago. It did not run a second time.",
            ),
            Self::Locked => line(
                "locked",
                429,
                Same,
                "Another request holds the lock",
                "Another request holds the lock that this one needs. Nothing ran. Send the same request again in a moment.",
            ),
            Self::RateLimited => line(
                "rate_limited",
                429,
                Same,
                "Too many requests",
                "The rate limit for tokens is exceeded. Wait for the time in the Retry-After header, then send the same request again.",
            ),
            Self::Overloaded => line(
                "overloaded",
                503,
                Same,
                "The server is overloaded",
                "The server accepts no more requests at the moment. Nothing ran. Send the same request again in a moment.",
            ),
            Self::Unauthorized => line(
                "unauthorized",
                401,
                No,
                "Authentication required",
                "The subject of this request could not be identified. Sign in or send credentials.",
            ),
            Self::BadRequest => line(
                "bad_request",
                400,
                No,
                "The request is invalid",
                "Part of the request is missing or malformed. Nothing ran.",
            ),
            Self::BodyTooLarge => line(
                "body_too_large",
                413,
                No,
                "The body is too large",
                "The body exceeds the size limit. Nothing ran.",
            ),
            Self::MethodNotAllowed => line(
                "method_not_allowed",
                405,
                No,
                "Method not allowed",
                "This URL does not support the method. Use one that the Allow header lists.",
            ),
            Self::UnsupportedMediaType => {
                line("unsupported_media_type", 415, No, "Unsupported media type", "Send the body as application/json.")
            }
            Self::UpstreamUnavailable => line(
                "upstream_unavailable",
                502,
                Same,
                "The application is not reachable",
                "The proxy could not connect to the application. Nothing ran. Send the same request again in a moment.",
            ),
            Self::UpstreamTimeout => line(
                "upstream_timeout",
                504,
                No,
                "The application did not respond in time",
                "The proxy sent the request to the application and received no response in time. It is unknown whether the request took effect.",
            ),
            Self::UpstreamFailed => line(
                "upstream_failed",
                502,
                No,
                "The application sent no complete response",
                "The connection to the application failed after the request was sent. It is unknown whether the request took effect.",
            ),
            Self::Internal => line(
                "internal",
                500,
                No,
                "Internal error",
                "The handler failed, and it is unknown whether it took effect. It does not run again by itself.",
            ),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A problem of RFC 9457, extended by the members `code` and `retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The URL of a page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short summary.
    pub title: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// The cause, and the next step.
    pub detail: String,
    /// The path of the request, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The reason, for programs.
    pub code: Code,
    /// The next step for the client.
    pub retry: Retry,
}

impl Problem {
    /// The media type of a problem.
    pub const CONTENT_TYPE: &str = "application/problem+json";
    /// The default base URL of the pages that explain the codes.
    pub const BASE: &str = "/problems/";

    /// Creates a problem with the defaults of its code.
    pub fn new(code: Code) -> Self {
        Self {
            kind: format!("{}{code}", Self::BASE),
            title: code.title().to_owned(),
            status: code.status(),
            detail: code.detail().to_owned(),
            instance: None,
            code,
            retry: code.retry(),
        }
    }

    /// Sets the detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the path of the request.
    #[must_use]
    pub fn instance(mut self, path: impl Into<String>) -> Self {
        self.instance = Some(path.into());
        self
    }

    /// Sets the base URL of the pages that explain the codes; `base` ends in a slash.
    #[must_use]
    pub fn base(mut self, base: &str) -> Self {
        self.kind = format!("{base}{}", self.code);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn problem_has_the_seven_members_of_the_contract() {
        let problem = Problem::new(Code::TokenUsed).detail("again").instance("/orders");
        assert_eq!(
            to_value(problem).unwrap(),
            json!({
                "type": "/problems/token_used", "title": "This was already sent", "status": 409,
                "detail": "again", "instance": "/orders", "code": "token_used", "retry": "no"
            })
        );
    }

    #[test]
    fn codes_are_spelled_alike_in_body_and_header() {
        for code in Code::ALL {
            assert_eq!(to_value(code).unwrap(), json!(code.as_str()));
        }
    }

    #[test]
    fn next_steps_are_spelled_alike_in_body_and_header() {
        for retry in [Retry::Same, Retry::NewToken, Retry::No] {
            assert_eq!(to_value(retry).unwrap(), json!(retry.as_str()));
            assert_eq!(Retry::parse(retry.as_str()), Some(retry));
        }
        assert_eq!(Retry::parse("Same"), None);
    }

    #[test]
    fn statuses_and_next_steps_match_the_contract() {
        let table = [
            "token_missing 400 new_token",
            "token_malformed 400 new_token",
            "token_invalid 403 new_token",
            "token_expired 410 new_token",
            "token_used 409 no",
            "token_revoked 410 no",
            "token_stale 410 new_token",
            "redeem_unknown 503 new_token",
            "key_missing 400 no",
            "key_malformed 400 no",
            "key_reused 422 no",
            "in_progress 409 same",
            "outcome_unknown 409 no",
            "not_found 404 no",
            "reply_not_kept 409 no",
            "claim_lost 409 no",
            "store_unavailable 503 same",
            "too_soon 409 no",
            "locked 429 same",
            "rate_limited 429 same",
            "overloaded 503 same",
            "unauthorized 401 no",
            "bad_request 400 no",
            "body_too_large 413 no",
            "method_not_allowed 405 no",
            "unsupported_media_type 415 no",
            "upstream_unavailable 502 same",
            "upstream_timeout 504 no",
            "upstream_failed 502 no",
            "internal 500 no",
        ];
        let ours = Code::ALL.map(|code| {
            let retry = to_value(code.retry()).unwrap();
            format!("{code} {} {}", code.status(), retry.as_str().unwrap())
        });
        assert_eq!(ours.as_slice(), table.as_slice());
    }

    #[test]
    fn base_url_of_problem_pages_is_configurable() {
        let problem = Problem::new(Code::TooSoon).base("https://example.com/why/");
        assert_eq!(problem.kind, "https://example.com/why/too_soon");
    }
}
