//! The code around a handler with `#[once]`. Not part of the public API.

mod exchange;

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::LazyLock;

use actix_web::body::{BoxBody, EitherBody};
use actix_web::dev::Payload;
use actix_web::{FromRequest, Handler, HttpRequest, HttpResponse, Responder};
use futures_util::future::LocalBoxFuture;
use onceward_api::Code;

use self::exchange::HandlerExchange;
use super::extractors::entered;
use super::middleware::protect;
use super::{Protect, Protection};
use crate::clock::Clock;
use crate::effect::Effect;
use crate::http::GuardResponse;
use crate::language::Language;
use crate::rejection::Rejection;
use crate::warning_limit::WarningLimits;

/// A request before the handler's own extractors have read it.
pub struct AnnotatedRequest {
    head: HttpRequest,
    body: Payload,
}

/// The future of a handler with `#[once]`.
pub type AnnotatedCall = LocalBoxFuture<'static, HttpResponse<EitherBody<BoxBody>>>;

impl FromRequest for AnnotatedRequest {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(head: &HttpRequest, body: &mut Payload) -> Self::Future {
        ready(Ok(Self { head: head.clone(), body: body.take() }))
    }
}

impl fmt::Debug for AnnotatedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnnotatedRequest").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Runs a handler by the rule that `build` returns, with the guard in the data of the application.
pub fn run<H, Args>(
    name: &'static str,
    request: AnnotatedRequest,
    build: fn(Protection) -> Protect,
    handler: H,
) -> AnnotatedCall
where
    H: Handler<Args, Output: Responder>,
    Args: FromRequest + 'static,
{
    let AnnotatedRequest { head, body } = request;
    let Some(protection) = head.app_data::<Protection>() else { return Box::pin(ready(without_guard(name, &head))) };
    let rules = protection.rules_of::<H>(build);
    let exchange = HandlerExchange::new(head, body, entered(handler));
    let call = protect(&rules, exchange, |exchange| Box::pin(exchange.pass_on()));
    Box::pin(async move {
        match call.await {
            Ok(response) => response.into_parts().1,
            // A handler that returns an error loses what the error's response mappers add: here, the response of the guard.
            Err(error) => error.error_response().map_into_right_body(),
        }
    })
}

const NO_GUARD: &str = "This handler has no guard, so it did not run. The server log names the fix.";

const CHINESE: &str = "该处理函数没有守卫，因此没有执行。服务器日志中给出了修复方法。";

/// Responds in place of a handler that the application has given no guard.
fn without_guard(handler: &str, head: &HttpRequest) -> HttpResponse<EitherBody<BoxBody>> {
    static LIMITS: LazyLock<WarningLimits> = LazyLock::new(|| WarningLimits::new(Clock::system()));
    if let Some(suppressed) = LIMITS.admit(handler) {
        tracing::error!(
            target: "onceward::http",
            handler,
            suppressed,
            "a handler with `#[once]` has no guard, so it did not run; add \
             `.app_data(onceward::actix::Protection::new(&guard, subject))` to the `App`, without `web::Data`"
        );
    }
    let rejection = Rejection::new(Code::Internal).detail(NO_GUARD).detail_in(Language::SIMPLIFIED_CHINESE, CHINESE);
    let response = GuardResponse::without_guard(head, &rejection);
    HttpResponse::from(response.with_effect(Effect::NotApplied, Code::Internal)).map_into_left_body()
}
