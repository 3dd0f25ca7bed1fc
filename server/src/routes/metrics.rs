//! What Prometheus asks for.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get, web};
use onceward_api::Problem;

use super::not_found;
use crate::context::Context;
use crate::metrics::MetricsRecorder;

/// Metrics
///
/// Everything that is counted and measured, for Prometheus. With `admin_listen` it is at that address, and not here.
#[utoipa::path(
    tag = "operation",
    responses(
        (status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain"),
        (status = 404, description = "`not_found`: it is elsewhere", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/metrics")]
pub(crate) async fn metrics(
    request: HttpRequest,
    context: web::Data<Context>,
    recorder: Option<web::Data<MetricsRecorder>>,
) -> HttpResponse {
    let Some(recorder) = recorder else { return not_found(&request, &context) };
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(recorder.render(&context))
}
