//! One protected route on the memory store: `cargo run -p onceward --example orders --features actix`. The README shows this program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};
use onceward::Guard;
use onceward::actix::{Protect, SubjectFrom, serve, token_route};
use onceward::store::Memory;

const TEN_MINUTES: Duration = Duration::from_secs(600);

static ORDERS: AtomicUsize = AtomicUsize::new(0);

async fn place_order() -> HttpResponse {
    let number = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
    HttpResponse::Created().body(format!("order {number}\n"))
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let guard = Guard::new(Memory::new());
    let shared = guard.clone();
    let server = HttpServer::new(move || {
        App::new().service(token_route(&shared, SubjectFrom::anonymous())).service(
            web::resource("/orders")
                .wrap(Protect::token(&shared, SubjectFrom::anonymous()).remember(TEN_MINUTES))
                .route(web::post().to(place_order)),
        )
    });
    let server = server.bind(("127.0.0.1", 8080))?;
    println!("listening on http://127.0.0.1:8080");
    serve(server, &guard).await
}
