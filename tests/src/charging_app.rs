//! A handler that charges through another party and passes that party's failure on.

use std::io;

use actix_web::error::{ErrorBadGateway, ErrorBadRequest, PayloadError};
use actix_web::{App, Error, HttpRequest, HttpResponse, HttpServer, web};

use crate::client::http;
use crate::ledger::Ledger;
use crate::shop::{TestServer, header};

/// The header that names the address of the payment provider.
pub const PROVIDER: &str = "x-provider";
/// What the provider writes to its ledger for each charge.
pub const CHARGE: &str = "charge";

/// Charges through the provider and answers with its receipt. A receipt that breaks off becomes the error that `awc` gives for it,
/// which actix-web answers with 400. (`awc` itself depends on a version of h2 that has an open advisory.)
pub async fn charge(request: HttpRequest) -> Result<HttpResponse, Error> {
    let provider = header(&request, PROVIDER).ok_or_else(|| ErrorBadRequest("no provider"))?;
    let charged = http().post(provider).send().await.map_err(ErrorBadGateway)?;
    let receipt = charged.bytes().await.map_err(broken_off)?;
    Ok(HttpResponse::Created().body(receipt))
}

fn broken_off(error: reqwest::Error) -> PayloadError {
    PayloadError::Incomplete(Some(io::Error::other(error)))
}

/// A payment provider that writes each charge to the ledger and answers with a receipt.
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
