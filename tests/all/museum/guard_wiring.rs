//! Rows about how a layer is put into an application: a good layer, in the wrong place.

use actix_web::middleware::from_fn;
use actix_web::{App, HttpResponse, HttpServer, web};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::flawed::MemoryLayer;
use onceward_tests::key_routes::{buy, serve};
use onceward_tests::ledger::Ledger;

use super::{StoryResult, told};
use crate::actix::store_per_worker::{Runtime, start};

async fn pay(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("paid");
    HttpResponse::Created().finish()
}

/// The layer is built inside the closure of the server, once in every worker. A server that does not start pays nothing twice.
async fn the_story_of_store_per_worker(is_onceward: bool) -> StoryResult {
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
    told(ledger.runs().len() <= 1, || format!("{} payments", ledger.runs().len()))
}

#[tokio::test]
async fn store_per_worker() {
    the_story_of_store_per_worker(true).await.unwrap();
    the_story_of_store_per_worker(false).await.unwrap_err();
}

/// The same layer stands around a scope and around a route in it. Nothing can run, so a
/// client must not be asked to come back for ever.
async fn the_story_of_nested_layers(is_onceward: bool) -> StoryResult {
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
        told(answer.status != 409, || format!("told {} though nothing runs", answer.said()))?;
        assert_eq!(answer.said(), "500 internal");
    }
    assert!(ledger.runs().is_empty());
    Ok(())
}

#[tokio::test]
async fn nested_layers() {
    the_story_of_nested_layers(true).await.unwrap();
    the_story_of_nested_layers(false).await.unwrap_err();
}
