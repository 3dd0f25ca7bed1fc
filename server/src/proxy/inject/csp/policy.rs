//! One content security policy: its directives, and what they say about the script.

use super::{Nonce, Obstacle};

/// The directives of a policy, by name.
#[derive(Debug)]
pub(super) struct Policy<'a>(Vec<Directive<'a>>);

/// A directive and its sources.
#[derive(Debug)]
struct Directive<'a> {
    name: &'a str,
    sources: Vec<&'a str>,
}

/// The requirement of a policy for the tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptAccess {
    /// True if the policy allows the script without a nonce.
    pub(super) is_open: bool,
    /// The nonces that the policy accepts.
    pub(super) nonces: Vec<Nonce>,
}

impl<'a> Policy<'a> {
    /// Parses a policy. Of two directives with the same name, a browser takes the first.
    pub(super) fn parse(text: &'a str) -> Self {
        let directives = text.split(';').filter_map(|text| {
            let mut words = text.split_ascii_whitespace();
            Some(Directive { name: words.next()?, sources: words.collect() })
        });
        Self(directives.collect())
    }

    /// Checks whether the page may run the script and fetch tokens from its own origin.
    pub(super) fn check_page(&self) -> Result<(), Obstacle> {
        // Without allow-same-origin, the request for a token would be one from another origin.
        let is_boxed = |sandbox: &Directive<'_>| !sandbox.has("allow-scripts") || !sandbox.has("allow-same-origin");
        if self.first(&["sandbox"]).is_some_and(|(_, sandbox)| is_boxed(sandbox)) {
            return Err(Obstacle::Sandbox);
        }
        match self.first(&["connect-src", "default-src"]) {
            Some((found, directive)) if !directive.allows_own_origin() => {
                Err(Obstacle::NotSelf { wanted: "connect-src", found })
            }
            _ => Ok(()),
        }
    }

    /// Returns what the policy requires of the tag, or the reason why it allows no such tag.
    pub(super) fn script_access(&self) -> Result<ScriptAccess, Obstacle> {
        let Some((found, directive)) = self.first(&["script-src-elem", "script-src", "default-src"]) else {
            return Ok(ScriptAccess { is_open: true, nonces: Vec::new() });
        };
        let nonces: Vec<_> = directive.sources.iter().filter_map(|source| Nonce::parse(source)).collect();
        // A browser then allows only what has a nonce or a hash, and what such a script adds.
        let is_strict = directive.has("'strict-dynamic'");
        match directive.allows_own_script() && !is_strict {
            false if nonces.is_empty() && is_strict => Err(Obstacle::NoNonce(found)),
            false if nonces.is_empty() => Err(Obstacle::NotSelf { wanted: "script-src", found }),
            is_open => Ok(ScriptAccess { is_open, nonces }),
        }
    }

    /// Returns the directive that is in effect: the first of these names that the policy has.
    fn first(&self, names: &[&'static str]) -> Option<(&'static str, &Directive<'a>)> {
        let find = |name: &str| self.0.iter().find(|directive| directive.name.eq_ignore_ascii_case(name));
        names.iter().find_map(|name| Some((*name, find(name)?)))
    }
}

impl Directive<'_> {
    fn has(&self, source: &str) -> bool {
        self.sources.iter().any(|found| found.eq_ignore_ascii_case(source))
    }

    /// Returns whether a source matches URLs of the page's own origin, whatever host and scheme the browser calls it by: the proxy knows
    /// neither. `http:` matches HTTPS too.
    fn allows_own_origin(&self) -> bool {
        ["'self'", "*", "http:"].iter().any(|source| self.has(source))
    }

    /// Returns whether a source matches scripts of the page's own origin. `https:` counts: on a page without TLS, the browser blocks the
    /// tag, and the page works as without it. A blocked request for a token would stop its forms.
    fn allows_own_script(&self) -> bool {
        self.allows_own_origin() || self.has("https:")
    }
}
