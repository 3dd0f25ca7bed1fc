//! The files of the page, which are part of the binary, and what a browser may do with them: load from here, and nothing else.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::middleware::DefaultHeaders;

/// No script, style or picture but the files below; no frame around it, no form that leads away.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// One file.
pub(crate) struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../assets/", $name)) }
    };
}

/// The page itself.
pub(crate) const PAGE: &str = include_str!("../assets/index.html");

/// The recipe for nginx, as a module: it has neither a backtick nor a brace behind a dollar, which would end or change it.
const RECIPE: &str = concat!("export default String.raw`", include_str!("../../deploy/nginx.conf"), "`;\n");

/// What a browser shows as it is, such as the examples of whole backends.
const TEXT: &str = "text/plain; charset=utf-8";

/// What the page loads and links to.
const FILES: [Asset; 14] = [
    asset!("demo.css", "text/css; charset=utf-8"),
    asset!("demo.js", "text/javascript; charset=utf-8"),
    asset!("chart.js", "text/javascript; charset=utf-8"),
    asset!("messages.js", "text/javascript; charset=utf-8"),
    asset!("form_panel.js", "text/javascript; charset=utf-8"),
    asset!("snippets.js", "text/javascript; charset=utf-8"),
    asset!("backend_snippets.js", "text/javascript; charset=utf-8"),
    asset!("submissions.js", "text/javascript; charset=utf-8"),
    asset!("keyboard_tabs.js", "text/javascript; charset=utf-8"),
    asset!("request_timeline.js", "text/javascript; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    Asset { name: "payments.py", kind: TEXT, bytes: include_bytes!("../../docs/backends/payments.py") },
    Asset { name: "payments.mjs", kind: TEXT, bytes: include_bytes!("../../docs/backends/payments.mjs") },
    Asset { name: "recipe.js", kind: "text/javascript; charset=utf-8", bytes: RECIPE.as_bytes() },
];

/// The file of this name.
pub(crate) fn file(name: &str) -> Option<HttpResponse> {
    let asset = FILES.iter().find(|asset| asset.name == name)?;
    Some(HttpResponse::Ok().insert_header((CONTENT_TYPE, asset.kind)).body(asset.bytes))
}

/// What every answer of the shop says to a browser. Another version of the service has other files under the same names.
pub(crate) fn headers() -> DefaultHeaders {
    DefaultHeaders::new()
        .add(("content-security-policy", POLICY))
        .add(("x-content-type-options", "nosniff"))
        .add(("referrer-policy", "no-referrer"))
        .add((CACHE_CONTROL, "no-cache"))
}
