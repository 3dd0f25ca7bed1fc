//! The path of one request through the guard: read, check, run, settle. The decisions are made elsewhere.

mod decide;
mod nested;
mod observe;
mod route_rules;

use std::fmt;
use std::panic::resume_unwind;
use std::rc::Rc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, forward_ready};
use actix_web::http::Method;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpResponse};
use futures_util::future::LocalBoxFuture;
use onceward_api::{Code, Outcome, header};
use tracing::Instrument as _;

use self::decide::{AdmittedRequest, Decision, enter};
use self::observe::observe;
pub(super) use self::route_rules::RouteRules;
use super::extractors::leave_rules;
use super::request::drain;
use super::require_protection::mark_seen;
use super::response::{Audience, mark};
use super::run_to_completion::{HandlerPanic, Idle, RunToCompletion};
use crate::effect::Effect;
use crate::http::GuardResponse;
use crate::mode::Mode;
use crate::rejection::Rejection;
use crate::settled::Settled;
use crate::token::Token;

/// A service behind [`Protect`](super::Protect).
pub struct Protected<S> {
    rules: Rc<RouteRules>,
    service: Rc<S>,
}

impl<S> Protected<S> {
    pub(super) fn new(rules: Rc<RouteRules>, service: S) -> Self {
        Self { rules, service: Rc::new(service) }
    }
}

impl<S> fmt::Debug for Protected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("policy", &self.rules.policy).finish_non_exhaustive()
    }
}

impl<S, B> Service<ServiceRequest> for Protected<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (rules, service) = (Rc::clone(&self.rules), Rc::clone(&self.service));
        mark_seen(request.request());
        let is_untouched = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if rules.mode() == Mode::Off && !is_untouched {
            leave_rules(&rules, request.request());
        }
        if is_untouched || rules.mode() == Mode::Off {
            return Box::pin(async move { Ok(service.call(request).await?.map_into_left_body()) });
        }
        let audience = Audience::of(request.request());
        let idle = Idle::default();
        let run = run(Rc::clone(&rules), service, request, Rc::clone(&idle));
        let run = RunToCompletion::new(run, idle, Rc::clone(&rules));
        Box::pin(async move {
            match run.await {
                Ok(answer) => answer,
                // As it would have without a guard.
                Err(HandlerPanic(why)) if rules.mode() == Mode::Observe => resume_unwind(why),
                Err(HandlerPanic(_)) => Err(broke_off(&rules, audience)),
            }
        })
    }
}

/// The whole way of one request, which nobody cancels. What few requests need is boxed on its own, here and below: the
/// allocator is quick with less than a kilobyte, and every request pays for the room.
async fn run<S, B>(
    rules: Rc<RouteRules>,
    service: Rc<S>,
    mut request: ServiceRequest,
    idle: Idle,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    if rules.mode() == Mode::Observe {
        leave_rules(&rules, request.request());
        return Box::pin(observe(&rules, &*service, request, &idle)).await;
    }
    let answer = match enter(&rules, &mut request, &idle).await {
        Ok(Decision::Run(admitted)) => {
            let answer = handle(&*service, request, &admitted).await;
            return settle(&rules, admitted, answer).await;
        }
        Ok(Decision::Unprotected) => {
            leave_rules(&rules, request.request());
            let running = rules.guard.begin_run();
            let answer = rules.take(service.call(request).await).await;
            drop(running);
            let outcome = rules.judge(&answer, None).outcome_unprotected(answer.outcome());
            return answer.send(move |headers| mark(headers, outcome), rules.guard.is_draining());
        }
        Ok(Decision::Replay(reply)) => HttpResponse::from(GuardResponse::replay(&reply)),
        Err(rejection) => {
            let answer = Audience::of(request.request()).reject(&rules.guard, &rejection);
            match rejection.code() {
                // An error of the guard's own, before anything ran.
                Code::Internal => answer.with_effect(Effect::NotApplied, Code::Internal).into(),
                _ => answer.into(),
            }
        }
    };
    Box::pin(drain(&mut request)).await;
    Ok(request.into_response(answer).map_into_right_body())
}

/// Calls the handler. A run that has a name gives it to the handler, and to every line that is logged meanwhile.
async fn handle<S, B>(
    service: &S,
    request: ServiceRequest,
    AdmittedRequest { guarded, pass }: &AdmittedRequest,
) -> Result<ServiceResponse<B>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    guarded.accompany(request.request());
    let Some(run) = pass.run_id() else { return service.call(request).await };
    request.extensions_mut().insert(run);
    let span = tracing::info_span!(target: "onceward", "run", run = %run, action = guarded.asked().action());
    Box::pin(service.call(request).instrument(span)).await
}

/// Settles the pass by the answer, before the answer is sent.
async fn settle<B: MessageBody + 'static>(
    rules: &RouteRules,
    admitted: Box<AdmittedRequest>,
    answer: Result<ServiceResponse<B>, Error>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let answer = rules.take(answer).await;
    let AdmittedRequest { guarded, pass } = *admitted;
    let judgement = rules.judge(&answer, Some(&guarded));
    let reply = answer.reply(&rules.kept_headers);
    rules.notice_rewriting(guarded.asked(), &answer);
    let successor = pass.binding(&guarded.asked().intent());
    let settled = pass.end(judgement.effect, reply).await;
    if let Err(error) = &settled {
        tracing::warn!(%error, effect = ?judgement.effect, "how a run ended could not be written down");
    }
    let outcome = judgement.outcome(answer.outcome(), &settled, &rules.policy);
    let next = match settled {
        Ok(Settled::Final) if rules.next_token => {
            let issued = Box::pin(rules.guard.issue(rules.guard.token_ttl(), successor)).await;
            issued.inspect_err(|error| tracing::warn!(%error, "no next token could be issued")).ok()
        }
        _ => None,
    };
    answer.send(move |headers| sign_off(headers, outcome, next.as_ref()), rules.guard.is_draining())
}

fn sign_off(headers: &mut HeaderMap, outcome: Outcome, next: Option<&Token>) {
    mark(headers, outcome);
    if let Some(Ok(value)) = next.map(|token| HeaderValue::from_str(token.as_str())) {
        headers.insert(HeaderName::from_static(header::NEXT_TOKEN), value);
    }
}

/// The answer to a handler that panicked or was cut: whether it took effect is not known, so nothing was given back.
fn broke_off(rules: &RouteRules, audience: Audience) -> Error {
    let guard = rules.guard.clone();
    tracing::error!(path = audience.path(), "a handler panicked or was cut off; whether it took effect is not known");
    let mut error = actix_web::error::ErrorInternalServerError("the handler broke off");
    error.add_response_mapper(move |_| {
        let answer = audience.reject(&guard, &Rejection::new(Code::Internal));
        answer.with_effect(Effect::Unknown, Code::Internal).into()
    });
    error
}
