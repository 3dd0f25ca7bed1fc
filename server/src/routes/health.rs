//! Health checks: liveness and readiness.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get, web};
use onceward::{Language, Rejection};
use onceward_api::{Code, Problem};

use crate::context::Context;
use crate::store_health::StoreFailure;

/// The detail for a full store.
const FULL: &str = "The store is full: no token is issued, no key is claimed, and no response is stored. Issued tokens are still \
                    redeemed. Give the store more memory.";
const FULL_CHINESE: &str = "存储已满：不签发令牌，不占用幂等键，也不保存响应。已签发的令牌仍可核销。请为存储增加内存。";

/// Liveness
///
/// Returns 200 while the process runs. It does not check the store.
#[utoipa::path(tag = "operation", responses((status = 200, description = "The process runs", body = String, content_type = "text/plain")))]
#[get("/healthz")]
pub(crate) async fn alive() -> HttpResponse {
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).content_type("text/plain").body("alive\n")
}

/// Readiness
///
/// Returns 200 if the store is reachable and writable, and the service is not shutting down. A full Redis (`maxmemory`, `noeviction`) accepts no new
/// records, so the service is not ready. `/healthz` still returns 200, for a load balancer that should keep sending requests that still work.
#[utoipa::path(
    tag = "operation",
    responses(
        (status = 200, description = "The service is ready", body = String, content_type = "text/plain"),
        (status = 503, description = "`store_unavailable` if the store is not reachable or full, or `overloaded` during a graceful shutdown", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/readyz")]
pub(crate) async fn ready(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    match readiness(&context).await {
        Ok(()) => {
            HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).content_type("text/plain").body("ready\n")
        }
        Err(rejection) => context.respond(&request, Err(rejection.into())),
    }
}

/// Checks that the store is reachable and writable, and that the process is not shutting down.
pub(crate) async fn readiness(context: &Context) -> Result<(), Rejection> {
    if context.guard().is_draining() {
        return Err(Rejection::new(Code::Overloaded)
            .detail("This process is shutting down.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "该进程正在关闭。"));
    }
    context.is_ready().await.map_err(|StoreFailure { error, is_full }| {
        tracing::debug!(%error, is_full, "not ready");
        let rejection = Rejection::new(Code::StoreUnavailable);
        if is_full { rejection.detail(FULL).detail_in(Language::SIMPLIFIED_CHINESE, FULL_CHINESE) } else { rejection }
    })
}
