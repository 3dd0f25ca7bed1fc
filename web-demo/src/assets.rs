//! The files of the page, embedded in the binary, and their content security policy.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::middleware::DefaultHeaders;

/// Allows only the files below: no other script, style or image, no frame around the page, no form to another origin.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A file of the page.
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

/// The HTML of the page.
pub(crate) const PAGE: &str = include_str!("../assets/index.html");
/// The same page in Chinese.
pub(crate) const CHINESE_PAGE: &str = include_str!("../assets/index.zh-CN.html");

/// The recipe for nginx as a JavaScript module. It contains neither a backtick nor `${`, which would end or change the string.
const RECIPE: &str = concat!("export default String.raw`", include_str!("../../deploy/nginx.conf"), "`;\n");

/// The content type of files that the browser shows as text, such as the complete backends.
const TEXT: &str = "text/plain; charset=utf-8";

/// The files that the page loads or links to.
const FILES: [Asset; 16] = [
    asset!("demo.css", "text/css; charset=utf-8"),
    asset!("demo.js", "text/javascript; charset=utf-8"),
    asset!("chart.js", "text/javascript; charset=utf-8"),
    asset!("messages.js", "text/javascript; charset=utf-8"),
    asset!("messages.zh-CN.js", "text/javascript; charset=utf-8"),
    asset!("words.js", "text/javascript; charset=utf-8"),
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

/// Returns the file with this name.
pub(crate) fn file(name: &str) -> Option<HttpResponse> {
    let asset = FILES.iter().find(|asset| asset.name == name)?;
    Some(HttpResponse::Ok().insert_header((CONTENT_TYPE, asset.kind)).body(asset.bytes))
}

/// The headers of every response of the shop. `no-cache`: another version of the service has other files under the same names.
pub(crate) fn headers() -> DefaultHeaders {
    DefaultHeaders::new()
        .add(("content-security-policy", POLICY))
        .add(("x-content-type-options", "nosniff"))
        .add(("referrer-policy", "no-referrer"))
        .add((CACHE_CONTROL, "no-cache"))
}
