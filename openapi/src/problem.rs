use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why nothing ran, or why no answer can be given: the `code` of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "each code's title and detail below say what it means")]
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
    Internal,
}

/// The next step for whoever got the problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Send the same again, after `Retry-After`.
    Same,
    /// *This* request ran nothing: fetch a new token and send again, if no earlier try is without an answer.
    NewToken,
    /// Do not repeat it.
    No,
}

/// One line of the contract's table.
struct Line {
    name: &'static str,
    status: u16,
    retry: Retry,
    title: &'static str,
    detail: &'static str,
}

impl Code {
    /// Every code there is.
    pub const ALL: [Self; 27] = [
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
        Self::Internal,
    ];

    /// Its name on the wire.
    pub const fn as_str(self) -> &'static str {
        self.line().name
    }

    /// The HTTP status it is answered with.
    pub const fn status(self) -> u16 {
        self.line().status
    }

    /// What the caller may do next.
    pub const fn retry(self) -> Retry {
        self.line().retry
    }

    /// What happened, in a few words.
    pub const fn title(self) -> &'static str {
        self.line().title
    }

    /// What happened and what to do, in a sentence or two, where nothing more exact is known.
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
                "This is not a token",
                "What was sent as a token does not have the form of one. Fetch a token and send again.",
            ),
            Self::TokenInvalid => line(
                "token_invalid",
                403,
                NewToken,
                "The token is not good here",
                "The token was not issued here, or it was issued for another action or caller. It was not used up. Fetch one for this submission.",
            ),
            Self::TokenExpired => line(
                "token_expired",
                410,
                NewToken,
                "The token has expired",
                "The token is past its time and was not used. Fetch a new one and send again.",
            ),
            Self::TokenUsed => line(
                "token_used",
                409,
                No,
                "This was already sent",
                "The token was used before, so this submission was received already. It was not carried out a second time.",
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
                "The token is from an earlier run",
                "The store was restarted since the token was issued, so nobody can tell whether it was used. Fetch a new one and send again.",
            ),
            Self::RedeemUnknown => line(
                "redeem_unknown",
                503,
                NewToken,
                "The check could not be finished",
                "The answer of the store was lost while the token was being used up. This request ran nothing, but its token may be gone. Fetch a new one and send again.",
            ),
            Self::KeyMissing => line(
                "key_missing",
                400,
                No,
                "A key is missing",
                "This submission needs an idempotency key, made by the caller and the same for every retry.",
            ),
            Self::KeyMalformed => line(
                "key_malformed",
                400,
                No,
                "This is not a key",
                "An idempotency key is 1 to 255 visible ASCII characters, sent once.",
            ),
            Self::KeyReused => line(
                "key_reused",
                422,
                No,
                "The key was used for something else",
                "The same idempotency key came with other content before. A new submission needs a new key.",
            ),
            Self::InProgress => line(
                "in_progress",
                409,
                Same,
                "The first one is still running",
                "The same submission is being carried out right now. Ask again in a moment.",
            ),
            Self::OutcomeUnknown => line(
                "outcome_unknown",
                409,
                No,
                "Nobody knows how it ended",
                "The first submission began and its end was never recorded. It is not run again until somebody settles it.",
            ),
            Self::NotFound => {
                line("not_found", 404, No, "There is no record", "Nothing is recorded for this submission.")
            }
            Self::ReplyNotKept => line(
                "reply_not_kept",
                409,
                No,
                "The first response was not stored",
                "This submission was carried out before. Its response was not stored, so it cannot be sent again.",
            ),
            Self::ClaimLost => line(
                "claim_lost",
                409,
                No,
                "The claim is no longer yours",
                "The claim lapsed or was settled, and may belong to another run. Nothing was changed.",
            ),
            Self::StoreUnavailable => line(
                "store_unavailable",
                503,
                Same,
                "The store does not answer",
                "Whether this was sent before cannot be found out right now, so nothing ran. Send the same again in a moment.",
            ),
            Self::TooSoon => line(
                "too_soon",
                // Not 429: common retry layers wait and repeat that, whatever the method and the headers, and then the duplicate runs.
                409,
                No,
                "Too soon",
                "The same was sent a moment ago. It was not carried out a second time.",
            ),
            Self::Locked => line(
                "locked",
                429,
                Same,
                "Another one is running",
                "Another submission holds the lock that this one needs. Nothing ran. Send the same again in a moment.",
            ),
            Self::RateLimited => line(
                "rate_limited",
                429,
                Same,
                "Too many requests",
                "More tokens were asked for than one client may have at once. Wait and ask again.",
            ),
            Self::Overloaded => line(
                "overloaded",
                503,
                Same,
                "Too busy right now",
                "This server takes no more submissions at the moment. Nothing ran. Send the same again.",
            ),
            Self::Unauthorized => line(
                "unauthorized",
                401,
                No,
                "Who is asking?",
                "This needs a caller that can be named, and none was found. Sign in or send credentials.",
            ),
            Self::BadRequest => line(
                "bad_request",
                400,
                No,
                "The request cannot be read",
                "Something in the request is not as it has to be.",
            ),
            Self::BodyTooLarge => line(
                "body_too_large",
                413,
                No,
                "The body is too large",
                "The body is larger than what is read here. Nothing ran.",
            ),
            Self::MethodNotAllowed => {
                line("method_not_allowed", 405, No, "Not with this method", "This address does not take this method.")
            }
            Self::UnsupportedMediaType => {
                line("unsupported_media_type", 415, No, "Not in this format", "The body has to be application/json.")
            }
            Self::Internal => line(
                "internal",
                500,
                No,
                "Something broke",
                "The handler broke off, and whether it took effect is not known. It is not run again by itself.",
            ),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A problem as RFC 9457 has it, with two members of ours: `code` and `retry`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A page that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, in a few words.
    pub title: String,
    /// The HTTP status, again.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// Which request it happened to: its path, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// What a program goes by.
    pub code: Code,
    /// The next step.
    pub retry: Retry,
}

impl Problem {
    /// The media type of a problem.
    pub const CONTENT_TYPE: &str = "application/problem+json";
    /// Where the pages that explain the codes stand, unless an application says otherwise.
    pub const BASE: &str = "/problems/";

    /// A problem with everything that its code says of itself.
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

    /// Says what happened this time.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Says which request it was.
    #[must_use]
    pub fn instance(mut self, path: impl Into<String>) -> Self {
        self.instance = Some(path.into());
        self
    }

    /// Puts the explaining pages elsewhere; `base` ends in a slash.
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
    fn a_problem_has_the_contract_s_seven_members() {
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
    fn every_code_is_spelled_the_same_in_a_body_and_in_a_header() {
        for code in Code::ALL {
            assert_eq!(to_value(code).unwrap(), json!(code.as_str()));
        }
    }

    #[test]
    fn statuses_and_next_steps_are_those_of_the_contract() {
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
            "internal 500 no",
        ];
        let ours = Code::ALL.map(|code| {
            let retry = to_value(code.retry()).unwrap();
            format!("{code} {} {}", code.status(), retry.as_str().unwrap())
        });
        assert_eq!(ours.as_slice(), table.as_slice());
    }

    #[test]
    fn an_application_can_keep_the_explaining_pages_elsewhere() {
        let problem = Problem::new(Code::TooSoon).base("https://example.com/why/");
        assert_eq!(problem.kind, "https://example.com/why/too_soon");
    }
}
