//! The fields of a `[[proxy.route]]`. The parser, `onceward proxy explain`, the JSON Schema and the table in `docs/operations.md` read this list.

use std::fmt;

/// One field of a route.
#[derive(Debug)]
pub struct RouteField {
    /// The name in the settings file.
    pub name: &'static str,
    /// The kind of its value, which selects its JSON Schema.
    pub value: &'static str,
    /// A value as it is written in the file.
    pub example: &'static str,
    /// The kinds of rules that have the field, each with the default.
    pub defaults: &'static [(RuleKind, &'static str)],
    /// The description, without a period at the end.
    pub help: &'static str,
}

/// The rules that a route can have: its policy, and the fields that decide which other fields have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// `policy = "token"`.
    Token,
    /// `policy = "token"` with `remember`.
    Remembered,
    /// `policy = "key"`.
    Key,
    /// `policy = "interval"`.
    Interval,
    /// `policy = "interval"` with `key_from`.
    NamedInterval,
    /// `policy = "interval"` with `remember`.
    RememberedInterval,
    /// `policy = "interval"` with `remember` and `key_from`.
    RememberedNamedInterval,
    /// `policy = "none"`.
    None,
}

use RuleKind::{Interval, Key, NamedInterval, Remembered, RememberedInterval, RememberedNamedInterval, Token};

/// The policies, as they are written.
pub const POLICIES: [&str; 4] = ["token", "key", "interval", "none"];

/// All fields, in the order of the documentation.
pub const FIELDS: [RouteField; 20] = [
    RouteField {
        name: "path",
        value: "PATTERN",
        example: "\"/orders/{id}/pay\"",
        defaults: &every("required"),
        help: "Paths of the route: `{name}` stands for one segment, and `/*` at the end for all paths below. Percent-encoded letters, \
               repeated slashes and dot segments do not matter; letter case and a slash at the end do",
    },
    RouteField {
        name: "methods",
        value: "METHODS",
        example: "[\"POST\", \"PUT\"]",
        defaults: &every("all but GET, HEAD and OPTIONS"),
        help: "Methods of the route. GET, HEAD and OPTIONS are never checked, and are only allowed for the policy `none`",
    },
    RouteField {
        name: "policy",
        value: "POLICY",
        example: "\"key\"",
        defaults: &every("required"),
        help: "`token`: requires a token, which is valid once. `key`: requires a key; a duplicate receives the stored response. `interval`: \
               accepts at most one equivalent request per subject and interval. `none`: the request passes",
    },
    RouteField {
        name: "remember",
        value: "DURATION or BOOL",
        example: "\"10m\"",
        defaults: &[
            (Token, "false"),
            (Remembered, "false"),
            (Interval, "false"),
            (NamedInterval, "false"),
            (RememberedInterval, "false"),
            (RememberedNamedInterval, "false"),
        ],
        help: "Time for which the response to a token is stored; a duplicate receives it. `true`: 24h. In an interval only `true` or `false`: \
               the response is stored until the interval ends",
    },
    RouteField {
        name: "retain",
        value: "DURATION",
        example: "\"7d\"",
        defaults: &[(Key, "24h")],
        help: "Time for which the response to a key is stored, and for which an unknown outcome keeps the key",
    },
    RouteField {
        name: "at_most_once",
        value: "BOOL",
        example: "true",
        defaults: &[(Key, "true")],
        help: "A run whose outcome is unknown (a crash, a timeout, a 5xx) is not repeated. `false`: a crash or a 500 frees the key",
    },
    RouteField {
        name: "lease",
        value: "DURATION",
        example: "\"30s\"",
        defaults: &[(Remembered, "15s"), (Key, "15s")],
        help: "Time until a claim expires after its proxy has crashed, at least 100ms. It is renewed while the request runs",
    },
    RouteField {
        name: "wait",
        value: "DURATION",
        example: "\"5s\"",
        defaults: &[(Remembered, "10s"), (Key, "0s"), (RememberedInterval, "10s"), (RememberedNamedInterval, "10s")],
        help: "Maximum time that a duplicate waits for the response to the first request; `0s`: it receives `in_progress`",
    },
    RouteField {
        name: "bound",
        value: "BOOL",
        example: "true",
        defaults: &[(Token, "false"), (Remembered, "false")],
        help: "Accept only a token that was issued for the method and path of the request",
    },
    RouteField {
        name: "every",
        value: "DURATION",
        example: "\"5s\"",
        defaults: &[
            (Interval, "1s"),
            (NamedInterval, "1s"),
            (RememberedInterval, "1s"),
            (RememberedNamedInterval, "1s"),
        ],
        help: "The interval",
    },
    RouteField {
        name: "key_from",
        value: "KEY",
        example: "{ body = \"/payment/id\" }",
        defaults: &[
            (Key, "header Idempotency-Key"),
            (Interval, "the content of the request"),
            (NamedInterval, "the content of the request"),
            (RememberedInterval, "the content of the request"),
            (RememberedNamedInterval, "the content of the request"),
        ],
        help: "Source of the key: `{ header = \"X-Order\" }`, `{ query = \"order\" }`, `{ body = \"/order/id\" }` (a JSON pointer, or `/` and \
               the name of a form field) or `{ path = \"id\" }` (a parameter of `path`)",
    },
    RouteField {
        name: "fingerprint",
        value: "FIELDS",
        example: "{ except = [\"/sent_at\"] }",
        defaults: &[
            (Remembered, "all body fields"),
            (Key, "all body fields"),
            (Interval, "all body fields"),
            (RememberedInterval, "all body fields"),
            (RememberedNamedInterval, "all body fields"),
        ],
        help: "Body fields by which two requests are compared, as JSON pointers: `[\"/item\", \"/amount\"]`, or all \
               `{ except = [\"/sent_at\"] }`",
    },
    RouteField {
        name: "subject",
        value: "SUBJECT",
        example: "{ header = \"X-User\" }",
        defaults: &checked("credentials"),
        help: "Source of the user that a token, key or interval belongs to: `{ header = \"X-User\" }` (set by a gateway in front, which \
               removes it from the requests of clients), `{ cookie = \"session\" }`, `client_address`, `anonymous` (all clients are one user) or \
               `credentials`: requests with different `Authorization` or `Cookie` have different content",
    },
    RouteField {
        name: "applied",
        value: "STATUSES",
        example: "[401]",
        defaults: &checked("by status"),
        help: "Statuses of the upstream after which the request took effect: a duplicate does not run",
    },
    RouteField {
        name: "not_applied",
        value: "STATUSES",
        example: "[404, 422]",
        defaults: &checked("by status"),
        help: "Statuses of the upstream after which the request had no effect: a retry runs",
    },
    RouteField {
        name: "unknown",
        value: "STATUSES",
        example: "[502]",
        defaults: &checked("by status"),
        help: "Statuses of the upstream after which the outcome is unknown: a duplicate does not run, and has no stored response",
    },
    RouteField {
        name: "profile",
        value: "PROFILE",
        example: "\"acp\"",
        defaults: &checked("the setting `profile`"),
        help: "Contract by which the route responds, in place of the setting. A route without a key has only its format of rejections",
    },
    RouteField {
        name: "rejections",
        value: "SHAPE",
        example: "\"envelope\"",
        defaults: &checked("the setting `rejections`"),
        help: "Format of the route's rejections, in place of the setting",
    },
    RouteField {
        name: "retention_header",
        value: "HEADER or off",
        example: "\"Onceward-Retention\"",
        defaults: &[
            (Remembered, "the setting `retention_header`"),
            (Key, "the setting `retention_header`"),
            (RememberedInterval, "the setting `retention_header`"),
            (RememberedNamedInterval, "the setting `retention_header`"),
        ],
        help: "Response header that says how long the response is stored, in place of the setting; `off`: none",
    },
    RouteField {
        name: "body_limit",
        value: "SIZE",
        example: "\"8MiB\"",
        defaults: &checked("the setting `body_limit`"),
        help: "Maximum size of a request body on this route, in place of the setting",
    },
];

const fn every(default: &'static str) -> [(RuleKind, &'static str); 8] {
    let [token, remembered, key, interval, named, remembered_interval, remembered_named] = checked(default);
    [token, remembered, key, interval, named, remembered_interval, remembered_named, (RuleKind::None, default)]
}

/// The policies that check requests.
const fn checked(default: &'static str) -> [(RuleKind, &'static str); 7] {
    [
        (Token, default),
        (Remembered, default),
        (Key, default),
        (Interval, default),
        (NamedInterval, default),
        (RememberedInterval, default),
        (RememberedNamedInterval, default),
    ]
}

impl RouteField {
    /// Returns the default under these rules, or `None` if they do not have the field.
    pub fn default(&self, kind: RuleKind) -> Option<&'static str> {
        self.defaults.iter().find(|(of, _)| *of == kind).map(|(_, default)| *default)
    }

    /// Returns true if a route with this policy can have the field.
    pub fn is_of(&self, policy: &str) -> bool {
        self.defaults.iter().any(|(kind, _)| kind.policy() == policy)
    }

    /// Returns why the field has no effect under these rules, and the fix.
    pub(super) fn misplaced(&self, kind: RuleKind) -> String {
        let (name, policies) = (self.name, self.policies());
        match kind {
            Token if self.default(Remembered).is_some() => {
                "the policy \"token\" has it only with `remember`; set `remember = true`, or remove it".to_owned()
            }
            NamedInterval if self.default(Interval).is_some() => {
                format!(
                    "an interval with `key_from` does not compare content; remove `{name}` or `key_from`, or set `remember = true`"
                )
            }
            Interval | NamedInterval if self.default(RememberedInterval).is_some() => {
                "the policy \"interval\" has it only with `remember`; set `remember = true`, or remove it".to_owned()
            }
            kind => format!("the policy {kind} does not have it, only {policies}; remove it"),
        }
    }

    /// Returns the policies that have the field, for a sentence.
    fn policies(&self) -> String {
        let named: Vec<_> =
            POLICIES.iter().filter(|policy| self.is_of(policy)).map(|name| format!("\"{name}\"")).collect();
        match named.as_slice() {
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            named => named.concat(),
        }
    }

    /// Returns a policy that has the field, and the field on which that depends.
    fn documented_policy(&self, policy: &str) -> String {
        let lacks = |kind: RuleKind| kind.policy() == policy && self.default(kind).is_none();
        let condition = match [Token, Interval, NamedInterval].into_iter().find(|kind| lacks(*kind)) {
            Some(Token | Interval) => " with `remember`",
            Some(_) => " without `key_from` or with `remember`",
            None => "",
        };
        format!("`{policy}`{condition}")
    }

    /// Returns the default of each policy, or one if all have the same.
    fn documented_default(&self) -> String {
        let shown = |text: &str| {
            if text.contains(' ') && !text.starts_with('{') { text.to_owned() } else { format!("`{text}`") }
        };
        let mut distinct: Vec<(Vec<&str>, &str)> = Vec::new();
        for (kind, default) in self.defaults {
            match distinct.iter_mut().find(|(_, known)| known == default) {
                Some((policies, _)) if policies.contains(&kind.policy()) => {}
                Some((policies, _)) => policies.push(kind.policy()),
                None => distinct.push((vec![kind.policy()], default)),
            }
        }
        match distinct.as_slice() {
            [(_, "required")] => "required".to_owned(),
            [(_, default)] => shown(default),
            several => {
                let each = several
                    .iter()
                    .map(|(policies, default)| format!("`{}`: {}", policies.join("`, `"), shown(default)));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }
}

impl RuleKind {
    /// Returns the policy, as it is written.
    pub fn policy(self) -> &'static str {
        match self {
            Token | Remembered => "token",
            Key => "key",
            Interval | NamedInterval | RememberedInterval | RememberedNamedInterval => "interval",
            Self::None => "none",
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.policy())
    }
}

/// Returns the name that is most similar to a mistyped one.
pub(super) fn nearest_field(mistyped: &str) -> Option<&'static str> {
    let likeness = |field: &RouteField| strsim::jaro_winkler(field.name, mistyped);
    let (name, likeness) =
        FIELDS.iter().map(|field| (field.name, likeness(field))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (likeness > 0.7).then_some(name)
}

/// Returns the table of fields in `docs/operations.md`.
pub fn table() -> String {
    let row = |field: &RouteField| {
        let named = POLICIES.iter().filter(|policy| field.is_of(policy)).map(|policy| field.documented_policy(policy));
        let named: Vec<_> = named.collect();
        let policies = if named.len() == POLICIES.len() { "all".to_owned() } else { named.join(", ") };
        format!("| `{}` | {policies} | {} | {} |\n", field.name, field.documented_default(), field.help)
    };
    let rows: String = FIELDS.iter().map(row).collect();
    format!("| field | policies | default | description |\n|---|---|---|---|\n{rows}")
}
