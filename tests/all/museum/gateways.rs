//! The rows of the museum that need a gateway: nginx before an application without a guard.

use onceward::store::Memory;
use onceward_api::{Retry, header};
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::gateway::{Gateway, GatewayKind, KEY};
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::shop::Shop;

use super::{StoryResult, told};

async fn submit(gateway: &Gateway, token: &str) -> Answer {
    send(http().post(format!("{}/open", gateway.url)).header(header::TOKEN, token)).await
}

/// The gateway's question is carried out and its answer is lost, so it asks at the second service: it is one request,
/// and it runs once.
async fn the_story_of_gateway_asks_twice(recipe: &str) -> StoryResult {
    let redis = RedisServer::start();
    let services = [(); 2].map(|()| OncewardServer::start(&["--store", &redis.url(), "--api-key", KEY]));
    let shop = Shop::on(Memory::new());
    let token = token(&services[0].url).await;
    // Whichever it asks first loses the answer.
    let lost = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let once = || {
        let lost = std::sync::Arc::clone(&lost);
        move |_: &_| match lost.swap(true, std::sync::atomic::Ordering::SeqCst) {
            false => HttpFault::CutAnswer(0),
            true => HttpFault::None,
        }
    };
    let ways =
        [FaultyHttpProxy::to(&services[0].url, once()).await, FaultyHttpProxy::to(&services[1].url, once()).await];
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&ways[0].url, &ways[1].url], &[shop.url()]);
    let answer = submit(&gateway, &token).await;
    assert_eq!(ways.iter().map(|way| way.seen().len()).sum::<usize>(), 2, "it has asked twice");
    told(answer.said() == "200 executed", || {
        format!("one request was refused as its own duplicate: {}", answer.said())
    })?;
    let again = submit(&gateway, &token).await;
    told(again.said() == "409 token_used" && shop.ledger.runs().len() == 1, || {
        format!("it ran again: {}", again.said())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_asks_twice() {
    let recipe = GatewayKind::Nginx.recipe();
    the_story_of_gateway_asks_twice(&recipe).await.unwrap();
    let attempt = recipe.lines().rfind(|line| line.contains("Onceward-Attempt")).unwrap();
    let nameless = recipe.replace(attempt, "        proxy_set_header Onceward-Attempt \"\";");
    assert_ne!(nameless, recipe);
    the_story_of_gateway_asks_twice(&nameless).await.unwrap_err();
}

/// The verdict on a submission is lost. The client does what the gateway then says, and its submission runs once.
async fn the_story_of_lost_verdict(recipe: &str) -> StoryResult {
    let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
    let way = FaultyHttpProxy::to(&service.url, first([HttpFault::CutAnswer(0)])).await;
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&way.url], &[shop.url()]);
    let sent = token(&service.url).await;
    let problem = submit(&gateway, &sent).await.problem();
    assert_eq!((problem.status, shop.ledger.runs().len()), (503, 0), "nothing ran");
    let next = if problem.retry == Retry::NewToken { token(&service.url).await } else { sent };
    let answer = submit(&gateway, &next).await;
    told(answer.said() == "200 executed", || format!("the only submission is told {}", answer.said()))?;
    told(shop.ledger.runs().len() == 1, || "it ran again".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_verdict() {
    let recipe = GatewayKind::Nginx.recipe();
    the_story_of_lost_verdict(&recipe).await.unwrap();
    let same = recipe.replace(r#""retry":"new_token""#, r#""retry":"same""#);
    assert_ne!(same, recipe);
    let wrong = the_story_of_lost_verdict(&same).await.unwrap_err();
    assert_eq!(wrong, "the only submission is told 409 token_used");
}

/// A duplicate is refused, and the user sees that it is one.
async fn the_story_of_nginx_500(recipe: &str) -> StoryResult {
    let (service, shop) = (OncewardServer::start(&["--api-key", KEY]), Shop::on(Memory::new()));
    let way = FaultyHttpProxy::to(&service.url, smooth).await;
    let gateway = Gateway::with(GatewayKind::Nginx, recipe, &[&way.url], &[shop.url()]);
    let token = token(&service.url).await;
    assert_eq!(submit(&gateway, &token).await.said(), "200 executed");
    let answer = submit(&gateway, &token).await;
    assert_eq!(shop.ledger.runs().len(), 1);
    told(answer.status == 409, || format!("a duplicate is told {}", answer.said()))?;
    told(answer.problem().code == onceward_api::Code::TokenUsed, || format!("no problem: {answer:?}"))?;
    way.plan(first([HttpFault::Instead(500)]));
    let broken = submit(&gateway, &token).await;
    told(broken.status == 503 && shop.ledger.runs().len() == 1, || format!("a 500 is told {}", broken.said()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_500() {
    let recipe = GatewayKind::Nginx.recipe();
    the_story_of_nginx_500(&recipe).await.unwrap();
    let plain = recipe.replace("?style=nginx", "");
    assert_ne!(plain, recipe);
    the_story_of_nginx_500(&plain).await.unwrap_err();
}
