//! The routes of the shop: the page at `/`, everything else under `/demo`.

use actix_web::dev::HttpServiceFactory;
use actix_web::error::{InternalError, UrlencodedError};
use actix_web::guard::Get;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, CONTENT_LANGUAGE, HeaderName, HeaderValue, SET_COOKIE};
use actix_web::middleware::from_fn;
use actix_web::web::{self, Data, Form, FormConfig, Path, ServiceConfig};
use actix_web::{Error, HttpRequest, HttpResponse, Resource, Route};
use onceward::actix::{Protect, entered, reject};
use onceward::{Language, Rejection};
use onceward_api::{Code, Outcome, header};
use serde_json::json;

use crate::assets::{self, CHINESE_PAGE, PAGE};
use crate::handler_mode::{HandlerMode, SLOW};
use crate::language::DemoLanguage;
use crate::order::{Order, respond};
use crate::order_middleware::order_middleware;
use crate::protection::{self, MAX_BODY};
use crate::shop::Shop;
use crate::visitor::Visitor;
use crate::visitor_accounts::Tally;

/// Adds the shop to an application.
pub fn mount(shop: Data<Shop>) -> impl FnOnce(&mut ServiceConfig) {
    move |config| {
        let guard = shop.guard();
        let demo = web::scope("/demo")
            .app_data(FormConfig::default().limit(MAX_BODY).error_handler(unreadable))
            .service(orders("unguarded", web::post().to(order_unguarded)).wrap(from_fn(order_middleware)))
            .service(guarded("remembered", protection::remembered(guard)))
            .service(guarded("token", protection::token(guard)))
            .service(guarded("key", protection::key(guard)))
            .service(guarded("interval", protection::interval(guard)))
            .service(resource("/state", web::get().to(state), "GET, HEAD"))
            .service(resource("/start-over", web::post().to(start_over), "POST"))
            .service(resource("/{file}", web::get().to(file), "GET, HEAD"))
            .wrap(assets::headers());
        let page = web::resource("/").guard(Get()).wrap(assets::headers()).route(web::get().to(page));
        config.service(page).service(demo).app_data(shop.clone());
    }
}

fn guarded<P: 'static>(name: &str, protect: Protect<P>) -> impl HttpServiceFactory {
    orders(name, web::post().to(entered(order_guarded))).wrap(protect).wrap(from_fn(order_middleware))
}

fn orders(name: &str, route: Route) -> Resource {
    resource(&format!("/orders/{name}"), route, "POST")
}

/// A resource that rejects other methods with 405 and `Allow`.
fn resource(path: &str, route: Route, allowed: &'static str) -> Resource {
    let other = move |request: HttpRequest, shop: Data<Shop>| async move {
        let mut answer = reject(&request, shop.guard(), &Rejection::new(Code::MethodNotAllowed));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        answer
    };
    web::resource(path).route(route).default_service(web::to(other))
}

/// The page, with a token for browsers without JavaScript.
async fn page(request: HttpRequest, shop: Data<Shop>) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    if Visitor::known(&request).is_none() {
        answer.append_header((SET_COOKIE, Visitor::new().cookie()));
    }
    let switched = DemoLanguage::switched(&request);
    if let Some(language) = switched {
        answer.append_header((SET_COOKIE, language.cookie()));
    }
    let language = switched.unwrap_or_else(|| DemoLanguage::of(&request, &shop));
    answer.insert_header((CONTENT_LANGUAGE, language.tag()));
    let field = shop.hidden_token().await.map(|token| token.to_string()).unwrap_or_default();
    let page = language.pick(PAGE, CHINESE_PAGE).replace("<!-- token -->", &field);
    answer.insert_header((CACHE_CONTROL, "no-store")).content_type("text/html; charset=utf-8").body(page)
}

async fn file(request: HttpRequest, shop: Data<Shop>, name: Path<String>) -> HttpResponse {
    assets::file(&name).unwrap_or_else(|| {
        let rejection = Rejection::new(Code::NotFound)
            .detail("There is nothing at this address.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "此地址没有任何内容。");
        reject(&request, shop.guard(), &rejection)
    })
}

async fn state(request: HttpRequest, shop: Data<Shop>) -> HttpResponse {
    let visitor = Visitor::of(&request);
    HttpResponse::Ok().json(json!({ "visitor": visitor.id(), "tally": shop.tally(visitor) }))
}

async fn start_over(request: HttpRequest, shop: Data<Shop>) -> HttpResponse {
    shop.forget(Visitor::of(&request));
    HttpResponse::NoContent().finish()
}

async fn order_guarded(request: HttpRequest, shop: Data<Shop>, order: Form<Order>) -> HttpResponse {
    place(&request, &shop, &order, |tally| &mut tally.guarded).await
}

async fn order_unguarded(request: HttpRequest, shop: Data<Shop>, order: Form<Order>) -> HttpResponse {
    let mut answer = place(&request, &shop, &order, |tally| &mut tally.unguarded).await;
    let unprotected = HeaderValue::from_static(Outcome::Unprotected.as_str());
    answer.headers_mut().insert(HeaderName::from_static(header::OUTCOME), unprotected);
    answer
}

/// The handler of both forms.
async fn place(
    request: &HttpRequest,
    shop: &Shop,
    order: &Order,
    count: impl Fn(&mut Tally) -> &mut u64,
) -> HttpResponse {
    let mode = HandlerMode::of(request);
    if mode.is_slow {
        tokio::time::sleep(SLOW).await;
    }
    let language = DemoLanguage::of(request, shop);
    let text = match order.check(language) {
        Ok(text) => text,
        Err(wrong) => return respond(request, language, StatusCode::UNPROCESSABLE_ENTITY, None, &wrong),
    };
    if mode.fails {
        let text = language.pick("The stockroom did not respond. Nothing was ordered.", "仓库没有响应，没有下单。");
        return respond(request, language, StatusCode::SERVICE_UNAVAILABLE, None, text);
    }
    let visitor = Visitor::of(request);
    let tally = shop.count(visitor, |tally| *count(tally) += 1);
    let number = *count(&mut { tally });
    respond(request, language, StatusCode::CREATED, Some(number), &text)
}

/// Rejects a body that is not a valid form with a problem.
fn unreadable(error: UrlencodedError, request: &HttpRequest) -> Error {
    let code = match error {
        UrlencodedError::Overflow { .. } => Code::BodyTooLarge,
        UrlencodedError::ContentType => Code::UnsupportedMediaType,
        _ => Code::BadRequest,
    };
    let Some(shop) = request.app_data::<Data<Shop>>() else { return error.into() };
    let rejection = Rejection::new(code)
        .detail("An order is a form with `item`, `quantity` and `name`, of at most 4 KiB.")
        .detail_in(Language::SIMPLIFIED_CHINESE, "订单是包含 `item`、`quantity` 和 `name` 的表单，最大 4 KiB。");
    InternalError::from_response(error, reject(request, shop.guard(), &rejection)).into()
}
