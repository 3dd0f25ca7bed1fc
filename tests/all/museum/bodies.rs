//! Museum row about a key in the request body.

use actix_web::body::BoxBody;
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderValue;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::BytesMut;
use actix_web::{HttpMessage as _, HttpResponse, web};
use futures_util::StreamExt as _;
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::client::{http, send};
use onceward_tests::flawed::MemoryLayer;
use onceward_tests::key_routes::{KEY, serve};
use onceward_tests::ledger::Ledger;
use serde_json::Value;

use super::{ScenarioResult, ensure};
use crate::keys::unreadable_keys::GZIPPED;

async fn receive(ledger: web::Data<Ledger>, message: web::Json<Value>) -> HttpResponse {
    ledger.record(&message["seq"].to_string());
    HttpResponse::Created().finish()
}

/// Uses a number in the raw body as the key, and does not protect requests without one.
async fn by_seq(
    layer: MemoryLayer,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let (mut payload, mut body) = (request.take_payload(), BytesMut::new());
    while let Some(chunk) = payload.next().await {
        body.extend_from_slice(&chunk?);
    }
    let seq = serde_json::from_slice::<Value>(&body).ok().and_then(|message| message["seq"].as_u64());
    request.set_payload(Payload::from(body.freeze()));
    let Some(seq) = seq else { return next.call(request).await };
    request.headers_mut().insert(KEY.try_into().unwrap(), HeaderValue::from(seq));
    layer.pass(request, next).await
}

async fn compressed_key_scenario(is_onceward: bool) -> ScenarioResult {
    let (ledger, layer, guard) = (Ledger::new(), MemoryLayer::default(), Guard::new(Memory::new()));
    let served = serve(&ledger, move |config| {
        let resource = web::resource("/messages").route(web::post().to(receive));
        if is_onceward {
            let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
            config.service(resource.wrap(protect.from(KeyFrom::body("/seq").unwrap()).optional()));
        } else {
            let layer = layer.clone();
            config.service(resource.wrap(from_fn(move |request, next| by_seq(layer.clone(), request, next))));
        }
    });
    let post = || http().post(format!("{}/messages", served.url)).header("content-type", "application/json");
    for _ in 0..2 {
        assert_eq!(send(post().body(r#"{"seq":8}"#)).await.status, 201);
        send(post().header("content-encoding", "gzip").body(GZIPPED)).await;
    }
    assert_eq!(ledger.count("8"), 1);
    ensure(ledger.count("7") <= 1, || format!("{} effects of one message", ledger.count("7")))
}

#[tokio::test]
async fn compressed_key() {
    compressed_key_scenario(true).await.unwrap();
    compressed_key_scenario(false).await.unwrap_err();
}
