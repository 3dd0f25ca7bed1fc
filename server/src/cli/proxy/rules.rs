//! The rules of a route: each field that has an effect, as it is written or with its default.

use toml::{Table, Value};

use crate::config::route::kind;
use crate::config::route_field::{FIELDS, RouteField};

/// A rule and its source.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_default: bool,
}

/// Returns the rules of a route.
pub(super) fn rules(route: &Table, body_limit: usize) -> Vec<Rule> {
    let Ok(kind) = kind(route) else { return Vec::new() };
    let rule = |field: &RouteField| {
        let default = field.default(kind)?;
        Some(match (field.name, route.get(field.name)) {
            ("path", _) => return None,
            // The table of effects shows these.
            ("applied" | "not_applied" | "unknown", _) => return None,
            ("body_limit", None) => Rule { name: field.name, value: size(body_limit), is_default: true },
            ("remember", Some(Value::Boolean(true))) => {
                Rule { name: field.name, value: "24h".to_owned(), is_default: false }
            }
            (_, Some(value)) => Rule { name: field.name, value: shown(value), is_default: false },
            (_, None) => Rule { name: field.name, value: default.to_owned(), is_default: true },
        })
    };
    FIELDS.iter().filter_map(rule).collect()
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
