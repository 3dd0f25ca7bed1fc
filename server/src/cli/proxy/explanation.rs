//! Why a request gets a rule of the proxy: plain data, as text and as JSON.

use http::Method;
use onceward_api::Description;
use serde_json::{Value, json};

use super::super::table::table;
use super::effects::effects;
use super::rules::{Rule, rules};
use crate::config::proxy_table::WrittenRoute;
use crate::proxy::own_routes::OwnRoutes;
use crate::proxy::route::{ProxyRoute, RoutePolicy, is_safe};
use crate::proxy::route_table::{RouteMatch, RouteTable};
use crate::proxy::settings::{ProxySettings, Require};

/// The rule that a request gets, and why.
#[derive(Debug)]
pub(super) struct Explanation {
    request: [String; 2],
    rule: RequestRule,
    /// The number and path of each route that does not match, and the reason.
    skipped: Vec<(usize, String, &'static str)>,
}

#[derive(Debug)]
enum RequestRule {
    /// The proxy responds itself.
    Own { is_well_known: bool, proxy_path: String },
    /// A route applies.
    Route(Box<RouteRules>),
    /// The guard never checks the method.
    Safe,
    /// No route matches: what the request carries, and what happens to it.
    Default {
        require: &'static str,
        formats: [&'static str; 2],
        treatments: Vec<[&'static str; 2]>,
        warning: Option<&'static str>,
    },
}

#[derive(Debug)]
struct RouteRules {
    number: usize,
    line: usize,
    path: String,
    parameters: Vec<(String, String)>,
    rules: Vec<Rule>,
    effects: Vec<(&'static str, String)>,
    warning: Option<&'static str>,
}

impl Explanation {
    /// Explains the rule for a method and a path.
    pub(super) fn of(method: &Method, path: &str, settings: &ProxySettings, written: &[WrittenRoute]) -> Self {
        let request = [method.to_string(), path.to_owned()];
        if OwnRoutes::new(settings).find(path).is_some() {
            let rule =
                RequestRule::Own { is_well_known: path == Description::PATH, proxy_path: settings.proxy_path.clone() };
            return Self { request, rule, skipped: Vec::new() };
        }
        let table = RouteTable::new(settings.routes.clone());
        let found = table.find(method, path);
        let earlier = &table.routes[..found.as_ref().map_or(table.routes.len(), |found| found.index)];
        let skipped = earlier
            .iter()
            .enumerate()
            .map(|(at, route)| (at + 1, route.path.as_str().to_owned(), reason(route, method, path)));
        let skipped = skipped.collect();
        let rule = match &found {
            Some(found) => RequestRule::Route(Box::new(RouteRules::of(found, settings, &written[found.index]))),
            None if is_safe(method) => RequestRule::Safe,
            None => RequestRule::Default {
                require: name(settings.require),
                formats: [settings.profile.as_str(), settings.rejections.as_str()],
                treatments: treatments(settings.require_for(method)),
                warning: settings.warning_of_forms().filter(|_| method == Method::POST),
            },
        };
        Self { request, rule, skipped }
    }

    /// Returns the explanation for people.
    pub(super) fn text(&self) -> String {
        let [method, path] = &self.request;
        let mut text = format!("{method} {path}\n");
        for (number, path, reason) in &self.skipped {
            text += &format!("  route {number} ({path}) does not match: {reason}\n");
        }
        text + &match &self.rule {
            RequestRule::Own { is_well_known: true, .. } => {
                "  the proxy responds itself (the setting `well_known`); the upstream does not receive the request\n"
                    .to_owned()
            }
            RequestRule::Own { proxy_path, .. } => {
                format!(
                    "  the proxy responds itself, under {proxy_path} (the setting `proxy_path`); the upstream does not receive the request\n"
                )
            }
            RequestRule::Safe => "  passes to the upstream: GET, HEAD and OPTIONS are never checked\n".to_owned(),
            RequestRule::Route(route) => route.text(),
            RequestRule::Default { require, formats: [profile, rejections], treatments, warning } => {
                let rows: Vec<_> = treatments.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
                format!(
                    "  no route matches: the default rule applies, with `require` {require}, `profile` {profile} and `rejections` {rejections}\n\n{}{}",
                    table("    ", &rows),
                    warned(*warning)
                )
            }
        }
    }

    /// Returns the explanation for programs.
    pub(super) fn json(&self) -> Value {
        let [method, path] = &self.request;
        let mut json = match &self.rule {
            RequestRule::Own { proxy_path, .. } => json!({"rule": "own", "proxy_path": proxy_path}),
            RequestRule::Safe => json!({"rule": "safe"}),
            RequestRule::Route(route) => json!({"rule": "route", "route": route.json()}),
            RequestRule::Default { require, formats: [profile, rejections], treatments, warning } => {
                let treatments =
                    treatments.iter().map(|[request, treatment]| json!({"request": request, "treatment": treatment}));
                let treatments = treatments.collect::<Vec<_>>();
                json!({"rule": "default", "require": require, "profile": profile, "rejections": rejections, "treatments": treatments, "warning": warning})
            }
        };
        let skipped =
            self.skipped.iter().map(|(number, path, reason)| json!({"number": number, "path": path, "reason": reason}));
        json["method"] = method.as_str().into();
        json["path"] = path.as_str().into();
        json["skipped"] = skipped.collect();
        json
    }
}

impl RouteRules {
    fn of(found: &RouteMatch<'_>, settings: &ProxySettings, written: &WrittenRoute) -> Self {
        let parameters = found.parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Self {
            number: found.index + 1,
            line: written.line,
            path: found.route.path.as_str().to_owned(),
            parameters: parameters.collect(),
            rules: rules(&written.fields, found.route, settings),
            effects: effects(found.route, settings),
            warning: warning(found.route, settings),
        }
    }

    fn text(&self) -> String {
        let Self { number, line, path, .. } = self;
        let parameters = self.parameters.iter().map(|(name, value)| format!(", {name} = {value}")).collect::<String>();
        let rule = |rule: &Rule| {
            let source = if rule.is_default { "default" } else { "" };
            vec![rule.name.to_owned(), rule.value.clone(), source.to_owned()]
        };
        let rules: Vec<_> = self.rules.iter().map(rule).collect();
        let effects: Vec<_> =
            self.effects.iter().map(|(name, statuses)| vec![(*name).to_owned(), statuses.clone()]).collect();
        let heading = if effects.is_empty() { "" } else { "\n  effect of a response, by its status\n" };
        format!(
            "  route {number} ({path}, line {line}) applies{parameters}\n\n{}{heading}{}{}",
            table("    ", &rules),
            table("    ", &effects),
            warned(self.warning)
        )
    }

    fn json(&self) -> Value {
        let rules =
            self.rules.iter().map(|rule| json!({"name": rule.name, "value": rule.value, "default": rule.is_default}));
        let effects: serde_json::Map<_, _> =
            self.effects.iter().map(|(name, statuses)| (name.replace(' ', "_"), statuses.as_str().into())).collect();
        let parameters: serde_json::Map<_, _> =
            self.parameters.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        json!({
            "number": self.number,
            "line": self.line,
            "path": self.path,
            "parameters": parameters,
            "rules": rules.collect::<Vec<_>>(),
            "effects": effects,
            "warning": self.warning,
        })
    }
}

/// Returns why a route does not match.
fn reason(route: &ProxyRoute, method: &Method, path: &str) -> &'static str {
    match (route.path.parameters(path), route.takes(method)) {
        (None, _) => "the path differs",
        (Some(_), false) => "it does not have this method",
        (Some(_), true) => "it lets requests pass, and the application may read the path as another one",
    }
}

/// Returns the line of a warning.
fn warned(warning: Option<&str>) -> String {
    warning.map(|warning| format!("\n  warning: {warning}\n")).unwrap_or_default()
}

/// Returns a warning about settings that reject every form of a page.
fn warning(route: &ProxyRoute, settings: &ProxySettings) -> Option<&'static str> {
    let is_bound = matches!(route.policy, RoutePolicy::Token { bound: true, .. });
    (is_bound && settings.inject).then_some(
        "with `inject`, a form needs the attribute `data-onceward-action` for a token that `bound` accepts; any other form receives 403 \
         token_invalid",
    )
}

/// Returns the name of a value of `require`.
fn name(require: Require) -> &'static str {
    match require {
        Require::Nothing => "off",
        Require::Token => "token",
        Require::Key => "key",
        Require::Either => "either",
    }
}

/// Returns what happens to requests without a route, by what they carry.
fn treatments(require: Require) -> Vec<[&'static str; 2]> {
    let key = ["with Idempotency-Key", "policy key: runs at most once, and a duplicate receives the stored response"];
    let token = ["with a token", "policy token: runs once, and a duplicate receives the stored response"];
    match require {
        Require::Nothing => vec![key, token, ["with neither", "passes to the upstream, unprotected"]],
        Require::Token => vec![token, ["without a token", "is rejected"]],
        Require::Key => vec![key, ["without Idempotency-Key", "is rejected"]],
        Require::Either => vec![key, token, ["with neither", "is rejected"]],
    }
}
