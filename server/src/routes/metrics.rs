//! The metrics for Prometheus.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, get, web};
use onceward::{Language, Rejection};
use onceward_api::{Code, Problem};

use crate::context::Context;
use crate::metrics::MetricsRecorder;

/// Metrics
///
/// All metrics, for Prometheus. If `admin_listen` is set, they are served only at that address.
#[utoipa::path(
    tag = "operation",
    responses(
        (status = 200, description = "The text format of Prometheus", body = String, content_type = "text/plain"),
        (status = 404, description = "`not_found`: metrics are served at `admin_listen`", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/metrics")]
pub(crate) async fn metrics(
    request: HttpRequest,
    context: web::Data<Context>,
    recorder: Option<web::Data<MetricsRecorder>>,
) -> HttpResponse {
    let Some(recorder) = recorder else {
        let elsewhere = Rejection::new(Code::NotFound)
            .detail(
                "Metrics are not served here. They are at the address that the operator has set with `admin_listen`.",
            )
            .detail_in(Language::SIMPLIFIED_CHINESE, "此处不提供指标。指标在运维人员用 `admin_listen` 设置的地址上。");
        return context.respond(&request, Err(elsewhere.into()));
    };
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(recorder.render(&context))
}
