//! Extractors, marks and effects of handlers on axum.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{OriginalUri, Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use onceward::axum::{
    HiddenToken, KeyFrom, MarkEffect as _, Protect, RequestIntent, SubjectFrom, entered, token_route,
};
use onceward::store::Memory;
use onceward::{Effect, Guard, KeyRules, Mode, Rejection, RunId};
use onceward_api::Code;
use onceward_tests::axum_server::AxumServer;
use onceward_tests::client::{http, send, submit, token};
use onceward_tests::key_routes::{buy, under};

fn once(guard: &Guard) -> Protect<onceward::axum::protect::KeyPolicy> {
    Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once())
}

#[derive(serde::Deserialize)]
struct Order {
    tea: u32,
}

async fn place(Json(order): Json<Order>) -> (StatusCode, String) {
    (StatusCode::CREATED, format!("{} cups", order.tea))
}

#[tokio::test]
async fn extractor_rejection_releases_the_key_of_a_marked_handler() {
    let guard = Guard::new(Memory::new());
    let served = AxumServer::serve(Router::new().route("/it", post(entered(place)).layer(once(&guard))));
    let ask = |content_type: &'static str, body: &'static str| {
        send(under(&served.url, "/it", "k", "").header("content-type", content_type).body(body))
    };
    assert_eq!(ask("application/json", "{").await.said(), "400 not_applied", "syntax");
    assert_eq!(ask("application/json", r#"{"tea":"two"}"#).await.said(), "422 not_applied", "type");
    assert_eq!(ask("text/plain", r#"{"tea":2}"#).await.said(), "415 not_applied", "content type");
    let answer = ask("application/json", r#"{"tea":2}"#).await;
    assert_eq!((answer.said().as_str(), &answer.body[..]), ("201 executed", &b"2 cups"[..]));
    assert_eq!(ask("application/json", r#"{"tea":2}"#).await.said(), "201 replayed");
    assert_eq!(ask("application/json", r#"{"tea":3}"#).await.said(), "422 key_reused");
}

/// A layer sees a plain response, so a rejection of an extractor looks like a response of the handler. On actix-web a `retryable` key is
/// released, since the error keeps its type.
#[tokio::test]
async fn extractor_rejection_without_a_mark_is_stored() {
    for rules in [KeyRules::at_most_once(), KeyRules::retryable()] {
        let guard = Guard::new(Memory::new());
        let protect = Protect::key(&guard, SubjectFrom::anonymous(), rules);
        let served = AxumServer::serve(Router::new().route("/it", post(place).layer(protect)));
        let ask = |body: &'static str| {
            send(under(&served.url, "/it", "k", "").header("content-type", "application/json").body(body))
        };
        assert_eq!(ask(r#"{"tea":"two"}"#).await.said(), "422 replayable");
        assert_eq!(ask(r#"{"tea":2}"#).await.said(), "422 key_reused");
    }
}

#[tokio::test]
async fn rejections_of_the_router_are_treated_as_on_actix() {
    let guard = Guard::new(Memory::new());
    let app = Router::new().route("/it", post(entered(place))).layer(once(&guard));
    let served = AxumServer::serve(app);
    let put = |key: &'static str| http().put(format!("{}/it", served.url)).header("idempotency-key", key);
    assert_eq!(send(put("k")).await.said(), "405 replayable");
    assert_eq!(send(put("k")).await.said(), "405 replayed");
    let missing = Router::new().fallback(StatusCode::NOT_FOUND).layer(once(&guard));
    let served = AxumServer::serve(missing);
    assert_eq!(buy(&served.url, "/nowhere", "k", "").await.said(), "404 replayable");
    assert_eq!(buy(&served.url, "/nowhere", "k", "").await.said(), "404 replayed");
}

#[tokio::test]
async fn marked_handlers_take_up_to_sixteen_arguments() {
    type Nothing = OriginalUri;
    let one = async |_: Path<u8>| "1";
    let two = async |_: Path<u8>, form: Form<Vec<(String, String)>>| form.0.len().to_string();
    #[rustfmt::skip]
    let sixteen = async |_: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing,
                         _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, _: Nothing, body: String| body;
    let guard = Guard::new(Memory::new());
    let app = Router::new()
        .route("/0/{id}", post(entered(async || "0")).layer(once(&guard)))
        .route("/1/{id}", post(entered(one)).layer(once(&guard)))
        .route("/2/{id}", post(entered(two)).layer(once(&guard)))
        .route("/16/{id}", post(entered(sixteen)).layer(once(&guard)));
    let served = AxumServer::serve(app);
    for (path, body) in [("/0/7", "0"), ("/1/7", "1"), ("/2/7", "2"), ("/16/7", "a=1&b=2")] {
        let request = under(&served.url, path, "k", "").header("content-type", "application/x-www-form-urlencoded");
        let answer = send(request.body("a=1&b=2")).await;
        assert_eq!((answer.said().as_str(), &answer.body[..]), ("200 executed", body.as_bytes()), "{path}");
    }
    let rejected = send(under(&served.url, "/1/x", "k", "")).await;
    assert_eq!(rejected.said(), "400 not_applied", "the path is not a number");
}

#[tokio::test]
async fn run_id_is_that_of_the_claim_and_one_per_run() {
    let guard = Guard::new(Memory::new());
    let show = async |run: RunId| run.to_string();
    let app = Router::new().route("/it", post(entered(show)).layer(once(&guard))).route("/bare", post(show));
    let served = AxumServer::serve(app);
    let first = buy(&served.url, "/it", "k", "").await;
    assert_eq!(buy(&served.url, "/it", "k", "").await.body, first.body, "replayed");
    assert_ne!(buy(&served.url, "/it", "other", "").await.body, first.body);
    assert_ne!(buy(&served.url, "/bare", "k", "").await.body, buy(&served.url, "/bare", "k", "").await.body);
}

#[tokio::test]
async fn request_intent_knows_subject_action_and_key() {
    let guard = Guard::new(Memory::new());
    let show = async |intent: RequestIntent| format!("{intent:?}");
    let user = SubjectFrom::lookup(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
        async move {
            tokio::task::yield_now().await;
            user
        }
    });
    let protect = |mode| Protect::key(&guard, user.clone(), KeyRules::at_most_once()).mode(mode);
    let inner = Router::new()
        .route("/{id}", post(entered(show)).layer(protect(Mode::Enforce)))
        .route("/off/{id}", post(show).layer(protect(Mode::Off)));
    let served = AxumServer::serve(Router::new().nest("/orders", inner).route("/bare", post(show)));
    let ask = |path: &str, user: &'static str| send(under(&served.url, path, "k", "").header("x-user", user));
    for (path, action) in [("/orders/7", "POST /orders/7"), ("/orders/off/7", "POST /orders/off/7")] {
        let shown = String::from_utf8(ask(path, "alice").await.body.to_vec()).unwrap();
        assert!(shown.contains(&format!("{action:?}")) && shown.contains("\"alice\""), "{shown}");
    }
    assert_eq!(buy(&served.url, "/orders/7", "k", "").await.said(), "401 unauthorized", "no user");
    let bare = ask("/bare", "alice").await;
    assert_eq!((bare.status, bare.problem().code.as_str()), (500, "internal"));
}

#[tokio::test]
async fn nested_router_does_not_shorten_the_action() {
    let guard = Guard::new(Memory::new());
    let runs: &'static AtomicUsize = Box::leak(Box::default());
    let count = move || async move { runs.fetch_add(1, Ordering::SeqCst).to_string() };
    let shop = || Router::new().route("/pay", post(entered(count)).layer(once(&guard)));
    let served = AxumServer::serve(Router::new().nest("/a", shop()).nest("/b", Router::new().nest("/c", shop())));
    let said = async |path: &str| buy(&served.url, path, "k", "").await.said();
    assert_eq!(
        [said("/a/pay").await, said("/b/c/pay").await, said("/a/pay").await],
        ["200 executed", "200 executed", "200 replayed"]
    );
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn key_is_read_from_a_path_parameter_as_the_handler_sees_it() {
    let guard = Guard::new(Memory::new());
    let protect = once(&guard).from(KeyFrom::path("order")).action("pay");
    let show = async |Path(order): Path<String>| order;
    let inner = Router::new().route("/{order}/pay", post(entered(show)).layer(protect));
    let served = AxumServer::serve(Router::new().nest("/orders", inner));
    let pay = async |order: &str| send(http().post(format!("{}/orders/{order}/pay", served.url))).await;
    let first = pay("t%65a%2F1").await;
    assert_eq!((first.said().as_str(), &first.body[..]), ("200 executed", &b"tea/1"[..]));
    assert_eq!(pay("tea%2f1").await.said(), "200 replayed", "another spelling of the same path");
    assert_eq!(pay("tea").await.said(), "200 executed");
    assert_eq!(pay("%ff").await.said(), "400 key_malformed", "all octets that are not UTF-8 look the same");
}

#[tokio::test]
async fn subject_is_the_client_address_of_connect_info() {
    let guard = Guard::new(Memory::new());
    let protect = Protect::key(&guard, SubjectFrom::client_address(), KeyRules::at_most_once());
    let show = async |intent: RequestIntent| format!("{intent:?}");
    let served = AxumServer::serve(Router::new().route("/it", post(entered(show)).layer(protect)));
    let shown = buy(&served.url, "/it", "k", "").await;
    assert_eq!(shown.said(), "200 executed");
    assert!(String::from_utf8_lossy(&shown.body).contains("127.0.0.1"), "{shown:?}");
}

#[tokio::test]
async fn effect_is_stated_by_a_response_or_a_part_of_it() {
    let guard = Guard::new(Memory::new());
    let app = Router::new()
        .route("/part", post(async || (Effect::NotApplied, "sold out")).layer(once(&guard)))
        .route("/marked", post(async || "sold out".into_response().effect(Effect::Unknown)).layer(once(&guard)))
        .route("/rejection", post(async || Rejection::new(Code::TooSoon)).layer(once(&guard)));
    let served = AxumServer::serve(app);
    assert_eq!(buy(&served.url, "/part", "k", "").await.said(), "200 not_applied");
    assert_eq!(buy(&served.url, "/part", "k", "").await.said(), "200 not_applied", "the key is free again");
    assert_eq!(buy(&served.url, "/marked", "k", "").await.said(), "200 unknown");
    assert_eq!(buy(&served.url, "/marked", "k", "").await.said(), "409 outcome_unknown");
    let rejected = buy(&served.url, "/rejection", "k", "").await;
    assert_eq!((rejected.said().as_str(), rejected.problem().code.as_str()), ("409 too_soon", "too_soon"));
}

#[tokio::test]
async fn hidden_token_of_a_page_protects_its_form() {
    let guard = Guard::new(Memory::new());
    let form = async |token: HiddenToken| Html(format!("<form>{token}</form>"));
    let order = async |State(guard): State<Guard>| -> Response {
        assert!(!guard.is_draining());
        StatusCode::CREATED.into_response()
    };
    let protect = Protect::token(&guard, SubjectFrom::anonymous()).remember(Duration::from_secs(60));
    let app = Router::new().route("/", get(form)).route("/orders", post(entered(order)).layer(protect));
    let served = AxumServer::serve(app.with_state(guard));
    let page = send(http().get(format!("{}/", served.url))).await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let token = page.split_once("value=\"").unwrap().1.split_once('"').unwrap().0;
    let send_form =
        || send(http().post(format!("{}/orders", served.url)).form(&[("_onceward", token), ("item", "tea")]));
    assert_eq!(send_form().await.said(), "201 executed");
    assert_eq!(send_form().await.said(), "201 replayed");
}

#[tokio::test]
async fn token_route_issues_tokens_and_rejects_other_methods() {
    let guard = Guard::new(Memory::new());
    let protect = Protect::token(&guard, SubjectFrom::anonymous());
    let app = Router::new()
        .merge(token_route(&guard, SubjectFrom::anonymous()))
        .route("/orders", post(entered(async || "ordered")).layer(protect));
    let served = AxumServer::serve(app);
    let token = token(&served.url).await;
    assert_eq!(send(submit(&served.url, "/orders", &token, "")).await.said(), "200 executed");
    assert_eq!(send(submit(&served.url, "/orders", &token, "")).await.said(), "409 token_used");
    let get = send(http().get(format!("{}/token", served.url))).await;
    let allowed: Vec<_> = get.headers.get_all("allow").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!((get.status, get.problem().code.as_str(), allowed), (405, "method_not_allowed", vec!["POST"]));
}
