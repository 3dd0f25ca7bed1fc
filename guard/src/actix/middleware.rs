//! The middleware around one request: read, check, run, settle. `crate::http` makes the decisions.

mod observe;
mod route_rules;

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, forward_ready};
use actix_web::http::Method;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use futures_util::future::LocalBoxFuture;
use onceward_api::{Code, Outcome, header};
use tracing::Instrument as _;

use self::observe::observe;
pub(super) use self::route_rules::RouteRules;
use super::captured::CapturedResponse;
use super::extractors::leave_rules;
use super::peer::Peer;
use super::request::drain;
use super::require_protection::mark_seen;
use super::response::{Audience, mark, rejection_of};
use super::run_to_completion::{HandlerPanic, Idle, RunToCompletion};
use crate::effect::Effect;
use crate::http::{AdmittedRequest, Decision, GuardResponse, GuardedRequest, ParsedRequest};
use crate::mode::Mode;
use crate::pass::Pass;
use crate::rejection::Rejection;
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
        f.debug_struct("Protected").field("policy", &self.rules.route.policy).finish_non_exhaustive()
    }
}

impl<S, B> Service<ServiceRequest> for Protected<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = ProtectedCall<B>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (rules, service) = (Rc::clone(&self.rules), Rc::clone(&self.service));
        mark_seen(request.request());
        let is_untouched = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if rules.route.mode() == Mode::Off && !is_untouched {
            leave_rules(&rules, request.request());
        }
        if is_untouched || rules.route.mode() == Mode::Off {
            let call = async move { Ok(service.call(request).await?.map_into_left_body()) };
            return ProtectedCall(CallKind::Untouched(Box::pin(call)));
        }
        let audience = Audience::of(request.request());
        let idle = rules.route.waits().then(Rc::default);
        let run = run(Rc::clone(&rules), service, request, idle.clone());
        ProtectedCall(CallKind::Guarded(RunToCompletion::new(run, idle, rules), Some(audience)))
    }
}

/// The response of a protected service. A plain struct: a boxed future around the boxed run would cost another allocation per request.
pub struct ProtectedCall<B: 'static>(CallKind<B>);

type CallResult<B> = Result<ServiceResponse<EitherBody<B>>, Error>;

#[expect(clippy::large_enum_variant, reason = "a box would cost an allocation per request")]
enum CallKind<B: 'static> {
    Untouched(LocalBoxFuture<'static, CallResult<B>>),
    /// A run, and what the response to its panic needs.
    Guarded(RunToCompletion<CallResult<B>>, Option<Audience>),
}

impl<B> Future for ProtectedCall<B> {
    type Output = CallResult<B>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            CallKind::Untouched(call) => call.as_mut().poll(context),
            CallKind::Guarded(run, audience) => {
                let result = ready!(Pin::new(&mut *run).poll(context));
                Poll::Ready(result.unwrap_or_else(|panic| after_panic(panic, run.rules(), audience.take())))
            }
        }
    }
}

impl<B> fmt::Debug for ProtectedCall<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedCall").finish_non_exhaustive()
    }
}

/// Responds after a handler's panic. In observe mode the panic continues, as without a guard.
fn after_panic<B>(HandlerPanic(why): HandlerPanic, rules: &RouteRules, audience: Option<Audience>) -> CallResult<B> {
    match audience {
        Some(audience) if rules.route.mode() != Mode::Observe => Err(broke_off(rules, audience)),
        _ => resume_unwind(why),
    }
}

/// Processes one request; never cancelled. Rarely used parts are boxed separately, here and below: the allocator is fast below a
/// kilobyte, and every request pays for the size of this future.
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
    if rules.route.mode() == Mode::Observe {
        leave_rules(&rules, request.request());
        return Box::pin(observe(&rules, &*service, request, &idle)).await;
    }
    let answer = match enter(&rules, &mut request, &idle).await {
        Ok(Decision::Run(mut admitted)) => {
            let answer = handle(&*service, request, &admitted).await;
            let answer = rules.take(answer).await;
            let (outcome, next) = settle(&rules, &mut admitted, &answer).await;
            let sign = move |headers: &mut HeaderMap| sign_off(headers, outcome, next.as_ref());
            return answer.send(sign, rules.route.guard.is_draining());
        }
        Ok(Decision::Unprotected) => {
            leave_rules(&rules, request.request());
            let running = rules.route.guard.begin_run();
            let answer = rules.take(service.call(request).await).await;
            drop(running);
            let outcome = rules.judge(&answer, None).outcome_unprotected(answer.outcome());
            return answer.send(move |headers| mark(headers, outcome), rules.route.guard.is_draining());
        }
        Ok(Decision::Replay(reply)) => HttpResponse::from(GuardResponse::replay(&reply)),
        Err(rejection) => {
            let answer = rejection_of(request.request(), &rules.route.guard, &rejection);
            match rejection.code() {
                // An error of the guard itself, before the handler ran.
                Code::Internal => answer.with_effect(Effect::NotApplied, Code::Internal).into(),
                _ => answer.into(),
            }
        }
    };
    Box::pin(drain(&mut request)).await;
    Ok(request.into_response(answer).map_into_right_body())
}

/// Calls the handler. If the run has an id, the handler can extract it, and every log line of the handler carries it.
async fn handle<S, B>(
    service: &S,
    request: ServiceRequest,
    AdmittedRequest { guarded, pass }: &AdmittedRequest,
) -> Result<ServiceResponse<B>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    accompany(guarded, request.request());
    let Some(run) = pass.run_id() else { return service.call(request).await };
    request.extensions_mut().insert(run);
    // Without a subscriber, a span would become a line of its own in the `log` crate.
    let span = match tracing::span_enabled!(target: "onceward", tracing::Level::INFO) {
        true => tracing::info_span!(target: "onceward", "run", run = %run, action = guarded.parsed().action()),
        false => tracing::Span::none(),
    };
    Box::pin(service.call(request).instrument(span)).await
}

/// Settles the run by the response, before the response is sent.
async fn settle<B: MessageBody + 'static>(
    rules: &RouteRules,
    admitted: &mut AdmittedRequest,
    answer: &CapturedResponse<B>,
) -> (Outcome, Option<Token>) {
    let judgement = rules.judge(answer, Some(&admitted.guarded));
    rules.notice_rewriting(admitted.guarded.parsed(), answer);
    let reply = || answer.reply(&rules.kept_headers);
    rules.route.settle(admitted, judgement, reply, answer.outcome()).await
}

/// Reads the request and decides about it. The client receives the error as the response.
async fn enter(
    rules: &RouteRules,
    request: &mut ServiceRequest,
    idle: &Idle,
) -> Result<Decision<AdmittedRequest>, Rejection> {
    let parsed = read(rules, request).await.map_err(|rejection| rules.route.count(rejection))?;
    let Some(parsed) = parsed else { return Ok(Decision::Unprotected) };
    let outer = guarded(request.request());
    let decision = decide(rules, request, &parsed, outer.as_deref(), idle).await?;
    Ok(decision.map_run(|pass| rules.route.admit(parsed, pass, outer)))
}

/// Parses the request; `None` if it has no key and the key is optional.
async fn read(rules: &RouteRules, request: &mut ServiceRequest) -> Result<Option<ParsedRequest>, Rejection> {
    let subject = rules.subject.resolve(request.request())?;
    let (head, body) = request.parts_mut();
    rules.reader.read(head, body, &rules.route.policy, subject).await
}

async fn decide(
    rules: &RouteRules,
    request: &ServiceRequest,
    parsed: &ParsedRequest,
    outer: Option<&GuardedRequest>,
    idle: &Idle,
) -> Result<Decision<Pass>, Rejection> {
    // A client that has closed its connection does not occupy a place among the waiting duplicates.
    let enough = |longest| Peer::closed_or_after(request.request(), longest);
    let set_idle = |is_idle| idle.iter().for_each(|idle| idle.set(is_idle));
    rules.route.decide(parsed, outer, enough, set_idle).await
}

/// Returns the data that the innermost guard so far has attached to a request.
pub(super) fn guarded(request: &HttpRequest) -> Option<Arc<GuardedRequest>> {
    request.extensions().get::<Arc<GuardedRequest>>().cloned()
}

/// Attaches the guard's data to the request.
fn accompany(guarded: &Arc<GuardedRequest>, request: &HttpRequest) {
    request.extensions_mut().insert(Arc::clone(guarded));
}

fn sign_off(headers: &mut HeaderMap, outcome: Outcome, next: Option<&Token>) {
    mark(headers, outcome);
    if let Some(Ok(value)) = next.map(|token| HeaderValue::from_str(token.as_str())) {
        headers.insert(HeaderName::from_static(header::NEXT_TOKEN), value);
    }
}

/// Creates the response for a handler that panicked or was aborted. Its outcome is unknown, so the token or key was not released.
fn broke_off(rules: &RouteRules, audience: Audience) -> Error {
    let guard = rules.route.guard.clone();
    tracing::error!(
        path = audience.path(),
        "a handler panicked or was aborted; its outcome is unknown, so its token or key is not released"
    );
    let mut error = actix_web::error::ErrorInternalServerError("the handler panicked or was aborted");
    error.add_response_mapper(move |_| {
        let answer = audience.reject(&guard, &Rejection::new(Code::Internal));
        answer.with_effect(Effect::Unknown, Code::Internal).into()
    });
    error
}
