//! `RequestIntent` in a handler: it has the subject of its route, or it is an error.

use onceward::http::{Protect, RequestIntent};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules, Mode};
use onceward_tests::call::Call;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::reply::Reply;
use onceward_tests::routes::{Route, Routes};
use onceward_tests::shop::{TestServer, USER, user};
use onceward_tests::web_framework::WebFramework;

on_every_framework! {
    request_intent_without_protect_is_an_internal_error,
    request_intent_names_the_subject_in_every_mode,
    request_intent_of_an_unprotected_run_names_the_subject,
    request_intent_without_a_subject_is_rejected_when_enforcing,
}

/// Responds with the intent as its debug output shows it: action and subject.
async fn show(_: Call, asked: RequestIntent) -> Reply {
    Reply::new(200).body(format!("{asked:?}"))
}

fn shown<F: WebFramework>(mode: Mode) -> TestServer {
    let guard = Guard::builder(Memory::new()).mode(mode).build();
    let key = || Protect::<F, _>::key(&guard, user::<F>(), KeyRules::retryable());
    let token = Protect::<F, _>::token(&guard, user::<F>()).mode(Mode::Off);
    let interval = Protect::<F, _>::interval(&guard, user::<F>(), IntervalRules::new());
    let show = || Handler::of_intent(show);
    let routes = Routes::new()
        .any("/key", key(), show())
        .post("/optional", key().optional().action("optional"), show())
        .post("/token", token, show())
        .post("/interval", interval, show())
        .route(Route::post("/bare", show()));
    F::serve(&Ledger::new(), routes)
}

async fn ask(served: &TestServer, path: &str, user: Option<&str>) -> Answer {
    let request = http().post(format!("{}{path}", served.url)).header(KEY, uuid::Uuid::new_v4().to_string());
    send(user.into_iter().fold(request, |request, user| request.header(USER, user))).await
}

fn names(answer: &Answer, action: &str, user: &str) -> bool {
    let text = String::from_utf8_lossy(&answer.body);
    answer.status == 200 && text.contains(&format!("{action:?}")) && text.contains(&format!("{user:?}"))
}

async fn request_intent_without_protect_is_an_internal_error<F: WebFramework>() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let served = shown::<F>(mode);
        let answer = ask(&served, "/bare", Some("alice")).await;
        assert_eq!((answer.status, answer.problem().code.as_str()), (500, "internal"), "{mode:?}: {answer:?}");
        let get = send(http().get(format!("{}/key", served.url)).header(USER, "alice")).await;
        assert_eq!(get.status, 500, "{mode:?}: the guard does not check a GET");
    }
}

async fn request_intent_names_the_subject_in_every_mode<F: WebFramework>() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let served = shown::<F>(mode);
        for (path, action) in [("/key", "POST /key"), ("/token", "POST /token"), ("/interval", "POST /interval")] {
            let answer = ask(&served, path, Some("alice")).await;
            assert!(names(&answer, action, "alice"), "{mode:?} {path}: {answer:?}");
        }
    }
}

async fn request_intent_of_an_unprotected_run_names_the_subject<F: WebFramework>() {
    let served = shown::<F>(Mode::Enforce);
    let answer = send(http().post(format!("{}/optional", served.url)).header(USER, "alice")).await;
    assert!(names(&answer, "optional", "alice"), "{answer:?}");
}

async fn request_intent_without_a_subject_is_rejected_when_enforcing<F: WebFramework>() {
    let answer = ask(&shown::<F>(Mode::Enforce), "/key", None).await;
    assert_eq!((answer.status, answer.problem().code.as_str()), (401, "unauthorized"), "{answer:?}");
    for mode in [Mode::Observe, Mode::Off] {
        let answer = ask(&shown::<F>(mode), "/key", None).await;
        assert_eq!(answer.status, 200, "{mode:?}: nothing changes for the client: {answer:?}");
    }
}
