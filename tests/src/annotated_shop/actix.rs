//! The handlers on actix-web.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Json, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer, post, web};
use onceward::Guard;
use onceward::actix::{Actix, Protection, SubjectFrom, once, token_route};

use super::{Annotated, Submission, user};
use crate::ledger::Ledger;
use crate::test_server::TestServer;

async fn respond(submission: Submission, ledger: &Ledger) -> HttpResponse {
    let (status, receipt) = submission.handle(ledger).await;
    HttpResponse::build(StatusCode::from_u16(status).expect("a status")).body(receipt)
}

#[post("/orders")]
#[once(token)]
async fn order(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/remembered")]
#[once(token, remember = "10m")]
async fn remembered(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/bound")]
#[once(token, bound, next_token)]
async fn bound(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/payments")]
#[once(key)]
async fn pay(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[once(key, retryable, retain = "1h", wait = "10s", optional)]
async fn retry(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/by-order")]
#[once(key = "/order/id")]
async fn by_order(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/messages")]
#[once(interval = "1500ms", message = "We have received this message already.")]
async fn message(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/remembered-messages")]
#[once(interval = "1h", remember)]
async fn remembered_message(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

#[post("/mine")]
#[once(key, subject = user::<Actix>())]
async fn mine(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    respond(body.into_inner(), &ledger).await
}

/// Returns the routes of the shop, whose handlers find no guard.
pub fn without_guard(ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let ledger = ledger.clone();
    move |config| routes(config, &ledger)
}

fn routes(config: &mut ServiceConfig, ledger: &Ledger) {
    config.app_data(Data::new(ledger.clone())).service(order).service(remembered).service(bound).service(pay);
    config.service(by_order).service(message).service(remembered_message).service(mine);
    config.route("/retryable", web::post().to(retry));
}

/// Returns the routes of the shop.
pub fn configure(guard: &Guard, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let protection = Protection::new(guard, SubjectFrom::anonymous());
    let (guard, ledger) = (guard.clone(), ledger.clone());
    move |config| {
        config.app_data(protection.clone()).service(token_route(&guard, SubjectFrom::anonymous()));
        routes(config, &ledger);
    }
}

impl Annotated for Actix {
    const ANNOTATED_PEER: &'static str = "annotated";

    fn serve_annotated(guard: &Guard, ledger: &Ledger) -> TestServer {
        let routes = configure(guard, ledger);
        TestServer::run(move |listener| {
            let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2);
            Ok(server.disable_signals().listen(listener)?.run())
        })
    }
}
