//! A gateway retries a submission on a second application after the connection to the first broke after its effect. Both are
//! guarded, so there is one effect.

use onceward_api::header;
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::gateway::{Gateway, GatewayKind};
use onceward_tests::key_routes::{KEY, Pair};
use onceward_tests::shop::ORDER;

use crate::PEER;

/// A common misconfiguration: nginx also retries non-idempotent requests that may have run. It sends no auth requests, as the
/// applications have their own guards.
const REPEATS: &str = "upstream onceward { server 127.0.0.1:8080; }
    upstream application { server 127.0.0.1:3000; }
    server {
        listen 80; # change-me
        access_log /var/log/nginx/onceward.log;
        location / {
            proxy_pass http://application;
            proxy_http_version 1.1;
            proxy_next_upstream error timeout non_idempotent;
        }
    }";

/// Cuts the connection to the first application after its effect. Returns the client's response and the number of effects.
async fn cut_after_the_effect(path: &str) -> (Answer, usize) {
    let pair = Pair::start(PEER, "onceward").await;
    let proxies = [
        FaultyHttpProxy::to(pair.one(), first([HttpFault::CutAnswer(0)])).await,
        FaultyHttpProxy::to(pair.other(), smooth).await,
    ];
    let gateway = Gateway::with(GatewayKind::Nginx, REPEATS, &[pair.one()], &[&proxies[0].url, &proxies[1].url]);
    let token = token(pair.one()).await;
    let request = http().post(format!("{}{path}", gateway.url)).header(header::TOKEN, token).header(KEY, "k");
    let answer = send(request.header(ORDER, "tea")).await;
    let sent = proxies.each_ref().map(|proxy| proxy.seen().len());
    assert_eq!(sent, [1, 1], "the gateway tried both applications");
    (answer, pair.ledger.count("tea"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_on_a_second_guarded_application_has_one_effect() {
    let (answer, effects) = cut_after_the_effect("/orders").await;
    assert_eq!((answer.said().as_str(), effects), ("409 token_used", 1), "a plain token is used");
    for path in ["/remembered/orders", "/keyed/orders"] {
        let (answer, effects) = cut_after_the_effect(path).await;
        assert_eq!((answer.said().as_str(), effects), ("200 replayed", 1), "{path}: the lost response is replayed");
    }
    let (answer, effects) = cut_after_the_effect("/open").await;
    assert_eq!(
        (answer.status, effects),
        (200, 2),
        "without a guard there are two effects: otherwise this test would prove nothing"
    );
}
