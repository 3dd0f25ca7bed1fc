//! The handlers on actix-web.

use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Json, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer, Responder, post, web};
use onceward::Guard;
use onceward::actix::{Actix, Protection, RequireProtection, SubjectFrom, once, token_route};

use super::{Annotated, Submission, receipt, user};
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

#[post("/panics")]
#[once(key)]
async fn panics(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    body.into_inner().panic(&ledger)
}

#[post("/panics-with-token")]
#[once(token, remember = "10m")]
async fn panics_with_token(ledger: Data<Ledger>, body: Json<Submission>) -> HttpResponse {
    body.into_inner().panic(&ledger)
}

/// The status of the body is that of the error, if it is one.
#[post("/results")]
#[once(key)]
async fn result(ledger: Data<Ledger>, body: Json<Submission>) -> Result<String, actix_web::Error> {
    let (status, receipt) = body.into_inner().handle(&ledger).await;
    match StatusCode::from_u16(status).expect("a status") {
        status if status.is_success() => Ok(receipt),
        status => Err(InternalError::new(receipt, status).into()),
    }
}

#[post("/responders")]
#[once(key)]
async fn responder(ledger: Data<Ledger>, body: Json<Submission>) -> impl Responder {
    body.into_inner().handle(&ledger).await.1.customize().insert_header(("x-shop", "open"))
}

#[post("/no-arguments")]
#[once(key)]
async fn no_arguments() -> String {
    receipt()
}

#[post("/unprotected")]
async fn unprotected() -> String {
    receipt()
}

/// Returns the routes of the shop, whose handlers find no guard.
pub fn without_guard(ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let ledger = ledger.clone();
    move |config| routes(config, &ledger)
}

fn routes(config: &mut ServiceConfig, ledger: &Ledger) {
    config.app_data(Data::new(ledger.clone())).service(order).service(remembered).service(bound).service(pay);
    config.service(by_order).service(message).service(remembered_message).service(mine);
    config.service(panics).service(panics_with_token).service(result).service(responder).service(no_arguments);
    config.service(unprotected);
    config.route("/retryable", web::post().to(retry));
}

/// Returns the routes of the shop.
pub fn configure(guard: &Guard, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    protected(guard, ledger, Protection::new(guard, SubjectFrom::anonymous()))
}

fn protected(
    guard: &Guard,
    ledger: &Ledger,
    protection: Protection,
) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let (guard, ledger) = (guard.clone(), ledger.clone());
    move |config| {
        config.app_data(protection.clone()).service(token_route(&guard, SubjectFrom::anonymous()));
        routes(config, &ledger);
    }
}

impl Annotated for Actix {
    const ANNOTATED_PEER: &'static str = "annotated";

    fn serve_protected(guard: &Guard, ledger: &Ledger, protection: Protection) -> TestServer {
        let routes = protected(guard, ledger, protection);
        TestServer::run(move |listener| {
            let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2);
            Ok(server.disable_signals().listen(listener)?.run())
        })
    }

    fn serve_required(guard: &Guard, ledger: &Ledger) -> TestServer {
        let (routes, require) = (configure(guard, ledger), RequireProtection::new(guard));
        TestServer::run(move |listener| {
            let app = move || App::new().configure(routes.clone()).wrap(require.clone());
            Ok(HttpServer::new(app).workers(2).disable_signals().listen(listener)?.run())
        })
    }
}
