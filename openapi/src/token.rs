use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Body of `POST /token`. Every field is optional, and so is the body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The only operation that accepts the token. A route without a name of its own is named by method and path, as in
    /// `POST /orders`, however the path is percent-encoded. Without it, every operation accepts the token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub action: Option<String>,
    /// The only subject that may use the token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub subject: Option<String>,
    /// Time until the token expires, from `1s` to `24h`. More than the configured `token_ttl` requires the API key.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "10m"))]
    pub ttl: Option<Duration>,
}

/// Response to `POST /token`: a token and its expiry.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct IssuedToken {
    /// The token itself. Treat it as opaque.
    pub token: String,
    /// The time at which the token expires.
    #[cfg_attr(feature = "utoipa", schema(value_type = String, format = DateTime))]
    pub expires_at: Timestamp,
    /// Whole seconds until the token expires.
    pub expires_in: u64,
}

/// Body of `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokensRequest {
    /// The number of tokens, from 1 to 100.
    #[cfg_attr(feature = "utoipa", schema(minimum = 1, maximum = 100))]
    pub count: u32,
    /// As for a single token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub action: Option<String>,
    /// As for a single token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub subject: Option<String>,
    /// As for a single token.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "10m"))]
    pub ttl: Option<Duration>,
}

/// Response to `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct IssuedTokens {
    /// As many tokens as requested.
    pub tokens: Vec<IssuedToken>,
}

/// Body of `POST /token/redeem`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RedeemRequest {
    /// The token to redeem.
    pub token: String,
    /// The operation that the token was sent for.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub action: Option<String>,
    /// The client that sent the token, as the backend knows it.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub subject: Option<String>,
    /// Accept only a token that is bound to this action, and to this subject if there is one.
    #[serde(default)]
    pub bound: bool,
    /// Names this attempt. A request that repeats an attempt is accepted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$"))]
    pub attempt: Option<String>,
}

/// Response to `POST /token/redeem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct RedeemResponse {
    /// Always `redeemed`.
    pub outcome: String,
    /// The id of this use of the token, if the request names an attempt: `POST /token/release` requires it. A repeated attempt receives
    /// the same id; after a release, redeeming returns a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(format = "uuid"))]
    pub run_id: Option<String>,
}

/// Body of `POST /token/release`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The token whose submission had no effect.
    pub token: String,
    /// The attempt that redeemed it.
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$"))]
    pub attempt: String,
    /// The `run_id` from the response to `POST /token/redeem`. A late retry of a release frees only this run, not a later one of
    /// the same attempt.
    #[cfg_attr(feature = "utoipa", schema(format = "uuid"))]
    pub run_id: String,
}

/// Reads an optional name. An empty one is rejected: it would bind a token to an operation without a name.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    match name {
        Some(name) if name.is_empty() => Err(serde::de::Error::custom("a name may not be empty")),
        name => Ok(name),
    }
}

/// Implements `Debug` without the secret field.
macro_rules! without {
    ($hidden:literal in $body:ident: $($field:ident),*) => {
        impl std::fmt::Debug for $body {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($body))
                    .field($hidden, &format_args!("…"))
                    $(.field(stringify!($field), &self.$field))*
                    .finish()
            }
        }
    };
}
pub(crate) use without;

without!("token" in IssuedToken: expires_at, expires_in);
without!("token" in RedeemRequest: action, subject, bound, attempt);
without!("token" in ReleaseRequest: attempt, run_id);

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_value};

    use super::*;

    #[test]
    fn issued_token_has_the_three_members_of_the_contract() {
        let issued = IssuedToken {
            token: "ow1_x".into(),
            expires_at: Timestamp::from_second(1_800_000_000).unwrap(),
            expires_in: 1800,
        };
        assert_eq!(
            to_value(&issued).unwrap(),
            json!({"token": "ow1_x", "expires_at": "2027-01-15T08:00:00Z", "expires_in": 1800})
        );
        assert!(!format!("{issued:?}").contains("ow1_x"));
    }

    #[test]
    fn token_request_may_be_empty_and_names_unknown_fields() {
        assert_eq!(from_str::<TokenRequest>("{}").unwrap(), TokenRequest::default());
        let asked: TokenRequest = from_str(r#"{"ttl":"90s","action":"POST /orders"}"#).unwrap();
        assert_eq!(asked.ttl, Some(Duration::from_secs(90)));
        let error = from_str::<TokenRequest>(r#"{"tll":"90s"}"#).unwrap_err().to_string();
        assert!(error.contains("`tll`"), "{error}");
        assert!(from_str::<TokenRequest>(r#"{"ttl":90}"#).is_err());
        assert!(from_str::<TokenRequest>(r#"{"action":""}"#).is_err());
        assert_eq!(from_str::<TokenRequest>(r#"{"action":null}"#).unwrap().action, None);
    }

    #[test]
    fn redeem_release_and_batch_bodies_match_the_contract() {
        let redeem: RedeemRequest =
            from_str(r#"{"token":"ow1_secret","action":"a","subject":"s","bound":true,"attempt":"1"}"#).unwrap();
        assert!(redeem.bound && redeem.attempt.as_deref() == Some("1"));
        assert!(!format!("{redeem:?}").contains("ow1_secret"));
        assert!(!from_str::<RedeemRequest>(r#"{"token":"t"}"#).unwrap().bound);
        for incomplete in [r#"{"token":"t"}"#, r#"{"token":"t","attempt":"1"}"#] {
            assert!(from_str::<ReleaseRequest>(incomplete).is_err());
        }
        let release: ReleaseRequest = from_str(r#"{"token":"ow1_secret","attempt":"1","run_id":"r"}"#).unwrap();
        assert!(!format!("{release:?}").contains("ow1_secret"));
        let plain = to_value(RedeemResponse { outcome: "redeemed".into(), run_id: None }).unwrap();
        assert_eq!(plain, json!({"outcome": "redeemed"}));
        assert_eq!(from_str::<TokensRequest>(r#"{"count":3}"#).unwrap().count, 3);
    }
}
