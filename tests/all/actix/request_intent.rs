//! `RequestIntent` in a handler: it has the subject of its route, or it is an error.

use actix_web::{HttpResponse, web};
use onceward::actix::{Protect, RequestIntent, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules, Mode};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::key_routes::{KEY, serve};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{TestServer, USER};

/// Responds with the intent as its debug output shows it: action and subject.
async fn show(asked: RequestIntent) -> HttpResponse {
    HttpResponse::Ok().body(format!("{asked:?}"))
}

fn user() -> SubjectFrom {
    SubjectFrom::resolver(|request| Some(request.headers().get(USER)?.to_str().ok()?.to_owned()))
}

fn shown(mode: Mode) -> TestServer {
    let guard = Guard::builder(Memory::new()).mode(mode).build();
    serve(&Ledger::new(), move |config| {
        let key = || Protect::key(&guard, user(), KeyRules::retryable());
        let on = |path: &str| web::resource(path.to_owned());
        config
            .service(on("/key").wrap(key()).route(web::route().to(show)))
            .service(on("/optional").wrap(key().optional().action("optional")).route(web::post().to(show)))
            .service(on("/token").wrap(Protect::token(&guard, user()).mode(Mode::Off)).route(web::post().to(show)))
            .service(
                on("/interval")
                    .wrap(Protect::interval(&guard, user(), IntervalRules::new()))
                    .route(web::post().to(show)),
            )
            .service(on("/bare").route(web::post().to(show)));
    })
}

async fn ask(served: &TestServer, path: &str, user: Option<&str>) -> Answer {
    let request = http().post(format!("{}{path}", served.url)).header(KEY, uuid::Uuid::new_v4().to_string());
    send(user.into_iter().fold(request, |request, user| request.header(USER, user))).await
}

fn names(answer: &Answer, action: &str, user: &str) -> bool {
    let text = String::from_utf8_lossy(&answer.body);
    answer.status == 200 && text.contains(&format!("{action:?}")) && text.contains(&format!("{user:?}"))
}

#[tokio::test]
async fn request_intent_without_protect_is_an_internal_error() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let served = shown(mode);
        let answer = ask(&served, "/bare", Some("alice")).await;
        assert_eq!((answer.status, answer.problem().code.as_str()), (500, "internal"), "{mode:?}: {answer:?}");
        let get = send(http().get(format!("{}/key", served.url)).header(USER, "alice")).await;
        assert_eq!(get.status, 500, "{mode:?}: the guard does not check a GET");
    }
}

#[tokio::test]
async fn request_intent_names_the_subject_in_every_mode() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let served = shown(mode);
        for (path, action) in [("/key", "POST /key"), ("/token", "POST /token"), ("/interval", "POST /interval")] {
            let answer = ask(&served, path, Some("alice")).await;
            assert!(names(&answer, action, "alice"), "{mode:?} {path}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn request_intent_of_an_unprotected_run_names_the_subject() {
    let served = shown(Mode::Enforce);
    let answer = send(http().post(format!("{}/optional", served.url)).header(USER, "alice")).await;
    assert!(names(&answer, "optional", "alice"), "{answer:?}");
}

#[tokio::test]
async fn request_intent_without_a_subject_is_rejected_when_enforcing() {
    let answer = ask(&shown(Mode::Enforce), "/key", None).await;
    assert_eq!((answer.status, answer.problem().code.as_str()), (401, "unauthorized"), "{answer:?}");
    for mode in [Mode::Observe, Mode::Off] {
        let answer = ask(&shown(mode), "/key", None).await;
        assert_eq!(answer.status, 200, "{mode:?}: nothing changes for the client: {answer:?}");
    }
}
