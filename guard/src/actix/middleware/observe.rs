//! The middleware around one request in observe mode.

use std::future::ready;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse};
use actix_web::{Error, HttpMessage as _};
use onceward_api::Outcome;

use super::super::observed_body::ObservedBody;
use super::super::run_to_completion::Idle;
use super::{RouteRules, accompany, decide, guarded, read};
use crate::http::{AdmittedRequest, Decision, GuardedRequest};
use crate::rejection::Rejection;

/// Runs the handler whatever the guard decides, and does not change the response. Counts requests that would not have run. A request
/// whose body has not arrived is judged after its response: the handler may not read the body, and must not wait for it.
pub(super) async fn observe<S, B>(
    rules: &RouteRules,
    service: &S,
    mut request: ServiceRequest,
    idle: &Idle,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let (action, outer) = (rules.reader.action(request.request()), guarded(request.request()));
    let body = ObservedBody::new(request.take_payload(), rules.reader.limit);
    let entered = enter_so_far(rules, &mut request, &body, outer.clone(), idle).await;
    request.set_payload(body.to_its_end());
    if let Some(entered) = entered {
        if let Ok(Decision::Run(admitted)) = &entered {
            accompany(&admitted.guarded, request.request());
        }
        return judge(rules, &action, entered, service.call(request)).await;
    }
    let answer = service.call(request).await.inspect_err(|_| rules.route.guard.observe_unread(&action))?;
    let (head, answer) = answer.into_parts();
    let mut request = ServiceRequest::from_parts(head, Payload::None);
    let entered = enter_so_far(rules, &mut request, &body, outer, idle).await;
    let answer = ServiceResponse::new(request.into_parts().0, answer);
    match entered {
        Some(entered) => judge(rules, &action, entered, ready(Ok(answer))).await,
        None => {
            rules.route.guard.observe_unread(&action);
            Ok(answer.map_into_left_body())
        }
    }
}

/// Decides by the part of the body that has arrived. Returns `None` if that part is not enough to decide.
async fn enter_so_far(
    rules: &RouteRules,
    request: &mut ServiceRequest,
    body: &ObservedBody,
    outer: Option<Arc<GuardedRequest>>,
    idle: &Idle,
) -> Option<Result<Decision<AdmittedRequest>, Rejection>> {
    request.set_payload(body.so_far());
    let parsed = read(rules, request).await;
    if body.ran_out() {
        return None;
    }
    let parsed = match parsed {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return Some(Ok(Decision::Unprotected)),
        Err(rejection) => return Some(Err(rules.route.count(rejection))),
    };
    let decision = decide(rules, request, &parsed, outer.as_deref(), idle).await;
    Some(decision.map(|decision| decision.map_run(|pass| rules.route.admit(parsed, pass, outer))))
}

/// Counts a request that would not have run; settles one that would have, by its response.
async fn judge<B: MessageBody + 'static>(
    rules: &RouteRules,
    action: &str,
    entered: Result<Decision<AdmittedRequest>, Rejection>,
    answer: impl Future<Output = Result<ServiceResponse<B>, Error>>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let admitted = match entered {
        Ok(Decision::Run(admitted)) => admitted,
        Ok(Decision::Unprotected) => return Ok(answer.await?.map_into_left_body()),
        Ok(Decision::Replay(_)) => {
            rules.route.guard.observe(Outcome::Replayed, action);
            return Ok(answer.await?.map_into_left_body());
        }
        Err(rejection) => {
            rules.route.guard.observe(Outcome::Rejected(rejection.code()), action);
            return Ok(answer.await?.map_into_left_body());
        }
    };
    let AdmittedRequest { guarded, pass } = admitted;
    let answer = rules.take(answer.await).await;
    let settled = pass.end(rules.judge(&answer, Some(&guarded)).effect, answer.reply(&rules.kept_headers)).await;
    let _ = settled.inspect_err(|error| tracing::debug!(%error, "could not record the outcome of an observed run"));
    answer.send(|_| {}, false)
}
