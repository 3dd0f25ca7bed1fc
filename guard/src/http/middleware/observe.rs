//! The middleware around one request in observe mode.

use std::sync::Arc;

use onceward_api::Outcome;

use super::super::body::RequestBody;
use super::super::observed_body::ObservedBody;
use super::{
    AdmittedRequest, Decision, Exchange, Framework, GuardedRequest, Idle, RouteRules, Signature, decide, read,
};
use crate::http::exchange::HandlerResponse as _;
use crate::rejection::Rejection;

/// Adds nothing to the handler's response.
const UNSIGNED: Signature =
    Signature { outcome: None, next: None, is_rejection: false, is_last: false, key: None, retention: None };

/// Runs the handler whatever the guard decides, and does not change the response. Counts requests that would not have run, and settles
/// those that would have, by their response. A request whose body has not arrived is judged after its response: the handler may not read
/// the body, and must not wait for it.
pub(super) async fn observe<E: Exchange>(rules: &RouteRules<E::Framework>, mut exchange: E, idle: &Idle) -> E::Sent {
    let action = rules.reader.action(exchange.head());
    let outer = exchange.attached::<Arc<GuardedRequest>>();
    let (head, body) = exchange.parts_mut();
    let observed = ObservedBody::new(std::mem::replace(body, E::Body::empty()), rules.reader.limit);
    let decided = enter_so_far(rules, head, &observed, outer.clone(), idle).await;
    *exchange.parts_mut().1 = observed.to_its_end();
    let admitted = match decided {
        Some(decided) => match admitted_or_counted(rules, &action, decided) {
            Some(admitted) => {
                exchange.attach(Arc::clone(&admitted.guarded));
                Some(admitted)
            }
            // Nothing is stored, so the response is not read.
            None => return exchange.call(None).await.send(UNSIGNED),
        },
        None => {
            exchange.keep_head();
            None
        }
    };
    let captured = exchange.call(rules.read_limit()).await;
    let admitted = match (admitted, captured.request()) {
        (Some(admitted), _) => Some(admitted),
        (None, head) => {
            let decided = match head {
                Some(head) => enter_so_far(rules, head, &observed, outer, idle).await,
                None => None,
            };
            if decided.is_none() {
                rules.route.guard.observe_unread(&action);
            }
            decided.and_then(|decided| admitted_or_counted(rules, &action, decided))
        }
    };
    if let Some(AdmittedRequest { guarded, pass }) = admitted {
        let (effect, reply) = (rules.judge(&captured, Some(&guarded)).effect, rules.reply(&captured));
        let settled = pass.end(effect, reply).await;
        let _ = settled.inspect_err(|error| tracing::debug!(%error, "could not record the outcome of an observed run"));
    }
    captured.send(UNSIGNED)
}

/// Returns the request, if it would have run with protection; otherwise counts it.
fn admitted_or_counted<F: Framework>(
    rules: &RouteRules<F>,
    action: &str,
    decided: Result<Decision<AdmittedRequest>, Rejection>,
) -> Option<AdmittedRequest> {
    match decided {
        Ok(Decision::Run(admitted)) => return Some(admitted),
        Ok(Decision::Unprotected) => {}
        Ok(Decision::Replay(_)) => rules.route.guard.observe(Outcome::Replayed, action),
        Err(rejection) => rules.route.guard.observe(Outcome::Rejected(rejection.code()), action),
    }
    None
}

/// Decides by the part of the body that has arrived. Returns `None` if that part is not enough to decide.
async fn enter_so_far<F: Framework, B: RequestBody>(
    rules: &RouteRules<F>,
    head: &F::Request,
    body: &ObservedBody<B>,
    outer: Option<Arc<GuardedRequest>>,
    idle: &Idle,
) -> Option<Result<Decision<AdmittedRequest>, Rejection>> {
    let parsed = read(rules, head, &mut body.so_far()).await;
    if body.ran_out() {
        return None;
    }
    let parsed = match parsed {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return Some(Ok(Decision::Unprotected)),
        Err(rejection) => return Some(Err(rules.route.count(rejection))),
    };
    let decision = decide(rules, head, &parsed, outer.as_deref(), idle).await;
    Some(decision.map(|decision| decision.map_run(|pass| rules.route.admit(parsed, pass, outer))))
}
