//! A gateway that sends a submission to a second application, because the first was cut off after it had done what it was
//! asked: both are guarded, and it happens once.

use onceward_api::header;
use onceward_tests::client::{Answer, http, send, token};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::gateway::{Gateway, GatewayKind};
use onceward_tests::key_routes::{KEY, Pair};
use onceward_tests::shop::ORDER;

use crate::PEER;

/// What nobody should do, and many do: whatever fails is sent again, also what may have happened. There is nothing to ask
/// here, as the applications guard themselves.
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

/// The first is cut after its effect; what the client is told, and how often it happened.
async fn cut_after_the_effect(path: &str) -> (Answer, usize) {
    let pair = Pair::start(PEER, "onceward").await;
    let ways = [
        FaultyHttpProxy::to(pair.one(), first([HttpFault::CutAnswer(0)])).await,
        FaultyHttpProxy::to(pair.other(), smooth).await,
    ];
    let gateway = Gateway::with(GatewayKind::Nginx, REPEATS, &[pair.one()], &[&ways[0].url, &ways[1].url]);
    let token = token(pair.one()).await;
    let request = http().post(format!("{}{path}", gateway.url)).header(header::TOKEN, token).header(KEY, "k");
    let answer = send(request.header(ORDER, "tea")).await;
    let sent = ways.each_ref().map(|way| way.seen().len());
    assert_eq!(sent, [1, 1], "the first was cut, and the second was asked");
    (answer, pair.ledger.count("tea"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_guarded_applications_have_one_effect_when_the_first_is_cut_after_it() {
    let (answer, effects) = cut_after_the_effect("/orders").await;
    assert_eq!((answer.said().as_str(), effects), ("409 token_used", 1), "a plain token: it says that it was sent");
    for path in ["/remembered/orders", "/keyed/orders"] {
        let (answer, effects) = cut_after_the_effect(path).await;
        assert_eq!((answer.said().as_str(), effects), ("200 replayed", 1), "{path}: the answer that was lost");
    }
    let (answer, effects) = cut_after_the_effect("/open").await;
    assert_eq!((answer.status, effects), (200, 2), "without a guard it happens twice, or this would prove nothing");
}
