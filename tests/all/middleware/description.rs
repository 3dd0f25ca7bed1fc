//! An application describes its rules: at `/.well-known/onceward`, and in its own OpenAPI document.

use std::collections::HashSet;
use std::time::Duration;

use actix_web::{App, HttpResponse, test as application, web};
use axum::Router;
use onceward::actix::Actix;
use onceward::api::{DescribedPolicy, DescribedRoute, Description, KeyPlace};
use onceward::http::protect::{IntervalPolicy, KeyPolicy, TokenPolicy};
use onceward::http::{Envelope, KeySource, Profile, Protect, Protection, SubjectSource};
use onceward::store::Memory;
use onceward::tower::Tower;
use onceward::{Guard, IntervalRules, KeyRules, Secret};
use onceward_api::Code;
use onceward_tests::client::{http, send};
use onceward_tests::key_routes::serve_one;
use onceward_tests::ledger::Ledger;
use onceward_tests::test_server::TestServer;
use onceward_tests::web_framework::WebFramework;
use serde_json::{Value, json};
use utoipa::OpenApi;

const SECRET: &str = "a secret of thirty-two bytes, or so";

fn described<F: WebFramework>() -> Description {
    let guard = Guard::builder(Memory::new()).secret(Secret::new(SECRET).unwrap()).build();
    let anonymous = SubjectSource::<F::Request>::anonymous;
    let orders = Protect::<F, TokenPolicy>::token(&guard, anonymous()).bound();
    let rules = KeyRules::at_most_once().retain(Duration::from_secs(600));
    let payments = Protect::<F, KeyPolicy>::key(&guard, anonymous(), rules).profile(Profile::UniversalCommerce);
    let parts = [KeySource::header("X-Shop").unwrap(), KeySource::body("/a~1b/id").unwrap()];
    let every = IntervalRules::new().every(Duration::from_millis(1500)).unwrap();
    let search = Protect::<F, IntervalPolicy>::interval(&guard, anonymous(), every.clone());
    let named = Protect::<F, IntervalPolicy>::interval(&guard, anonymous(), every.release_always());
    let refund = Protect::<F, KeyPolicy>::key(&guard, anonymous(), KeyRules::retryable()).optional();
    let refund = refund.retention_header(&F::header_name("x-kept-for")).rejections(Envelope::new());
    Description::new()
        .token_ttl(guard.token_ttl())
        .route(orders.describe("POST /orders"))
        .route(payments.show_retention().describe("POST,PUT /payments/{id}"))
        .route(search.remember().describe("/search"))
        .route(named.from(KeySource::parts(parts)).describe("POST /named"))
        .route(refund.describe("POST /refunds"))
}

fn check(told: &Value) {
    let [orders, payments, search, named, refunds] = [0, 1, 2, 3, 4].map(|at| &told["routes"][at]);
    assert_eq!((&told["headers"]["key"], &told["tokens"]["ttl"]), (&json!("idempotency-key"), &json!("30m")));
    let plain = json!({
        "methods": ["POST"], "path": "/orders", "policy": "token", "required": true, "bound": true,
        "rejections": "problem", "body_limit": 262_144,
    });
    assert_eq!(orders, &plain);
    let key = json!({
        "methods": ["POST", "PUT"], "path": "/payments/{id}", "policy": "key", "required": true,
        "key_from": {"header": "idempotency-key"}, "retention": "1d", "retention_header": "onceward-retention",
        "at_most_once": true, "profile": "ucp", "rejections": "ucp", "body_limit": 262_144, "reply_limit": 1_048_576,
    });
    // The profile stores for 24 hours at least.
    assert_eq!(payments, &key);
    let remembered = json!({
        "path": "/search", "policy": "interval", "required": false, "interval": "1500ms", "retention": "1500ms",
        "wait": "10s", "rejections": "problem", "body_limit": 262_144, "reply_limit": 1_048_576,
    });
    assert_eq!(search, &remembered);
    assert_eq!((&named["lock"], &named["required"], &named["retention"]), (&json!(true), &json!(true), &Value::Null));
    assert_eq!(named["key_from"], json!({"parts": [{"header": "x-shop"}, {"body": "/a~1b/id"}]}));
    assert_eq!((&refunds["required"], &refunds["rejections"]), (&json!(false), &json!("envelope")));
    assert_eq!((&refunds["retention_header"], &refunds["at_most_once"]), (&json!("x-kept-for"), &json!(false)));
    assert!(!told.to_string().contains("secret"), "{told}");
}

#[tokio::test]
async fn actix_application_serves_its_description() {
    let route = onceward::actix::well_known(&described::<Actix>());
    let app =
        application::init_service(App::new().service(route).default_service(web::to(HttpResponse::NotFound))).await;
    let answer =
        application::call_service(&app, application::TestRequest::get().uri(Description::PATH).to_request()).await;
    assert_eq!(answer.headers().get("content-type").unwrap(), "application/json");
    check(&serde_json::from_slice(&application::read_body(answer).await).unwrap());
}

#[tokio::test]
async fn axum_application_serves_its_description() {
    let description = described::<Tower>();
    let app = TestServer::run_router(Router::new().merge(onceward::axum::well_known(&description)));
    let answer = send(http().get(format!("{}{}", app.url, Description::PATH))).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    check(&serde_json::from_slice(&answer.body).unwrap());
    assert_eq!(serde_json::from_slice::<Description>(&answer.body).unwrap(), description, "clients can parse it");
}

/// An application with a problem and a parameter of its own.
#[derive(OpenApi)]
#[openapi(paths(place_order, pay, list_payments, refund, untouched), components(schemas(Problem)))]
struct Api;

#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it documents a body")]
struct Problem {
    mine: String,
}

#[utoipa::path(post, path = "/orders", responses((status = 201, description = "Created"), (status = 409, description = "Sold out", body = Problem)))]
#[expect(dead_code, reason = "it documents an operation")]
fn place_order() {}

#[utoipa::path(put, path = "/payments/{id}", params(("id" = String, Path), ("Idempotency-KEY" = String, Header)), responses((status = 201, description = "Created")))]
#[expect(dead_code, reason = "it documents an operation")]
fn pay() {}

#[utoipa::path(get, path = "/payments/{id}", params(("id" = String, Path)), responses((status = 200, description = "All")))]
#[expect(dead_code, reason = "it documents an operation")]
fn list_payments() {}

#[utoipa::path(post, path = "/refunds", responses((status = 201, description = "Created")))]
#[expect(dead_code, reason = "it documents an operation")]
fn refund() {}

#[utoipa::path(post, path = "/health", responses((status = 204, description = "Alive")))]
#[expect(dead_code, reason = "it documents an operation")]
fn untouched() {}

/// Returns every `$ref` of a document.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let own = members.get("$ref").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(members.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

/// Asserts that a document is valid, as far as its parts refer to each other, and returns it.
fn document_of(document: &utoipa::openapi::OpenApi) -> Value {
    let text = document.to_json().unwrap();
    let parsed: utoipa::openapi::OpenApi = serde_json::from_str(&text).expect("utoipa can read what it has written");
    assert_eq!(parsed.to_json().unwrap(), text);
    let document: Value = serde_json::from_str(&text).unwrap();
    for reference in references(&document) {
        assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference} leads nowhere");
    }
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values());
    for operation in operations {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let mut names = HashSet::new();
        for parameter in parameters {
            assert!(parameter["schema"].is_object() && parameter["required"].is_boolean(), "{parameter}");
            assert!(["header", "path", "query"].contains(&parameter["in"].as_str().unwrap()), "{parameter}");
            let name = parameter["name"].as_str().unwrap().to_ascii_lowercase();
            assert!(names.insert((parameter["in"].to_string(), name)), "given twice: {parameter}");
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(status.parse::<u16>().is_ok_and(|status| (100..600).contains(&status)), "{status}");
            assert!(response["description"].is_string(), "{response}");
        }
    }
    document
}

#[test]
fn openapi_document_of_the_application_receives_parameters_and_rejections() {
    let mut document = Api::openapi();
    let undocumented = described::<Tower>().add_to(&mut document).unwrap_err();
    assert_eq!(undocumented.paths, ["/search", "/named"]);
    let document = document_of(&document);
    let order = &document["paths"]["/orders"]["post"];
    assert_eq!(
        (&order["parameters"][0]["name"], &order["parameters"][0]["in"]),
        (&json!("Onceward-Token"), &json!("header"))
    );
    for status in ["400", "403", "409", "410", "503"] {
        let problem = &order["responses"][status]["content"]["application/problem+json"];
        assert_eq!(problem["schema"]["$ref"], "#/components/schemas/OncewardProblem", "{status}");
    }
    let conflict = &order["responses"]["409"];
    assert!(conflict["description"].as_str().unwrap().starts_with("Sold out\n\n`token_used`"), "{conflict}");
    assert_eq!(conflict["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/Problem");
    assert!(document["components"]["schemas"]["Problem"]["properties"]["mine"].is_object(), "theirs stays");

    let pay = &document["paths"]["/payments/{id}"]["put"];
    assert_eq!(pay["parameters"].as_array().unwrap().len(), 2, "the key is documented once: {pay}");
    assert!(pay["responses"]["409"]["description"].as_str().unwrap().contains("`key_reused`"), "{pay}");
    let conflict = &pay["responses"]["409"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!((&pay["responses"]["422"], conflict), (&Value::Null, &json!("#/components/schemas/OncewardUcpError")));
    let refund = &document["paths"]["/refunds"]["post"];
    assert_eq!(
        (&refund["parameters"][0]["name"], &refund["parameters"][0]["required"]),
        (&json!("Idempotency-Key"), &json!(false))
    );
    let untouched = [&document["paths"]["/payments/{id}"]["get"], &document["paths"]["/health"]["post"], refund];
    for operation in untouched {
        assert_eq!(operation["responses"].as_object().unwrap().len(), 1, "{operation}");
    }
}

/// A document with components, as applications write it by hand or generate it.
fn document_with_references() -> utoipa::openapi::OpenApi {
    let key = json!({"name": "idempotency-key", "in": "header", "required": true, "schema": {"type": "string"}});
    let order = |parameters: Value, responses: Value| json!({"parameters": parameters, "responses": responses});
    let shared = json!({"201": {"description": "Created"}, "409": {"$ref": "#/components/responses/Sold"}});
    let renamed = json!({"409": {"$ref": "#/components/responses/Sold", "description": "Booked"}});
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "paths": {
            "/orders": {"post": order(json!([{"$ref": "#/components/parameters/Alias"}]), shared.clone())},
            "/rooms": {"parameters": [key.clone()], "post": order(json!([]), renamed)},
            "/away": {"post": order(json!([{"$ref": "shop.yaml#/key"}]), json!({"409": {"$ref": "#/nowhere"}}))},
            "/loop": {"post": order(json!([{"$ref": "#/components/parameters/Loop"}]), json!({}))},
            "/free": {"post": order(json!([]), shared)},
        },
        "components": {
            "parameters": {
                "Key": key,
                "Alias": {"$ref": "#/components/parameters/Key"},
                "Loop": {"$ref": "#/components/parameters/Loop"},
            },
            "responses": {"Sold": {"description": "Sold out"}},
        },
    });
    serde_json::from_value(document).unwrap()
}

#[test]
fn references_of_the_application_are_followed() {
    let guard = Guard::new(Memory::new());
    let key = Protect::<Tower, KeyPolicy>::key(&guard, SubjectSource::anonymous(), KeyRules::at_most_once());
    let described = |paths: &[&str]| {
        let routes = paths.iter().map(|path| key.describe(&format!("POST {path}")));
        let mut document = document_with_references();
        let added = routes.fold(Description::new(), Description::route).add_to(&mut document);
        let document: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        (document, added)
    };
    let (document, added) = described(&["/orders", "/rooms"]);
    added.unwrap();
    for (path, own, parameters) in [("/orders", "Sold out", 1), ("/rooms", "Booked", 0)] {
        let operation = &document["paths"][path]["post"];
        assert_eq!(operation["parameters"].as_array().unwrap().len(), parameters, "the key is documented once: {path}");
        let conflict = operation["responses"]["409"]["description"].as_str().unwrap();
        assert!(conflict.starts_with(&format!("{own}\n\n`")) && conflict.contains("`in_progress`"), "{conflict}");
    }
    assert_eq!(document["components"]["responses"]["Sold"], json!({"description": "Sold out"}));
    assert_eq!(document["paths"]["/free"]["post"]["responses"]["409"]["$ref"], "#/components/responses/Sold");

    let (document, added) = described(&["/orders", "/away", "/loop", "/none"]);
    let missing = added.unwrap_err();
    let lost = ["shop.yaml#/key", "#/nowhere", "#/components/parameters/Loop"];
    assert_eq!(
        (&missing.paths[..], &missing.references[..]),
        (&["/none".to_owned()][..], &lost.map(str::to_owned)[..])
    );
    assert_eq!(
        missing.to_string(),
        "the document has no operation for /none; the document has no component for the reference shop.yaml#/key, \
         #/nowhere, #/components/parameters/Loop"
    );
    let away = &document["paths"]["/away"]["post"];
    assert_eq!(
        (&away["parameters"].as_array().unwrap().len(), &away["responses"]["409"]["$ref"]),
        (&1, &json!("#/nowhere"))
    );
    assert!(away["responses"]["503"].is_object(), "{away}");
}

/// A rejection that a client really receives conforms to the schema in the merged document, whatever the profile.
#[tokio::test]
async fn rejection_conforms_to_the_merged_document() {
    for (profile, name) in [
        (Profile::Ietf, "OncewardProblem"),
        (Profile::AgenticCommerce, "OncewardAcpError"),
        (Profile::UniversalCommerce, "OncewardUcpError"),
        (Profile::Stripe, "OncewardStripeError"),
    ] {
        let guard = Guard::new(Memory::new());
        let protect = Protect::<Tower, KeyPolicy>::key(&guard, SubjectSource::anonymous(), KeyRules::at_most_once());
        let protect = protect.profile(profile);
        let mut document = Api::openapi();
        Description::new().route(protect.describe("POST /refunds")).add_to(&mut document).unwrap();
        let document: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        let responses = &document["paths"]["/refunds"]["post"]["responses"];
        let schema = jsonschema::validator_for(&document["components"]["schemas"][name]).unwrap();
        let served = serve_one(&Ledger::new(), protect);
        let post = |key: &'static str, body: &'static str| {
            let request = http().post(format!("{}/it", served.url)).body(body);
            send(if key.is_empty() { request } else { request.header("idempotency-key", key) })
        };
        assert_eq!(post("k", "tea").await.status, 200);
        for (key, body, code) in
            [("", "tea", Code::KeyMissing), ("a,b", "tea", Code::KeyMalformed), ("k", "milk", Code::KeyReused)]
        {
            let answer = post(key, body).await;
            let rejection: Value = serde_json::from_slice(&answer.body).unwrap();
            assert!(schema.is_valid(&rejection), "{profile}: {rejection}");
            let described = &responses[answer.status.to_string()];
            let told = described["description"].as_str().unwrap();
            assert!(told.contains(&format!("`{code}`")), "{profile}: {told}");
            let content = &described["content"][answer.headers["content-type"].to_str().unwrap()];
            assert_eq!(content["schema"]["$ref"], format!("#/components/schemas/{name}"), "{profile}");
        }
        assert!(!schema.is_valid(&json!({"text": "no rejection"})), "{profile}");
    }
}

/// Returns the codes that the operation of a path documents.
fn codes_of(document: &Value, path: &str) -> Vec<String> {
    let responses = document["paths"][path]["post"]["responses"].as_object().unwrap();
    let texts = responses.values().filter_map(|response| response["description"].as_str());
    texts.flat_map(|text| text.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn interval_and_unprotected_routes_are_described() {
    let guard = Guard::new(Memory::new());
    let rules = || IntervalRules::new().every(Duration::from_secs(5)).unwrap();
    let interval = |rules| Protect::<Tower, IntervalPolicy>::interval(&guard, SubjectSource::anonymous(), rules);
    let chosen = || KeySource::chosen(|_: &_| None);
    let description = |route: DescribedRoute| {
        let mut document = Api::openapi();
        Description::new().route(route).add_to(&mut document).unwrap();
        document_of(&document)
    };
    let key_codes = ["key_missing", "key_malformed"];
    for (protect, is_named, own) in [
        (interval(rules()).into_any(), false, &["too_soon"][..]),
        (interval(rules()).remember().into_any(), false, &["in_progress", "outcome_unknown", "reply_not_kept"]),
        (interval(rules()).from(KeySource::path("id")).into_any(), true, &["too_soon"]),
        (interval(rules()).from(chosen()).into_any(), true, &["too_soon"]),
        (interval(rules().release_always()).from(chosen()).into_any(), true, &["locked"]),
        (interval(rules()).remember().from(chosen()).into_any(), true, &["key_reused", "in_progress"]),
    ] {
        let described = protect.describe("POST /refunds");
        let codes = codes_of(&description(described.clone()), "/refunds");
        for code in own.iter().chain(&["store_unavailable"]) {
            assert!(codes.iter().any(|other| other == code), "{code}: {codes:?}");
        }
        for code in key_codes {
            assert_eq!(codes.iter().any(|other| other == code), is_named, "{code}: {described:?}");
        }
        assert!(!codes.iter().any(|code| code.starts_with("token_")), "{codes:?}");
    }

    let unprotected = DescribedRoute::new("POST /refunds", DescribedPolicy::None);
    assert_eq!(serde_json::to_value(&unprotected).unwrap()["policy"], "none");
    assert_eq!(codes_of(&description(unprotected), "/refunds"), [""; 0]);
    assert_eq!(serde_json::to_value(KeyPlace::Path("id".to_owned())).unwrap(), json!({"path": "id"}));
}

/// `Protection` describes a handler with `#[once]`, whose rule is in the attribute.
#[test]
fn protection_describes_what_protect_describes() {
    let guard = Guard::new(Memory::new());
    let protection = Protection::<Tower>::new(&guard, SubjectSource::anonymous()).show_retention();
    let protection = protection.profile(Profile::AgenticCommerce);
    let key = protection.key(KeyRules::at_most_once().retain(Duration::from_secs(60))).describe("POST /payments");
    let of_route = Protect::<Tower, KeyPolicy>::key(&guard, SubjectSource::anonymous(), KeyRules::at_most_once());
    assert_eq!(key, of_route.profile(Profile::AgenticCommerce).show_retention().describe("POST /payments"));
    let token = protection.token().describe("POST /orders");
    assert_eq!((token.retention_header, token.rejections.as_str()), (None, "acp"), "no response is stored");
    let remembered = protection.token().remember(Duration::from_secs(60)).describe("POST /orders");
    assert_eq!(remembered.retention_header.as_deref(), Some("onceward-retention"));
}
