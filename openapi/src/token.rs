use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Body of `POST /token`. All of it is optional, and so is the body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The only operation the token will be good for; a route that has no name of its own is called by method and path, as
    /// in `POST /orders`, however that path is percent-encoded. Without it, the token is good for every operation.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub action: Option<String>,
    /// The only caller the token will be good for.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub subject: Option<String>,
    /// How long the token lives, from `1s` to `24h`; longer than usual only with the API key.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "10m")]
    pub ttl: Option<Duration>,
}

/// A token and how long it lives: the answer to `POST /token`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedToken {
    /// The token itself. Treat it as opaque.
    pub token: String,
    /// When it expires.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// How many whole seconds are left.
    pub expires_in: u64,
}

/// Body of `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokensRequest {
    /// How many, from 1 to 100.
    #[schema(minimum = 1, maximum = 100)]
    pub count: u32,
    /// As for a single token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub action: Option<String>,
    /// As for a single token.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub subject: Option<String>,
    /// As for a single token.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "10m")]
    pub ttl: Option<Duration>,
}

/// The answer to `POST /tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedTokens {
    /// As many as were asked for.
    pub tokens: Vec<IssuedToken>,
}

/// Body of `POST /token/redeem`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RedeemRequest {
    /// The token to spend.
    pub token: String,
    /// The operation it is presented for.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub action: Option<String>,
    /// The caller who presents it.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1)]
    pub subject: Option<String>,
    /// Accept only a token that is bound to this action, and to this subject where one is named.
    #[serde(default)]
    pub bound: bool,
    /// Names this try, so that the same try asked twice is accepted twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    pub attempt: Option<String>,
}

/// The answer to `POST /token/redeem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RedeemResponse {
    /// Always `redeemed`.
    pub outcome: String,
    /// Names this use of the token, if the request names an attempt: `POST /token/release` needs it. The same attempt gets
    /// the same one when it asks again; after a release, redeeming makes another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uuid")]
    pub run_id: Option<String>,
}

/// Body of `POST /token/release`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The token whose submission had no effect.
    pub token: String,
    /// The try that redeemed it.
    #[schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    pub attempt: String,
    /// The `run_id` that `POST /token/redeem` answered. A release that is repeated late frees this run, and no later one of
    /// the same attempt.
    #[schema(format = "uuid")]
    pub run_id: String,
}

/// A name that is not there, or not empty: an empty one would bind a token to what has no name.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    match name {
        Some(name) if name.is_empty() => Err(serde::de::Error::custom("a name may not be empty")),
        name => Ok(name),
    }
}

/// A body that holds what nobody else may see shows the rest.
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
    fn an_issued_token_has_the_contract_s_three_members() {
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
    fn a_token_request_may_be_empty_and_names_what_it_does_not_know() {
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
    fn redeem_release_and_batch_bodies_are_those_of_the_contract() {
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
