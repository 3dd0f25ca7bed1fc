//! A handler that charges through a payment provider and forwards the provider's failure.

use std::io;

use actix_web::error::{ErrorBadGateway, ErrorBadRequest, PayloadError};
use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, web};

use crate::actix_handlers::header;
use crate::client::http;
use crate::ledger::Ledger;
use crate::shop::TestServer;

/// Request header with the URL of the payment provider.
pub const PROVIDER: &str = "x-provider";
/// The line that the provider writes to its ledger for each charge.
pub const CHARGE: &str = "charge";

/// Charges through the provider and responds with its receipt. A truncated receipt becomes the error that `awc` returns for it, which
/// actix-web turns into a 400. (`awc` itself depends on a version of h2 with an open advisory.)
pub async fn charge(request: HttpRequest) -> Result<HttpResponse, Error> {
    let provider = header(&request, PROVIDER).ok_or_else(|| ErrorBadRequest("no provider"))?;
    let charged = http().post(provider).send().await.map_err(ErrorBadGateway)?;
    let receipt = charged.bytes().await.map_err(broken_off)?;
    Ok(HttpResponse::Created().body(receipt))
}

fn broken_off(error: reqwest::Error) -> PayloadError {
    PayloadError::Incomplete(Some(io::Error::other(error)))
}

/// A payment provider that writes each charge to the ledger and responds with a receipt.
pub fn provider(ledger: &Ledger) -> TestServer {
    let ledger = web::Data::new(ledger.clone());
    TestServer::run(move |listener| {
        let charge = async |ledger: web::Data<Ledger>| {
            ledger.record(CHARGE);
            HttpResponse::Created().body("receipt ".repeat(100))
        };
        let server = HttpServer::new(move || App::new().app_data(ledger.clone()).default_service(web::to(charge)));
        Ok(server.workers(1).disable_signals().listen(listener)?.run())
    })
}
