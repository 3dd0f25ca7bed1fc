//! The rules of a route: each field that has an effect, as it is written or with its default.

use std::time::Duration;

use toml::{Table, Value};

use crate::config::route::kind;
use crate::config::route_field::{FIELDS, RouteField, RuleKind};
use crate::proxy::route::{ProxyRoute, RoutePolicy};
use crate::proxy::settings::ProxySettings;

/// A rule and its source.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_default: bool,
}

/// Returns the rules of a route.
pub(super) fn rules(written: &Table, route: &ProxyRoute, settings: &ProxySettings) -> Vec<Rule> {
    let Ok(kind) = kind(written) else { return Vec::new() };
    let profile = route.profile.unwrap_or(settings.profile);
    let rule = |field: &RouteField| {
        let default = field.default(kind)?;
        let given = |value: &str| Rule { name: field.name, value: value.to_owned(), is_default: true };
        let by_profile = |value: String| Rule { name: field.name, value, is_default: false };
        Some(match (field.name, written.get(field.name)) {
            ("path", _) => return None,
            // The table of effects shows these.
            ("applied" | "not_applied" | "unknown", _) => return None,
            ("retain", Some(_)) if kept(route) < profile.least_retention() => {
                by_profile(format!("{} (profile {profile})", hours(profile.least_retention())))
            }
            ("fingerprint", _) if kind == RuleKind::Key && profile.compares_bytes() => {
                by_profile(format!("the bytes of the body (profile {profile})"))
            }
            ("profile", None) => given(settings.profile.as_str()),
            ("rejections", None) => given(settings.rejections.as_str()),
            ("retention_header", None) => given(settings.retention_header.as_ref().map_or("off", |name| name.as_str())),
            ("body_limit", None) => given(&size(settings.body_limit)),
            ("remember", Some(Value::Boolean(true))) => {
                Rule { name: field.name, value: "24h".to_owned(), is_default: false }
            }
            (_, Some(value)) => Rule { name: field.name, value: shown(value), is_default: false },
            (_, None) => Rule { name: field.name, value: default.to_owned(), is_default: true },
        })
    };
    FIELDS.iter().filter_map(rule).collect()
}

/// Returns the retention of a route with keys.
fn kept(route: &ProxyRoute) -> Duration {
    match &route.policy {
        RoutePolicy::Key { rules, .. } => rules.retention(),
        _ => Duration::MAX,
    }
}

fn hours(time: Duration) -> String {
    format!("{}h", time.as_secs() / 3600)
}

/// Formats a value for people.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Table(table) => {
            let entries = table.iter().map(|(name, value)| format!("{name} {}", shown(value)));
            entries.collect::<Vec<_>>().join(", ")
        }
        Value::Integer(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Datetime(date) => date.to_string(),
    }
}

/// Formats a size in the longest unit that represents it exactly.
fn size(bytes: usize) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, length)| bytes.is_multiple_of(*length));
    let (unit, length) = unit.unwrap_or(("B", 1));
    format!("{}{unit}", bytes / length)
}
