//! The routes of the service. Each handler reads the request, calls the guard, and sends the result.

pub mod claim;
mod dashboard;
mod documented_responses;
pub mod forward_auth;
pub mod health;
pub mod metrics;
pub mod outcome;
pub mod pages;
mod request_fields;
pub(crate) mod sdk;
pub mod token;
mod well_known;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse, web};
use onceward::{Language, Rejection};
use onceward_api::{Code, header};
use utoipa_actix_web::service_config::ServiceConfig;

use crate::context::Context;
use crate::http::forwarded_request::is_gateway_path;
use crate::metrics::MetricsRecorder;

/// The paths for backends, which require the API key if one is set.
const FOR_BACKENDS: [&str; 7] =
    ["/token/redeem", "/token/release", "/claim", claim::COMPLETE, "/claim/release", "/claim/renew", "/outcome"];

/// Returns true if this path is for backends and gateways only. Their handlers check the API key before they read the body.
pub(crate) fn is_for_backends(path: &str) -> bool {
    FOR_BACKENDS.contains(&path) || is_gateway_path(path)
}

/// Adds the routes of the OpenAPI specification.
pub fn api(config: &mut ServiceConfig<'_>) {
    config
        .service(token::issue)
        .service(token::issue_many)
        .service(token::redeem)
        .service(token::release)
        .service(claim::claim)
        .service(claim::complete)
        .service(claim::release)
        .service(claim::renew)
        .service(outcome::outcome)
        .service(forward_auth::documented)
        .service(health::alive)
        .service(health::ready)
        .service(metrics::metrics)
        .service(well_known::describe);
}

/// Adds the dashboard, and the metrics of this recorder.
pub fn dashboard_and_metrics(recorder: MetricsRecorder) -> impl FnOnce(&mut web::ServiceConfig) {
    move |config| {
        config.app_data(web::Data::new(recorder)).configure(dashboard::routes);
    }
}

/// Adds the routes at `admin_listen`.
pub fn admin(config: &mut web::ServiceConfig) {
    config
        .service(web::redirect("/", dashboard::PATH))
        .service(health::alive)
        .service(health::ready)
        .service(metrics::metrics)
        .default_service(web::to(|request: HttpRequest, context: web::Data<Context>| async move {
            not_found(&request, &context)
        }));
}

/// Adds the pages, and the responses for wrong methods and unknown URLs.
pub fn pages_and_fallbacks(config: &mut web::ServiceConfig) {
    let only = |allowed: &'static str| {
        move |request: HttpRequest, context: web::Data<Context>| async move {
            let [methods, chinese] = [" or ", " 或 "].map(|or| allowed.replace(", ", or));
            let rejection = Rejection::new(Code::MethodNotAllowed)
                .detail(format!("This URL does not support the method of the request. Use {methods}."))
                .detail_in(Language::SIMPLIFIED_CHINESE, format!("此 URL 不支持该请求方法。请使用 {chinese}。"));
            let mut answer = context.respond(&request, Err(rejection.into()));
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            answer
        }
    };
    config
        .service(pages::problems)
        .service(pages::problem)
        .service(pages::docs)
        .configure(sdk::routes)
        .service(web::resource(["/token", "/tokens", "/token/redeem", "/token/release"]).to(only("POST")))
        .service(web::resource(["/claim", "/claim/complete", "/claim/release", "/claim/renew"]).to(only("POST")))
        .service(web::resource("/outcome").to(only("POST")))
        .service(web::resource(["/forward-auth", "/forward-auth/{original:.*}"]).to(forward_auth::ask))
        .service(
            web::resource([
                "/healthz",
                "/readyz",
                "/metrics",
                onceward_api::Description::PATH,
                "/",
                "/openapi.json",
                "/docs",
                "/problems",
                "/problems/{code}",
                sdk::PATHS,
                sdk::NAMED,
            ])
            .to(only("GET, HEAD")),
        )
        .default_service(web::to(|request: HttpRequest, context: web::Data<Context>| async move {
            not_found(&request, &context)
        }));
}

/// Replaces a 404 without a problem, which Swagger UI sends, with a problem.
pub async fn explain_not_found<B: MessageBody>(
    context: web::Data<Context>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let answer = next.call(request).await?;
    if answer.status() != StatusCode::NOT_FOUND || answer.headers().contains_key(header::OUTCOME) {
        return Ok(answer.map_into_left_body());
    }
    let problem = not_found(answer.request(), &context);
    Ok(answer.into_response(problem).map_into_right_body())
}

fn not_found(request: &HttpRequest, context: &Context) -> HttpResponse {
    let rejection = Rejection::new(Code::NotFound).detail(
        "This URL does not exist. The API documentation lists all URLs: /docs/ at the public address of the service.",
    ).detail_in(Language::SIMPLIFIED_CHINESE, "此 URL 不存在。API 文档列出了所有 URL：服务公开地址下的 /docs/。");
    context.respond(request, Err(rejection.into()))
}
