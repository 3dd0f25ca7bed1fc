//! One protected route on the memory store: `cargo run --example orders`.

use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};
use onceward::Guard;
use onceward::actix::{Protect, SubjectFrom, serve, token_route};
use onceward::store::Memory;

const TEN_MINUTES: Duration = Duration::from_secs(600);

async fn place_order() -> HttpResponse {
    HttpResponse::Created().body("ordered\n")
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
    println!("POST http://127.0.0.1:8080/token, then POST http://127.0.0.1:8080/orders with its Onceward-Token");
    serve(server, &guard).await
}
