use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The rules of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct DescribedRoute {
    /// The methods; absent for all but GET, HEAD and OPTIONS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "utoipa", schema(example = json!(["POST"])))]
    pub methods: Vec<String>,
    /// The path, with the names of its parameters in braces.
    #[cfg_attr(feature = "utoipa", schema(example = "/orders/{id}"))]
    pub path: String,
    /// How a duplicate is recognised.
    pub policy: DescribedPolicy,
    /// True if the route requires a token, a key or the name of the interval. Of two entries with one path, a request
    /// without it gets the second; otherwise it is rejected. False if such a request runs unprotected.
    pub required: bool,
    /// The place of the key, or of the name of an interval; absent if a function of the application reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_from: Option<KeyPlace>,
    /// True if a token has to be issued for this action.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bound: bool,
    /// The interval.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, example = "1500ms"))]
    pub interval: Option<Duration>,
    /// True if the interval is a lock, which ends with the run of its owner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lock: bool,
    /// Time for which a response is stored and sent to duplicates; absent if none is stored.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, example = "1d"))]
    pub retention: Option<Duration>,
    /// The response header that says this time in seconds, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_header: Option<String>,
    /// For a key: true if a run whose outcome is unknown is not repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most_once: Option<bool>,
    /// Maximum time that a duplicate waits for the first request; absent if it does not wait.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, example = "10s"))]
    pub wait: Option<Duration>,
    /// For a key: the contract by which the route responds: `ietf`, `acp`, `ucp` or `stripe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The format of rejections: `problem` (RFC 9457), that of a profile, `envelope`, or `own`.
    pub rejections: String,
    /// Maximum number of bytes of a request body that are read to find a token or to compare requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_limit: Option<u64>,
    /// Maximum number of bytes of a stored response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_limit: Option<u64>,
}

impl DescribedRoute {
    /// Creates the description of a route, written as `POST /orders`, `POST,PUT /orders` or `/orders`, without any rules.
    pub fn new(route: &str, policy: DescribedPolicy) -> Self {
        let (methods, path) = route.split_once(' ').unwrap_or(("", route));
        Self {
            methods: methods.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            path: path.to_owned(),
            policy,
            required: false,
            key_from: None,
            bound: false,
            interval: None,
            lock: false,
            retention: None,
            retention_header: None,
            at_most_once: None,
            wait: None,
            profile: None,
            rejections: "problem".to_owned(),
            body_limit: None,
            reply_limit: None,
        }
    }
}

/// How a route recognises a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DescribedPolicy {
    /// By a token that is valid once.
    Token,
    /// By a key that the client chose.
    Key,
    /// By content or name, within an interval.
    Interval,
    /// Not at all: the route is not protected.
    None,
}

/// The place of a key in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "utoipa", schema(no_recursion))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyPlace {
    /// A header.
    Header(String),
    /// A query parameter.
    Query(String),
    /// A field of the body, by JSON pointer.
    Body(String),
    /// A parameter of the path.
    Path(String),
    /// Several of these, together.
    Parts(Vec<KeyPlace>),
}

fn is_false(value: &bool) -> bool {
    !value
}
