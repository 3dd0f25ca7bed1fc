//! Parses a `[[proxy.route]]`. Each error begins with the field and states the fix.

use http::HeaderName;
use onceward::{Effect, Fields, IntervalRules, KeyRules, SettingError};
use onceward_api::header::IDEMPOTENCY_KEY;
use toml::{Table, Value};

use super::route_field::{FIELDS, RuleKind, nearest_field};
use super::route_value::{
    any_duration, boolean, fields, key_location, methods, own_header, positive_duration, profile, rejections, remember,
    repeated, size, statuses, subject, text,
};
use super::setting::names;
use crate::proxy::pattern::PathPattern;
use crate::proxy::route::{KeyLocation, ProxyRoute, RoutePolicy, RouteSubject, StatusEffects, is_safe};

/// Parses a route.
pub(super) fn parse(table: &Table) -> Result<ProxyRoute, String> {
    let fields = RouteFields(table);
    fields.check_names()?;
    let path = fields.required(
        "path",
        |value| PathPattern::parse(text(value)?),
        "the paths of the route, as in \"/orders/{id}\"",
    )?;
    let kind = kind(table)?;
    fields.check_kind(kind)?;
    let route = ProxyRoute {
        methods: fields.read("methods", methods)?.unwrap_or_default(),
        policy: fields.policy(kind, &path)?,
        subject: fields.read("subject", subject)?.unwrap_or(RouteSubject::Credentials),
        profile: fields.read("profile", profile)?,
        rejections: fields.read("rejections", rejections)?,
        retention_header: fields.read("retention_header", own_header)?,
        body_limit: fields.read("body_limit", size)?,
        effects: fields.effects()?,
        path,
    };
    match route.methods.iter().find(|method| kind != RuleKind::None && is_safe(method)) {
        Some(method) => Err(format!(
            "`methods`: {method} requests are never checked, so the policy {kind} would have no effect; remove {method} from the list"
        )),
        None => Ok(route),
    }
}

/// Returns the kind of rules that a route has.
pub(crate) fn kind(table: &Table) -> Result<RuleKind, String> {
    let fields = RouteFields(table);
    const FORM: &str = "\"token\", \"key\", \"interval\" or \"none\"";
    let policy = fields.required("policy", |value| text(value).map(str::to_owned), FORM)?;
    match policy.as_str() {
        "token" if fields.read("remember", remember)?.flatten().is_some() => Ok(RuleKind::Remembered),
        "token" => Ok(RuleKind::Token),
        "key" => Ok(RuleKind::Key),
        "interval" => Ok(match (fields.remembers_interval()?, table.contains_key("key_from")) {
            (false, false) => RuleKind::Interval,
            (false, true) => RuleKind::NamedInterval,
            (true, false) => RuleKind::RememberedInterval,
            (true, true) => RuleKind::RememberedNamedInterval,
        }),
        "none" => Ok(RuleKind::None),
        other => Err(format!("`policy`: `{other}` is not one of {FORM}")),
    }
}

/// The fields of a route, as they are written.
struct RouteFields<'a>(&'a Table);

impl RouteFields<'_> {
    /// Returns a field that may be missing.
    fn read<'a, T>(&'a self, name: &str, parse: impl Fn(&'a Value) -> Result<T, String>) -> Result<Option<T>, String> {
        self.0.get(name).map(|value| parse(value).map_err(|error| format!("`{name}`: {error}"))).transpose()
    }

    fn required<'a, T>(
        &'a self,
        name: &str,
        parse: impl Fn(&'a Value) -> Result<T, String>,
        form: &str,
    ) -> Result<T, String> {
        self.read(name, parse)?.ok_or_else(|| format!("`{name}`: it is not set; set it to {form}"))
    }

    fn check_names(&self) -> Result<(), String> {
        let is_known = |name: &str| FIELDS.iter().any(|field| field.name == name);
        let Some(name) = self.0.keys().find(|name| !is_known(name)) else { return Ok(()) };
        if names().any(|(setting, _)| setting == *name) {
            return Err(format!(
                "`{name}` is a setting and no field of a route; move it above the first [[proxy.route]]"
            ));
        }
        let meant = nearest_field(name).map(|name| format!("; did you mean `{name}`?"));
        Err(format!("there is no field `{name}`{}", meant.unwrap_or_default()))
    }

    /// Rejects a field that has no effect.
    fn check_kind(&self, kind: RuleKind) -> Result<(), String> {
        let given = FIELDS.iter().filter(|field| self.0.contains_key(field.name));
        match given.into_iter().find(|field| field.default(kind).is_none()) {
            Some(field) => Err(format!("`{}`: {}", field.name, field.misplaced(kind))),
            None => Ok(()),
        }
    }

    fn policy(&self, kind: RuleKind, path: &PathPattern) -> Result<RoutePolicy, String> {
        let wait = self.read("wait", any_duration)?;
        let from = self.key_location(path)?;
        let fields = self.read("fingerprint", fields)?.unwrap_or_else(Fields::all);
        Ok(match kind {
            RuleKind::Token | RuleKind::Remembered => {
                let bound = self.read("bound", boolean)?.unwrap_or(false);
                RoutePolicy::Token { bound, remember: self.remembered()?, wait, fields }
            }
            RuleKind::Key => {
                let from = from.unwrap_or(KeyLocation::Header(HeaderName::from_static(IDEMPOTENCY_KEY)));
                RoutePolicy::Key { rules: self.key_rules()?, from, wait, fields }
            }
            RuleKind::Interval
            | RuleKind::NamedInterval
            | RuleKind::RememberedInterval
            | RuleKind::RememberedNamedInterval => {
                let remember = self.remembers_interval()?;
                RoutePolicy::Interval { rules: self.interval_rules()?, remember, from, wait, fields }
            }
            RuleKind::None => RoutePolicy::None,
        })
    }

    fn key_location(&self, path: &PathPattern) -> Result<Option<KeyLocation>, String> {
        let parameters: Vec<_> = path.names().collect();
        self.read("key_from", |value| key_location(value, &parameters))
    }

    /// Returns whether the response is stored until the interval ends.
    fn remembers_interval(&self) -> Result<bool, String> {
        match self.0.get("remember") {
            None => Ok(false),
            Some(Value::Boolean(is_on)) => Ok(*is_on),
            Some(_) => Err("`remember`: in an interval it must be `true` or `false`: the response is stored until the interval ends; \
                            set `every` to that time"
                .to_owned()),
        }
    }

    fn remembered(&self) -> Result<Option<KeyRules>, String> {
        let retain = self.read("remember", remember)?.flatten();
        retain.map(|retain| self.leased(KeyRules::at_most_once().retain(retain))).transpose()
    }

    fn key_rules(&self) -> Result<KeyRules, String> {
        let is_at_most_once = self.read("at_most_once", boolean)?.unwrap_or(true);
        let rules = if is_at_most_once { KeyRules::at_most_once() } else { KeyRules::retryable() };
        let rules = match self.read("retain", positive_duration)? {
            Some(retain) => rules.retain(retain),
            None => rules,
        };
        self.leased(rules)
    }

    fn leased(&self, rules: KeyRules) -> Result<KeyRules, String> {
        match self.read("lease", any_duration)? {
            Some(lease) => rules.lease(lease).map_err(|error| setting("lease", &error)),
            None => Ok(rules),
        }
    }

    fn interval_rules(&self) -> Result<IntervalRules, String> {
        match self.read("every", any_duration)? {
            Some(every) => IntervalRules::new().every(every).map_err(|error| setting("every", &error)),
            None => Ok(IntervalRules::new()),
        }
    }

    /// Returns the effects by status. No status may have two of them.
    fn effects(&self) -> Result<StatusEffects, String> {
        let mut effects = Vec::new();
        for (name, effect) in
            [("applied", Effect::Applied), ("not_applied", Effect::NotApplied), ("unknown", Effect::Unknown)]
        {
            let statuses = self.read(name, statuses)?.unwrap_or_default();
            effects.extend(statuses.into_iter().map(|status| (status, effect)));
        }
        let statuses: Vec<_> = effects.iter().map(|(status, _)| *status).collect();
        match repeated(&statuses) {
            Some(status) => Err(format!(
                "{status} is in two of `applied`, `not_applied` and `unknown`; a status has one effect, so remove it from one of them"
            )),
            None => Ok(StatusEffects(effects)),
        }
    }
}

fn setting(name: &str, error: &SettingError) -> String {
    format!("`{name}`: {error}")
}
