//! The JSON Schema of the `proxy` table.

use onceward_api::Code;
use serde_json::{Map, Value, json};

use super::kind as kind_of_setting;
use crate::config::route_field::{FIELDS, POLICIES, RouteField, RuleKind};
use crate::config::{envelope, rejection_template};

/// Returns the schema of the table.
pub(super) fn proxy() -> Value {
    let property = |field: &RouteField| {
        let mut property = kind(field.value);
        property["description"] = field.help.into();
        (field.name.to_owned(), property)
    };
    let route = json!({
        "type": "object",
        "required": ["path", "policy"],
        "additionalProperties": false,
        "properties": FIELDS.iter().map(property).collect::<Map<_, _>>(),
        "allOf": rules(),
    });
    json!({
        "type": "object",
        "description": "Settings of `onceward proxy` that only a file can have",
        "additionalProperties": false,
        "properties": {"route": {"type": "array", "items": route}, "envelope": envelope(), "template": template()},
    })
}

/// Returns the schema of `[proxy.envelope]`.
fn envelope() -> Value {
    let code = || json!({"type": ["integer", "string"]});
    let property = |(name, _, help): (&str, &str, &str)| {
        let mut property = match name {
            "codes" => {
                let codes = Code::ALL.into_iter().map(|name| (name.as_str().to_owned(), code()));
                json!({"type": "object", "additionalProperties": false, "properties": codes.collect::<Map<_, _>>()})
            }
            "default_code" => code(),
            "status" => json!({"const": 200}),
            _ => json!({"type": "string", "minLength": 1, "not": {"enum": ["code", "data"]}}),
        };
        property["description"] = help.into();
        (name.to_owned(), property)
    };
    json!({
        "type": "object",
        "description": "The object that rejections have with `rejections = \"envelope\"`",
        "additionalProperties": false,
        "properties": envelope::FIELDS.into_iter().map(property).collect::<Map<_, _>>(),
    })
}

/// Returns the schema of `[proxy.template]`.
fn template() -> Value {
    let property = |(name, _, help): (&str, &str, &str)| {
        let mut property = match name {
            "headers" => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "status" => {
                let status = || json!({"anyOf": [{"const": 200}, {"type": "integer", "minimum": 400, "maximum": 599}]});
                let codes = Code::ALL.into_iter().map(|name| (name.as_str().to_owned(), status()));
                json!({"type": "object", "additionalProperties": false, "properties": codes.collect::<Map<_, _>>()})
            }
            _ => json!({"type": "string"}),
        };
        property["description"] = help.into();
        (name.to_owned(), property)
    };
    json!({
        "type": "object",
        "description": "Status, headers and body of rejections with `rejections = \"template\"`",
        "required": ["body"],
        "additionalProperties": false,
        "properties": rejection_template::FIELDS.into_iter().map(property).collect::<Map<_, _>>(),
    })
}

/// Excludes the fields that have no effect under the rules of a route.
fn rules() -> Vec<Value> {
    let remembers = json!({"required": ["remember"], "properties": {"remember": {"not": {"const": false}}}});
    let is_named = json!({"required": ["key_from"]});
    let policies = POLICIES.iter().map(|policy| {
        let condition = json!({"properties": {"policy": {"const": policy}}});
        json!({"if": condition, "then": {"properties": absent(|field| !field.is_of(policy))}})
    });
    let both = |policy: &str, other: &Value| json!({"allOf": [{"properties": {"policy": {"const": policy}}}, other]});
    let lacks = |kind: RuleKind| absent(move |field| field.is_of(kind.policy()) && field.default(kind).is_none());
    let methods = json!({"properties": {"methods": {"items": {"not": {"enum": ["GET", "HEAD", "OPTIONS"]}}}}});
    let others = [
        json!({"if": both("token", &json!({"not": remembers})), "then": {"properties": lacks(RuleKind::Token)}}),
        json!({
            "if": both("interval", &json!({"not": remembers})),
            "then": {"properties": lacks(RuleKind::Interval)},
        }),
        json!({
            "if": both("interval", &json!({"allOf": [is_named, {"not": remembers}]})),
            "then": {"properties": lacks(RuleKind::NamedInterval)},
        }),
        json!({"if": both("interval", &json!({})), "then": {"properties": {"remember": {"type": "boolean"}}}}),
        json!({"if": {"not": {"properties": {"policy": {"const": "none"}}}}, "then": methods}),
    ];
    policies.chain(others).collect()
}

/// Returns properties that must not be present.
fn absent(is_absent: impl Fn(&RouteField) -> bool) -> Map<String, Value> {
    FIELDS.iter().filter(|field| is_absent(field)).map(|field| (field.name.to_owned(), false.into())).collect()
}

/// Returns the schema of a value, by its kind.
fn kind(value: &str) -> Value {
    let pointers = || json!({"type": "array", "items": {"type": "string", "pattern": "^(/.*)?$"}});
    match value {
        "PATTERN" => json!({"type": "string", "pattern": "^/[^?#]*$"}),
        "METHODS" => {
            json!({"type": "array", "minItems": 1, "uniqueItems": true, "items": {"type": "string", "pattern": "^[^a-z /]+$"}})
        }
        "POLICY" => json!({"enum": POLICIES}),
        "BOOL" => json!({"type": "boolean"}),
        "DURATION or BOOL" => json!({"anyOf": [{"type": "boolean"}, kind_of_setting("DURATION")]}),
        "KEY" => json!({"oneOf": [one("header", "."), one("query", "."), one("body", "^/"), one("path", ".")]}),
        "FIELDS" => json!({"oneOf": [pointers(), {
            "type": "object", "required": ["except"], "additionalProperties": false, "properties": {"except": pointers()},
        }]}),
        "SUBJECT" => json!({"oneOf": [
            {"enum": ["credentials", "anonymous", "client_address"]}, one("header", "."), one("cookie", "."),
        ]}),
        "STATUSES" => {
            json!({"type": "array", "uniqueItems": true, "items": {"type": "integer", "minimum": 100, "maximum": 599}})
        }
        value => kind_of_setting(value),
    }
}

/// Returns the schema of a table with one entry.
fn one(name: &str, pattern: &str) -> Value {
    json!({
        "type": "object",
        "required": [name],
        "additionalProperties": false,
        "properties": {name: {"type": "string", "pattern": pattern}},
    })
}
