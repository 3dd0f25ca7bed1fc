//! The way of one request through the guard: read, asked, run, settled. What is decided, is decided elsewhere.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _};
use onceward_api::path::canonical;
use onceward_api::{Code, Outcome, header};
use tracing::Instrument as _;

use super::super::answer::{Audience, mark, reject, replay, tell_guards};
use super::super::answered::CapturedResponse;
use super::super::asked::{ParsedRequest, drain};
use super::super::passage::{Entry, GuardedRequest};
use super::super::peer::Peer;
use super::super::run_to_completion::Idle;
use super::Rules;
use super::observe::observe;
use crate::effect::Effect;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::policy::{Policy, TokenRules};
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::settled::Settled;
use crate::store::StoreError;
use crate::token::Token;
use crate::verdict::Verdict;

/// The whole way of one request, which nobody cancels. What few requests need is boxed on its own, here and below: the
/// allocator is quick with less than a kilobyte, and every request pays for the room.
pub(super) async fn run<S, B>(
    rules: Rc<Rules>,
    service: Rc<S>,
    mut request: ServiceRequest,
    idle: Idle,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    if rules.mode() == Mode::Observe {
        return Box::pin(observe(&rules, &*service, request, &idle)).await;
    }
    let answer = match enter(&rules, &mut request, &idle).await {
        Ok(Decision::Run(admitted)) => {
            let answer = handle(&*service, request, &admitted).await;
            return settle(&rules, admitted, answer).await;
        }
        Ok(Decision::Unprotected) => {
            let running = rules.guard.begin();
            let answer = rules.take(service.call(request).await).await;
            drop(running);
            let outcome = match (answer.outcome(), rules.judge(&answer, None).effect) {
                (Some(outcome), _) => outcome,
                (None, Effect::NotApplied) => Outcome::NotApplied,
                (None, Effect::Applied | Effect::Unknown) => Outcome::Unprotected,
            };
            return answer.send(move |headers| mark(headers, outcome), rules.guard.is_draining());
        }
        Ok(Decision::Replay(reply)) => replay(&reply),
        Err(rejection) => {
            let mut answer = reject(request.request(), &rules.guard, &rejection);
            // An error of the guard's own, before anything ran.
            if rejection.code() == Code::Internal {
                tell_guards(&mut answer, Effect::NotApplied, Code::Internal);
            }
            answer
        }
    };
    Box::pin(drain(&mut request)).await;
    Ok(request.into_response(answer).map_into_right_body())
}

/// What is to be done with a request.
pub(super) enum Decision {
    Run(Box<AdmittedRequest>),
    Replay(Reply),
    /// It has no key, and need not have one.
    Unprotected,
}

/// A request that may run.
pub(super) struct AdmittedRequest {
    pub(super) passage: Rc<GuardedRequest>,
    pub(super) pass: Pass,
}

/// Asks the guard. The error is what the client is told instead.
async fn enter(rules: &Rules, request: &mut ServiceRequest, idle: &Cell<bool>) -> Result<Decision, Rejection> {
    let asked = read(rules, request).await;
    let outer = GuardedRequest::of(request.request());
    decide(rules, request, asked, outer, idle).await
}

/// What the request asks; `None` if it has no key and need not have one.
pub(super) async fn read(rules: &Rules, request: &mut ServiceRequest) -> Result<Option<ParsedRequest>, Rejection> {
    let subject = rules.subject.resolve(request.request())?;
    rules.reading.read(request, &rules.policy, subject).await
}

/// Asks the guard what this request, which other guards further out may have let through, is to be told.
pub(super) async fn decide(
    rules: &Rules,
    request: &ServiceRequest,
    asked: Result<Option<ParsedRequest>, Rejection>,
    outer: Option<Rc<GuardedRequest>>,
    idle: &Cell<bool>,
) -> Result<Decision, Rejection> {
    let Some(asked) = asked.map_err(|rejection| rules.count(rejection))? else {
        return Ok(Decision::Unprotected);
    };
    let failed = |error| {
        tracing::warn!(%error, "a submission could not be checked and was not run");
        Rejection::after(&error, &rules.policy, &asked.intent())
    };
    if asked.only_looks() {
        let seen = Box::pin(rules.guard.look(&rules.policy, &asked.intent())).await.map_err(failed)?;
        return seen.into_reply().map(Decision::Replay);
    }
    let decided = match (rules.guard.decide(&rules.policy, &asked.intent()).await, &outer) {
        (Ok(Verdict::Reject(rejection)), Some(outer)) => {
            Ok(Verdict::Reject(Box::pin(rules.unless_nested(rejection, &asked, outer)).await))
        }
        (decided, _) => decided,
    };
    let checked = match (decided, rules.wait) {
        // A request that is only observed does not wait, and a client that has closed its connection does not keep a seat.
        (Ok(Verdict::Reject(rejection)), Some(longest)) if rules.mode() == Mode::Enforce && !longest.is_zero() => {
            let (intent, is_idle) = (asked.intent(), |is_idle| idle.set(is_idle));
            let enough = Peer::closed_or_after(request.request(), longest);
            Box::pin(rules.guard.wait_after(rejection, &rules.policy, &intent, enough, is_idle)).await
        }
        (checked, _) => checked,
    };
    rules.guard.count_verdict(&rules.policy, &checked, &asked.intent());
    if let Err(error) = &checked
        && rules.guard.fails_open(&rules.policy, error)
    {
        rules.guard.let_run(asked.action(), error);
        return Ok(Decision::Unprotected);
    }
    match checked.map_err(failed)? {
        Verdict::Run(pass) => {
            let passage = GuardedRequest::new(asked, rules.policy.label().as_str(), &pass, outer);
            Ok(Decision::Run(Box::new(AdmittedRequest { passage, pass })))
        }
        Verdict::Replay(reply) => Ok(Decision::Replay(reply)),
        Verdict::Reject(rejection) => Err(rejection),
    }
}

/// Calls the handler. A run that has a name gives it to the handler, and to every line that is logged meanwhile.
async fn handle<S, B>(
    service: &S,
    request: ServiceRequest,
    AdmittedRequest { passage, pass }: &AdmittedRequest,
) -> Result<ServiceResponse<B>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    passage.accompany(request.request());
    let Some(run) = pass.run_id() else { return service.call(request).await };
    request.extensions_mut().insert(run);
    #[cfg(feature = "sql")]
    request.extensions_mut().insert(passage.asked().for_the_handler().within(run));
    let span = tracing::info_span!(target: "onceward", "run", run = %run, action = passage.asked().action());
    Box::pin(service.call(request).instrument(span)).await
}

/// Settles the pass by the answer, before the answer is sent.
async fn settle<B: MessageBody + 'static>(
    rules: &Rules,
    admitted: Box<AdmittedRequest>,
    answer: Result<ServiceResponse<B>, Error>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let answer = rules.take(answer).await;
    let AdmittedRequest { passage, pass } = *admitted;
    let Judgement { effect, shows_a_run } = rules.judge(&answer, Some(&passage));
    let reply = answer.reply(&rules.kept_headers);
    rules.notice_rewriting(passage.asked(), &answer);
    let successor = pass.binding(&passage.asked().intent());
    let settled = pass.end(effect, reply).await;
    if let Err(error) = &settled {
        tracing::warn!(%error, ?effect, "how a run ended could not be written down");
    }
    let outcome = answer.outcome().unwrap_or_else(|| match outcome_of(&settled, &rules.policy, effect) {
        Outcome::Executed if !shows_a_run => Outcome::Replayable,
        outcome => outcome,
    });
    let next = match settled {
        Ok(Settled::Final) if rules.next_token => {
            let issued = Box::pin(rules.guard.issue(rules.guard.token_ttl(), successor)).await;
            issued.inspect_err(|error| tracing::warn!(%error, "no next token could be issued")).ok()
        }
        _ => None,
    };
    answer.send(move |headers| sign_off(headers, outcome, next.as_ref()), rules.guard.is_draining())
}

impl Rules {
    pub(super) fn mode(&self) -> Mode {
        self.mode.min(self.guard.mode())
    }

    /// Counts what was refused before anything was decided.
    fn count(&self, rejection: Rejection) -> Rejection {
        self.guard.count_rejection(&self.policy, rejection.code());
        rejection
    }

    /// Logs, once, that the path was rewritten after it has named the action. A plain token is good once whatever its action is.
    fn notice_rewriting<B: MessageBody + 'static>(&self, asked: &ParsedRequest, answer: &CapturedResponse<B>) {
        let goes_by_action = !matches!(self.policy, Policy::Token(TokenRules { remember: None, .. }));
        if self.reading.action.is_some() || !goes_by_action {
            return;
        }
        let (Some((_, seen)), Some(path)) = (asked.action().split_once(' '), answer.path()) else { return };
        let rewritten = canonical(path);
        if seen != rewritten && !self.is_rewriting_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "onceward::actix",
                seen,
                %rewritten,
                "the path was rewritten inside of the guard, so one route has several actions and a duplicate may run; have the \
                 middleware that rewrites it, such as NormalizePath, run before the guard, or name the action with Protect::action"
            );
        }
    }

    /// Takes an answer, and looks into it if that is needed.
    pub(super) async fn take<B: MessageBody + 'static>(
        &self,
        answer: Result<ServiceResponse<B>, Error>,
    ) -> CapturedResponse<B> {
        match self.answer_limit {
            0 if !self.policy.keeps_replies() => CapturedResponse::new(answer),
            limit => Box::pin(CapturedResponse::read(answer, limit)).await,
        }
    }

    /// Decides what the answer says about the effect: the handler's own word, then the route's, then what was made before the handler
    /// was entered, then the status. A request that no guard let through has no passage.
    pub(super) fn judge<B: MessageBody + 'static>(
        &self,
        answer: &CapturedResponse<B>,
        passage: Option<&GuardedRequest>,
    ) -> Judgement {
        let body = answer.body().map(|body| &body[..]);
        // Where nothing is protected, nothing is freed by being mistaken.
        let has_whole_body = passage.is_none_or(|passage| passage.asked().has_whole_body());
        let believes_extractors = has_whole_body && self.policy.believes_extractors();
        let entry = passage.map_or(Entry::Unmarked, GuardedRequest::entry);
        let said = answer.said().or_else(|| self.judge.as_ref()?(answer.head(), body));
        let effect = said.unwrap_or_else(|| match answer.is_before_the_handler(entry, believes_extractors) {
            true => Effect::NotApplied,
            false => self.policy.effect(answer.status().as_u16()),
        });
        let is_error = answer.status().is_client_error() || answer.status().is_server_error();
        Judgement { effect, shows_a_run: said.is_some() || entry == Entry::Entered || !is_error }
    }
}

/// What an answer says.
pub(super) struct Judgement {
    pub(super) effect: Effect,
    /// Whether the handler certainly ran. An error may be the router's or an extractor's, unless a mark or the application says more.
    shows_a_run: bool,
}

fn sign_off(headers: &mut HeaderMap, outcome: Outcome, next: Option<&Token>) {
    mark(headers, outcome);
    if let Some(Ok(value)) = next.map(|token| HeaderValue::from_str(token.as_str())) {
        headers.insert(HeaderName::from_static(header::NEXT_TOKEN), value);
    }
}

/// The answer to a handler that panicked or was cut: whether it took effect is not known, so nothing was given back.
pub(super) fn broke_off(rules: &Rules, audience: Audience) -> Error {
    let guard = rules.guard.clone();
    tracing::error!(path = audience.path(), "a handler panicked or was cut off; whether it took effect is not known");
    let mut error = actix_web::error::ErrorInternalServerError("the handler broke off");
    error.add_response_mapper(move |_| {
        let mut answer = audience.reject(&guard, &Rejection::new(Code::Internal));
        tell_guards(&mut answer, Effect::Unknown, Code::Internal);
        answer
    });
    error
}

/// The outcome that the client receives. An effect that is not on record keeps no duplicate from running, and the response says so.
fn outcome_of(settled: &Result<Settled, StoreError>, policy: &Policy, effect: Effect) -> Outcome {
    let is_plain_token = matches!(policy, Policy::Token(rules) if rules.remember.is_none());
    match (effect, settled) {
        (_, Ok(Settled::Lost)) => Outcome::Unprotected,
        (Effect::Applied, Err(_)) if !is_plain_token => Outcome::Unprotected,
        (Effect::Applied, _) => Outcome::Executed,
        (Effect::NotApplied, Ok(Settled::Released)) => Outcome::NotApplied,
        (Effect::NotApplied, Ok(_) | Err(_)) => Outcome::NotReleased,
        (Effect::Unknown, _) => Outcome::Unknown,
    }
}
