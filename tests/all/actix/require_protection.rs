//! `RequireProtection` in an application that is tested with `actix_web::test`, with middleware and a default service of actix-web, and
//! the routing guard `HasToken` during a rollout.

use actix_web::body::MessageBody;
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, Error, HttpResponse, test};
use onceward::actix::{Exempt, HasToken, Protect, RequireProtection, SubjectFrom, token_route};
use onceward::store::{Memory, Redis};
use onceward::{Guard, KeyRules, Mode};
use onceward_api::IssuedToken;
use onceward_tests::actix_handlers::{header, order};
use onceward_tests::client::{ask_token, send, submit};
use onceward_tests::key_routes::{KEY, serve};
use onceward_tests::ledger::Ledger;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::shop::{ORDER, STATUS, TestServer};

/// Middleware that responds itself to clients that are not logged in.
async fn logged_in(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if header(request.request(), "x-user").is_some() {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    let mut answer = match header(request.request(), "accept") {
        Some("text/html") => HttpResponse::SeeOther(),
        _ => HttpResponse::Unauthorized(),
    };
    Ok(request.into_response(answer.finish()).map_into_right_body())
}

/// A shop with some unprotected routes.
fn shop(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + 'static {
    let guard = guard.clone();
    move |config| {
        let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
        let resource = |path: &str| web::resource(path.to_owned());
        config
            .service(resource("/protected").wrap(protect()).route(web::post().to(order)))
            .service(resource("/off").wrap(protect().mode(Mode::Off)).route(web::post().to(order)))
            .service(resource("/search").wrap(Exempt).route(web::post().to(order)))
            .service(resource("/forgotten/{id}").route(web::post().to(order)).route(web::get().to(order)))
            .service(resource("/page").route(web::get().to(order)))
            .service(web::scope("/guarded").wrap(protect()).service(
                web::scope("/inner").route("/a/{id}", web::post().to(order)).route("/b", web::put().to(order)),
            ))
            .service(
                web::scope("/api").service(
                    web::scope("/v1/{tenant}")
                        .route("/forgotten", web::delete().to(order))
                        .service(resource("/protected").wrap(protect()).route(web::post().to(order))),
                ),
            )
            .service(
                web::scope("/members")
                    .wrap(from_fn(logged_in))
                    .service(resource("/orders").wrap(protect()).route(web::post().to(order))),
            );
    }
}

/// Both a handler of a form and a login check on a protected route respond with a redirect.
#[actix_web::test]
async fn redirect_reports_a_route_until_a_guard_is_seen() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let post = || web::post().to(order);
    let app = App::new()
        .app_data(web::Data::new(Ledger::new()))
        .wrap(require.clone())
        .service(web::resource("/forgotten").route(post()))
        .service(web::resource("/member").wrap(protect()).wrap(from_fn(logged_in)).route(post()))
        .service(
            web::scope("/members").wrap(from_fn(logged_in)).service(web::resource("/a").wrap(protect()).route(post())),
        );
    let app = test::init_service(app).await;
    let ask = async |path: &str, user: Option<&str>| {
        let request = test::TestRequest::post().uri(path).insert_header((KEY, "k")).insert_header((STATUS, 303));
        let request = request.insert_header(("accept", "text/html"));
        let request = if let Some(user) = user { request.insert_header(("x-user", user)) } else { request };
        test::call_service(&app, request.to_request()).await.status()
    };
    for path in ["/forgotten", "/member", "/members/a"] {
        for _ in 0..2 {
            assert_eq!(ask(path, None).await, 303, "{path}");
        }
    }
    assert_eq!(require.unprotected(), ["POST /forgotten", "POST /member"]);
    assert_eq!(ask("/member", Some("alice")).await, 303);
    assert_eq!(ask("/member", None).await, 303);
    assert_eq!(require.unprotected(), ["POST /forgotten"]);
}

/// Middleware of an application or a scope that responds with a page to clients that are not logged in.
async fn closed(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    if header(request.request(), "x-user").is_some() {
        return Ok(next.call(request).await?.map_into_left_body());
    }
    Ok(request.into_response(HttpResponse::Ok().body("Log in.")).map_into_right_body())
}

/// Asserts that the protected route stays available and the unprotected one is found, although middleware responds with a page to
/// clients that are not logged in.
async fn page_of_middleware_rejects_nothing<R, B: MessageBody>(
    app: &impl Service<R, Response = ServiceResponse<B>, Error = Error>,
    ask_as: impl Fn(&str, Option<&str>) -> R,
    require: &RequireProtection,
    ledger: &Ledger,
    scope: &str,
) {
    let (it, forgotten) = (format!("{scope}/it"), format!("{scope}/forgotten"));
    for path in [&it, &forgotten] {
        assert_eq!(test::call_service(app, ask_as(path, None)).await.status(), 200, "{path}");
    }
    assert_eq!(require.unprotected(), [""; 0], "neither was reached");
    for user in [Some("alice"), None, Some("alice")] {
        assert_eq!(test::call_service(app, ask_as(&it, user)).await.status(), 200, "{it} for {user:?}");
    }
    assert_eq!(test::call_service(app, ask_as(&forgotten, Some("alice"))).await.status(), 500);
    assert_eq!((require.unprotected(), ledger.count(&it)), (vec![format!("POST {forgotten}")], 2));
}

#[actix_web::test]
async fn middleware_page_does_not_make_a_protected_route_rejected() {
    let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
    let on = |path: &str| web::resource(path.to_owned()).route(web::post().to(order));
    let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    let ask_as = |path: &str, user: Option<&str>| {
        let request = test::TestRequest::post().uri(path).insert_header((KEY, uuid::Uuid::new_v4().to_string()));
        let request = request.insert_header((ORDER, path));
        if let Some(user) = user { request.insert_header(("x-user", user)) } else { request }.to_request()
    };

    let require = RequireProtection::new(&guard);
    let app = App::new().app_data(web::Data::new(ledger.clone())).wrap(from_fn(closed)).wrap(require.clone());
    let app = app.service(on("/it").wrap(protect())).service(on("/forgotten"));
    page_of_middleware_rejects_nothing(&test::init_service(app).await, ask_as, &require, &ledger, "").await;

    let require = RequireProtection::new(&guard);
    let members = web::scope("/members").service(on("/it").wrap(protect())).service(on("/forgotten"));
    let app = App::new().app_data(web::Data::new(ledger.clone())).wrap(require.clone());
    let app = app.service(members.wrap(from_fn(closed))).service(on("/late").wrap(protect()).wrap(from_fn(closed)));
    let app = test::init_service(app).await;
    page_of_middleware_rejects_nothing(&app, ask_as, &require, &ledger, "/members").await;
    // Middleware on the route itself looks like its handler, until a guard was seen on the route.
    for user in [Some("alice"), None, Some("alice")] {
        assert_eq!(test::call_service(&app, ask_as("/late", user)).await.status(), 200, "{user:?}");
    }
    assert_eq!((require.unprotected(), ledger.count("/late")), (vec!["POST /members/forgotten".to_owned()], 2));
}

#[actix_web::test]
async fn submission_to_the_default_service_is_found() {
    let guard = Guard::new(Memory::new());
    for is_exempt in [false, true] {
        let (require, ledger) = (RequireProtection::new(&guard), Ledger::new());
        let fallback = if is_exempt { web::to(order).wrap(Exempt) } else { web::to(order) };
        let app = App::new()
            .app_data(web::Data::new(ledger.clone()))
            .wrap(require.clone())
            .service(web::resource("/search").wrap(Exempt).route(web::post().to(order)))
            .default_service(fallback);
        let app = test::init_service(app).await;
        let ask = async |path: &str| {
            let request = test::TestRequest::post().uri(path).insert_header((ORDER, "ran"));
            test::call_service(&app, request.to_request()).await.status()
        };
        let expected = if is_exempt { 200 } else { 500 };
        for path in ["/anything", "/else"] {
            assert_eq!(ask(path).await, expected, "{path}");
        }
        assert_eq!(ask("/search").await, 200);
        assert_eq!(ledger.count("ran"), if is_exempt { 3 } else { 2 });
        let found = if is_exempt { vec![] } else { vec!["POST (no route)".to_owned()] };
        assert_eq!(require.unprotected(), found);
    }
}

/// An application's own tests can check all of its routes like this.
#[actix_web::test]
async fn application_tests_can_list_unprotected_routes() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let app = App::new()
        .app_data(web::Data::new(Ledger::new()))
        .wrap(require.clone())
        .service(token_route(&guard, SubjectFrom::anonymous()))
        .configure(shop(&guard));
    let app = test::init_service(app).await;
    for (method, path) in [
        ("POST", "/protected"),
        ("POST", "/search"),
        ("POST", "/forgotten/7"),
        ("POST", "/guarded/inner/a/7"),
        ("PUT", "/guarded/inner/b"),
        ("POST", "/api/v1/acme/protected"),
        ("DELETE", "/api/v1/acme/forgotten"),
        ("GET", "/page"),
    ] {
        let request = test::TestRequest::with_uri(path).method(method.parse().unwrap());
        test::call_service(&app, request.to_request()).await;
    }
    assert_eq!(require.unprotected(), ["DELETE /api/v1/{tenant}/forgotten", "POST /forgotten/{id}"]);
}

/// The route that issues tokens has no effect that could happen twice.
#[actix_web::test]
async fn token_route_needs_no_protection() {
    let guard = Guard::new(Memory::new());
    let require = RequireProtection::new(&guard);
    let app = App::new().wrap(require.clone()).service(token_route(&guard, SubjectFrom::anonymous()));
    let app = test::init_service(app).await;
    for _ in 0..2 {
        let request = test::TestRequest::post().uri("/token").to_request();
        assert_eq!(test::call_service(&app, request).await.status(), 201);
    }
    assert_eq!(require.unprotected(), [""; 0]);
}

/// Starts an application that issues tokens, and has a route that matches only with a token.
fn application(guard: &Guard, ledger: &Ledger) -> TestServer {
    let guard = guard.clone();
    serve(ledger, move |config| {
        config.service(token_route(&guard, SubjectFrom::anonymous())).service(
            web::resource("/led")
                .route(web::post().guard(HasToken::new(&guard)).to(order))
                .route(web::post().to(HttpResponse::BadRequest)),
        );
    })
}

/// A placeholder token matches the route while the guard is off or observes.
#[tokio::test]
async fn presented_token_route_matches_placeholder_tokens_unless_enforcing() {
    for mode in [Mode::Off, Mode::Observe, Mode::Enforce] {
        let mut redis = RedisServer::start();
        let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(mode).build();
        redis.kill();
        let served = application(&guard, &Ledger::new());
        let answer = ask_token(&served.url, r#"{"action": "POST /it"}"#).await;
        let token = serde_json::from_slice::<IssuedToken>(&answer.body).map(|issued| issued.token).unwrap_or_default();
        let led = send(submit(&served.url, "/led", &token, "led")).await;
        assert_eq!(led.status, if mode == Mode::Enforce { 400 } else { 200 }, "{mode:?}");
    }
}
