//! The scripts of the browser SDK, from `client-sdk/web/dist`: at a stable URL, where browsers revalidate them, and at a URL with a content hash,
//! where they cache them.

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::http::header::IF_NONE_MATCH;
use actix_web::{HttpRequest, HttpResponse, web};
use sha2::{Digest as _, Sha256};

/// The stable URLs.
pub(super) const PATHS: &str = "/sdk/{name:onceward(-htmx|-turbo|[.]zh-CN)?}.js";
/// The URLs with a content hash.
pub(super) const NAMED: &str = "/sdk/{name:onceward(-htmx|-turbo|[.]zh-CN)?}.{digest:[0-9a-f]{16}}.js";
/// One year.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// A script of the SDK.
pub(crate) struct Script {
    name: &'static str,
    text: &'static str,
    /// The content hash.
    digest: LazyLock<String>,
}

/// The script, those for a page with htmx or Turbo, which contain it, and the messages in Simplified Chinese.
static SCRIPTS: [Script; 4] = [
    Script {
        name: "onceward",
        text: include_str!("../../../client-sdk/web/dist/onceward.js"),
        digest: LazyLock::new(|| digest_of(SCRIPTS[0].text)),
    },
    Script {
        name: "onceward-htmx",
        text: include_str!("../../../client-sdk/web/dist/onceward-htmx.js"),
        digest: LazyLock::new(|| digest_of(SCRIPTS[1].text)),
    },
    Script {
        name: "onceward-turbo",
        text: include_str!("../../../client-sdk/web/dist/onceward-turbo.js"),
        digest: LazyLock::new(|| digest_of(SCRIPTS[2].text)),
    },
    Script {
        name: "onceward.zh-CN",
        text: include_str!("../../../client-sdk/web/dist/onceward.zh-CN.js"),
        digest: LazyLock::new(|| digest_of(SCRIPTS[3].text)),
    },
];

fn digest_of(text: &str) -> String {
    Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.route(PATHS, web::get().to(script)).route(NAMED, web::get().to(script));
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

/// A URL of a script.
pub(crate) struct ScriptUrl {
    script: &'static Script,
    kind: UrlKind,
}

/// A kind of URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlKind {
    /// The stable one.
    Stable,
    /// The one with the hash of this script.
    Hashed,
    /// One with another hash: of a page from before an update.
    Former,
}

/// A response with the script, for any framework.
pub(crate) struct ScriptResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'static str,
}

impl ScriptUrl {
    /// Returns the URL of a script with this path.
    pub(crate) fn find(path: &str) -> Option<Self> {
        let file = path.strip_prefix("/sdk/")?.strip_suffix(".js")?;
        let find = |name: &str| SCRIPTS.iter().find(|script| script.name == name);
        let (script, digest) = match file.rsplit_once('.') {
            Some((name, digest)) if find(file).is_none() => (find(name)?, Some(digest)),
            _ => (find(file)?, None),
        };
        let kind = match digest {
            None => UrlKind::Stable,
            Some(digest) if *digest == **script.digest => UrlKind::Hashed,
            Some(digest) => {
                let is_digest =
                    digest.len() == 16 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                is_digest.then_some(UrlKind::Former)?
            }
        };
        Some(Self { script, kind })
    }

    /// Creates the response. `base` is the path in front of all URLs, and `known` the value of `If-None-Match`.
    pub(crate) fn response(&self, base: &str, known: Option<&str>) -> ScriptResponse {
        let Script { name, text, digest } = self.script;
        let tag = format!("\"{}\"", **digest);
        match self.kind {
            UrlKind::Stable if known.is_some_and(|known| names(known, &tag)) => {
                let headers = vec![("etag", tag), ("cache-control", "public, no-cache".to_owned())];
                ScriptResponse { status: 304, headers, body: "" }
            }
            UrlKind::Stable => ScriptResponse::script(
                text,
                vec![
                    ("etag", tag),
                    ("cache-control", "public, no-cache".to_owned()),
                    ("content-location", format!("{base}/sdk/{name}.{}.js", **digest)),
                ],
            ),
            UrlKind::Hashed => ScriptResponse::script(text, vec![("cache-control", FOREVER.to_owned())]),
            UrlKind::Former => {
                let headers =
                    vec![("location", format!("{base}/sdk/{name}.js")), ("cache-control", "no-store".to_owned())];
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

    fn kind(path: &str) -> Option<UrlKind> {
        ScriptUrl::find(path).map(|url| url.kind)
    }

    fn url(path: &str) -> ScriptUrl {
        ScriptUrl::find(path).expect("a script")
    }

    #[test]
    fn script_url_is_found_by_its_path() {
        for Script { name, digest, .. } in &SCRIPTS {
            assert_eq!(kind(&format!("/sdk/{name}.js")), Some(UrlKind::Stable));
            assert_eq!(kind(&format!("/sdk/{name}.{}.js", **digest)), Some(UrlKind::Hashed));
            assert_eq!(kind(&format!("/sdk/{name}.0123456789abcdef.js")), Some(UrlKind::Former));
        }
        for other in [
            "/sdk/onceward.0123456789abcde.js",
            "/sdk/onceward.0123456789abcdeF.js",
            "/sdk/other.js",
            "/sdk/onceward-.js",
            "/",
        ] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    #[test]
    fn each_script_has_its_own_content_and_hash() {
        let [core, htmx, turbo, chinese] = &SCRIPTS;
        assert!(htmx.text.contains("htmx:") && turbo.text.contains("turbo:") && !core.text.contains("htmx:"));
        assert!(chinese.text.contains("您") && !core.text.contains("您"));
        assert!(*core.digest != *htmx.digest && *htmx.digest != *turbo.digest && *turbo.digest != *core.digest);
    }

    #[test]
    fn known_script_is_not_sent_again() {
        let status = |known: Option<&str>| url("/sdk/onceward.js").response("", known).status;
        let tag = format!("\"{}\"", *SCRIPTS[0].digest);
        assert_eq!((status(None), status(Some("\"x\"")), status(Some(&tag)), status(Some("*"))), (200, 200, 304, 304));
        assert_eq!(status(Some(&format!("\"x\", W/{tag}"))), 304);
        assert_eq!(status(Some("\"x\", *")), 200, "an asterisk counts only by itself");
    }

    #[test]
    fn urls_of_the_proxy_have_its_path() {
        let headers = url("/sdk/onceward-htmx.js").response("/_onceward", None).headers;
        let location = format!("/_onceward/sdk/onceward-htmx.{}.js", *SCRIPTS[1].digest);
        assert!(headers.contains(&("content-location", location)));
        let former = url("/sdk/onceward-turbo.0123456789abcdef.js").response("/_onceward", None).headers;
        assert!(former.contains(&("location", "/_onceward/sdk/onceward-turbo.js".to_owned())));
    }
}
