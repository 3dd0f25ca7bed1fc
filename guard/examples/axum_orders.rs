//! A shop on axum with one protected route: `cargo run -p onceward --example axum_orders --features axum`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use onceward::Guard;
use onceward::axum::{Protect, SubjectFrom, entered, serve, token_route};
use onceward::store::Memory;
use tokio::net::TcpListener;

const TEN_MINUTES: Duration = Duration::from_secs(600);

static ORDERS: AtomicUsize = AtomicUsize::new(0);

async fn place_order() -> (StatusCode, String) {
    let number = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
    (StatusCode::CREATED, format!("order {number}\n"))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let guard = Guard::new(Memory::new());
    let protect = Protect::token(&guard, SubjectFrom::anonymous()).remember(TEN_MINUTES);
    let app = Router::new()
        .merge(token_route(&guard, SubjectFrom::anonymous()))
        .route("/orders", post(entered(place_order)).layer(protect));
    let listener = TcpListener::bind(("127.0.0.1", 8080)).await?;
    println!("listening on http://127.0.0.1:8080");
    serve(axum::serve(listener, app), &guard).await
}
