//! A router of axum whose state has no guard, and a subject for another framework.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use onceward::axum::{SubjectFrom, once};

#[once(key)]
async fn pay(State(prices): State<Vec<u32>>, body: String) -> String {
    format!("{prices:?} {body}")
}

#[once(token)]
async fn order() -> &'static str {
    "ordered"
}

#[once(token, subject = onceward::actix::SubjectFrom::anonymous())]
async fn subject_of_actix() -> &'static str {
    "ordered"
}

fn main() {
    let _: Router = Router::new().route("/payments", post(pay)).with_state(vec![1]);
    let _: Router = Router::new().route("/orders", post(order));
    let _ = SubjectFrom::anonymous();
}
