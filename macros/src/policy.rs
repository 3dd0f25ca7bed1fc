//! The policies, and the options that each has.

use proc_macro2::Ident;

/// A policy, as the attribute names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Token,
    Key,
    Interval,
}

/// The policies, as an error names them.
pub(crate) const POLICIES: &str = "`token`, `key`, `key = \"/order/id\"` or `interval = \"1500ms\"`";

/// An option, as an error names it: its name, and an example of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    name: &'static str,
    example: &'static str,
}

const REMEMBER: Known = Known { name: "remember", example: "remember = \"10m\"" };
const REMEMBER_INTERVAL: Known = Known { name: "remember", example: "remember" };
const WAIT: Known = Known { name: "wait", example: "wait = \"10s\"" };
const BOUND: Known = Known { name: "bound", example: "bound" };
const NEXT_TOKEN: Known = Known { name: "next_token", example: "next_token" };
const OPTIONAL: Known = Known { name: "optional", example: "optional" };
const RETRYABLE: Known = Known { name: "retryable", example: "retryable" };
const RETAIN: Known = Known { name: "retain", example: "retain = \"24h\"" };
const MESSAGE: Known = Known { name: "message", example: "message = \"…\"" };
const SUBJECT: Known = Known { name: "subject", example: "subject = SubjectFrom::anonymous()" };

impl Policy {
    const ALL: [Self; 3] = [Self::Token, Self::Key, Self::Interval];

    /// Returns the policy with this name.
    pub(crate) fn named(name: &Ident) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| name == policy.name())
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Interval => "interval",
        }
    }

    /// Returns the options of this policy.
    fn options(self) -> &'static [Known] {
        match self {
            Self::Token => &[REMEMBER, WAIT, BOUND, NEXT_TOKEN, OPTIONAL, SUBJECT],
            Self::Key => &[RETRYABLE, RETAIN, WAIT, OPTIONAL, SUBJECT],
            Self::Interval => &[MESSAGE, REMEMBER_INTERVAL, WAIT, SUBJECT],
        }
    }

    /// Returns why this policy has no such option, or `None` if it has one.
    pub(crate) fn refusal(self, name: &Ident) -> Option<String> {
        if self.options().iter().any(|known| name == known.name) {
            return None;
        }
        let policy = self.name();
        let options: Vec<_> = self.options().iter().map(|known| format!("`{}`", known.example)).collect();
        let options = format!("the options of `{policy}` are {}", options.join(", "));
        Some(match (Self::named(name), example(name)) {
            (Some(_), _) => format!("`{policy}` and `{name}` are two policies, and a handler has one: {POLICIES}"),
            (None, Some(_)) => format!("`{name}` does not apply to `{policy}`: {options}"),
            (None, None) => format!("there is no option `{name}`: {options}"),
        })
    }
}

/// Returns an example of the option or policy with this name.
pub(crate) fn example(name: &Ident) -> Option<&'static str> {
    let options = Policy::ALL.into_iter().flat_map(Policy::options).map(|known| (known.name, known.example));
    let policies = [("key", "key = \"/order/id\""), ("interval", "interval = \"1500ms\"")];
    options
        .chain(policies.iter().map(|(name, example)| (*name, *example)))
        .find(|(known, _)| name == known)
        .map(|(_, example)| example)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page with the table of options.
    const PAGE: &str = include_str!("../options.md");

    #[test]
    fn page_describes_exactly_the_options_of_each_policy() {
        let row = |start: &str| PAGE.lines().find(|line| line.starts_with(start)).expect(start);
        for (policy, start) in
            [(Policy::Token, "| `token` "), (Policy::Key, "| `key`:"), (Policy::Interval, "| `interval ")]
        {
            let cell = row(start).rsplit('|').nth(1).expect("the cell with the options").trim();
            let shown = |known: &Known| match known.name {
                "subject" => "`subject = …`".to_owned(),
                _ => format!("`{}`", known.example),
            };
            let options: Vec<_> = policy.options().iter().map(shown).collect();
            assert_eq!(cell, options.join(", "), "{policy:?}");
            for known in policy.options() {
                row(&format!("| `{}", known.name));
            }
        }
    }
}
