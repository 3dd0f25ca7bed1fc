//! The terms of a claim: the fields of the request, validated.

use std::ops::RangeInclusive;
use std::time::Duration;

use onceward::{Attempt, Fingerprint, Intent, IntervalRules, Key, KeyRules, Policy, Rejection, TokenRules};
use onceward_api::{ClaimLimits, ClaimRequest, DurationLimits};

use super::RETAIN;
use crate::http::bad_request;
use crate::routes::request_fields::{attempt, key, subject};

const LEASE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60 * 60);
const DEFAULT_LEASE: Duration = Duration::from_secs(15);
/// A shorter interval cannot be guaranteed, because of the latency of the store.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(300)..=Duration::from_secs(24 * 60 * 60);
const WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30);

/// Returns the limits of claims.
pub(in crate::routes) fn limits() -> ClaimLimits {
    let rules = KeyRules::at_most_once();
    let within = |default, allowed: &RangeInclusive<Duration>| DurationLimits {
        default,
        min: *allowed.start(),
        max: *allowed.end(),
    };
    ClaimLimits {
        lease: within(Some(DEFAULT_LEASE), &LEASE),
        retain: within(Some(rules.retention()), &RETAIN),
        interval: within(None, &INTERVAL),
        wait: within(Some(Duration::ZERO), &WAIT),
    }
}

/// The validated terms of a claim.
pub(super) struct ClaimTerms {
    policy: Policy,
    key: Option<Key>,
    attempt: Option<Attempt>,
    lease: Duration,
    wait: Option<Duration>,
}

/// The kind of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimKind {
    Key,
    Token,
    Interval,
}

impl ClaimTerms {
    /// Validates the fields of a request. A field that has no effect on this kind of claim is rejected, so that no caller relies on it.
    pub(super) fn of(asked: &ClaimRequest) -> Result<Self, Rejection> {
        let kind = ClaimKind::of(asked)?;
        if asked.action.is_empty() {
            return Err(bad_request("`action` is missing.", "缺少 `action`。"));
        }
        if asked.subject.is_none() && kind != ClaimKind::Token {
            return Err(bad_request(
                "`subject` is missing: a key or an interval belongs to one subject.",
                "缺少 `subject`：幂等键和间隔属于某个请求方。",
            ));
        }
        kind.reject_foreign_fields(asked)?;
        let lease = match kind {
            ClaimKind::Interval => within("interval", asked.interval, &INTERVAL)?,
            ClaimKind::Key | ClaimKind::Token => within("lease", asked.lease, &LEASE)?,
        };
        let lease = lease.unwrap_or(DEFAULT_LEASE);
        Ok(Self {
            policy: kind.policy(asked, lease)?,
            key: asked.key.as_deref().map(key).transpose()?,
            attempt: asked.attempt.as_deref().map(attempt).transpose()?,
            lease,
            wait: within("wait", asked.wait, &WAIT)?,
        })
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn intent<'a>(&'a self, asked: &'a ClaimRequest) -> Intent<'a> {
        let mut intent = Intent::new(&asked.action, subject(asked.subject.as_deref()));
        if let Some(key) = &self.key {
            intent = intent.key(key);
        }
        if let Some(token) = &asked.token {
            intent = intent.credential(token);
        }
        if let Some(fingerprint) = &asked.fingerprint {
            intent = intent.fingerprint(Fingerprint::of_bytes(fingerprint.as_bytes()));
        }
        if let Some(attempt) = &self.attempt {
            intent = intent.attempt(attempt);
        }
        intent
    }

    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the interval between renewals. Each renewal starts an interval again, so an interval is renewed later.
    pub(super) fn renew_every(&self) -> Duration {
        match self.policy {
            Policy::Interval(_) => self.lease / 3 * 2,
            _ => self.lease / 3,
        }
    }
}

impl ClaimKind {
    fn of(asked: &ClaimRequest) -> Result<Self, Rejection> {
        match (&asked.key, &asked.token, asked.interval) {
            (_, None, Some(_)) => Ok(Self::Interval),
            (Some(_), None, None) => Ok(Self::Key),
            (None, Some(_), None) => Ok(Self::Token),
            (None, None, None) => {
                Err(bad_request("`key`, `token` or `interval` is missing.", "缺少 `key`、`token` 或 `interval`。"))
            }
            (_, Some(_), _) => Err(bad_request(
                "`token` cannot be combined with `key` or `interval`.",
                "`token` 不能与 `key` 或 `interval` 同时使用。",
            )),
        }
    }

    /// Rejects the fields that have no effect on this kind of claim.
    fn reject_foreign_fields(self, asked: &ClaimRequest) -> Result<(), Rejection> {
        let is_interval = self == Self::Interval;
        let is_rejecting = is_interval && !asked.remember;
        let is_ignored = [
            (
                "remember",
                asked.remember && !is_interval,
                "a key or token always stores the reply",
                "幂等键和令牌总是保存响应",
            ),
            ("bound", asked.bound && self != Self::Token, "it is for tokens", "它只用于令牌"),
            ("lease", asked.lease.is_some() && is_interval, "the lease is the interval", "租期就是间隔"),
            (
                "retain",
                asked.retain.is_some() && is_interval,
                "a reply is stored until the interval ends",
                "响应保存到间隔结束",
            ),
            (
                "wait",
                asked.wait.is_some() && is_rejecting,
                "without `remember` there is no reply to wait for",
                "没有 `remember`，就没有可等待的响应",
            ),
            ("at_most_once", asked.at_most_once.is_some() && is_interval, "it is for keys", "它只用于幂等键"),
            (
                "at_most_once",
                asked.at_most_once == Some(false) && self == Self::Token,
                "a token is claimed at most once",
                "令牌最多占用一次",
            ),
            (
                "fingerprint",
                asked.fingerprint.is_some() && asked.key.is_some() && is_rejecting,
                "`key` names the interval",
                "间隔由 `key` 命名",
            ),
        ];
        match is_ignored.into_iter().find(|(_, is_ignored, ..)| *is_ignored) {
            Some((field, _, reason, chinese)) => Err(bad_request(
                format!("`{field}` has no effect here: {reason}."),
                format!("`{field}` 在此处无效：{chinese}。"),
            )),
            None => Ok(()),
        }
    }

    fn policy(self, asked: &ClaimRequest, lease: Duration) -> Result<Policy, Rejection> {
        Ok(match self {
            Self::Key if asked.at_most_once == Some(false) => Policy::key(rules(KeyRules::retryable(), asked, lease)?),
            Self::Key => Policy::key(rules(KeyRules::at_most_once(), asked, lease)?),
            Self::Token => {
                let token = if asked.bound { TokenRules::new().bound() } else { TokenRules::new() };
                Policy::Token(token.remember_by(rules(KeyRules::at_most_once(), asked, lease)?))
            }
            Self::Interval => {
                let rules = IntervalRules::new().every(lease);
                let rules = rules
                    .map_err(|error| bad_request(format!("`interval`: {error}."), "`interval` 超出允许的范围。"))?;
                Policy::interval(if asked.remember { rules.remember() } else { rules })
            }
        })
    }
}

fn rules(rules: KeyRules, asked: &ClaimRequest, lease: Duration) -> Result<KeyRules, Rejection> {
    let rules =
        rules.lease(lease).map_err(|error| bad_request(format!("`lease`: {error}."), "`lease` 超出允许的范围。"))?;
    Ok(match within("retain", asked.retain, &RETAIN)? {
        Some(retain) => rules.retain(retain),
        None => rules,
    })
}

/// Checks that a duration is in the allowed range.
fn within(
    field: &str,
    asked: Option<Duration>,
    allowed: &RangeInclusive<Duration>,
) -> Result<Option<Duration>, Rejection> {
    match asked {
        Some(asked) if !allowed.contains(&asked) => {
            let [least, most] = [allowed.start(), allowed.end()].map(|end| onceward_api::duration::text(*end));
            Err(bad_request(
                format!("`{field}` must be from {least} to {most}."),
                format!("`{field}` 必须在 {least} 到 {most} 之间。"),
            ))
        }
        asked => Ok(asked),
    }
}
