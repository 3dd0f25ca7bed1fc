//! Whether the service lives, and whether it can do its work.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get, web};
use onceward::Rejection;
use onceward_api::{Code, Problem};

use crate::context::Context;
use crate::store_health::StoreFailure;

/// What a store that is full takes, and what it does not.
const FULL: &str = "The store is full: no token is issued, no key is claimed, and no response is stored. Issued tokens are still \
                    redeemed. Give the store more memory.";

/// Alive
///
/// The process runs. Says nothing of the store.
#[utoipa::path(tag = "operation", responses((status = 200, description = "It runs", body = String, content_type = "text/plain")))]
#[get("/healthz")]
pub(crate) async fn alive() -> HttpResponse {
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).content_type("text/plain").body("alive\n")
}

/// Ready
///
/// The store answers and takes what is written, and the service is not about to stop. A Redis that is full (`maxmemory`, `noeviction`) takes nothing
/// new, so the service is not ready; `/healthz` says 200 all the while, for a load balancer that is to go on sending what still works.
#[utoipa::path(
    tag = "operation",
    responses(
        (status = 200, description = "It can do its work", body = String, content_type = "text/plain"),
        (status = 503, description = "`store_unavailable` if the store is away or full, or `overloaded` while it stops", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/readyz")]
pub(crate) async fn ready(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    if context.guard().is_draining() {
        let rejection = Rejection::new(Code::Overloaded).detail("This process is about to stop.");
        return context.respond(&request, Err(rejection.into()));
    }
    match context.is_ready().await {
        Ok(()) => {
            HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).content_type("text/plain").body("ready\n")
        }
        Err(StoreFailure { error, is_full }) => {
            tracing::debug!(%error, is_full, "not ready");
            let rejection = Rejection::new(Code::StoreUnavailable);
            context.respond(&request, Err(if is_full { rejection.detail(FULL) } else { rejection }.into()))
        }
    }
}
