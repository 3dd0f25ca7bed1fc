//! The route `POST /token` of an application's own pages.

use onceward_api::{Code, TokenRequest};

use super::body::{BufferedBody, RequestBody};
use super::json::parse_json;
use super::request::{RequestHead, content_type};
use super::response::GuardResponse;
use super::subject_source::SubjectSource;
use crate::binding::Binding;
use crate::guard::Guard;
use crate::language::Language;
use crate::mode::Mode;
use crate::rejection::Rejection;

/// The maximum size of the request body.
const BODY_LIMIT: usize = 16 * 1024;

/// Responds to a token request: with a new token, or with a rejection.
pub(crate) async fn answer_token_request<R: RequestHead>(
    request: &R,
    body: &mut impl RequestBody,
    guard: &Guard,
    subject: &SubjectSource<R>,
) -> GuardResponse {
    match issue(request, body, guard, subject).await {
        Ok(response) => response,
        Err(rejection) => GuardResponse::rejection_to(request, guard, &rejection),
    }
}

async fn issue<R: RequestHead>(
    request: &R,
    body: &mut impl RequestBody,
    guard: &Guard,
    subject: &SubjectSource<R>,
) -> Result<GuardResponse, Rejection> {
    let subject = subject.resolve(request).await?;
    let body = BufferedBody::read(body, BODY_LIMIT).await?;
    if !body.is_whole() {
        return Err(Rejection::new(Code::BodyTooLarge));
    }
    let media_type = content_type(request).and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let asked: TokenRequest = parse_json(media_type, body.body())?.unwrap_or_default();
    if asked.subject.is_some() {
        return Err(Rejection::new(Code::BadRequest)
            .detail("`subject` is not accepted here: the application decides which subject the token belongs to.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "此处不接受 `subject`：令牌所属的请求方由应用决定。"));
    }
    let ttl = guard.ttl(asked.ttl, guard.token_ttl())?;
    let bound = Binding::to(asked.action.as_deref(), subject);
    let token = match guard.mode() {
        Mode::Off => guard.blank_token(ttl, &bound),
        mode => match guard.issue(ttl, bound.clone()).await {
            Ok(token) => token,
            Err(error) => {
                tracing::debug!(%error, "could not issue a token");
                if mode == Mode::Enforce {
                    return Err(Code::StoreUnavailable.into());
                }
                guard.blank_token(ttl, &bound)
            }
        },
    };
    Ok(GuardResponse::of_issued(&token, ttl))
}
