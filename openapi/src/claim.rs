use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::token::{name, without};

/// Body of `POST /claim`: a backend is about to run something that a client may send twice. It has a `key`, or a `token`, or
/// an `interval` with an optional `key`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The key that the client chose, the same for every retry. A duplicate receives the stored reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, max_length = 255))]
    pub key: Option<String>,
    /// The token that the client fetched with `POST /token` and sent with its form. A duplicate receives the stored reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Accepts the same `fingerprint`, or the same `key`, from the same subject once per interval, from `300ms` to `1d`. No reply is stored: a
    /// duplicate is rejected as `too_soon`, unless `remember` is true. The interval starts with the claim, and starts again with each renewal.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "2s"))]
    pub interval: Option<Duration>,
    /// With `interval`: a duplicate receives the reply of the first run, until one interval after the claim, or for a second if the run took
    /// longer. With `key` too, the same key with another fingerprint is rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "utoipa", schema(default = false))]
    pub remember: bool,
    /// The operation, as the backend calls it.
    #[serde(default)]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, required = true))]
    pub action: String,
    /// The client, as the backend knows it. One client never receives the reply of another. Required, except with a token, which is a secret
    /// of its client.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub subject: Option<String>,
    /// With a token: accept only one that was issued for this action, and for this subject if there is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "utoipa", schema(default = false))]
    pub bound: bool,
    /// The content of the request, or a digest of it. The same key or token with another fingerprint is rejected. In an interval without a
    /// key, requests with the same fingerprint are duplicates.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub fingerprint: Option<String>,
    /// Time until the claim expires unless it is renewed, from `100ms` to `1h`. Default: `15s`. Renew it while you work. Not with
    /// `interval`, which is the lease itself.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "15s"))]
    pub lease: Option<Duration>,
    /// Retention of the reply or of an unknown outcome, from `1s` to `400d`. Default: `1d`. Afterwards the same key runs again; a token
    /// has expired by then, or is used. Not with `interval`.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "24h"))]
    pub retain: Option<Duration>,
    /// True (the default) if a claim on a key that is neither renewed nor settled keeps the key: nothing runs under the key again before
    /// the first backend, or an operator, settles the run; until then a duplicate is rejected as `outcome_unknown`. `false`: the key is free
    /// again when the lease expires, so the work may run twice. A token is always claimed at most once; an interval never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most_once: Option<bool>,
    /// Maximum time to wait for the first run if it is still in flight, up to `30s`. Default: no wait. If the first run is released
    /// meanwhile, through the same process, one of the waiting requests receives `run`. With `interval` only if `remember` is true.
    #[serde(default, with = "crate::duration", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(value_type = Option<String>, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "5s"))]
    pub wait: Option<Duration>,
    /// Names this attempt. A request that repeats an attempt receives the same pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, max_length = 255, pattern = "^[!-~]+$"))]
    pub attempt: Option<String>,
}

/// Response to `POST /claim`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ClaimResponse {
    /// Run the work, renew the claim meanwhile, and then complete or release it.
    Run {
        /// The permission to run. Treat it as opaque.
        pass: String,
        /// Time until the claim expires unless it is renewed.
        #[serde(with = "crate::duration::required")]
        #[cfg_attr(feature = "utoipa", schema(value_type = String, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "15s"))]
        lease: Duration,
        /// Interval between renewals while you work: a third of the lease, so that one renewal may fail; two thirds of an interval.
        #[serde(with = "crate::duration::required")]
        #[cfg_attr(feature = "utoipa", schema(value_type = String, pattern = "^[0-9]+(ms|s|m|h|d)$", example = "5s"))]
        renew_every: Duration,
    },
    /// Do not run the work; send the reply of the first run.
    Replay {
        /// The stored response of the first run.
        reply: KeptReply,
    },
}

/// A response that is stored for duplicates.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeptReply {
    /// The HTTP status.
    #[cfg_attr(feature = "utoipa", schema(minimum = 200, maximum = 599))]
    pub status: u16,
    /// Header names and values, in order. Headers that belong to one response only, such as `Set-Cookie`, are not stored.
    #[serde(default)]
    pub headers: Vec<[String; 2]>,
    /// The body, in base64.
    #[serde(default)]
    #[cfg_attr(feature = "utoipa", schema(content_encoding = "base64"))]
    pub body: String,
}

/// Body of `POST /claim/complete`: the run took effect.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// The pass from the response to `POST /claim`.
    pub pass: String,
    /// The reply for duplicates. Without it, a duplicate is rejected as `reply_not_kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<KeptReply>,
}

/// Body of `POST /claim/release` and `POST /claim/renew`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PassRequest {
    /// The pass from the response to `POST /claim`.
    pub pass: String,
}

/// Body of `POST /outcome`: looks up a submission by its key, with action and subject, or by its token, with the action and subject that it is
/// bound to or was sent with.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OutcomeRequest {
    /// The key that the client chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1, max_length = 255))]
    pub key: Option<String>,
    /// The token that the client sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The operation.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub action: Option<String>,
    /// The client, as the backend knows it.
    #[serde(default, deserialize_with = "name", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "utoipa", schema(min_length = 1))]
    pub subject: Option<String>,
}

/// The state of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is no record: the key is free, or the token was used on a route that stores no reply.
    Absent,
    /// The token was issued and is not used.
    Issued,
    /// The run is in flight.
    Running,
    /// The run started, and its outcome is unknown.
    Unknown,
    /// The run is complete.
    Done,
}

/// Response to `POST /outcome`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct OutcomeResponse {
    /// The current state of the record.
    pub state: State,
    /// The reply, if the run is complete and its reply was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<KeptReply>,
}

without!("key" in ClaimRequest: interval, action, subject, bound, lease, retain, at_most_once, wait);
without!("pass" in PassRequest:);
without!("pass" in CompleteRequest: reply);
without!("key" in OutcomeRequest: action, subject);
without!("body" in KeptReply: status);
without!("reply" in OutcomeResponse: state);

impl std::fmt::Debug for ClaimResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Run { .. } => "Run(…)",
            Self::Replay { .. } => "Replay(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, from_value, json, to_value};

    use super::*;

    #[test]
    fn bodies_match_the_contract() {
        let asked: ClaimRequest = from_value(json!({
            "key": "order-4711", "action": "pay", "subject": "alice", "fingerprint": "abc", "lease": "30s",
            "retain": "90d", "at_most_once": false, "wait": "2s", "attempt": "1",
        }))
        .unwrap();
        assert_eq!((asked.lease, asked.wait), (Some(Duration::from_secs(30)), Some(Duration::from_secs(2))));
        assert!(asked.at_most_once == Some(false) && !format!("{asked:?}").contains("4711"));
        let asked: ClaimRequest =
            from_value(json!({"token": "ow1_secret", "action": "pay", "interval": "2s"})).unwrap();
        assert_eq!(asked.interval, Some(Duration::from_secs(2)));
        assert!(!format!("{asked:?}").contains("secret"));
        let (lease, renew_every) = (Duration::from_secs(1), Duration::from_millis(333));
        let run = ClaimResponse::Run { pass: "owp1_secret".into(), lease, renew_every };
        let written = json!({"outcome": "run", "pass": "owp1_secret", "lease": "1s", "renew_every": "333ms"});
        assert_eq!(to_value(&run).unwrap(), written);
        assert!(from_value::<ClaimResponse>(written).unwrap() == run);
        let reply = KeptReply { status: 201, headers: vec![["a".into(), "b".into()]], body: "eA==".into() };
        let replay = to_value(ClaimResponse::Replay { reply: reply.clone() }).unwrap();
        let written = json!({"status": 201, "headers": [["a", "b"]], "body": "eA=="});
        assert_eq!(replay, json!({"outcome": "replay", "reply": written}));
        let complete: CompleteRequest = from_value(json!({"pass": "owp1_secret", "reply": written})).unwrap();
        assert_eq!(complete.reply, Some(reply));
        assert!(!format!("{complete:?}").contains("secret") && !format!("{complete:?}").contains("eA=="));
        assert!(from_str::<PassRequest>(r#"{"pass":"x","reply":null}"#).is_err());
        let done = to_value(OutcomeResponse { state: State::Done, reply: None }).unwrap();
        assert_eq!(done, json!({"state": "done"}));
    }
}
