//! A token is valid only for what it is bound to.

use std::sync::Arc;
use std::time::Duration;

use onceward::http::Protect;
use onceward::store::Memory;
use onceward::{Binding, Guard, ManualClock, Secret, Subject};
use onceward_api::IssuedToken;
use onceward_api::header::{FIELD, NEXT_TOKEN, TOKEN};
use onceward_tests::client::{Answer, http, order, send, submit, token, token_for};
use onceward_tests::handler::Handler;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{STATUS, Shop, USER, user};
use onceward_tests::shop_handlers;
use onceward_tests::web_framework::WebFramework;
use reqwest::Method;

on_every_framework! {
    unbound_token_is_valid_once_on_any_unbound_route,
    action_token_is_valid_for_its_method_and_path,
    user_token_is_valid_for_its_user,
    address_token_is_valid_from_its_address,
    token_of_the_previous_secret_is_valid_until_it_expires,
    next_token_works_once_and_leaves_others_alone,
    next_token_is_issued_only_when_one_was_used,
    next_token_is_bound_like_the_previous_one,
}

const INVALID: &str = "403 token_invalid";

/// Issues a token for this user with this request body.
async fn token_of(url: &str, user: &str, body: &'static str) -> String {
    let request = http().post(format!("{url}/my/token")).header(USER, user).header("content-type", "application/json");
    let answer = send(request.body(body)).await;
    serde_json::from_slice::<IssuedToken>(&answer.body).expect("an issued token").token
}

/// Redeems a token as this user and returns the result.
async fn said_to(url: &str, user: &str, path: &str, token: &str) -> String {
    send(submit(url, path, token, path).header(USER, user)).await.said()
}

/// Redeems a token without a user and returns the result.
async fn said(url: &str, path: &str, token: &str) -> String {
    send(submit(url, path, token, path)).await.said()
}

async fn unbound_token_is_valid_once_on_any_unbound_route<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let open = ["/orders", "/orders/1", "/orders/2", "/next", "/judged", "/mine", "/echo"];
    for path in open {
        let token = token(shop.url()).await;
        for bound in ["/bound", "/named", "/mine/bound", "/here"] {
            assert_eq!(said_to(shop.url(), "alice", bound, &token).await, INVALID, "{bound}");
        }
        assert_eq!(said_to(shop.url(), "alice", path, &token).await, "200 executed", "{path}");
        for other in open {
            assert_eq!(said_to(shop.url(), "alice", other, &token).await, "409 token_used", "{path}, then {other}");
        }
    }
    // The echo route has no ledger.
    assert_eq!(shop.ledger.runs(), &open[..open.len() - 1]);
}

async fn action_token_is_valid_for_its_method_and_path<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let url = shop.url();
    for (body, path) in [
        (r#"{"action":"POST /orders"}"#, "/orders"),
        (r#"{"action":"POST /orders/1"}"#, "/orders/1"),
        (r#"{"action":"POST /orders/a%20b"}"#, "/orders/a%20b"),
        (r#"{"action":"POST /bound"}"#, "/bound"),
        (r#"{"action":"place-order"}"#, "/named"),
    ] {
        let token = token_for(url, body).await;
        let everywhere = ["/orders", "/orders/1", "/orders/2", "/orders/a%20b", "/orders/a%20B", "/bound", "/named"];
        for other in everywhere.into_iter().filter(|other| *other != path) {
            assert_eq!(said(url, other, &token).await, INVALID, "{body} on {other}");
        }
        for method in [Method::PUT, Method::DELETE] {
            let request = http().request(method, format!("{url}{path}")).header(TOKEN, &token);
            // A named action does not depend on the method.
            if path != "/named" {
                assert_eq!(send(request).await.said(), INVALID, "{body}");
            }
        }
        // The query is not part of the path.
        assert_eq!(said(url, &format!("{path}?x=1"), &token).await, "200 executed", "{body}");
        assert_eq!(said(url, path, &token).await, "409 token_used", "{body}");
    }
    let none = ["POST /named", "post /bound", "POST  /bound", "POST /bound/", "POST /bound ", "POST", "/bound", ""];
    for action in none {
        let token = shop.guard.issue(Duration::from_secs(60), Binding::none().action(action)).await.unwrap();
        for path in ["/bound", "/named", "/orders"] {
            assert_eq!(said(url, path, token.as_str()).await, INVALID, "{action} on {path}");
        }
    }
    assert_eq!(shop.ledger.runs().len(), 5);
}

async fn user_token_is_valid_for_its_user<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let url = shop.url();
    let token = token_of(url, "alice", "").await;
    for other in ["bob", "Alice", "alice2", "alic"] {
        assert_eq!(said_to(url, other, "/mine", &token).await, INVALID, "{other}");
    }
    assert_eq!(said(url, "/orders", &token).await, INVALID, "an anonymous request is not alice");
    assert_eq!(said_to(url, "alice", "/orders", &token).await, INVALID, "the route has no subject");
    assert_eq!(said_to(url, "alice", "/mine/bound", &token).await, INVALID, "no action is named");
    assert_eq!(said_to(url, "alice", "/mine", &token).await, "200 executed");
    assert_eq!(said_to(url, "alice", "/mine", &token).await, "409 token_used");

    let token = token_of(url, "alice", r#"{"action":"POST /mine/bound"}"#).await;
    assert_eq!(said_to(url, "bob", "/mine/bound", &token).await, INVALID);
    assert_eq!(said_to(url, "alice", "/mine", &token).await, INVALID);
    assert_eq!(said_to(url, "alice", "/mine/bound", &token).await, "200 executed");
    assert_eq!(said_to(url, "alice", "/mine/bound", &token).await, "409 token_used");

    let token = token_for(url, r#"{"action":"POST /mine/bound"}"#).await;
    assert_eq!(said_to(url, "alice", "/mine/bound", &token).await, INVALID, "the action without the user");
    assert_eq!(shop.ledger.runs(), ["/mine", "/mine/bound"]);
}

async fn address_token_is_valid_from_its_address<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let issue = async |action: &str, subject: Subject<'_>| {
        let bound = Binding::none().action(action).subject(subject);
        shop.guard.issue(Duration::from_secs(60), bound).await.unwrap().as_str().to_owned()
    };
    let at = |address: &str| Subject::client_address(address.parse().unwrap());
    for wrong in [
        issue("POST /here", at("127.0.0.2")).await,
        issue("POST /here", at("::1")).await,
        issue("POST /here", Subject::named("127.0.0.1")).await,
        issue("POST /here", Subject::anonymous()).await,
        issue("POST /orders", at("127.0.0.1")).await,
    ] {
        assert_eq!(said(shop.url(), "/here", &wrong).await, INVALID);
    }
    for same in ["127.0.0.1", "::ffff:127.0.0.1"] {
        let token = issue("POST /here", at(same)).await;
        assert_eq!(said(shop.url(), "/here", &token).await, "200 executed", "{same}");
        assert_eq!(said(shop.url(), "/here", &token).await, "409 token_used", "{same}");
    }
    assert_eq!(shop.ledger.runs(), ["/here", "/here"]);
}

async fn token_of_the_previous_secret_is_valid_until_it_expires<F: WebFramework>() {
    let clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock((&clock).into()));
    let guard = || Guard::builder(store.clone()).clock((&clock).into());
    let (old, new) = (Secret::random(), Secret::random());
    let before = F::shop_with(guard().secret(old.clone()).build());
    let prepared = F::shop_with(guard().secret(old.clone()).secret_previous(new.clone()).build());
    let swapped = F::shop_with(guard().secret(new.clone()).secret_previous(old.clone()).build());
    let after = F::shop_with(guard().secret(new).build());

    // Neighbouring steps run side by side and accept each other's tokens.
    for (one, other) in [(&before, &prepared), (&prepared, &swapped), (&swapped, &after)] {
        for (issuer, taker) in [(one, other), (other, one)] {
            let token = token(issuer.url()).await;
            assert_eq!(order(taker.url(), &token, "taken").await.said(), "200 executed");
            assert_eq!(order(issuer.url(), &token, "taken").await.said(), "409 token_used");
        }
    }

    let ttl = r#"{"ttl":"60s"}"#;
    let (first, second, third) =
        (token_for(before.url(), ttl).await, token_for(before.url(), ttl).await, token_for(before.url(), ttl).await);
    assert_eq!(order(after.url(), &first, "a").await.said(), INVALID);
    assert_eq!(order(swapped.url(), &first, "a").await.said(), "200 executed");
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(order(swapped.url(), &second, "b").await.said(), "200 executed");
    clock.advance(Duration::from_millis(1));
    assert_eq!(order(swapped.url(), &third, "c").await.said(), "410 token_expired");
    assert_eq!(order(after.url(), &third, "c").await.said(), INVALID);
    assert_eq!(swapped.ledger.runs(), ["taken", "taken", "a", "b"]);
    assert_eq!(after.ledger.runs(), ["taken"]);
}

fn next(answer: &Answer) -> String {
    answer.headers[NEXT_TOKEN].to_str().expect("text").to_owned()
}

async fn next_token_works_once_and_leaves_others_alone<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let url = shop.url();
    let (earlier, first) = (token(url).await, token(url).await);
    let answer = send(submit(url, "/next", &first, "first")).await;
    let (mut token_now, later) = (next(&answer), token(url).await);
    assert_eq!(said(url, "/next", &first).await, "409 token_used");
    for link in 0..5 {
        let answer = send(submit(url, "/next", &token_now, "chain")).await;
        assert_eq!(answer.said(), "200 executed", "{link}");
        let again = send(submit(url, "/next", &token_now, "chain")).await;
        assert_eq!(again.said(), "409 token_used", "{link}");
        assert!(!again.headers.contains_key(NEXT_TOKEN), "a rejection issues no token");
        token_now = next(&answer);
    }
    for sibling in [&earlier, &later, &token_now] {
        assert_eq!(said(url, "/orders", sibling).await, "200 executed", "unbound, like the first");
    }
    assert_eq!((shop.ledger.count("first"), shop.ledger.count("chain"), shop.ledger.count("/orders")), (1, 5, 3));
}

async fn next_token_is_issued_only_when_one_was_used<F: WebFramework>() {
    let shop = F::shop(Memory::new());
    let url = shop.url();
    let token = token(url).await;
    for status in ["422", "400", "503"] {
        let answer = send(submit(url, "/next", &token, "failed").header(STATUS, status)).await;
        assert_eq!(answer.said(), format!("{status} not_applied"));
        assert!(!answer.headers.contains_key(NEXT_TOKEN), "the first token is still valid");
    }
    let answer = send(submit(url, "/next", &token, "lost").header(STATUS, "502")).await;
    assert_eq!(said(url, "/next", &token).await, "409 token_used");
    let answer = send(submit(url, "/next", &next(&answer), "moved").header(STATUS, "303")).await;
    assert_eq!(said(url, "/next", &next(&answer)).await, "200 executed");
    assert_eq!(shop.ledger.runs(), ["failed", "failed", "failed", "lost", "moved", "/next"]);
    for path in ["/orders", "/bound"] {
        let token = token_for(url, if path == "/bound" { r#"{"action":"POST /bound"}"# } else { "" }).await;
        let answer = send(submit(url, path, &token, path)).await;
        assert!(!answer.headers.contains_key(NEXT_TOKEN), "{path} issues none");
    }
}

async fn next_token_is_bound_like_the_previous_one<F: WebFramework>() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let protect = Protect::<F, _>::token(&guard, user::<F>()).next_token();
    let served = F::serve(&ledger, Routes::new().post("/orders/{id}", protect, Handler::of_body(shop_handlers::order)));
    let (url, alice) = (served.url.as_str(), Subject::named("alice"));
    let follow = async |bound: Binding<'_>| {
        let first = guard.issue(Duration::from_secs(60), bound).await.unwrap();
        let answer = send(submit(url, "/orders/1", first.as_str(), "first").header(USER, "alice")).await;
        next(&answer)
    };
    let free = follow(Binding::none()).await;
    assert_eq!(said_to(url, "bob", "/orders/2", &free).await, "200 executed");

    let to_act = follow(Binding::none().action("POST /orders/1")).await;
    assert_eq!(said_to(url, "bob", "/orders/2", &to_act).await, INVALID);
    assert_eq!(said_to(url, "bob", "/orders/1", &to_act).await, "200 executed");

    let to_alice = follow(Binding::none().subject(alice.clone())).await;
    assert_eq!(said_to(url, "bob", "/orders/1", &to_alice).await, INVALID);
    assert_eq!(said_to(url, "alice", "/orders/2", &to_alice).await, "200 executed");

    let to_both = follow(Binding::none().action("POST /orders/1").subject(alice)).await;
    assert_eq!(said_to(url, "alice", "/orders/2", &to_both).await, INVALID);
    assert_eq!(said_to(url, "bob", "/orders/1", &to_both).await, INVALID);
    assert_eq!(said_to(url, "alice", "/orders/1", &to_both).await, "200 executed");
    assert_eq!(said_to(url, "alice", "/orders/1", &to_both).await, "409 token_used");
    assert_eq!(ledger.runs().len(), 8);
}

/// `HasToken` is a guard of actix-web's router.
#[tokio::test]
async fn presented_token_route_matches_valid_tokens_without_using_them() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into());
    let shop = Shop::with(Guard::builder(store).clock((&clock).into()).build());
    let url = shop.url();
    let (token, short) = (token(url).await, token_for(url, r#"{"ttl":"5s"}"#).await);
    let here = token_for(url, r#"{"action":"POST /presented"}"#).await;
    let elsewhere = token_for(url, r#"{"action":"POST /orders"}"#).await;
    let of_alice = token_of(url, "alice", "").await;
    let forged = format!("{}{}", &token[..20], &here[20..]);
    let header = async |token: &str| send(submit(url, "/presented", token, "x")).await.status;
    let query = async |token: &str| send(http().post(format!("{url}/presented?{FIELD}={token}"))).await.status;

    for _ in 0..3 {
        for good in [&token, &short, &here] {
            assert_eq!((header(good).await, query(good).await), (200, 200));
        }
        for bad in [&elsewhere, &of_alice, &forged, "x", ""] {
            assert_eq!((header(bad).await, query(bad).await), (404, 404), "{bad}");
        }
    }
    assert_eq!(send(http().post(format!("{url}/presented"))).await.status, 404);
    assert_eq!(send(submit(url, &format!("/presented?{FIELD}={here}"), &token, "x")).await.status, 404, "two differ");
    assert_eq!(send(submit(url, &format!("/presented?{FIELD}={here}"), &here, "x")).await.status, 200, "two agree");
    clock.advance(Duration::from_secs(5));
    assert_eq!((header(&short).await, query(&short).await), (404, 404), "expired");

    assert!(shop.ledger.runs().is_empty());
    assert_eq!(order(url, &token, "used").await.said(), "200 executed");
    assert_eq!(order(url, &token, "used").await.said(), "409 token_used");
    assert_eq!(order(url, &elsewhere, "used").await.said(), "200 executed");
    assert_eq!(header(&token).await, 200, "the matcher does not check for use");
    assert_eq!(shop.ledger.runs(), ["used", "used"]);
}
