//! The description of the service: header names and limits.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, get, web};
use onceward_api::{Description, TokenLimits};

use super::claim::limits;
use super::token;
use crate::context::Context;

/// Describe the service
///
/// Header names, and the limits of tokens and claims. It contains no secret, and needs no API key. An application or proxy describes the policies of
/// its routes at the same path.
#[utoipa::path(
    operation_id = "describe",
    tag = "operation",
    responses((status = 200, description = "Header names and limits", body = Description)),
)]
#[get("/.well-known/onceward")]
pub(crate) async fn describe(context: web::Data<Context>) -> HttpResponse {
    let ttl = context.guard().token_ttl();
    let mut description = Description::new();
    description.tokens = Some(TokenLimits { ttl, max_ttl: ttl, per_request: token::MOST });
    description.claims = Some(limits());
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(description)
}
