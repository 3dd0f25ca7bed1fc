//! Whether a request runs, as the guard decides.

use std::cell::Cell;
use std::rc::Rc;

use actix_web::dev::ServiceRequest;

use super::super::guarded_request::GuardedRequest;
use super::super::peer::Peer;
use super::RouteRules;
use crate::guard::Guard;
use crate::http::ParsedRequest;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::verdict::Verdict;

/// What is to be done with a request.
pub(super) enum Decision {
    Run(Box<AdmittedRequest>),
    Replay(Reply),
    /// It has no key, and need not have one.
    Unprotected,
}

/// A request that may run.
pub(super) struct AdmittedRequest {
    pub(super) guarded: Rc<GuardedRequest>,
    pub(super) pass: Pass,
}

/// Asks the guard. The error is what the client is told instead.
pub(super) async fn enter(
    rules: &RouteRules,
    request: &mut ServiceRequest,
    idle: &Cell<bool>,
) -> Result<Decision, Rejection> {
    let parsed = read(rules, request).await;
    let outer = GuardedRequest::of(request.request());
    decide(rules, request, parsed, outer, idle).await
}

/// What the request asks; `None` if it has no key and need not have one.
pub(super) async fn read(rules: &RouteRules, request: &mut ServiceRequest) -> Result<Option<ParsedRequest>, Rejection> {
    let subject = rules.subject.resolve(request.request())?;
    let (head, body) = request.parts_mut();
    rules.reader.read(head, body, &rules.policy, subject).await
}

/// Asks the guard what this request, which other guards further out may have let through, is to be told.
pub(super) async fn decide(
    rules: &RouteRules,
    request: &ServiceRequest,
    parsed: Result<Option<ParsedRequest>, Rejection>,
    outer: Option<Rc<GuardedRequest>>,
    idle: &Cell<bool>,
) -> Result<Decision, Rejection> {
    let Some(parsed) = parsed.map_err(|rejection| rules.count(rejection))? else {
        return Ok(Decision::Unprotected);
    };
    let failed = |error| {
        tracing::warn!(%error, "a submission could not be checked and was not run");
        Guard::rejection_after(&error, &rules.policy, &parsed.intent())
    };
    if parsed.only_looks() {
        let seen = Box::pin(rules.guard.look(&rules.policy, &parsed.intent())).await.map_err(failed)?;
        return seen.into_reply().map(Decision::Replay);
    }
    let decided = match (rules.guard.decide(&rules.policy, &parsed.intent()).await, &outer) {
        (Ok(Verdict::Reject(rejection)), Some(outer)) => {
            Ok(Verdict::Reject(Box::pin(rules.unless_nested(rejection, &parsed, outer)).await))
        }
        (decided, _) => decided,
    };
    let checked = match (decided, rules.wait) {
        // A request that is only observed does not wait, and a client that has closed its connection does not keep a seat.
        (Ok(Verdict::Reject(rejection)), Some(longest)) if rules.mode() == Mode::Enforce && !longest.is_zero() => {
            let (intent, is_idle) = (parsed.intent(), |is_idle| idle.set(is_idle));
            let enough = Peer::closed_or_after(request.request(), longest);
            Box::pin(rules.guard.wait_if_in_progress(rejection, &rules.policy, &intent, enough, is_idle)).await
        }
        (checked, _) => checked,
    };
    rules.guard.count_verdict(&rules.policy, &checked, &parsed.intent());
    if let Err(error) = &checked
        && rules.guard.fails_open(&rules.policy, error)
    {
        rules.guard.note_unprotected(parsed.action(), error);
        return Ok(Decision::Unprotected);
    }
    match checked.map_err(failed)? {
        Verdict::Run(pass) => {
            let guarded = GuardedRequest::new(parsed, rules.policy.label().as_str(), &pass, outer);
            Ok(Decision::Run(Box::new(AdmittedRequest { guarded, pass })))
        }
        Verdict::Replay(reply) => Ok(Decision::Replay(reply)),
        Verdict::Reject(rejection) => Err(rejection),
    }
}
