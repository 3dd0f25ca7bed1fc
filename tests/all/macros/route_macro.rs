//! The route macros of actix-web: `wrap = "once()"` with a function of the application, and `#[once]` below each of them.

use std::sync::LazyLock;

use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::web::{Data, Json};
use actix_web::{App, HttpResponse, post, put, routes, scope, web};
use onceward::actix::protect::KeyPolicy;
use onceward::actix::{Protect, Protection, SubjectFrom, once};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::ledger::Ledger;

static GUARD: LazyLock<Guard> = LazyLock::new(|| Guard::new(Memory::new()));

fn once() -> Protect<KeyPolicy> {
    Protect::key(&GUARD, SubjectFrom::anonymous(), KeyRules::at_most_once())
}

#[post("/wrapped", wrap = "once()")]
async fn wrapped(ledger: Data<Ledger>) -> HttpResponse {
    ledger.record("wrapped");
    HttpResponse::Created().finish()
}

#[put("/both", wrap = "actix_web::middleware::NormalizePath::trim()")]
#[once(key)]
async fn both(ledger: Data<Ledger>) -> HttpResponse {
    ledger.record("both");
    HttpResponse::Created().finish()
}

#[routes]
#[post("/one")]
#[put("/other")]
#[once(key = "/id")]
async fn several(ledger: Data<Ledger>, body: Json<serde_json::Value>) -> HttpResponse {
    ledger.record(body["id"].as_str().unwrap());
    HttpResponse::Created().finish()
}

#[scope("/scope")]
mod scoped {
    use super::{Data, HttpResponse, Ledger, once, post};

    #[post("/annotated")]
    #[once(key)]
    pub(super) async fn annotated(ledger: Data<Ledger>) -> HttpResponse {
        ledger.record("scoped");
        HttpResponse::Created().finish()
    }
}

/// The names of the handler and of the function for its subject are those of variables in the generated code.
mod names {
    use super::{Data, HttpResponse, Ledger, SubjectFrom, once, post};

    #[post("/names")]
    #[once(key, subject = protection())]
    pub(super) async fn request(ledger: Data<Ledger>) -> HttpResponse {
        ledger.record("names");
        HttpResponse::Created().finish()
    }

    fn protection() -> SubjectFrom {
        SubjectFrom::resolver(|_| Some("alice".to_owned()))
    }
}

/// Sends each of these requests twice, and expects a replay of the second.
async fn runs_once(requests: &[fn() -> TestRequest]) -> Vec<String> {
    let ledger = Ledger::new();
    let protection = Protection::new(&Guard::new(Memory::new()), SubjectFrom::anonymous());
    let app = App::new().app_data(Data::new(ledger.clone())).app_data(protection);
    let app = app.service(wrapped).service(both).service(several).service(scoped::annotated).service(names::request);
    let app = init_service(app).await;
    for request in requests {
        for outcome in ["executed", "replayed"] {
            let response = call_service(&app, request().insert_header(("idempotency-key", "k")).to_request()).await;
            assert_eq!(response.status(), StatusCode::CREATED);
            assert_eq!(response.headers().get("onceward-outcome").unwrap(), outcome);
        }
    }
    ledger.runs()
}

#[actix_web::test]
async fn function_in_wrap_protects_the_route() {
    assert_eq!(runs_once(&[|| TestRequest::post().uri("/wrapped")]).await, ["wrapped"]);
}

#[actix_web::test]
async fn attribute_works_below_every_kind_of_route_macro() {
    let requests: [fn() -> TestRequest; 5] = [
        || TestRequest::put().uri("/both"),
        || TestRequest::post().uri("/one").set_json(serde_json::json!({"id": "1"})),
        || TestRequest::put().uri("/other").set_json(serde_json::json!({"id": "1"})),
        || TestRequest::post().uri("/scope/annotated"),
        || TestRequest::post().uri("/names"),
    ];
    assert_eq!(runs_once(&requests).await, ["both", "1", "1", "scoped", "names"]);
}

/// A scope replaces the guard and the subject of the application. In a `Data`, a `Protection` would be data of another type, and which of
/// two types belongs to the inner scope cannot be known: so it is none, and nothing runs.
#[actix_web::test]
async fn innermost_protection_applies_and_data_is_none() {
    let ledger = Ledger::new();
    let protection = |user: Option<&'static str>| {
        let subject = SubjectFrom::resolver(move |_| user.map(str::to_owned));
        Protection::new(&Guard::new(Memory::new()), subject)
    };
    let outer = || App::new().app_data(Data::new(ledger.clone()));
    let scope = || web::scope("/inner").service(both);
    let put = |path: &str| TestRequest::put().uri(path).insert_header(("idempotency-key", "k")).to_request();

    // Without a user, every request is rejected.
    let inner = scope().app_data(protection(Some("alice")));
    let app = init_service(outer().app_data(protection(None)).service(inner).service(both)).await;
    assert_eq!(call_service(&app, put("/inner/both")).await.status(), StatusCode::CREATED);
    assert_eq!(call_service(&app, put("/both")).await.status(), StatusCode::UNAUTHORIZED);

    let data = Data::new(protection(Some("alice")));
    let app = init_service(outer().app_data(data.clone()).service(both)).await;
    assert_eq!(call_service(&app, put("/both")).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(ledger.runs(), ["both"]);
}
