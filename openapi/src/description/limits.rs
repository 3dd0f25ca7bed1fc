use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct TokenLimits {
    /// Time until a token expires, if the client asks for no other.
    #[serde(with = "crate::duration::required")]
    #[cfg_attr(feature = "utoipa", schema(value_type = String, example = "30m"))]
    pub ttl: Duration,
    /// The longest time that a client may ask for.
    #[serde(with = "crate::duration::required")]
    #[cfg_attr(feature = "utoipa", schema(value_type = String, example = "30m"))]
    pub max_ttl: Duration,
    /// Maximum number of tokens per request.
    pub per_request: u32,
}

/// The limits of claims by backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct ClaimLimits {
    /// Time until a claim expires unless it is renewed.
    pub lease: DurationLimits,
    /// Time for which a response is stored.
    pub retain: DurationLimits,
    /// The interval of a claim without a key or token.
    pub interval: DurationLimits,
    /// Time that a duplicate waits for the first request.
    pub wait: DurationLimits,
}

/// The range of a duration that a client may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct DurationLimits {
    /// The value if the client asks for none; absent if it has to.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, example = "15s"))]
    pub default: Option<Duration>,
    /// The shortest.
    #[serde(with = "crate::duration::required")]
    #[cfg_attr(feature = "utoipa", schema(value_type = String, example = "100ms"))]
    pub min: Duration,
    /// The longest.
    #[serde(with = "crate::duration::required")]
    #[cfg_attr(feature = "utoipa", schema(value_type = String, example = "1h"))]
    pub max: Duration,
}
