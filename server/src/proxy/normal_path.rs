//! The normal spelling of a path, by which the proxy finds its route.

use std::borrow::Cow;

use http::Uri;
use http::request::Parts;
use onceward_api::path::canonical;

/// The target of a request as the client sent it, if the guard sees another one.
#[derive(Debug, Clone)]
struct SentTarget(Uri);

/// Has the guard see this path, so that all spellings of a path share their claims. The upstream still receives the one that was sent.
pub(super) fn show(parts: &mut Parts, path: &str) {
    if path == parts.uri.path() {
        return;
    }
    let target = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    if let Ok(target) = target.parse() {
        let sent = std::mem::replace(&mut parts.uri, target);
        parts.extensions.insert(SentTarget(sent));
    }
}

/// Returns the target of a request as the client sent it.
pub(super) fn sent_target(parts: &Parts) -> &Uri {
    parts.extensions.get::<SentTarget>().map_or(&parts.uri, |sent| &sent.0)
}

/// Returns the canonical path without dot segments and repeated slashes, which an upstream may resolve before it routes a request. The
/// upstream still receives the path as it was sent.
///
/// A path that is normal already is borrowed.
pub fn normal(path: &str) -> Cow<'_, str> {
    let canonical = canonical(path);
    if !canonical.contains("//") && !canonical.contains("/.") { canonical } else { Cow::Owned(resolved(&canonical)) }
}

/// Removes dot segments as RFC 3986 does, after it has merged slashes.
fn resolved(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_open = false;
    for segment in path.split('/').skip(1) {
        // The path ends with a slash if its last segment is empty or was resolved.
        is_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let slash = if is_open && !kept.is_empty() { "/" } else { "" };
    format!("/{}{slash}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_merged_and_dot_segments_resolved() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/b", "/a/b"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/../../a", "/a"),
            ("/a/%2e%2E/b", "/b"),
            ("/.a/..b/...", "/.a/..b/..."),
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ] {
            assert_eq!(normal(path), expected, "{path}");
            assert_eq!(normal(&normal(path)), expected, "{path}");
        }
    }

    #[test]
    fn normal_path_is_borrowed() {
        assert!(matches!(normal("/orders/7"), Cow::Borrowed(_)));
    }
}
