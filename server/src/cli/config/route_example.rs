//! Example routes in the settings file of `onceward config init`: together they show every field.

use crate::config::route_field::{FIELDS, RouteField, RuleKind};
use crate::config::{envelope, rejection_template};

/// A route with the fields of its rules that no earlier example has.
struct RouteExample {
    path: &'static str,
    policy: &'static str,
    kind: RuleKind,
    after: &'static [RuleKind],
}

/// Returns the routes, commented out.
pub(super) fn routes() -> String {
    let examples = [
        RouteExample { path: "/orders/{id}/pay", policy: "key", kind: RuleKind::Key, after: &[] },
        RouteExample { path: "/contact", policy: "token", kind: RuleKind::Remembered, after: &[RuleKind::Key] },
        RouteExample {
            path: "/search",
            policy: "interval",
            kind: RuleKind::Interval,
            after: &[RuleKind::Key, RuleKind::Remembered],
        },
    ];
    let text: String = examples.iter().map(RouteExample::text).collect();
    let line = |(name, example, help): (&str, &str, &str)| format!("# {help}.\n#{name} = {example}\n");
    let [envelope, template] =
        [envelope::FIELDS, rejection_template::FIELDS].map(|fields| fields.into_iter().map(line).collect::<String>());
    format!(
        "\n# Routes of `onceward proxy`, after all other settings. The first route whose path and method match a request applies.\n{text}\
         \n# The object that rejections have with `rejections = \"envelope\"`: {{\"code\": …, \"message\": …, \"data\": null}}.\n#[proxy.envelope]\n{envelope}\
         \n# Status, headers and body of rejections with `rejections = \"template\"`.\n#[proxy.template]\n{template}"
    )
}

impl RouteExample {
    fn text(&self) -> String {
        let line = |field: &RouteField| {
            let value = match field.name {
                "path" => format!("\"{}\"", self.path),
                "policy" => format!("\"{}\"", self.policy),
                _ => field.example.to_owned(),
            };
            let help = if self.is_new(field) { format!("# {}.\n", field.help) } else { String::new() };
            format!("{help}#{} = {value}\n", field.name)
        };
        let fields = FIELDS.iter().filter(|field| matches!(field.name, "path" | "policy") || self.is_new(field));
        format!("\n#[[proxy.route]]\n{}", fields.map(line).collect::<String>())
    }

    fn is_new(&self, field: &RouteField) -> bool {
        field.default(self.kind).is_some() && self.after.iter().all(|kind| field.default(*kind).is_none())
    }
}
