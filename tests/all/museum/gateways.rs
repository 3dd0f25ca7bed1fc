//! Museum rows about gateways: nginx in front of an application without a guard.

use onceward::store::Memory;
use onceward_api::{Retry, header};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::Shop;

use super::{ScenarioResult, ensure};

async fn submit(gateway: &Gateway, token: &str) -> Answer {
    send(http().post(format!("{}/open", gateway.url)).header(header::TOKEN, token)).await
}

/// The response to the gateway's auth request is lost, so the gateway sends it to the second service: the client's request is
/// accepted and runs once.
async fn gateway_asks_twice_scenario(recipe: &str) -> ScenarioResult {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY]));
    let shop = Shop::on(Memory::new());
    let token = token(&services[0].url).await;
    // The response of the service that receives the first auth request is lost.
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let once = || {
        let lost = std::sync::Arc::clone(&lost);
        move |_: &_| match lost.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => HttpFault::CutAnswer(0),
            true => HttpFault::None,
        }
    };
    let proxies =
        [FaultyHttpProxy::to(&services[0].url, once()).await, FaultyHttpProxy::to(&services[1].url, once()).await];
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&proxies[0].url, &proxies[1].url], &[shop.url()]);
    let answer = submit(&gateway, &token).await;
    assert_eq!(proxies.iter().map(|proxy| proxy.seen().len()).sum::<usize>(), 2, "the gateway sent two auth requests");
    ensure(answer.said() == "200 executed", || {
        format!("one request was rejected as its own duplicate: {}", answer.said())
    })?;
    let again = submit(&gateway, &token).await;
    ensure(again.said() == "409 token_used" && shop.ledger.runs().len() == 1, || {
        format!("it ran again: {}", again.said())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_asks_twice() {
    let recipe = GatewayKind::Nginx.recipe();
    gateway_asks_twice_scenario(&recipe).await.unwrap();
    let attempt = recipe.lines().rfind(|line| line.contains("Onceward-Attempt")).unwrap();
    let nameless = recipe.replace(attempt, "        proxy_set_header Onceward-Attempt \"\";");
    assert_ne!(nameless, recipe);
    gateway_asks_twice_scenario(&nameless).await.unwrap_err();
}

/// The verdict on a submission is lost. The client follows the `retry` of the gateway's response, and its submission runs once.
async fn lost_verdict_scenario(recipe: &str) -> ScenarioResult {
    let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
    let proxy = FaultyHttpProxy::to(&service.url, first([HttpFault::CutAnswer(0)])).await;
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&proxy.url], &[shop.url()]);
    let sent = token(&service.url).await;
    let problem = submit(&gateway, &sent).await.problem();
    assert_eq!((problem.status, shop.ledger.runs().len()), (503, 0), "nothing ran");
    let next = if problem.retry == Retry::NewToken { token(&service.url).await } else { sent };
    let answer = submit(&gateway, &next).await;
    ensure(answer.said() == "200 executed", || format!("the only submission received {}", answer.said()))?;
    ensure(shop.ledger.runs().len() == 1, || "it ran again".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_verdict() {
    let recipe = GatewayKind::Nginx.recipe();
    lost_verdict_scenario(&recipe).await.unwrap();
    let same = recipe.replace(r#""retry":"new_token""#, r#""retry":"same""#);
    assert_ne!(same, recipe);
    let wrong = lost_verdict_scenario(&same).await.unwrap_err();
    assert_eq!(wrong, "the only submission received 409 token_used");
}

/// The client of a duplicate receives 409, not 500.
async fn nginx_500_scenario(recipe: &str) -> ScenarioResult {
    let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
    let proxy = FaultyHttpProxy::to(&service.url, smooth).await;
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&proxy.url], &[shop.url()]);
    let token = token(&service.url).await;
    assert_eq!(submit(&gateway, &token).await.said(), "200 executed");
    let answer = submit(&gateway, &token).await;
    assert_eq!(shop.ledger.runs().len(), 1);
    ensure(answer.status == 409, || format!("a duplicate received {}", answer.said()))?;
    ensure(answer.problem().code == onceward_api::Code::TokenUsed, || format!("no problem: {answer:?}"))?;
    proxy.plan(first([HttpFault::Instead(500)]));
    let broken = submit(&gateway, &token).await;
    ensure(broken.status == 503 && shop.ledger.runs().len() == 1, || {
        format!("after a 500 of the service, the client received {}", broken.said())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_500() {
    let recipe = GatewayKind::Nginx.recipe();
    nginx_500_scenario(&recipe).await.unwrap();
    let plain = recipe.replace("?style=nginx", "");
    assert_ne!(plain, recipe);
    nginx_500_scenario(&plain).await.unwrap_err();
}
