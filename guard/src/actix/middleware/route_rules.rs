//! The rules of a route.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::body::MessageBody;
use actix_web::dev::{ResponseHead, ServiceResponse};
use actix_web::http::header::HeaderName;
use actix_web::{Error, HttpRequest};
use onceward_api::path::canonical;

use super::super::captured::CapturedResponse;
use super::super::subject::SubjectFrom;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::http::{self, Entry, GuardedRequest, Judgement, ParsedRequest, RequestReader, ResponseFacts, Route};
use crate::policy::{Policy, TokenRules};

/// A function of the application that decides the effect of a response.
pub(in crate::actix) type Judge = Arc<dyn Fn(&ResponseHead, Option<&[u8]>) -> Option<Effect> + Send + Sync>;

/// The rules of a route.
#[derive(Clone)]
pub(in crate::actix) struct RouteRules {
    pub(in crate::actix) route: Route,
    pub(in crate::actix) subject: SubjectFrom,
    pub(in crate::actix) reader: RequestReader<HttpRequest>,
    pub(in crate::actix) judge: Option<Judge>,
    /// Maximum number of bytes that are read of a response's body.
    pub(in crate::actix) answer_limit: usize,
    pub(in crate::actix) kept_headers: Vec<HeaderName>,
    /// True once the rewriting of the path inside of the guard has been logged.
    pub(in crate::actix) is_rewriting_logged: Arc<AtomicBool>,
}

impl RouteRules {
    pub(in crate::actix) fn new(guard: &Guard, subject: SubjectFrom, policy: Policy, answer_limit: usize) -> Self {
        Self {
            route: Route::new(guard, policy),
            subject,
            reader: RequestReader::default(),
            judge: None,
            answer_limit,
            kept_headers: Vec::new(),
            is_rewriting_logged: Arc::default(),
        }
    }

    /// Logs, once, that the path was rewritten after the action was derived from it. A plain token is valid once whatever its action,
    /// so it is not affected.
    pub(super) fn notice_rewriting<B: MessageBody + 'static>(
        &self,
        parsed: &ParsedRequest,
        answer: &CapturedResponse<B>,
    ) {
        let goes_by_action = !matches!(self.route.policy, Policy::Token(TokenRules { remember: None, .. }));
        if self.reader.action.is_some() || !goes_by_action {
            return;
        }
        let (Some((_, seen)), Some(path)) = (parsed.action().split_once(' '), answer.path()) else { return };
        let rewritten = canonical(path);
        if seen != rewritten && !self.is_rewriting_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "onceward::actix",
                seen,
                %rewritten,
                "the path was rewritten inside of the guard, so one route has several actions and a duplicate may run; install the \
                 middleware that rewrites it, such as NormalizePath, outside of the guard, or name the action with Protect::action"
            );
        }
    }

    /// Captures a response, and reads its body if that is needed.
    pub(super) async fn take<B: MessageBody + 'static>(
        &self,
        answer: Result<ServiceResponse<B>, Error>,
    ) -> CapturedResponse<B> {
        match http::read_limit(&self.route.policy, self.answer_limit) {
            None => CapturedResponse::new(answer),
            // Most bodies are complete already.
            Some(limit) => match CapturedResponse::read_at_once(answer, limit) {
                ControlFlow::Break(captured) => captured,
                ControlFlow::Continue(answer) => Box::pin(CapturedResponse::read(answer, limit)).await,
            },
        }
    }

    /// Decides the effect of the response. `guarded` is `None` for a request that no guard admitted.
    pub(super) fn judge<B: MessageBody + 'static>(
        &self,
        answer: &CapturedResponse<B>,
        guarded: Option<&GuardedRequest>,
    ) -> Judgement {
        let facts = ResponseFacts {
            status: answer.status().as_u16(),
            handler: answer.said(),
            entry: guarded.map_or(Entry::Unmarked, GuardedRequest::entry),
            source: answer.source(),
            // Without protection, a wrong guess releases nothing.
            had_whole_body: guarded.is_none_or(|guarded| guarded.parsed().has_whole_body()),
        };
        let body = answer.body().map(|body| &body[..]);
        http::judge(&self.route.policy, facts, || self.judge.as_ref()?(answer.head(), body))
    }
}
