//! Requests that the Rust SDK sends: all attempts of a submission carry the same credential, the next submission another, and no
//! credential goes to another origin.

use std::collections::HashSet;
use std::time::Duration;

use onceward::store::Memory;
use onceward_client::{Client, Code, OnUnknown, Outcome};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, RecordedRequest, first, smooth};
use onceward_tests::sdk_client::{builder, client};
use onceward_tests::shop::{ORDER, Shop};
use reqwest::redirect::Policy;

const TOKEN: &str = "onceward-token";
const KEY: &str = "idempotency-key";

fn carried(seen: &[RecordedRequest], header: &str) -> Vec<String> {
    seen.iter().map(|seen| seen.header(header).to_owned()).collect()
}

#[tokio::test]
async fn attempts_share_one_credential_and_submissions_do_not() {
    let shop = Shop::on(Memory::new());
    let troubled = || {
        let lead = HttpFault::Lead(307, "/keyed/orders".into());
        first([
            HttpFault::CutBefore,
            HttpFault::CutRequest,
            lead,
            HttpFault::Reject(Code::InProgress),
            HttpFault::CutAnswer(50),
        ])
    };
    let way = FaultyHttpProxy::to(shop.url(), smooth).await;
    for (header, client) in [(KEY, builder().with_keys().build().unwrap()), (TOKEN, client())] {
        let path = if header == KEY { "/keyed/orders" } else { "/remembered/orders" };
        let mut all = HashSet::new();
        for _ in 0..3 {
            let before = way.submissions().len();
            way.plan(troubled());
            let limits = onceward_client::RetryLimits::new().attempts(9);
            // Only the first of the two routes is redirected.
            let url = format!("{}{path}", way.url);
            let _ = client.post(url).limits(limits).body("tea").send().await;
            let sent = carried(&way.submissions()[before..], header);
            assert!(sent.len() >= 5, "{sent:?}");
            assert!(sent.iter().all(|one| *one == sent[0] && !one.is_empty()), "{header} changed between attempts");
            assert!(all.insert(sent[0].clone()), "{header} was used for two submissions");
        }
    }
}

#[tokio::test]
async fn same_origin_redirect_keeps_method_body_and_key() {
    let shop = Shop::on(Memory::new());
    for status in [307, 308] {
        let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Lead(status, "/keyed/orders?led=1".into())])).await;
        let client = builder().with_keys().build().unwrap();
        let answer = client.post(format!("{}/elsewhere", way.url)).body("tea").send().await.unwrap();
        assert_eq!((answer.outcome(), answer.attempts()), (Some(Outcome::Executed), 1));
        let [before, after] = way.submissions().try_into().unwrap();
        assert_eq!((before.line.as_str(), after.line.as_str()), ("POST /elsewhere", "POST /keyed/orders?led=1"));
        assert_eq!((&before.body, before.header(KEY)), (&after.body, after.header(KEY)));
    }
}

#[tokio::test]
async fn credentials_do_not_cross_origins() {
    let (shop, other) = (Shop::on(Memory::new()), Shop::on(Memory::new()));
    let stranger = FaultyHttpProxy::to(other.url(), smooth).await;
    let lead = HttpFault::Lead(307, format!("{}/open", stranger.url));
    let default =
        [("authorization", "Bearer default")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let http = || reqwest::Client::builder().no_proxy().default_headers(default.clone().into_iter().collect());
    for (header, client) in [(KEY, builder().with_keys()), (TOKEN, builder())] {
        let before = stranger.seen().len();
        let way = FaultyHttpProxy::to(shop.url(), first([lead.clone()])).await;
        let client = client.http(http()).build().unwrap();
        let submission =
            client.post(format!("{}/orders", way.url)).header("cookie", "session=1").identity("x-user", "al");
        let answer = submission.header(ORDER, "led").body("tea").send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.outcome()), (200, None));

        let here = &way.submissions()[0];
        let sent = [header, "authorization", "cookie", "x-user"].map(|name| here.header(name));
        assert!(sent.iter().all(|value| !value.is_empty()), "{sent:?}");
        let seen = stranger.seen();
        assert_eq!(seen.len(), before + 1, "no token was requested there");
        let there = seen.last().unwrap();
        for name in [TOKEN, KEY, "authorization", "cookie", "x-user"] {
            assert_eq!(there.header(name), "", "{name} got to another origin");
        }
        assert_eq!((there.line.as_str(), there.header(ORDER), &there.body[..]), ("POST /open", "led", &b"tea"[..]));
    }
}

#[tokio::test]
async fn attempt_lost_on_another_origin_is_not_retried() {
    let (shop, other) = (Shop::on(Memory::new()), Shop::on(Memory::new()));
    let stranger = FaultyHttpProxy::to(other.url(), first([HttpFault::CutAnswer(0)])).await;
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Lead(307, format!("{}/open", stranger.url))])).await;
    // Not even as a lookup: another origin might run it.
    let client = builder().with_keys().on_unknown(OnUnknown::Look).build().unwrap();
    let error = client.post(format!("{}/orders", way.url)).header(ORDER, "led").send().await.unwrap_err();
    assert!(error.is_unknown() && error.attempts() == 1, "{error:?}");
    assert_eq!((other.ledger.count("led"), stranger.seen().len()), (1, 1));

    let lead = HttpFault::Lead(307, format!("{}/open", stranger.url));
    way.plan(first([vec![HttpFault::CutBefore; 5], vec![lead]].concat()));
    let error = client.post(format!("{}/orders", way.url)).header(ORDER, "led").send().await.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
    assert_eq!(stranger.seen().len(), 1);
}

#[tokio::test]
async fn possibly_executed_attempt_follows_no_redirect_across_origins() {
    let (shop, other) = (Shop::on(Memory::new()), Shop::on(Memory::new()));
    let stranger = FaultyHttpProxy::to(other.url(), first([HttpFault::CutAnswer(0)])).await;
    let lead = || HttpFault::Lead(307, format!("{}/open", stranger.url));
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0), lead()])).await;
    let (client, url) = (builder().with_keys().build().unwrap(), format!("{}/keyed/orders", way.url));
    let error = client.post(&url).header(ORDER, "ran here").send().await.unwrap_err();
    assert!(error.is_unknown() && error.attempts() == 2 && error.key().is_some(), "{error:?}");
    assert_eq!((shop.ledger.count("ran here"), stranger.seen().len()), (1, 0));

    // The other origin has run it, and has no record of the key.
    way.plan(first([lead(), lead()]));
    let lost = client.post(&url).header(ORDER, "ran there").send().await.unwrap_err();
    let resumed = client.post(&url).resume(lost.key().unwrap().clone()).header(ORDER, "ran there").send().await;
    assert!(resumed.unwrap_err().is_unknown());
    assert_eq!(other.ledger.count("ran there"), 1);
}

#[tokio::test]
async fn status_of_the_fetched_result_never_retries_the_submission() {
    let shop = Shop::on(Memory::new());
    let client = builder().authorization(|_| async { Ok("Bearer alice.1".to_owned()) }).build().unwrap();
    for status in [401, 403, 429, 502, 503] {
        let done =
            "HTTP/1.1 303 See Other\r\nonceward-outcome: executed\r\nlocation: /open\r\ncontent-length: 0\r\n\r\n";
        let way =
            FaultyHttpProxy::to(shop.url(), first([HttpFault::Raw(done.into()), HttpFault::Instead(status)])).await;
        let answer = client.post(format!("{}/orders", way.url)).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.outcome()), (status, Some(Outcome::Executed)));
        assert_eq!(way.submissions().len(), 2, "{status}");
    }
}

#[tokio::test]
async fn result_at_another_location_is_fetched_without_the_key() {
    let shop = Shop::on(Memory::new());
    for status in [301, 302, 303] {
        let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Lead(status, "/open".into())])).await;
        let answer = client().post(format!("{}/orders", way.url)).body("tea").send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "ordered with 0 bytes");
        let [_, result] = way.submissions().try_into().unwrap();
        assert_eq!((result.line.as_str(), result.header(TOKEN), result.body.len()), ("GET /open", "", 0));
        assert_eq!(result.header("content-length"), "");
    }
}

#[tokio::test]
async fn unfetchable_result_is_neither_unknown_nor_retried() {
    let shop = Shop::on(Memory::new());
    let way =
        FaultyHttpProxy::to(shop.url(), first([HttpFault::Lead(303, "/open".into()), HttpFault::CutBefore])).await;
    let error = client().post(format!("{}/orders", way.url)).send().await.unwrap_err();
    assert!(error.is_redirect() && !error.is_unknown() && !error.ran_nothing(), "{error:?}");
    assert!(error.to_string().contains("the response was a redirect"), "{error}");
    assert_eq!(way.submissions().len(), 2);

    way.plan(first([HttpFault::Lead(303, "/open".into()), HttpFault::Delay(Duration::from_secs(60))]));
    let limits = onceward_client::RetryLimits::new().attempt_timeout(Duration::from_millis(300));
    let slow = client().post(format!("{}/orders", way.url)).limits(limits).send().await.unwrap_err();
    assert!(slow.is_redirect() && slow.attempts() == 1, "{slow:?}");
}

#[tokio::test]
async fn rejection_in_the_form_of_a_redirect_is_not_followed() {
    let (shop, other) = (Shop::on(Memory::new()), Shop::on(Memory::new()));
    let (client, elsewhere) = (builder().with_keys().build().unwrap(), format!("{}/open", other.url()));
    for status in [301, 302, 303, 307, 308] {
        for (outcome, retry, is_unknown) in
            [("key_reused", "no", false), ("not_applied", "no", false), ("unknown", "no", true)]
        {
            let head =
                format!("HTTP/1.1 {status} On the way\r\nonceward-outcome: {outcome}\r\nonceward-retry: {retry}");
            let rejected = format!("{head}\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
            let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Raw(rejected.into())])).await;
            let error = client.post(format!("{}/keyed/orders", way.url)).send().await.unwrap_err();
            assert_eq!((error.is_unknown(), error.ran_nothing()), (is_unknown, !is_unknown), "{status} {error:?}");
            assert_eq!(way.submissions().len(), 1, "{status} {outcome}");
        }
    }
    assert!(other.ledger.runs().is_empty());
}

#[tokio::test]
async fn proxy_rejection_with_any_status_is_retried_as_its_header_says() {
    let shop = Shop::on(Memory::new());
    let client = builder().with_keys().build().unwrap();
    for status in [200, 502] {
        for outcome in ["not_applied", "not_released"] {
            let head = format!("HTTP/1.1 {status} On the way\r\nonceward-outcome: {outcome}\r\nonceward-retry: same");
            let rejected = format!("{head}\r\ncontent-length: 14\r\n\r\n{{\"code\":50001}}");
            let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Raw(rejected.into())])).await;
            let answer = client.post(format!("{}/keyed/orders", way.url)).body("tea").send().await.unwrap();
            assert_eq!((answer.outcome(), answer.attempts()), (Some(Outcome::Executed), 2), "{status} {outcome}");
            let [first, second] = way.submissions().try_into().unwrap();
            assert_eq!(first.header(KEY), second.header(KEY), "{status} {outcome}");
        }
    }
}

#[tokio::test]
async fn redirects_are_limited() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), |seen| match seen.fetches() {
        true => HttpFault::None,
        false => HttpFault::Lead(307, "/again".into()),
    });
    let way = way.await;
    let error = client().post(format!("{}/orders", way.url)).send().await.unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
    assert_eq!(way.submissions().len(), 11);
}

#[tokio::test]
async fn endless_redirects_leave_a_lost_attempt_unknown() {
    let shop = Shop::on(Memory::new());
    let faults = [vec![HttpFault::CutAnswer(0)], vec![HttpFault::Lead(307, "/again".into()); 11]].concat();
    let way = FaultyHttpProxy::to(shop.url(), first(faults)).await;
    let error = client().post(format!("{}/orders", way.url)).header(ORDER, "lost").send().await.unwrap_err();
    assert!(error.is_unknown() && !error.is_redirect() && shop.ledger.count("lost") == 1, "{error:?}");
}

#[tokio::test]
async fn client_that_follows_redirects_itself_is_rejected() {
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::Lead(307, "/keyed/orders".into())])).await;
    let http = reqwest::Client::builder().no_proxy().redirect(Policy::limited(5)).build().unwrap();
    let client = Client::builder().http_without_redirects(http).with_keys().build().unwrap();
    let error = client.post(format!("{}/elsewhere", way.url)).send().await.unwrap_err();
    assert!(error.is_unknown() && error.to_string().contains("Policy::none()"), "{error}");
}

#[tokio::test]
async fn tokens_go_only_to_their_origin_and_named_ones() {
    let (issuer, shop) = (Shop::on(Memory::new()), Shop::on(Memory::new()));
    let url = format!("{}/orders", shop.url());
    let strict = builder().tokens_from(issuer.url()).build().unwrap();
    let error = strict.post(&url).send().await.unwrap_err();
    assert!(error.is_misuse() && error.to_string().contains("send_tokens_to"), "{error}");
    assert!(shop.ledger.runs().is_empty());
    assert!(strict.post(format!("{}/orders", issuer.url())).send().await.is_ok());

    let named = builder().tokens_from(issuer.url()).send_tokens_to(shop.url()).build().unwrap();
    let refused = named.post(&url).send().await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::TokenInvalid), "they do not share a store");
    assert!(refused.to_string().contains("tokens_from"), "{refused}");
}

#[tokio::test]
async fn debug_of_response_hides_token_query_and_body() {
    let shop = Shop::on(Memory::new());
    let answer = client().post(format!("{}/next?secret=query", shop.url())).send().await.unwrap();
    let next = answer.headers()["onceward-next-token"].to_str().unwrap().to_owned();
    let shown = format!("{answer:?}");
    for secret in [next.as_str(), "secret=query", "ordered with"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn traces_contain_no_token_or_key() {
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = || tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    // With a single subscriber, a callsite first reached by another test's thread would be cached as disabled for all threads.
    let _second = tracing::Dispatch::new(subscriber().with_writer(std::io::sink).finish());
    let guard = tracing::subscriber::set_default(subscriber().with_writer(move || writer.clone()).finish());
    let shop = Shop::on(Memory::new());
    let way = FaultyHttpProxy::to(shop.url(), first([HttpFault::CutAnswer(0)])).await;
    client().post(format!("{}/remembered/orders?secret=query", way.url)).send().await.unwrap();
    client().post(format!("{}/keyed/orders", way.url)).with_key().send().await.unwrap();
    drop(guard);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("submission{method=POST host=\"127.0.0.1\" path=\"/remembered/orders\"}"), "{text}");
    let own: Vec<_> = text.lines().filter(|line| line.contains("onceward_client")).collect();
    assert!(own.len() >= 3, "{text}");
    for seen in way.seen() {
        for secret in [seen.header(TOKEN), seen.header(KEY), "secret=query"] {
            assert!(secret.is_empty() || !own.iter().any(|line| line.contains(secret)), "a secret was traced");
        }
    }
}
