//! The `Content-Security-Policy` of a page: whether it allows the script, and with which nonce.
//!
//! Only headers are read. A policy in `<meta http-equiv>` is not. If it forbids the script, the browser blocks the tag, reports that in its
//! console, and the page works as without it. If it allows the script and forbids the requests for tokens (`connect-src`), the forms of
//! the page cannot be sent: the operator has to allow `'self'` there.

mod nonce;
mod policy;

use std::fmt;

use http::HeaderMap;
use http::header::CONTENT_SECURITY_POLICY;

pub(super) use self::nonce::Nonce;
use self::policy::Policy;

/// The reason why a policy forbids the script. Displays the change that allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The directive in effect does not allow the script, or its requests for tokens.
    NotSelf {
        /// The directive for such requests.
        wanted: &'static str,
        /// The directive that the policy has, which may be `default-src`.
        found: &'static str,
    },
    /// The directive has `'strict-dynamic'`, which ignores `'self'`, and no nonce.
    NoNonce(&'static str),
    /// Policies require different nonces. A tag has one.
    TwoNonces,
    /// The page runs without scripts, or in an origin of its own.
    Sandbox,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelf { wanted, found: "default-src" } => {
                write!(text, "allow 'self' in {wanted}, which falls back to default-src")
            }
            Self::NotSelf { found, .. } => write!(text, "allow 'self' in {found}"),
            Self::NoNonce(directive) => write!(text, "add a nonce to {directive}: 'strict-dynamic' ignores 'self'"),
            Self::TwoNonces => write!(text, "use the same nonce in script-src of every policy"),
            Self::Sandbox => write!(text, "add allow-scripts and allow-same-origin to sandbox"),
        }
    }
}

/// Returns the nonce for the tag, if the policies have one, or the reason why one of them forbids the script.
///
/// Every policy has to allow it: those of all header lines, and those that a line separates by commas.
pub(super) fn check(headers: &HeaderMap) -> Result<Option<Nonce>, Obstacle> {
    let lines = headers.get_all(CONTENT_SECURITY_POLICY).iter();
    let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
    let policies: Vec<_> = lines.iter().flat_map(|line| line.split(',')).map(Policy::parse).collect();
    policies.iter().try_for_each(Policy::check_page)?;
    let accesses = policies.iter().map(Policy::script_access).collect::<Result<Vec<_>, _>>()?;

    let mut nonces = accesses.iter().flat_map(|access| &access.nonces).peekable();
    if nonces.peek().is_none() {
        return Ok(None);
    }
    let fits = |nonce: &&Nonce| accesses.iter().all(|access| access.is_open || access.nonces.contains(nonce));
    nonces.find(fits).cloned().map(Some).ok_or(Obstacle::TwoNonces)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// Returns the verdict on these header lines: the nonce, or the obstacle as it is logged.
    fn verdict(lines: &[&str]) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_str(line).unwrap());
        }
        let nonce = check(&headers).map_err(|obstacle| obstacle.to_string())?;
        Ok(nonce.map(|nonce| nonce.as_str().to_owned()).unwrap_or_default())
    }

    fn assert_allowed(lines: &[&str], nonce: &str) {
        assert_eq!(verdict(lines), Ok(nonce.into()), "{lines:?}");
    }

    fn assert_forbidden(lines: &[&str], change: &str) {
        assert_eq!(verdict(lines), Err(change.into()), "{lines:?}");
    }

    #[test]
    fn page_without_a_policy_for_scripts_is_allowed() {
        for lines in
            [[].as_slice(), &[""], &[" ; , ;"], &["img-src 'none'; frame-ancestors 'none'"], &["form-action 'self'"]]
        {
            assert_allowed(lines, "");
        }
    }

    #[test]
    fn policy_that_allows_the_own_origin_is_allowed() {
        for policy in [
            "default-src 'self'",
            "DEFAULT-SRC 'SELF'",
            "default-src 'none'; script-src 'self'; connect-src 'self'",
            "default-src 'none'; script-src-elem 'self'; script-src 'none'; connect-src *",
            "script-src https: 'unsafe-inline'",
            "script-src https://cdn.example 'self'",
            "default-src *",
            "default-src http:",
            "script-src 'self'; script-src 'none'",
        ] {
            assert_allowed(&[policy], "");
        }
    }

    #[test]
    fn policy_without_the_own_origin_is_forbidden_by_its_directive() {
        for (policy, directive) in [
            ("default-src 'none'", "connect-src, which falls back to default-src"),
            ("default-src 'none'; connect-src 'self'", "script-src, which falls back to default-src"),
            ("default-src 'self'; script-src https://cdn.example", "script-src"),
            ("script-src", "script-src"),
            ("script-src 'none'; script-src 'self'", "script-src"),
            ("script-src 'self'; script-src-elem 'sha256-abc'", "script-src-elem"),
            ("script-src 'self'; connect-src https://api.example", "connect-src"),
            ("script-src 'self'; connect-src https:", "connect-src"),
            ("default-src a.example; script-src 'self'", "connect-src, which falls back to default-src"),
        ] {
            assert_forbidden(&[policy], &format!("allow 'self' in {directive}"));
        }
    }

    #[test]
    fn nonce_of_the_policy_is_returned() {
        for policy in [
            "script-src 'nonce-abc='",
            "script-src 'self' 'nonce-abc='",
            "script-src 'strict-dynamic' 'nonce-abc=' 'nonce-def' https:",
            "default-src 'self' 'nonce-abc='",
        ] {
            assert_allowed(&[policy], "abc=");
        }
    }

    #[test]
    fn nonce_does_not_replace_a_forbidden_token_request() {
        let change = "allow 'self' in connect-src, which falls back to default-src";
        assert_forbidden(&["default-src 'nonce-abc'"], change);
    }

    #[test]
    fn strict_dynamic_without_a_nonce_is_forbidden() {
        let change = "add a nonce to script-src: 'strict-dynamic' ignores 'self'";
        assert_forbidden(&["script-src 'self' 'strict-dynamic' 'sha256-abc'"], change);
    }

    #[test]
    fn every_policy_has_to_allow_the_script() {
        let (own, none) = ("default-src 'self'", "script-src 'none'");
        assert_allowed(&[own, own], "");
        assert_forbidden(&[own, none], "allow 'self' in script-src");
        assert_forbidden(&["default-src 'self', script-src 'none'"], "allow 'self' in script-src");
    }

    #[test]
    fn nonce_has_to_fit_every_policy() {
        let change = "use the same nonce in script-src of every policy";
        assert_allowed(&["script-src 'nonce-a' 'nonce-b'", "script-src 'nonce-b'"], "b");
        assert_allowed(&["script-src 'self'", "script-src 'nonce-b', img-src 'none'"], "b");
        assert_forbidden(&["script-src 'nonce-a'", "script-src 'nonce-b'"], change);
    }

    #[test]
    fn sandbox_needs_scripts_and_the_own_origin() {
        let change = "add allow-scripts and allow-same-origin to sandbox";
        for policy in ["sandbox", "sandbox allow-forms allow-same-origin", "sandbox allow-scripts allow-forms"] {
            assert_forbidden(&[policy], change);
        }
        assert_allowed(&["sandbox allow-forms Allow-Scripts allow-same-origin"], "");
    }

    #[test]
    fn report_only_policy_is_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert("content-security-policy-report-only", HeaderValue::from_static("default-src 'none'"));
        assert_eq!(check(&headers), Ok(None));
    }
}
