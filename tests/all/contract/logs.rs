//! The log of a shop, and the end of its process.

use onceward_tests::client::{send, token};
use onceward_tests::contract::contract_handler::RAISE;
use onceward_tests::contract::network::Network;
use onceward_tests::contract::stack::Stack;
use onceward_tests::contract::stage::{API_KEY, LONG, Stage};
use onceward_tests::polling::until;

/// Returns the passes that the service has issued, as the middleware sent them back.
fn passes(network: &Network) -> Vec<String> {
    let Network::Http(proxy, _) = network else { return Vec::new() };
    let bodies = proxy.seen().into_iter().filter_map(|seen| serde_json::from_slice(&seen.body).ok());
    bodies.filter_map(|body: serde_json::Value| Some(body["pass"].as_str()?.to_owned())).collect()
}

pub(super) async fn log_has_no_key_token_pass_or_credential(stack: Stack) {
    let mut stage = Stage::of(stack).open().await;
    let key = "a-secret-idempotency-key";
    let token = token(&stage.shop().url).await;
    let form = |stage: &Stage| stage.shop().post("/forms").header("onceward-token", &token);
    for raise in ["none", "after", "before"] {
        send(stage.shop().submit("/orders", key).header(RAISE, raise)).await;
        send(stage.shop().submit("/retryable", key).header(RAISE, raise)).await;
        send(form(&stage).header(RAISE, raise)).await;
    }
    send(stage.shop().submit("/orders", key).body("other content")).await;
    stage.stop_service();
    send(stage.shop().submit("/orders", key)).await;
    send(form(&stage)).await;
    let (log, passes) = (stage.shop().log(), passes(&stage.network));
    assert_eq!(passes.is_empty(), !stack.asks_service());
    for secret in [key, &token, API_KEY].into_iter().chain(passes.iter().map(String::as_str)) {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

/// Nothing that runs in the background keeps the process from ending.
pub(super) async fn shop_ends_after_sigterm(stack: Stack) {
    let mut stage = Stage::of(stack).open().await;
    assert_eq!(send(stage.shop().submit("/orders", "k")).await.said(), "201 executed");
    stage.shop().terminate();
    let shop = std::sync::Mutex::new(&mut stage.shops[0]);
    until("the shop ends", LONG, || async { shop.lock().unwrap().has_ended() }).await;
}
