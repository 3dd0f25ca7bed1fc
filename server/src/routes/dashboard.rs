//! The dashboard, which the browser draws from `/metrics`. Its files are part of the binary, and the page loads nothing else.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::middleware::DefaultHeaders;
use actix_web::{HttpRequest, HttpResponse, web};

use super::not_found;
use crate::context::Context;

/// The path of the dashboard.
pub(super) const PATH: &str = "/dashboard";

/// Allows only the files below as scripts, styles and images; no frames and no forms.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("../../assets/dashboard.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: name, content type and text.
const FILES: [(&str, &str, &str); 6] = [
    ("dashboard.css", "text/css; charset=utf-8", include_str!("../../assets/dashboard.css")),
    ("dashboard.js", SCRIPT, include_str!("../../assets/dashboard.js")),
    ("metrics.js", SCRIPT, include_str!("../../assets/metrics.js")),
    ("history.js", SCRIPT, include_str!("../../assets/history.js")),
    ("chart.js", SCRIPT, include_str!("../../assets/chart.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];

/// Adds the dashboard and its files.
pub(crate) fn routes(config: &mut web::ServiceConfig) {
    let headers = || {
        DefaultHeaders::new()
            .add(("content-security-policy", POLICY))
            .add(("x-content-type-options", "nosniff"))
            .add(("referrer-policy", "no-referrer"))
            .add((CACHE_CONTROL, "no-cache"))
    };
    let resource = |path| web::resource(path).guard(actix_web::guard::Get()).wrap(headers());
    config
        .service(resource(PATH).route(web::get().to(page)))
        .service(resource("/dashboard/{file}").route(web::get().to(file)));
}

async fn page() -> HttpResponse {
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(PAGE)
}

async fn file(request: HttpRequest, context: web::Data<Context>, name: web::Path<String>) -> HttpResponse {
    match FILES.iter().find(|(known, ..)| *known == *name) {
        Some((_, kind, text)) => HttpResponse::Ok().content_type(*kind).body(*text),
        None => not_found(&request, &context),
    }
}
