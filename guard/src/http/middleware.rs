//! The middleware around one request: read, check, run, settle. Every adapter runs it, with its own [`Exchange`].

mod observe;

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::{Code, Outcome};
use tracing::Instrument as _;

use self::observe::observe;
use super::audience::Audience;
use super::body::{RequestBody, drain};
use super::decide::{AdmittedRequest, Decision};
use super::exchange::{Exchange, HandlerResponse};
use super::framework::Framework;
use super::guarded_request::GuardedRequest;
use super::rejection_format::RejectionFormat;
use super::request::ParsedRequest;
use super::request_intent::UncheckedRoute;
use super::response::GuardResponse;
use super::route_rules::RouteRules;
use super::run_to_completion::Idle;
use super::signature::Signature;
use crate::effect::Effect;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::rejection::Rejection;
use crate::run_id::RunId;

/// Processes one request; never cancelled. Rarely used parts are boxed separately, here and below: the allocator is fast below a
/// kilobyte, and every request pays for the size of this future.
pub(crate) async fn run<E: Exchange>(rules: Arc<RouteRules<E::Framework>>, mut exchange: E, idle: Idle) -> E::Sent {
    let guard = &rules.route.guard;
    let key = rules.echoed_key(exchange.head());
    // An inner guard overrides the format of an outer one.
    if rules.format.is_own() || exchange.attached::<RejectionFormat>().is_some() {
        exchange.attach(rules.format.clone());
    }
    if rules.route.mode() == Mode::Observe {
        exchange.attach(UncheckedRoute::new(&rules));
        return Box::pin(observe(&rules, exchange, &idle)).await;
    }
    let response = match enter(&rules, &mut exchange, &idle).await {
        Ok(Decision::Run(mut admitted)) => {
            let (guarded, run) = (Arc::clone(&admitted.guarded), admitted.pass.run_id());
            let captured = handle(&rules, exchange, guarded, run).await;
            let judgement = rules.judge(&captured, Some(&admitted.guarded));
            rules.notice_rewriting(admitted.guarded.parsed(), &captured);
            // No reference to the response is held while its run is settled: a body need not be `Sync`.
            let reply = (!admitted.pass.try_end_unwritten(judgement.effect)).then(|| rules.reply(&captured));
            let is_kept = matches!(&reply, Some(Ok(reply)) if rules.route.policy.keeps(reply));
            let (outcome, next) = rules.route.settle(&mut admitted, judgement, reply, captured.outcome()).await;
            let retention = rules.retention(outcome).filter(|_| is_kept);
            let is_rejection = may_be_rejection(&captured);
            return captured.send(Signature {
                outcome: Some(outcome),
                next,
                is_rejection,
                is_last: guard.is_draining(),
                key,
                retention,
            });
        }
        Ok(Decision::Unprotected) => {
            exchange.attach(UncheckedRoute::new(&rules));
            let running = guard.begin_run();
            let captured = exchange.call(rules.unprotected_read_limit()).await;
            drop(running);
            let outcome = rules.judge(&captured, None).outcome_unprotected(captured.outcome());
            let is_last = guard.is_draining();
            let is_rejection = may_be_rejection(&captured);
            return captured.send(Signature {
                outcome: Some(outcome),
                next: None,
                is_rejection,
                is_last,
                key,
                retention: None,
            });
        }
        Ok(Decision::Replay(reply)) => {
            GuardResponse::replay(&reply).with_key(key).with_retention(rules.retention(Outcome::Replayed))
        }
        Err(rejection) => {
            let response = rules.reject(exchange.head(), &rejection);
            match rejection.code() {
                // An error of the guard itself, before the handler ran.
                Code::Internal => response.with_effect(Effect::NotApplied, Code::Internal),
                _ => response,
            }
        }
    };
    let (head, body) = exchange.parts_mut();
    Box::pin(drain(head, body)).await;
    exchange.respond(response)
}

/// Returns whether a response may be a rejection by the handler, an inner guard or the proxy in place of its upstream, which states the effect.
fn may_be_rejection<F: Framework>(captured: &impl HandlerResponse<F>) -> bool {
    let is_rejected = matches!(captured.outcome(), Some(Outcome::Rejected(_)));
    is_rejected || captured.effect().is_some_and(|effect| effect != Effect::Applied)
}

/// Calls the handler. If the run has an id, the handler can extract it, and every log line of the handler carries it.
async fn handle<E: Exchange>(
    rules: &RouteRules<E::Framework>,
    mut exchange: E,
    guarded: Arc<GuardedRequest>,
    run: Option<RunId>,
) -> E::Captured {
    exchange.attach(Arc::clone(&guarded));
    let Some(run) = run else { return exchange.call(rules.read_limit()).await };
    exchange.attach(run);
    // Without a subscriber, a span would become a line of its own in the `log` crate.
    let span = match tracing::span_enabled!(target: "onceward", tracing::Level::INFO) {
        true => tracing::info_span!(target: "onceward", "run", run = %run, action = guarded.parsed().action()),
        false => tracing::Span::none(),
    };
    Box::pin(exchange.call(rules.read_limit()).instrument(span)).await
}

/// Reads the request and decides about it. The client receives the error as the response.
async fn enter<E: Exchange>(
    rules: &RouteRules<E::Framework>,
    exchange: &mut E,
    idle: &Idle,
) -> Result<Decision<AdmittedRequest>, Rejection> {
    let (head, body) = exchange.parts_mut();
    let parsed = read(rules, head, body).await.map_err(|rejection| rules.route.count(rejection))?;
    let Some(parsed) = parsed else { return Ok(Decision::Unprotected) };
    let outer = exchange.attached::<Arc<GuardedRequest>>();
    let decision = decide(rules, exchange.head(), &parsed, outer.as_deref(), idle).await?;
    Ok(decision.map_run(|pass| rules.route.admit(parsed, pass, outer)))
}

/// Parses the request; `None` if it has no key and the key is optional.
async fn read<F: Framework, B: RequestBody>(
    rules: &RouteRules<F>,
    head: &F::Request,
    body: &mut B,
) -> Result<Option<ParsedRequest>, Rejection> {
    let subject = rules.subject.resolve(head).await?;
    rules.reader.read(head, body, &rules.route.policy, subject).await
}

async fn decide<F: Framework>(
    rules: &RouteRules<F>,
    head: &F::Request,
    parsed: &ParsedRequest,
    outer: Option<&GuardedRequest>,
    idle: &Idle,
) -> Result<Decision<Pass>, Rejection> {
    // A client that has closed its connection does not occupy a place among the waiting duplicates.
    let enough = |longest: Duration| async move {
        let _ = tokio::time::timeout(longest, F::client_closed(head)).await;
    };
    rules.route.decide(parsed, outer, enough, |is_idle| idle.set(is_idle)).await
}

/// Responds after a handler's panic. In observe mode the panic continues, as without a guard. The outcome is unknown, so the token or key
/// was not released.
pub(super) fn after_panic<F: Framework>(
    panic: Box<dyn Any + Send>,
    rules: &RouteRules<F>,
    audience: &Audience<F>,
) -> GuardResponse {
    if rules.route.mode() == Mode::Observe {
        resume_unwind(panic);
    }
    tracing::error!(
        path = audience.path(),
        "a handler panicked or was aborted; its outcome is unknown, so its token or key is not released"
    );
    let response = audience.reject(&rules.format, &rules.route.guard, &Rejection::new(Code::Internal));
    response.with_effect(Effect::Unknown, Code::Internal)
}
