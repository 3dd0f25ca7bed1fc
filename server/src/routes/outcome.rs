//! What became of it? For backends that have to find out, and change nothing.

use std::time::Duration;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, post, web};
use onceward::{Intent, Key, KeyRules, Policy, Rejection, Seen, TokenRules};
use onceward_api::{Code, OnRecord, OutcomeRequest, Problem, State};

use super::token::{Anywhere, bad, subject};
use crate::desk::{Answer, Desk};
use crate::json_body::read_json;
use crate::kept::kept;

/// Ask for an outcome
///
/// Says what is on record of a key or a token at this moment, and changes nothing. It is for finding out, never for deciding
/// whether to run. What a token was answered with is told to whoever names the action and the subject that it was sent with.
#[utoipa::path(
    tag = "backends",
    security((), ("api_key" = [])),
    request_body(content = OutcomeRequest, example = json!({"key": "order-4711", "action": "POST /payments", "subject": "alice"})),
    responses(
        (status = 200, description = "What is on record", body = OnRecord, example = json!({"state": "running"})),
        (status = 400, description = "`bad_request`, `key_malformed` or `token_malformed`", body = Problem, content_type = "application/problem+json"),
        (status = 401, description = "`unauthorized`: the API key is missing or wrong", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "`token_invalid`: forged, or for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: its answer is remembered, for another action or subject", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_revoked`; `token_expired` or `token_stale`, and nothing is known of its use", body = Problem, content_type = "application/problem+json"),
        Anywhere,
        (status = 503, description = "`store_unavailable`: ask again", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[post("/outcome")]
pub(crate) async fn outcome(request: HttpRequest, body: web::Payload, desk: web::Data<Desk>) -> HttpResponse {
    desk.answer(&request, outcome_of_one(&request, body, &desk).await)
}

async fn outcome_of_one(request: &HttpRequest, body: web::Payload, desk: &Desk) -> Answer {
    desk.access().require_backend(request)?;
    let asked: OutcomeRequest = read_json(request, body).await?.unwrap_or_default();
    let action = asked.action.as_deref().unwrap_or_default();
    let intent = Intent::new(action, subject(asked.subject.as_deref()));
    let seen = match (&asked.key, &asked.token) {
        (Some(_), Some(_)) => return Err(bad("`key` or `token`, not both.".into()).into()),
        (None, None) => return Err(bad("`key` or `token` is missing.".into()).into()),
        (Some(key), None) => {
            for (field, given) in [("action", &asked.action), ("subject", &asked.subject)] {
                if given.is_none() {
                    return Err(bad(format!("`{field}` is missing: a key is one of an action and a subject.")).into());
                }
            }
            let key = Key::new(key.as_str())
                .map_err(|error| Rejection::new(Code::KeyMalformed).detail(format!("`key`: {error}.")))?;
            desk.guard().look(&Policy::key(KeyRules::retryable()), &intent.key(&key)).await
        }
        (None, Some(token)) => {
            // However long it is remembered: a look only wants to know whether it may be.
            let policy = Policy::Token(TokenRules::new().remember(Duration::ZERO));
            desk.guard().look(&policy, &intent.credential(token)).await
        }
    };
    let seen = seen.map_err(|error| {
        tracing::warn!(%error, "an outcome could not be looked up");
        Rejection::new(Code::StoreUnavailable)
    })?;
    let (state, reply) = match seen {
        Seen::Absent => (State::Absent, None),
        Seen::Issued => (State::Issued, None),
        Seen::Running(_) => (State::Running, None),
        Seen::Unknown(_) => (State::Unknown, None),
        Seen::Done(reply) => (State::Done, reply.as_ref().ok().map(kept)),
        Seen::Revoked => return Err(Rejection::new(Code::TokenRevoked).into()),
        Seen::Rejected(rejection) => return Err(rejection.into()),
        _ => return Err(Rejection::new(Code::Internal).into()),
    };
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(OnRecord { state, reply }))
}
