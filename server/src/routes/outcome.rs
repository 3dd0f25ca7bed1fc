//! Looks up the outcome of a submission, for backends, without changing it.

use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::{Intent, KeyRules, Policy, RecordState, Rejection, TokenRules};
use onceward_api::{Code, OutcomeRequest, OutcomeResponse, Problem, State};

use super::documented_responses::{AuthenticationFailure, CommonResponses};
use super::request_fields::{key, subject};
use crate::context::{Context, HandlerResult};
use crate::http::bad_request;
use crate::http::json_body::read_json;
use crate::http::request_log::LoggedPolicy;
use crate::http::wire_reply::to_wire;

/// Look up an outcome
///
/// Returns the current record of a key or a token, without changing it. Never use it to decide whether to run: claim instead. The stored reply
/// of a token requires the action and the subject that the token was sent with.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = OutcomeRequest, example = json!({"key": "order-4711", "action": "POST /payments", "subject": "alice"})),
    responses(
        (status = 200, description = "The current record", body = OutcomeResponse, example = json!({"state": "running"})),
        (status = 400, description = "`bad_request`, `key_malformed` or `token_malformed`", body = Problem, content_type = "application/problem+json"),
        AuthenticationFailure,
        (status = 403, description = "`token_invalid`: forged, or for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: the reply is stored for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_revoked`; `token_expired` or `token_stale`, and it is unknown whether the token was used", body = Problem, content_type = "application/problem+json"),
        CommonResponses,
        (status = 503, description = "`store_unavailable`: send the same request again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/outcome")]
pub(crate) async fn outcome(request: HttpRequest, body: web::Payload, context: web::Data<Context>) -> HttpResponse {
    context.respond(&request, outcome_of_one(&request, body, &context).await)
}

async fn outcome_of_one(request: &HttpRequest, body: web::Payload, context: &Context) -> HandlerResult {
    context.access().require_backend(request)?;
    let asked: OutcomeRequest = read_json(request, body).await?.unwrap_or_default();
    let action = asked.action.as_deref().unwrap_or_default();
    let intent = Intent::new(action, subject(asked.subject.as_deref()));
    let seen = match (&asked.key, &asked.token) {
        (Some(_), Some(_)) => {
            return Err(bad_request("Send `key` or `token`, not both.", "`key` 和 `token` 只能发送其中一个。").into());
        }
        (None, None) => return Err(bad_request("`key` or `token` is missing.", "缺少 `key` 或 `token`。").into()),
        (Some(key), None) => {
            for (field, given) in [("action", &asked.action), ("subject", &asked.subject)] {
                if given.is_none() {
                    return Err(bad_request(
                        format!("`{field}` is missing: a key belongs to an action and a subject."),
                        format!("缺少 `{field}`：幂等键属于某个操作和某个请求方。"),
                    )
                    .into());
                }
            }
            LoggedPolicy::Key.note(request);
            let key = self::key(key)?;
            context.guard().look(&Policy::key(KeyRules::retryable()), &intent.key(&key)).await
        }
        (None, Some(token)) => {
            LoggedPolicy::Token.note(request);
            // The retention is irrelevant here: any policy that stores replies allows the lookup.
            let policy = Policy::Token(TokenRules::new().remember(Duration::ZERO));
            context.guard().look(&policy, &intent.credential(token)).await
        }
    };
    let seen = seen.map_err(|error| {
        tracing::debug!(%error, "could not look up an outcome");
        Rejection::new(Code::StoreUnavailable)
    })?;
    let (state, reply) = match seen.state {
        RecordState::Absent => (State::Absent, None),
        RecordState::Issued => (State::Issued, None),
        RecordState::Running(_) => (State::Running, None),
        RecordState::Unknown(_) => (State::Unknown, None),
        RecordState::Done(reply) => (State::Done, reply.as_ref().ok().map(to_wire)),
        RecordState::Revoked => return Err(Rejection::new(Code::TokenRevoked).into()),
        RecordState::Rejected(rejection) => return Err(rejection.into()),
        _ => return Err(Rejection::new(Code::Internal).into()),
    };
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(OutcomeResponse { state, reply }))
}
