//! Invalid requests are rejected with a clear problem and cost nothing: the handler does not run, and a valid token in the request
//! stays valid.

use std::time::Duration;

use onceward::store::Memory;
use onceward::{Binding, Guard, ManualClock, Secret, Subject};
use onceward_api::header::{FIELD, OUTCOME, TOKEN};
use onceward_api::{IssuedToken, Problem};
use onceward_tests::client::{
    Answer, MULTIPART, URLENCODED, ask_token, http, multipart, order, send, submit, token, token_for,
};
use onceward_tests::on_every_framework;
use onceward_tests::shop::{Shop, USER};
use onceward_tests::web_framework::WebFramework;
use reqwest::{Client, Method, RequestBuilder};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

on_every_framework! {
    request_without_a_token_runs_nothing,
    text_that_is_no_token_is_malformed,
    one_flipped_content_bit_makes_a_token_invalid,
    one_flipped_text_bit_makes_a_token_rejected,
    token_of_another_action_or_subject_is_rejected_and_stays_valid,
    expired_token_is_expired_whether_used_or_not,
    token_of_a_lost_store_is_stale_never_used,
    two_different_tokens_are_rejected_and_neither_is_used,
    same_token_in_two_places_is_one_submission,
    ten_megabyte_token_is_rejected_in_every_place,
    broken_multipart_body_is_rejected_and_uses_no_token,
    large_form_without_an_early_token_is_too_large,
    token_is_found_at_the_end_of_a_fitting_form,
    form_received_byte_by_byte_takes_linear_time,
    anonymous_request_is_unauthorized_where_a_subject_is_required,
    malformed_token_request_is_rejected_with_the_reason,
    token_request_must_be_a_small_json_post,
    browser_gets_a_page_and_program_gets_json,
    safe_methods_and_unprotected_routes_pass_unchanged,
    connection_is_reusable_after_a_rejection,
    subject_named_like_an_address_does_not_match_it,
}

/// Maximum part of a form that is searched for its token.
const FORM_LIMIT: usize = 256 * 1024;
/// A size above every limit.
const HUGE: usize = 10 * 1024 * 1024;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Asserts that a response is this problem (`status code retry`) for this path, with every member of the contract.
fn assert_problem(answer: &Answer, expected: &str, path: &str) -> Problem {
    let problem = answer.problem();
    let retry = serde_json::to_value(problem.retry).expect("a string");
    let said = format!("{} {} {}", answer.status, problem.code, retry.as_str().expect("a string"));
    assert_eq!(said, expected, "{answer:?}");
    assert_eq!(answer.outcome, problem.code.as_str(), "{answer:?}");
    assert_eq!(problem.status, answer.status, "{answer:?}");
    assert_eq!(problem.kind, format!("/problems/{}", problem.code), "{answer:?}");
    assert_eq!(problem.instance.as_deref(), Some(path), "{answer:?}");
    assert!(!problem.title.is_empty() && !problem.detail.is_empty(), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store", "{answer:?}");
    problem
}

/// Asserts that nothing has run and that each of these tokens can still be redeemed once.
async fn assert_unspent(shop: &Shop, tokens: &[&str]) {
    assert!(shop.ledger.runs().is_empty(), "{:?}", shop.ledger.runs());
    for token in tokens {
        assert_eq!(order(shop.url(), token, token).await.said(), "200 executed");
        assert_eq!(order(shop.url(), token, token).await.said(), "409 token_used");
        assert_eq!(shop.ledger.count(token), 1);
    }
}

fn post(shop: &Shop, path: &str) -> RequestBuilder {
    http().post(format!("{}{path}", shop.url()))
}

fn form(request: RequestBuilder, kind: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
    request.header("content-type", kind).body(body)
}

fn in_query(request: RequestBuilder, token: &str) -> RequestBuilder {
    let (client, request) = request.build_split();
    let mut request = request.expect("a request");
    request.url_mut().query_pairs_mut().append_pair(FIELD, token);
    RequestBuilder::from_parts(client, request)
}

async fn request_without_a_token_runs_nothing<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let json = format!("{{\"{FIELD}\":\"{good}\"}}");
    let second = multipart(&[("item", b"tea"), (FIELD, good.as_bytes())]);
    for request in [
        post(&shop, "/orders"),
        post(&shop, "/orders").header(TOKEN, ""),
        post(&shop, "/orders").header(TOKEN, "  "),
        post(&shop, "/orders").header(TOKEN, "").header(TOKEN, ""),
        post(&shop, "/orders?_onceward="),
        post(&shop, "/orders?_onceward"),
        post(&shop, &format!("/orders?_Onceward={good}&onceward={good}")),
        form(post(&shop, "/orders"), URLENCODED, ""),
        form(post(&shop, "/orders"), URLENCODED, "item=tea&_onceward=&amount=1"),
        form(post(&shop, "/orders?_onceward=").header(TOKEN, ""), URLENCODED, "_onceward="),
        form(post(&shop, "/orders"), MULTIPART, multipart(&[(FIELD, b""), ("item", b"tea")])),
        form(post(&shop, "/orders"), MULTIPART, multipart(&[])),
        form(post(&shop, "/orders"), MULTIPART, second),
        form(post(&shop, "/orders"), "application/json", json.clone()),
        form(post(&shop, "/orders"), "text/plain", format!("{FIELD}={good}")),
        post(&shop, "/orders").header("cookie", format!("{FIELD}={good}; {TOKEN}={good}")),
        post(&shop, "/orders").header("authorization", format!("Bearer {good}")),
    ] {
        assert_problem(&send(request).await, "400 token_missing new_token", "/orders");
    }
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let answer = send(http().request(method, format!("{}/orders", shop.url()))).await;
        assert_problem(&answer, "400 token_missing new_token", "/orders");
    }
    assert_unspent(&shop, &[&good]).await;
}

async fn text_that_is_no_token_is_malformed<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let (body, but_last) = (good.strip_prefix("ow1_").unwrap(), &good[..good.len() - 1]);
    // 49 bytes are 66 characters with four spare bits, which must be zero: there are 15 other encodings.
    let last = ALPHABET.iter().position(|byte| *byte == *good.as_bytes().last().unwrap()).unwrap();
    assert_eq!(last % 16, 0);
    let mut wrong: Vec<_> = (1..16).map(|spare| format!("{but_last}{}", char::from(ALPHABET[last + spare]))).collect();
    wrong.extend([
        body.to_owned(),
        format!("OW1_{body}"),
        format!("ow2_{body}"),
        format!("ow1-{body}"),
        format!("ow1_ow1_{body}"),
        format!("{good}="),
        format!("{good}=="),
        format!("{good}A"),
        format!("{good},{good}"),
        format!("{good} {good}"),
        format!("\"{good}\""),
        but_last.to_owned(),
        "ow1_".to_owned(),
        "x".to_owned(),
        "null".to_owned(),
        good.replace(body, &body.replace(['-', '_'], "+").replacen(char::is_alphanumeric, "/", 1)),
    ]);
    for wrong in &wrong {
        let answer = send(submit(shop.url(), "/orders", wrong, "wrong")).await;
        assert_problem(&answer, "400 token_malformed new_token", "/orders");
        assert!(!String::from_utf8_lossy(&answer.body).contains(body), "the response does not echo the token");
    }
    // Tokens with characters that only a form can carry.
    for wrong in ["\u{e9}", "ow1_\u{0}", "\r\n", "\u{1f511}"].map(|tail| format!("{good}{tail}")) {
        let encoded = post(&shop, "/orders").form(&[(FIELD, &wrong)]);
        let parts = form(post(&shop, "/orders"), MULTIPART, multipart(&[(FIELD, wrong.as_bytes())]));
        let query = in_query(post(&shop, "/orders"), &wrong);
        for request in [encoded, parts, query] {
            assert_problem(&send(request).await, "400 token_malformed new_token", "/orders");
        }
    }
    let not_ascii = reqwest::header::HeaderValue::from_bytes("ow1_\u{e9}".as_bytes()).unwrap();
    let answer = send(post(&shop, "/orders").header(TOKEN, not_ascii)).await;
    assert_problem(&answer, "400 token_malformed new_token", "/orders");
    assert_unspent(&shop, &[&good]).await;
}

async fn present(client: &Client, shop: &Shop, token: &[u8]) -> Answer {
    let value = reqwest::header::HeaderValue::from_bytes(token).expect("a valid header value");
    send(client.post(format!("{}/orders", shop.url())).header(TOKEN, value)).await
}

async fn one_flipped_content_bit_makes_a_token_invalid<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let (good, client) = (token(shop.url()).await, http());
    // Each character is six bits of flags, id, expiry, epoch or tag. The signature is checked first, so every change is a forgery,
    // not expired, stale or used.
    for position in 4..good.len() {
        for bit in 0..6 {
            let mut flipped = good.clone().into_bytes();
            let value = ALPHABET.iter().position(|byte| *byte == flipped[position]).unwrap();
            flipped[position] = ALPHABET[value ^ (1 << bit)];
            let is_spare = position == good.len() - 1 && bit < 4;
            let expected = if is_spare { "400 token_malformed new_token" } else { "403 token_invalid new_token" };
            assert_problem(&present(&client, &shop, &flipped).await, expected, "/orders");
        }
    }
    assert_unspent(&shop, &[&good]).await;
}

async fn one_flipped_text_bit_makes_a_token_rejected<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let (good, client) = (token(shop.url()).await, http());
    for position in 0..good.len() {
        let mut sent = 0;
        for bit in 0..8 {
            let mut flipped = good.clone().into_bytes();
            flipped[position] ^= 1 << bit;
            // The skipped bytes are not allowed in a header, or not at its ends.
            if flipped[position].is_ascii_graphic() || flipped[position] >= 0x80 {
                let said = present(&client, &shop, &flipped).await.said();
                assert!(said == "400 token_malformed" || said == "403 token_invalid", "{position}, {bit}: {said}");
                sent += 1;
            }
        }
        assert!(sent > 1, "{position}");
    }
    assert_unspent(&shop, &[&good]).await;
}

async fn token_of_another_action_or_subject_is_rejected_and_stays_valid<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let url = shop.url();
    let free = token(url).await;
    let elsewhere = token_for(url, r#"{"action":"POST /bound"}"#).await;
    let alice = send(http().post(format!("{url}/my/token")).header(USER, "alice")).await;
    let alice = serde_json::from_slice::<IssuedToken>(&alice.body).unwrap().token;
    let as_bob = |request: RequestBuilder| request.header(USER, "bob");
    for (path, request) in [
        ("/orders", submit(url, "/orders", &elsewhere, "x")),
        ("/bound", submit(url, "/bound", &free, "x")),
        ("/named", submit(url, "/named", &elsewhere, "x")),
        ("/mine", as_bob(submit(url, "/mine", &alice, "x"))),
        ("/mine", as_bob(submit(url, "/mine", &elsewhere, "x"))),
        ("/mine/bound", as_bob(submit(url, "/mine/bound", &free, "x"))),
        ("/orders", submit(url, "/orders", &alice, "x")),
    ] {
        assert_problem(&send(request).await, "403 token_invalid new_token", path);
    }
    assert!(shop.ledger.runs().is_empty());
    let as_alice = |name| send(submit(url, "/mine", &alice, name).header(USER, "alice"));
    assert_eq!(as_alice("alice").await.said(), "200 executed");
    assert_eq!(as_alice("alice").await.said(), "409 token_used");
    assert_eq!(send(submit(url, "/bound", &elsewhere, "elsewhere")).await.said(), "200 executed");
    assert_eq!(order(url, &free, "free").await.said(), "200 executed");
    assert_eq!(shop.ledger.runs(), ["alice", "elsewhere", "free"]);
}

async fn expired_token_is_expired_whether_used_or_not<F: WebFramework>() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into());
    let shop = F::shop_with(Guard::builder(store).clock((&clock).into()).build());
    let (url, short) = (shop.url(), r#"{"ttl":"10s"}"#);
    let (unused, used, in_time) =
        (token_for(url, short).await, token_for(url, short).await, token_for(url, short).await);
    assert_eq!(order(url, &used, "used").await.said(), "200 executed");
    clock.advance(Duration::from_millis(9_999));
    assert_eq!(order(url, &in_time, "in time").await.said(), "200 executed");
    clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        for token in [&unused, &used] {
            assert_problem(&order(url, token, "late").await, "410 token_expired new_token", "/orders");
        }
    }
    // The record outlives the token by a minute; the expiry in the token decides, before and after that.
    clock.advance(Duration::from_secs(120));
    assert_problem(&order(url, &unused, "late").await, "410 token_expired new_token", "/orders");
    assert_problem(&order(url, "ow1_", "late").await, "400 token_malformed new_token", "/orders");
    assert_eq!(shop.ledger.runs(), ["used", "in time"]);
}

async fn token_of_a_lost_store_is_stale_never_used<F: WebFramework>() {
    let secret = Secret::random();
    let open = || F::shop_with(Guard::builder(Memory::new()).secret(secret.clone()).build());
    let (before, after) = (open(), open());
    let (unused, used) = (token(before.url()).await, token(before.url()).await);
    assert_eq!(order(before.url(), &used, "used").await.said(), "200 executed");
    for token in [&unused, &used, &unused] {
        assert_problem(&order(after.url(), token, "stale").await, "410 token_stale new_token", "/orders");
    }
    assert!(after.ledger.runs().is_empty());
    assert_eq!(order(before.url(), &unused, "unused").await.said(), "200 executed");
    assert_unspent(&after, &[&token(after.url()).await]).await;
}

/// A place in a request that can carry a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Header,
    Query,
    Urlencoded,
    Multipart,
}

impl Place {
    const ALL: [Self; 4] = [Self::Header, Self::Query, Self::Urlencoded, Self::Multipart];

    fn put(self, request: RequestBuilder, token: &str) -> RequestBuilder {
        match self {
            Self::Header => request.header(TOKEN, token),
            Self::Query => in_query(request, token),
            Self::Urlencoded => form(request, URLENCODED, format!("item=tea&{FIELD}={token}&amount=1")),
            Self::Multipart => form(request, MULTIPART, multipart(&[(FIELD, token.as_bytes()), ("item", b"tea")])),
        }
    }

    /// Returns every pair of places in one request. A request has one body, and may have two header lines.
    fn pairs() -> Vec<(Self, Self)> {
        let is_body = |place| matches!(place, Self::Urlencoded | Self::Multipart);
        let all = Self::ALL.into_iter().flat_map(|one| Self::ALL.map(|other| (one, other)));
        all.filter(|(one, other)| !(is_body(*one) && is_body(*other))).collect()
    }
}

async fn two_different_tokens_are_rejected_and_neither_is_used<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let (one, other) = (token(shop.url()).await, token(shop.url()).await);
    assert_eq!(Place::pairs().len(), 12);
    for (first, second) in Place::pairs() {
        for (a, b) in [(&*one, &*other), (&*one, "x"), ("x", &*one), (&*one, &one.to_uppercase())] {
            let answer = send(second.put(first.put(post(&shop, "/orders"), a), b)).await;
            let problem = assert_problem(&answer, "400 token_malformed new_token", "/orders");
            assert!(problem.detail.contains("two different tokens"), "{first:?}, {second:?}: {problem:?}");
        }
    }
    let three = in_query(post(&shop, "/orders").header(TOKEN, &one), &one);
    let answer = send(Place::Urlencoded.put(three, &other)).await;
    assert_problem(&answer, "400 token_malformed new_token", "/orders");
    assert_unspent(&shop, &[&one, &other]).await;
}

async fn same_token_in_two_places_is_one_submission<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for (first, second) in Place::pairs() {
        for is_second_empty in [false, true] {
            let (token, name) = (token(shop.url()).await, format!("{first:?} {second:?} {is_second_empty}"));
            let both = || {
                let request = first.put(post(&shop, "/orders").header("x-order", &name), &token);
                second.put(request, if is_second_empty { "" } else { &token })
            };
            assert_eq!(send(both()).await.said(), "200 executed", "{name}");
            assert_eq!(send(both()).await.said(), "409 token_used", "{name}");
            assert_eq!(shop.ledger.count(&name), 1, "{name}");
        }
    }
}

async fn ten_megabyte_token_is_rejected_in_every_place<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let huge = format!("{good}{}", "A".repeat(HUGE));
    for request in [
        form(post(&shop, "/orders"), URLENCODED, format!("{FIELD}={huge}")),
        form(post(&shop, "/orders"), MULTIPART, multipart(&[(FIELD, huge.as_bytes())])),
    ] {
        match request.send().await {
            Ok(response) => {
                assert_problem(&Answer::of(response).await, "413 body_too_large no", "/orders");
            }
            Err(error) => assert!(!F::ANSWERS_UNREAD_BODIES, "{error:?}"),
        }
    }
    for length in [1_000, 60_000] {
        let long = &huge[..length];
        for request in [
            post(&shop, "/orders").header(TOKEN, long),
            form(post(&shop, "/orders"), URLENCODED, format!("{FIELD}={long}")),
            form(post(&shop, "/orders"), MULTIPART, multipart(&[(FIELD, long.as_bytes())])),
        ] {
            assert_problem(&send(request).await, "400 token_malformed new_token", "/orders");
        }
    }
    // The HTTP server rejects a head of this size.
    let mut raw = RawConnection::open(&shop).await;
    raw.send(&format!("POST /orders HTTP/1.1\r\nhost: shop\r\n{TOKEN}: {huge}\r\n\r\n")).await;
    let (status, _) = raw.answer().await;
    assert!((400..500).contains(&status), "{status}");
    assert_unspent(&shop, &[&good]).await;
}

async fn broken_multipart_body_is_rejected_and_uses_no_token<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let whole = multipart(&[(FIELD, good.as_bytes()), ("item", b"tea")]);
    let within_token = whole.windows(4).position(|piece| piece == b"ow1_").unwrap() + 30;
    let not_text = multipart(&[(FIELD, b"\xff\xfe")]);
    let bare = "multipart/form-data";
    let other = "multipart/form-data; boundary=something-else";
    for (kind, body) in [
        (bare, &whole[..]),
        ("multipart/form-data; boundary=", &whole),
        (other, &whole),
        (MULTIPART, b""),
        (MULTIPART, b"item=tea"),
        (MULTIPART, &whole[..10]),
        (MULTIPART, &whole[..40]),
        (MULTIPART, &whole[..within_token]),
        (MULTIPART, &not_text),
    ] {
        for with_header in [false, true] {
            let request = form(post(&shop, "/orders"), kind, body.to_vec());
            let answer = send(if with_header { request.header(TOKEN, &good) } else { request }).await;
            let text = String::from_utf8_lossy(body);
            assert!(answer.problem().detail.contains("cannot be read"), "{kind} {text}: {answer:?}");
            assert_problem(&answer, "400 bad_request no", "/orders");
        }
    }
    assert_unspent(&shop, &[&good]).await;
}

async fn large_form_without_an_early_token_is_too_large<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let much = "a".repeat(2 * FORM_LIMIT);
    let late = format!("much={much}&{FIELD}={good}");
    // The token must be the first part of a multipart form, so here it is missing rather than too late.
    let late_part = multipart(&[("much", much.as_bytes()), (FIELD, good.as_bytes())]);
    let endless = format!("--between-the-parts\r\nContent-Disposition: form-data; name=\"{much}");
    for (kind, body, expected) in [
        (URLENCODED, late.into_bytes(), "413 body_too_large no"),
        (URLENCODED, "&".repeat(2 * FORM_LIMIT).into_bytes(), "413 body_too_large no"),
        (MULTIPART, much.clone().into_bytes(), "413 body_too_large no"),
        (MULTIPART, endless.into_bytes(), "413 body_too_large no"),
        (MULTIPART, late_part, "400 token_missing new_token"),
    ] {
        assert_problem(&send(form(post(&shop, "/orders"), kind, body)).await, expected, "/orders");
    }
    assert_unspent(&shop, &[&good]).await;
}

async fn token_is_found_at_the_end_of_a_fitting_form<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for (size, expected) in
        [(FORM_LIMIT - 1, "200 executed"), (FORM_LIMIT, "200 executed"), (FORM_LIMIT + 1, "413 body_too_large")]
    {
        let good = token(shop.url()).await;
        let tail = format!("&{FIELD}={good}");
        let body = format!("{}{tail}", "a".repeat(size - tail.len()));
        assert_eq!(send(form(post(&shop, "/orders"), URLENCODED, body)).await.said(), expected, "{size}");
        let after = order(shop.url(), &good, "after").await.said();
        assert_eq!(after == "200 executed", expected != "200 executed", "{size}: {after}");
    }
}

async fn form_received_byte_by_byte_takes_linear_time<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let size = 64 * 1024;
    for (kind, body, expected) in [
        (URLENCODED, "a".repeat(size), "400 token_missing new_token"),
        (MULTIPART, "a".repeat(size), "400 bad_request no"),
        (MULTIPART, format!("{}--between-the-parts\r\n\r\n", "\r\n".repeat(size / 2)), "400 token_missing new_token"),
        (MULTIPART, format!("--between-the-parts\r\n{}", "a".repeat(size)), "400 bad_request no"),
    ] {
        let mut raw = RawConnection::open(&shop).await;
        let chunks: String = body.chars().map(|byte| format!("1\r\n{byte}\r\n")).collect();
        let head = format!("POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: {kind}\r\n");
        raw.send(&format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")).await;
        // A search from the beginning for every byte would take most of a minute.
        let answer = tokio::time::timeout(Duration::from_secs(10), raw.answer()).await;
        let (status, body) = answer.expect("a quick response");
        let problem: Problem = serde_json::from_str(&body).unwrap();
        assert!(expected.starts_with(&format!("{status} {} ", problem.code)), "{kind}: {body}");
    }
    assert_unspent(&shop, &[&token(shop.url()).await]).await;
}

async fn anonymous_request_is_unauthorized_where_a_subject_is_required<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    for path in ["/mine", "/mine/bound"] {
        assert_problem(&send(post(&shop, path)).await, "401 unauthorized no", path);
        assert_problem(&send(submit(shop.url(), path, &good, "x")).await, "401 unauthorized no", path);
    }
    assert_problem(&send(post(&shop, "/my/token")).await, "401 unauthorized no", "/my/token");
    assert_unspent(&shop, &[&good]).await;
}

async fn malformed_token_request_is_rejected_with_the_reason<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for (body, named) in [
        ("{", ""),
        ("}", ""),
        ("\"x\"", ""),
        ("null", ""),
        ("1", ""),
        ("{} {}", ""),
        ("{\"action\":\"a\"", ""),
        ("\u{feff}{}", ""),
        (r#"{"actoin":"a"}"#, "`actoin`"),
        (r#"{"Action":"a"}"#, "`Action`"),
        (r#"{"action":"a","action":"b"}"#, "`action`"),
        (r#"{"action":1}"#, ""),
        (r#"{"subject":"alice"}"#, "`subject`"),
        (r#"{"subject":""}"#, "`subject`"),
        (r#"{"ttl":"0s"}"#, "`ttl`"),
        (r#"{"ttl":"999ms"}"#, "`ttl`"),
        (r#"{"ttl":"400d"}"#, "`ttl`"),
        (r#"{"ttl":"31m"}"#, "`ttl`"),
        (r#"{"ttl":"-5s"}"#, "-5s"),
        (r#"{"ttl":"x"}"#, "`x`"),
        (r#"{"ttl":""}"#, "duration"),
        (r#"{"ttl":"99999999999999999999999s"}"#, "duration"),
        (r#"{"ttl":90}"#, "90"),
        ("[]", "object"),
        (r#"["POST /bound", null, "5s"]"#, "object"),
        (r#"{"ttl":["90s"]}"#, ""),
    ] {
        let answer = ask_token(shop.url(), body).await;
        let problem = assert_problem(&answer, "400 bad_request no", "/token");
        assert!(problem.detail.contains(named), "{body}: {}", problem.detail);
    }
    for body in ["", "{}", " {} ", r#"{"ttl":"1s"}"#, r#"{"ttl":"30m"}"#, r#"{"ttl":null,"action":null}"#] {
        let answer = ask_token(shop.url(), body).await;
        assert_eq!((answer.status, &answer.headers["cache-control"].to_str().unwrap()), (201, &"no-store"), "{body}");
    }
}

async fn token_request_must_be_a_small_json_post<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    for kind in ["text/plain", "text/json", URLENCODED, MULTIPART, "application/json5", "application/problem+json"] {
        let answer = send(form(post(&shop, "/token"), kind, "{}")).await;
        assert_problem(&answer, "415 unsupported_media_type no", "/token");
    }
    assert_problem(&send(post(&shop, "/token").body("{}")).await, "415 unsupported_media_type no", "/token");
    for kind in ["application/json; charset=utf-8", "Application/JSON"] {
        assert_eq!(send(form(post(&shop, "/token"), kind, "{}")).await.status, 201, "{kind}");
    }
    for (size, status) in [(16 * 1024, 201), (16 * 1024 + 1, 413), (1024 * 1024, 413)] {
        let answer =
            send(form(post(&shop, "/token"), "application/json", format!("{{{}}}", " ".repeat(size - 2)))).await;
        assert_eq!(answer.status, status, "{size}");
        if status == 413 {
            assert_problem(&answer, "413 body_too_large no", "/token");
        }
    }
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
        let answer = send(http().request(method, format!("{}/token", shop.url()))).await;
        assert_problem(&answer, "405 method_not_allowed no", "/token");
        assert_eq!(answer.headers["allow"], "POST");
    }
}

async fn browser_gets_a_page_and_program_gets_json<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let (good, panics) = (token(shop.url()).await, token(shop.url()).await);
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
    let read_by = |accept: &'static str| {
        let requests = [
            ("400 token_missing", post(&shop, "/orders")),
            ("400 token_malformed", post(&shop, "/orders").header(TOKEN, "<b>")),
            ("403 token_invalid", post(&shop, "/bound").header(TOKEN, &good)),
            ("401 unauthorized", post(&shop, "/mine")),
            ("405 method_not_allowed", http().get(format!("{}/token", shop.url()))),
            ("400 bad_request", form(post(&shop, "/token"), "application/json", r#"{"<b>":1}"#)),
        ];
        requests.map(|(said, request)| (said, request.header("accept", accept)))
    };
    for (said, request) in read_by(browser) {
        let answer = send(request).await;
        assert_eq!(answer.said(), said);
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(answer.headers["cache-control"], "no-store");
        let page = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("<h1>") && !page.contains("<b>"), "{page}");
        assert!(page.contains(&answer.outcome), "the page names its code: {page}");
    }
    for accept in ["*/*", "application/json", "application/problem+json", "application/json, text/html;q=0.5"] {
        for (said, request) in read_by(accept) {
            let answer = send(request).await;
            assert_eq!((answer.said().as_str(), answer.problem().status), (said, answer.status), "{accept}");
        }
    }
    let panicked = send(submit(shop.url(), "/panic", &panics, "panic").header("accept", browser)).await;
    assert_eq!((panicked.said().as_str(), &panicked.body[..15]), ("500 internal", &b"<!doctype html>"[..]));
    assert_eq!(shop.ledger.runs(), ["panic"]);
    assert_eq!(order(shop.url(), &good, "good").await.said(), "200 executed");
}

async fn safe_methods_and_unprotected_routes_pass_unchanged<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let requests = [
        (Method::GET, "/orders"),
        (Method::HEAD, "/orders"),
        (Method::OPTIONS, "/orders"),
        (Method::GET, "/bound"),
        (Method::GET, "/mine"),
        (Method::GET, "/open"),
        (Method::POST, "/open"),
        (Method::DELETE, "/open"),
    ];
    for (method, path) in requests.clone() {
        for token in ["", "x", &good] {
            let request = http().request(method.clone(), format!("{}{path}", shop.url())).header(TOKEN, token);
            let answer = send(request.header("x-order", "passed").header("x-status", "418")).await;
            assert_eq!(answer.status, 418, "{method} {path}");
            assert!(!answer.headers.contains_key(OUTCOME), "{method} {path}: {answer:?}");
            assert!(!answer.headers.contains_key("cache-control"), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(shop.ledger.count("passed"), 3 * requests.len());
    assert_eq!(order(shop.url(), &good, "good").await.said(), "200 executed");
}

/// A raw HTTP connection.
struct RawConnection(BufReader<TcpStream>);

impl RawConnection {
    async fn open(shop: &Shop) -> Self {
        let address = shop.url().trim_start_matches("http://");
        Self(BufReader::new(TcpStream::connect(address).await.expect("the shop is open")))
    }

    /// Sends as much as the server reads.
    async fn send(&mut self, request: &str) {
        let _ = self.0.write_all(request.as_bytes()).await;
    }

    /// Reads the status and body of the next response.
    async fn answer(&mut self) -> (u16, String) {
        let (mut head, mut length) = (Vec::new(), 0);
        while head.last().is_none_or(|line: &String| line != "\r\n") {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).await.expect("a response"), 0, "the connection ends after {head:?}");
            if let Some(("content-length", value)) = line.to_lowercase().split_once(':') {
                length = value.trim().parse().expect("a number");
            }
            head.push(line);
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a whole body");
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), String::from_utf8(body).expect("text"))
    }
}

async fn connection_is_reusable_after_a_rejection<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let good = token(shop.url()).await;
    let head = |kind: &str| format!("POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: {kind}\r\n");
    let sized = |kind: &str, body: &str| format!("{}content-length: {}\r\n\r\n{body}", head(kind), body.len());
    let chunk = format!("{:x}\r\n{}\r\n", 5_000, "a".repeat(5_000));
    let refused = [
        (sized("application/json", "{}"), "token_missing"),
        (sized("application/json", &"1".repeat(60_000)), "token_missing"),
        (sized(URLENCODED, "item=tea"), "token_missing"),
        (sized(URLENCODED, &format!("_onceward=x&item={}", "a".repeat(60_000))), "token_malformed"),
        (sized(MULTIPART, "no parts in it"), "bad_request"),
        (
            format!("{}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", head("text/plain"), chunk.repeat(5)),
            "token_missing",
        ),
    ];
    let mut one = RawConnection::open(&shop).await;
    for (request, code) in &refused {
        // The body arrives after the rejection is certain: a server that does not read it must close the connection.
        let (head, body) = request.split_at(request.find("\r\n\r\n").unwrap() + 4);
        one.send(head).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        one.send(body).await;
        let (status, body) = one.answer().await;
        assert_eq!((status, body.contains(code)), (400, true), "{body}");
    }
    // The same, pipelined. Each gets a response. actix itself then closes the connection, also without a guard, if the body
    // of the next request has not arrived completely.
    let mut hurried = RawConnection::open(&shop).await;
    hurried.send(&refused.iter().map(|(request, _)| request.as_str()).collect::<String>()).await;
    for (_, code) in &refused {
        let (status, body) = hurried.answer().await;
        assert_eq!((status, body.contains(code)), (400, true), "{body}");
    }
    let mut pipelined = RawConnection::open(&shop).await;
    let small: Vec<_> = refused.iter().filter(|(request, _)| request.len() < 1_000).collect();
    pipelined.send(&small.iter().map(|(request, _)| request.as_str()).collect::<String>()).await;
    for (_, code) in &small {
        assert!(pipelined.answer().await.1.contains(code), "{code}");
    }
    assert!(small.len() > 2 && shop.ledger.runs().is_empty());
    let accepted = sized("text/plain", "tea").replace("\r\nhost", &format!("\r\n{TOKEN}: {good}\r\nhost"));
    for (connection, status) in [(&mut one, 200), (&mut pipelined, 409)] {
        connection.send(&accepted).await;
        assert_eq!(connection.answer().await.0, status);
    }
    assert_eq!(shop.ledger.runs(), ["order"]);
}

async fn subject_named_like_an_address_does_not_match_it<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let name = Binding::none().action("POST /here").subject(Subject::named("127.0.0.1"));
    let token = shop.guard.issue(Duration::from_secs(60), name).await.unwrap();
    let answer = send(submit(shop.url(), "/here", token.as_str(), "x")).await;
    assert_problem(&answer, "403 token_invalid new_token", "/here");
    assert!(shop.ledger.runs().is_empty());
}
