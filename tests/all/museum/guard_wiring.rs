//! Museum rows about wiring: a correct layer in the wrong place of an application.

use actix_web::middleware::from_fn;
use actix_web::{App, HttpResponse, HttpServer, web};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::flawed::MemoryLayer;
use onceward_tests::key_routes::{buy, serve};
use onceward_tests::ledger::Ledger;

use super::{ScenarioResult, ensure};
use crate::actix::store_per_worker::{Runtime, start};

async fn pay(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("paid");
    HttpResponse::Created().finish()
}

/// The layer is built inside the closure of the server, once in every worker. A server that refuses to start has no double payments.
async fn store_per_worker_scenario(is_onceward: bool) -> ScenarioResult {
    let ledger = Ledger::new();
    let book = web::Data::new(ledger.clone());
    let started = start(Runtime::Actix, 1, move |listener| {
        let book = book.clone();
        let server = HttpServer::new(move || {
            let (layer, guard) = (MemoryLayer::default(), Guard::new(Memory::new()));
            let resource = web::resource("/pay").route(web::post().to(pay));
            let app = App::new().app_data(book.clone());
            match is_onceward {
                true => {
                    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
                    app.service(resource.wrap(protect))
                }
                false => app.service(resource.wrap(from_fn(move |request, next| layer.clone().pass(request, next)))),
            }
        });
        Ok(server.workers(4).disable_signals().listen(listener)?.run())
    });
    for running in started.iter().flatten() {
        for _ in 0..40 {
            buy(&running.url, "/pay", "k", "").await;
        }
    }
    ensure(ledger.runs().len() <= 1, || format!("{} payments", ledger.runs().len()))
}

#[tokio::test]
async fn store_per_worker() {
    store_per_worker_scenario(true).await.unwrap();
    store_per_worker_scenario(false).await.unwrap_err();
}

/// The same layer wraps a scope and a route in it. No request can run, so the response must not ask the client to retry forever.
async fn nested_layers_scenario(is_onceward: bool) -> ScenarioResult {
    let (ledger, layer, guard) = (Ledger::new(), MemoryLayer::default(), Guard::new(Memory::new()));
    let served = serve(&ledger, move |config| {
        let resource = web::resource("/pay").route(web::post().to(pay));
        if is_onceward {
            let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
            config.service(web::scope("/shop").wrap(protect()).service(resource.wrap(protect())));
        } else {
            let (outer, inner) = (layer.clone(), layer.clone());
            let outer = from_fn(move |request, next| outer.clone().pass(request, next));
            let inner = from_fn(move |request, next| inner.clone().pass(request, next));
            config.service(web::scope("/shop").wrap(outer).service(resource.wrap(inner)));
        }
    });
    for _ in 0..3 {
        let answer = buy(&served.url, "/shop/pay", "k", "").await;
        ensure(answer.status != 409, || format!("received {} though no run is in flight", answer.said()))?;
        assert_eq!(answer.said(), "500 internal");
    }
    assert!(ledger.runs().is_empty());
    Ok(())
}

#[tokio::test]
async fn nested_layers() {
    nested_layers_scenario(true).await.unwrap();
    nested_layers_scenario(false).await.unwrap_err();
}
