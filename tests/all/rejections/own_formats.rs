//! Formats of the application: what they can change, and what they cannot.

use std::time::Duration;

use onceward::http::{
    Envelope, Protect, RejectionFormat, RejectionResponse, RequireProtection, StatusCode, SubjectSource,
};
use onceward::store::Memory;
use onceward::{Binding, Guard, KeyRules, Mode, Rejection};
use onceward_api::{Code, header};
use onceward_tests::call::Call;
use onceward_tests::client::{self, ask_token, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::raw_http;
use onceward_tests::reply::Reply;
use onceward_tests::routes::{Route, Routes};
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

on_every_framework! {
    function_chooses_status_headers_and_body,
    function_cannot_change_what_was_decided,
    function_that_panics_leaves_the_default,
    redirect_is_sent_to_navigating_browsers_only,
    status_without_a_body_keeps_the_connection_readable,
    rejection_by_the_handler_has_the_format_of_its_route,
    next_step_of_another_service_is_removed_from_a_response,
    format_does_not_change_the_effect_of_an_internal_rejection,
    inner_guard_has_its_own_format,
    unprotected_route_is_reported_in_the_chosen_format,
    replay_observation_and_token_request_keep_their_shape,
}

fn teapot() -> RejectionFormat {
    RejectionFormat::new(|rejected| {
        let body = json!({ "why": rejected.code().as_str(), "where": rejected.path() });
        let response = RejectionResponse::new(StatusCode::IM_A_TEAPOT).header("X-Tea", "green").json(&body);
        (rejected.code() != Code::TokenMalformed).then_some(response)
    })
}

fn keyed<F: WebFramework>(guard: &Guard, format: impl Into<RejectionFormat>) -> Protect<F> {
    Protect::<F, _>::key(guard, SubjectSource::anonymous(), KeyRules::at_most_once()).rejections(format).into_any()
}

fn ordered() -> Handler {
    Handler::of_body(order)
}

async fn function_chooses_status_headers_and_body<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let token = Protect::<F, _>::token(&guard, SubjectSource::anonymous()).rejections(teapot());
    let served = F::serve(&Ledger::new(), Routes::new().post("/orders", token, ordered()));
    let post = || http().post(format!("{}/orders", served.url));
    for accept in ["*/*", "text/html"] {
        let answer = send(post().header("accept", accept)).await;
        assert_eq!(answer.said(), "418 token_missing");
        assert_eq!(answer.headers["x-tea"], "green");
        assert_eq!(answer.headers["onceward-retry"], "new_token");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body, json!({ "why": "token_missing", "where": "/orders" }));
    }
    let default = send(post().header(header::TOKEN, "x")).await;
    assert_eq!((default.said().as_str(), default.problem().code), ("400 token_malformed", Code::TokenMalformed));
}

async fn function_cannot_change_what_was_decided<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let lying = RejectionFormat::new(|_| {
        let response = RejectionResponse::new(StatusCode::CONTINUE).header("onceward-outcome", "executed");
        let response = response.header("Onceward-Retry", "same").header("cache-control", "public");
        Some(
            response
                .header("retry-after", "7")
                .header("content-length", "1")
                .header("bad name", "x")
                .header("x", "a\nb"),
        )
    });
    let served = F::serve(&Ledger::new(), Routes::new().post("/orders", keyed::<F>(&guard, lying), ordered()));
    let answer = send(http().post(format!("{}/orders", served.url))).await;
    assert_eq!(
        (answer.said().as_str(), answer.body.len()),
        ("400 key_missing", 0),
        "an informational status is replaced"
    );
    assert_eq!(answer.headers["onceward-retry"], "no");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert!(!answer.headers.contains_key("retry-after") && !answer.headers.contains_key("x"));
    for name in ["onceward-outcome", "onceward-retry"] {
        assert_eq!(answer.headers.get_all(name).iter().count(), 1, "{name}");
    }
}

async fn function_that_panics_leaves_the_default<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let broken = RejectionFormat::new(|_| panic!("the format panics on purpose"));
    let ledger = Ledger::new();
    let served = F::serve(&ledger, Routes::new().post("/orders", keyed::<F>(&guard, broken), ordered()));
    let post = || http().post(format!("{}/orders", served.url));
    let answer = send(post()).await;
    assert_eq!((answer.said().as_str(), answer.problem().code), ("400 key_missing", Code::KeyMissing));
    assert_eq!(send(post().header(KEY, "k")).await.said(), "200 executed");
    assert_eq!(ledger.runs().len(), 1);
}

async fn redirect_is_sent_to_navigating_browsers_only<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let unfollowing = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let back = RejectionFormat::new(move |rejected| {
            let response = RejectionResponse::new(StatusCode::from_u16(status).unwrap()).header("Location", "/form");
            Some(response.body("text/plain", rejected.code().as_str()))
        });
        let served = F::serve(&Ledger::new(), Routes::new().post("/orders", keyed::<F>(&guard, back), ordered()));
        let rejected = async |accept, mode| {
            let request = unfollowing.post(format!("{}/orders", served.url)).header("accept", accept);
            let answer = send(request.header("sec-fetch-mode", mode)).await;
            let location = answer.headers.get("location").map(|to| to.to_str().unwrap().to_owned());
            (answer.said(), location, answer.body)
        };
        let to_form = (format!("{status} key_missing"), Some("/form".to_owned()), "key_missing".into());
        assert_eq!(rejected("text/html", "navigate").await, to_form);
        // Turbo prefers HTML, and its `fetch` would follow the redirect.
        let turbo = "text/vnd.turbo-stream.html, text/html, application/xhtml+xml";
        for (accept, mode) in [("*/*", "cors"), ("application/json", ""), (turbo, "same-origin"), ("text/html", "")] {
            let expected = ("400 key_missing".to_owned(), None, "key_missing".into());
            assert_eq!(rejected(accept, mode).await, expected, "{status} {accept}");
        }
    }
}

async fn status_without_a_body_keeps_the_connection_readable<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    for status in [204, 205, 304] {
        let bodied = RejectionFormat::new(move |_| {
            Some(RejectionResponse::new(StatusCode::from_u16(status).unwrap()).body("text/plain", "HTTP/1.1 200 OK"))
        });
        let served = F::serve(&Ledger::new(), Routes::new().post("/orders", keyed::<F>(&guard, bodied), ordered()));
        let request = |connection: &str| {
            format!(
                "POST /orders HTTP/1.1\r\nhost: shop\r\nsec-fetch-mode: navigate\r\nconnection: {connection}\r\n\
                 content-length: 0\r\n\r\n"
            )
        };
        let mut stream = raw_http::connect(&served.url).await;
        stream.write_all([request("keep-alive"), request("close")].concat().as_bytes()).await.unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        let heads: Vec<_> = answers.split("\r\n\r\n").collect();
        assert_eq!((heads.len(), heads.last()), (3, Some(&"")), "{answers}");
        for head in &heads[..2] {
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answers}");
            assert!(head.contains("onceward-outcome: key_missing") && !head.contains("content-type"), "{answers}");
        }
    }
}

async fn format_does_not_change_the_effect_of_an_internal_rejection<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let its = guard.clone();
    let handler = Handler::of_head(move |call| {
        call.ledger.record("order");
        let reply = Reply::rejection(&its, Rejection::new(Code::Internal));
        async move { reply }
    });
    let bad_gateway =
        RejectionFormat::new(|rejected| Some(RejectionResponse::new(StatusCode::BAD_GATEWAY).json(&rejected.title())));
    let formats: [(_, RejectionFormat, [u16; 2]); 3] = [
        ("problem", RejectionFormat::problem(), [500, 500]),
        ("envelope", Envelope::new().status_ok().into(), [200, 500]),
        ("own", bad_gateway, [502, 502]),
    ];
    for (name, format, statuses) in formats {
        let token = Protect::<F, _>::token(&guard, SubjectSource::anonymous()).rejections(format.clone());
        let retryable = Protect::<F, _>::key(&guard, SubjectSource::anonymous(), KeyRules::retryable());
        let routes = Routes::new()
            .post("/token", token, handler.clone())
            .post("/retryable", retryable.rejections(format.clone()), handler.clone())
            .post("/at-most-once", keyed::<F>(&guard, format), handler.clone());
        let ledger = Ledger::new();
        let served = F::serve(&ledger, routes);
        for (accept, status) in ["application/json", "text/html"].into_iter().zip(statuses) {
            for (path, duplicate, runs) in
                [("/token", "internal", 2), ("/retryable", "internal", 2), ("/at-most-once", "outcome_unknown", 1)]
            {
                let what = format!("{path}-{name}-{accept}");
                let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
                let request = || http().post(format!("{}{path}", served.url)).header("accept", accept);
                let post = || send(request().header(header::TOKEN, token.as_str()).header(KEY, &what));
                let before = ledger.runs().len();
                let first = post().await;
                assert_eq!(first.said(), format!("{status} internal"), "{what}");
                assert_eq!(first.headers["onceward-retry"], "no", "{what}");
                assert_eq!(first.timing().as_deref(), Some("internal"), "{what}");
                assert_eq!(post().await.outcome, duplicate, "{what}");
                assert_eq!(ledger.runs().len(), before + runs, "{what}");
            }
        }
    }
}

async fn rejection_by_the_handler_has_the_format_of_its_route<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let its = guard.clone();
    let handler = Handler::of_head(move |_| {
        let reply = Reply::rejection(&its, Rejection::new(Code::Locked));
        async move { reply }
    });
    let routes = Routes::new().post("/own", keyed::<F>(&guard, teapot()), handler.clone());
    let routes = routes.post("/default", keyed::<F>(&guard, RejectionFormat::problem()), handler);
    let served = F::serve(&Ledger::new(), routes);
    let post = async |path: &str| send(http().post(format!("{}{path}", served.url)).header(KEY, "k")).await;
    let own = post("/own").await;
    assert_eq!(own.said(), "418 locked");
    assert_eq!(own.headers["x-tea"], "green");
    assert_eq!(post("/default").await.problem().code, Code::Locked);
}

/// A client takes a response that names the next step for a rejection: what a handler passes on is none.
async fn next_step_of_another_service_is_removed_from_a_response<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let passed_on = Handler::of_head(async |call: Call| {
        call.ledger.record("order");
        Reply::new(409).header(header::RETRY, "same").header("x-shop", "1")
    });
    let token = Protect::<F, _>::token(&guard, SubjectSource::anonymous());
    let optional = Protect::<F, _>::key(&guard, SubjectSource::anonymous(), KeyRules::retryable()).optional();
    let routes = Routes::new()
        .post("/orders", token, passed_on.clone())
        .post("/key", keyed::<F>(&guard, RejectionFormat::problem()), passed_on.clone())
        .post("/optional", optional, passed_on)
        .tokens(&guard, SubjectSource::anonymous());
    let served = F::serve(&Ledger::new(), routes);
    let token = client::token(&served.url).await;
    for (path, name, value, outcome) in [
        ("/orders", header::TOKEN, token.as_str(), "not_applied"),
        ("/key", KEY, "k", "replayable"),
        ("/optional", "x-other", "", "unprotected"),
    ] {
        let answer = send(http().post(format!("{}{path}", served.url)).header(name, value)).await;
        assert_eq!(answer.said(), format!("409 {outcome}"), "{path}");
        let named = [header::RETRY, "x-shop"].map(|name| answer.headers.contains_key(name));
        assert_eq!(named, [false, true], "{path}");
    }
}

async fn inner_guard_has_its_own_format<F: WebFramework>() {
    let (outer, inner) = (Guard::new(Memory::new()), Guard::new(Memory::new()));
    let protect = Protect::<F, _>::token(&inner, SubjectSource::anonymous());
    let routes = Routes::new().post("/orders", protect, ordered()).wrap(keyed::<F>(&outer, teapot()));
    let served = F::serve(&Ledger::new(), Routes::new().scope("/shop", routes));
    let post = || http().post(format!("{}/shop/orders", served.url));
    assert_eq!(send(post()).await.said(), "418 key_missing");
    assert_eq!(send(post().header(KEY, "k")).await.problem().code, Code::TokenMissing);
}

async fn unprotected_route_is_reported_in_the_chosen_format<F: WebFramework>() {
    let require = RequireProtection::new(&Guard::new(Memory::new())).rejections(Envelope::new().default_code(500));
    let routes = Routes::new().route(Route::post("/bare", ordered())).wrap(require);
    let served = F::serve(&Ledger::new(), routes);
    for _ in 0..2 {
        let answer = send(http().post(format!("{}/bare", served.url))).await;
        assert_eq!(answer.said(), "500 internal");
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap()["code"], 500);
    }
}

async fn replay_observation_and_token_request_keep_their_shape<F: WebFramework>() {
    let guard = Guard::new(Memory::new());
    let observed = Protect::<F, _>::token(&guard, SubjectSource::anonymous()).rejections(teapot()).mode(Mode::Observe);
    let routes = Routes::new().post("/orders", keyed::<F>(&guard, teapot()), ordered());
    let routes = routes.post("/observed", observed, ordered()).tokens(&guard, SubjectSource::anonymous());
    let served = F::serve(&Ledger::new(), routes);
    let post = |path: &str| http().post(format!("{}{path}", served.url));
    let first = send(post("/orders").header(KEY, "k")).await;
    let second = send(post("/orders").header(KEY, "k")).await;
    assert_eq!((second.said().as_str(), &second.body), ("200 replayed", &first.body));
    assert!(!second.headers.contains_key("onceward-retry") && !second.headers.contains_key("x-tea"));
    let passed = send(post("/observed")).await;
    assert_eq!((passed.said().as_str(), passed.headers.get("x-tea")), ("200 ", None));
    assert_eq!(ask_token(&served.url, r#"{"ttl":"never"}"#).await.problem().code, Code::BadRequest);
    let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
    assert_eq!(send(post("/orders").header(header::TOKEN, token.as_str())).await.said(), "418 key_missing");
}
