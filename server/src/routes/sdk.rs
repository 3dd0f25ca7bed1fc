//! The browser SDK, from `client-sdk/web/dist`: at a stable URL, where browsers revalidate it, and at a URL with a content hash, where they
//! cache it.

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::http::header::IF_NONE_MATCH;
use actix_web::{HttpRequest, HttpResponse, web};
use sha2::{Digest as _, Sha256};

const SCRIPT: &str = include_str!("../../../client-sdk/web/dist/onceward.js");
const CHINESE: &str = include_str!("../../../client-sdk/web/dist/onceward.zh-CN.js");
/// The URL of the messages in Simplified Chinese.
pub(super) const CHINESE_PATH: &str = "/sdk/onceward.zh-CN.js";
/// The stable URL.
pub(super) const PATH: &str = "/sdk/onceward.js";
/// The URL with a content hash.
pub(super) const NAMED: &str = "/sdk/onceward.{digest:[0-9a-f]{16}}.js";
/// One year.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// The content hash.
static DIGEST: LazyLock<String> = LazyLock::new(|| digest(SCRIPT));
static CHINESE_DIGEST: LazyLock<String> = LazyLock::new(|| digest(CHINESE));

fn digest(script: &str) -> String {
    Sha256::digest(script)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn routes(config: &mut web::ServiceConfig) {
    for path in [PATH, NAMED, CHINESE_PATH] {
        config.route(path, web::get().to(script));
    }
}

async fn script(request: HttpRequest) -> HttpResponse {
    let Some(url) = ScriptUrl::find(request.path()) else { return HttpResponse::NotFound().finish() };
    let known = request.headers().get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let ScriptResponse { status, headers, body } = url.response("", known);
    let mut answer = HttpResponse::build(StatusCode::from_u16(status).unwrap_or_default());
    for header in headers {
        answer.insert_header(header);
    }
    answer.body(body)
}

/// A URL of the script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScriptUrl {
    /// The stable one.
    Stable,
    /// The one with the hash of this script.
    Hashed,
    /// One with another hash: of a page from before an update.
    Former,
    /// The messages in Simplified Chinese.
    Chinese,
}

/// A response with the script, for any framework.
pub(crate) struct ScriptResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'static str,
}

impl ScriptUrl {
    /// Returns the URL of the script with this path.
    pub(crate) fn find(path: &str) -> Option<Self> {
        if path == PATH {
            return Some(Self::Stable);
        }
        if path == CHINESE_PATH {
            return Some(Self::Chinese);
        }
        let digest = path.strip_prefix("/sdk/onceward.")?.strip_suffix(".js")?;
        let is_digest = digest.len() == 16 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_digest.then(|| if *digest == **DIGEST { Self::Hashed } else { Self::Former })
    }

    /// Creates the response. `base` is the path in front of all URLs, and `known` the value of `If-None-Match`.
    pub(crate) fn response(&self, base: &str, known: Option<&str>) -> ScriptResponse {
        let digest = if *self == Self::Chinese { &CHINESE_DIGEST } else { &DIGEST };
        let tag = format!("\"{}\"", **digest);
        match self {
            Self::Stable | Self::Chinese if known.is_some_and(|known| names(known, &tag)) => {
                let headers = vec![("etag", tag), ("cache-control", "public, no-cache".to_owned())];
                ScriptResponse { status: 304, headers, body: "" }
            }
            Self::Chinese => {
                ScriptResponse::script(CHINESE, vec![("etag", tag), ("cache-control", "public, no-cache".to_owned())])
            }
            Self::Stable => ScriptResponse::script(
                SCRIPT,
                vec![
                    ("etag", tag),
                    ("cache-control", "public, no-cache".to_owned()),
                    ("content-location", format!("{base}/sdk/onceward.{}.js", *DIGEST)),
                ],
            ),
            Self::Hashed => ScriptResponse::script(SCRIPT, vec![("cache-control", FOREVER.to_owned())]),
            Self::Former => {
                let headers = vec![("location", format!("{base}{PATH}")), ("cache-control", "no-store".to_owned())];
                ScriptResponse { status: 302, headers, body: "" }
            }
        }
    }
}

impl ScriptResponse {
    fn script(body: &'static str, mut headers: Vec<(&'static str, String)>) -> Self {
        headers.push(("x-content-type-options", "nosniff".to_owned()));
        headers.push(("content-type", "text/javascript; charset=utf-8".to_owned()));
        Self { status: 200, headers, body }
    }
}

/// Returns whether `If-None-Match` names this tag. Weak tags count: the comparison is weak.
fn names(known: &str, tag: &str) -> bool {
    let mut tags = known.split(',').map(str::trim);
    known.trim() == "*" || tags.any(|known| known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_url_is_found_by_its_path() {
        assert_eq!(ScriptUrl::find(PATH), Some(ScriptUrl::Stable));
        assert_eq!(ScriptUrl::find(&format!("/sdk/onceward.{}.js", *DIGEST)), Some(ScriptUrl::Hashed));
        assert_eq!(ScriptUrl::find("/sdk/onceward.0123456789abcdef.js"), Some(ScriptUrl::Former));
        assert_eq!(ScriptUrl::find("/sdk/onceward.zh-CN.js"), Some(ScriptUrl::Chinese));
        for other in ["/sdk/onceward.0123456789abcde.js", "/sdk/onceward.0123456789abcdeF.js", "/sdk/other.js", "/"] {
            assert_eq!(ScriptUrl::find(other), None, "{other}");
        }
    }

    #[test]
    fn known_script_is_not_sent_again() {
        let status = |known: Option<&str>| ScriptUrl::Stable.response("", known).status;
        let tag = format!("\"{}\"", *DIGEST);
        assert_eq!((status(None), status(Some("\"x\"")), status(Some(&tag)), status(Some("*"))), (200, 200, 304, 304));
        assert_eq!(status(Some(&format!("\"x\", W/{tag}"))), 304);
        assert_eq!(status(Some("\"x\", *")), 200, "an asterisk counts only by itself");
    }

    #[test]
    fn messages_are_a_script_of_their_own() {
        let chinese = ScriptUrl::Chinese.response("", None);
        assert!(chinese.body.contains("您") && !SCRIPT.contains("您"));
        let tag = chinese.headers.iter().find(|(name, _)| *name == "etag").map(|(_, tag)| tag.as_str());
        assert_eq!(ScriptUrl::Chinese.response("", tag).status, 304);
        assert_eq!(ScriptUrl::Stable.response("", tag).status, 200);
    }

    #[test]
    fn urls_of_the_proxy_have_its_path() {
        let headers = ScriptUrl::Stable.response("/_onceward", None).headers;
        assert!(headers.contains(&("content-location", format!("/_onceward/sdk/onceward.{}.js", *DIGEST))));
        assert!(
            ScriptUrl::Former
                .response("/_onceward", None)
                .headers
                .contains(&("location", "/_onceward/sdk/onceward.js".to_owned()))
        );
    }
}
