//! The browser SDK, from `client-sdk/web/dist`: at a stable URL, where browsers revalidate it, and at a URL with a content hash, where they
//! cache it.

use std::sync::LazyLock;

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_LOCATION, ETAG, EntityTag, Header as _, IfNoneMatch, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, web};
use sha2::{Digest as _, Sha256};

const SCRIPT: &str = include_str!("../../../client-sdk/web/dist/onceward.js");
/// The stable URL.
pub(super) const PATH: &str = "/sdk/onceward.js";
/// The URL with a content hash.
pub(super) const NAMED: &str = "/sdk/onceward.{digest:[0-9a-f]{16}}.js";
/// One year.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// The content hash.
static DIGEST: LazyLock<String> =
    LazyLock::new(|| Sha256::digest(SCRIPT)[..8].iter().map(|byte| format!("{byte:02x}")).collect());

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.route(PATH, web::get().to(current)).route(NAMED, web::get().to(named));
}

/// Sends the script, or 304 if it has not changed, with the hashed URL in `Content-Location`.
async fn current(request: HttpRequest) -> HttpResponse {
    let tag = EntityTag::new_strong(DIGEST.clone());
    let is_known = match IfNoneMatch::parse(&request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(known)) => known.iter().any(|known| known.weak_eq(&tag)),
        Err(_) => false,
    };
    let mut answer = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    answer.insert_header((ETAG, tag.to_string())).insert_header((CACHE_CONTROL, "public, no-cache"));
    if is_known {
        return answer.finish();
    }
    send(answer.insert_header((CONTENT_LOCATION, format!("/sdk/onceward.{}.js", *DIGEST))))
}

/// Sends the script to be cached. Another hash redirects to the current script, so that a page from before an update still works.
async fn named(digest: web::Path<String>) -> HttpResponse {
    if *digest != *DIGEST {
        return HttpResponse::Found()
            .insert_header((LOCATION, PATH))
            .insert_header((CACHE_CONTROL, "no-store"))
            .finish();
    }
    send(HttpResponse::Ok().insert_header((CACHE_CONTROL, FOREVER)))
}

fn send(answer: &mut HttpResponseBuilder) -> HttpResponse {
    answer
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .content_type("text/javascript; charset=utf-8")
        .body(SCRIPT)
}
