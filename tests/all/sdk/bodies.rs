//! Bodies of submissions with the Rust SDK: forms, uploads, streams.

use bytes::Bytes;
use futures_util::stream;
use onceward::store::Memory;
use onceward_client::Outcome;
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first};
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, Shop};
use reqwest::Body;
use reqwest::multipart::{Form, Part};

fn pieces(count: usize) -> Body {
    Body::wrap_stream(stream::iter((0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 1000])))))
}

#[tokio::test]
async fn form_arrives_unchanged_with_its_token() {
    let shop = Shop::on(Memory::new());
    for path in ["/echo", "/remembered/orders"] {
        let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutBefore])).await;
        let form = [("tea", "green & black"), ("count", "2")];
        let answer = client().post(format!("{}{path}", way.url)).form(&form).send().await.unwrap();
        assert_eq!((answer.outcome(), answer.attempts()), (Some(Outcome::Executed), 2));
        let seen = way.submissions().pop().unwrap();
        assert_eq!(seen.header("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(seen.body, b"tea=green+%26+black&count=2");
    }
}

#[tokio::test]
async fn upload_above_the_guard_limit_is_accepted() {
    let shop = Shop::on(Memory::new());
    let large = Bytes::from(vec![b'x'; 600 * 1024]);
    let form =
        move || Form::new().part("scan", Part::stream(large.clone()).file_name("scan.png")).text("number", "4711");
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutBefore])).await;
    let answer = client().post(format!("{}/echo", way.url)).multipart(form).send().await.unwrap();
    assert_eq!((answer.outcome(), answer.status().as_u16()), (Some(Outcome::Executed), 200));
    assert!(answer.bytes().await.unwrap().len() > 600 * 1024, "the whole body came back");
    let seen = way.submissions();
    assert!(seen.iter().all(|seen| seen.header("content-type").starts_with("multipart/form-data; boundary=")));
}

#[tokio::test]
async fn retried_upload_matches_its_key() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(10)])).await;
    let form = || Form::new().text("number", "4711").part("scan", Part::bytes(vec![1; 1000]).file_name("a.png"));
    let submission = client().post(format!("{}/keyed/orders", way.url)).with_key();
    let answer = submission.multipart(form).header(ORDER, "a").send().await.unwrap();
    assert!(answer.is_replayed(), "despite another boundary");
    assert_eq!(shop.ledger.count("a"), 1);
}

#[tokio::test]
async fn stream_is_sent_once_and_never_retried() {
    let shop = Shop::on(Memory::new());
    let client = builder().with_keys().build().unwrap();
    let way = FaultyHttpProxy::to(shop.url(), first([])).await;
    let url = format!("{}/keyed/orders", way.url);
    let answer = client.post(&url).body(pieces(50)).header(ORDER, "whole").send().await.unwrap();
    assert_eq!((answer.outcome(), shop.ledger.count("whole")), (Some(Outcome::Executed), 1));
    for (at, fault) in [HttpFault::CutBefore, HttpFault::CutAnswer(0), HttpFault::Instead(503)].into_iter().enumerate()
    {
        way.plan(first([fault]));
        let error = client.post(&url).body(pieces(50)).send().await.unwrap_err();
        assert!(error.is_unknown() && error.attempts() == 1, "{at}: {error:?}");
    }
    way.plan(first([HttpFault::Lead(307, "/keyed/orders".into())]));
    let led = client.post(&url).multipart_once(Form::new().text("a", "b")).send().await.unwrap();
    assert_eq!(led.status(), 307, "a stream cannot follow a redirect");
}

#[tokio::test]
async fn rebuildable_stream_is_retried() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    let submission = client().post(format!("{}/keyed/orders", way.url)).with_key().body_from(|| pieces(50));
    let answer = submission.header(ORDER, "a").send().await.unwrap();
    assert!(answer.is_replayed() && shop.ledger.count("a") == 1);
}

#[tokio::test]
async fn large_response_is_streamed() {
    use onceward_tests::key_routes::SIZE;
    let shop = Shop::on(Memory::new());
    let url = format!("{}/keyed/orders", shop.url());
    for size in [10, 2 * 1024 * 1024] {
        for stream in [false, true] {
            let submission = client().post(&url).with_key().header(SIZE, size);
            let submission = if stream { submission.stream_response() } else { submission };
            let answer = submission.send().await.unwrap();
            assert_eq!(answer.bytes().await.unwrap().len(), 36 + size);
        }
    }
}
