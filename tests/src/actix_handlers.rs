//! The handlers of the shop in the form of actix-web, for tests of that framework alone and for the flawed implementations.

use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};

use crate::actix_framework::{call_of, response_of};
use crate::ledger::Ledger;
use crate::shop_handlers;

/// Returns the value of a header.
pub fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

/// [`shop_handlers::order`].
pub async fn order(request: HttpRequest, ledger: Data<Ledger>, body: Bytes) -> HttpResponse {
    response_of(shop_handlers::order(call_of(&request, &ledger, body)).await, &request)
}

/// [`shop_handlers::purchase`].
pub async fn purchase(request: HttpRequest, ledger: Data<Ledger>, body: Bytes) -> HttpResponse {
    response_of(shop_handlers::purchase(call_of(&request, &ledger, body)).await, &request)
}

/// [`shop_handlers::panics`].
pub async fn panics(request: HttpRequest, ledger: Data<Ledger>) -> HttpResponse {
    response_of(shop_handlers::panics(call_of(&request, &ledger, Bytes::new())).await, &request)
}

/// [`shop_handlers::block`].
pub async fn block(request: HttpRequest, ledger: Data<Ledger>) -> HttpResponse {
    response_of(shop_handlers::block(call_of(&request, &ledger, Bytes::new())).await, &request)
}
