//! The right use of `#[once]`, which compiles.

use actix_web::{App, HttpResponse};
use axum::Router;
use onceward::Guard;
use onceward::store::Memory;

#[actix_web::post("/payments")]
#[onceward::actix::once(key = "/order/id", retryable)]
async fn pay_on_actix(_: String) -> HttpResponse {
    HttpResponse::Created().finish()
}

fn protection() -> onceward::axum::SubjectFrom {
    onceward::axum::SubjectFrom::resolver(|_| Some("alice".to_owned()))
}

/// A handler may have any name, and so may a function for its subject.
#[onceward::axum::once(token, subject = protection())]
async fn request() -> &'static str {
    "ordered"
}

#[onceward::axum::once(key = "/order/id", retryable)]
async fn pay_on_axum(_: String) -> &'static str {
    "paid"
}

fn main() {
    let guard = Guard::new(Memory::new());
    let protection = onceward::actix::Protection::new(&guard, onceward::actix::SubjectFrom::anonymous());
    let _ = App::new().app_data(protection).service(pay_on_actix);
    let protection = onceward::axum::Protection::new(&guard, onceward::axum::SubjectFrom::anonymous());
    let router = Router::new().route("/payments", axum::routing::post(pay_on_axum));
    let _: Router = router.route("/orders", axum::routing::post(request)).with_state(protection);
}
