//! The rules of a route.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use onceward_api::path::canonical;
use onceward_api::{Outcome, header};

use super::decide::Route;
use super::effect::{Entry, Judgement, ResponseFacts, judge};
use super::exchange::HandlerResponse;
use super::framework::Framework;
use super::guarded_request::GuardedRequest;
use super::kept_headers::KeptHeaders;
use super::profile::Profile;
use super::rejection_format::RejectionFormat;
use super::request::{ParsedRequest, RequestHead as _, RequestReader};
use super::response::GuardResponse;
use super::retention_header::RetentionHeader;
use super::stored_response::{capture, read_limit};
use super::subject_source::SubjectSource;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::policy::{Policy, TokenRules};
use crate::rejection::Rejection;
use crate::reply::{NoReply, Reply};

/// A function of the application that decides the effect of a response.
type Judge<H> = Arc<dyn Fn(&H, Option<&[u8]>) -> Option<Effect> + Send + Sync>;

/// The treatment of a request by a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It passes the request on.
    Untouched,
    /// It is off. It passes the request on, with the rules of the route attached.
    Unchecked,
    /// It runs the [middleware](super::middleware).
    Guarded,
}

/// The rules of a route.
pub(crate) struct RouteRules<F: Framework> {
    pub(crate) route: Route,
    pub(crate) subject: SubjectSource<F::Request>,
    pub(crate) reader: RequestReader<F::Request>,
    pub(super) judge: Option<Judge<F::ResponseHead>>,
    /// Maximum number of bytes that are read of a response's body.
    pub(super) answer_limit: usize,
    pub(super) kept_headers: KeptHeaders<F::HeaderName>,
    pub(super) format: RejectionFormat,
    /// The contract by which requests with a key are answered.
    pub(super) profile: Profile,
    /// The name of the header that says how long a response is stored; `None` if the route does not say so.
    pub(super) retention_header: Option<Cow<'static, str>>,
    /// True once the rewriting of the path inside of the guard has been logged.
    is_rewriting_logged: Arc<AtomicBool>,
}

impl<F: Framework> RouteRules<F> {
    pub(super) fn new(guard: &Guard, subject: SubjectSource<F::Request>, policy: Policy, answer_limit: usize) -> Self {
        Self {
            route: Route::new(guard, policy),
            subject,
            reader: RequestReader::default(),
            judge: None,
            answer_limit,
            kept_headers: KeptHeaders::default(),
            format: RejectionFormat::problem(),
            profile: Profile::Ietf,
            retention_header: None,
            is_rewriting_logged: Arc::default(),
        }
    }

    /// Returns what the guard does with requests of this method.
    pub(crate) fn treatment(&self, method: &str) -> Treatment {
        match (method, self.route.mode()) {
            ("GET" | "HEAD" | "OPTIONS", _) => Treatment::Untouched,
            (_, Mode::Off) => Treatment::Unchecked,
            (_, Mode::Observe | Mode::Enforce) => Treatment::Guarded,
        }
    }

    /// Returns how much of a response's body is read; `None` if it is not read.
    pub(super) fn read_limit(&self) -> Option<usize> {
        read_limit(&self.route.policy, self.answer_limit)
    }

    /// Like [`read_limit`](Self::read_limit), for a request without protection: nothing is stored, and only the route's own function may read
    /// the body.
    pub(super) fn unprotected_read_limit(&self) -> Option<usize> {
        self.judge.as_ref().and(self.read_limit())
    }

    /// Logs, once, that the path was rewritten after the action was derived from it. A plain token is valid once whatever its action,
    /// so it is not affected.
    pub(super) fn notice_rewriting(&self, parsed: &ParsedRequest, answer: &impl HandlerResponse<F>) {
        let goes_by_action = !matches!(self.route.policy, Policy::Token(TokenRules { remember: None, .. }));
        if self.reader.action.is_some() || !goes_by_action {
            return;
        }
        let (Some((_, seen)), Some(path)) = (parsed.action().split_once(' '), answer.path()) else { return };
        let rewritten = canonical(path);
        if seen != rewritten && !self.is_rewriting_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "onceward::http",
                seen,
                %rewritten,
                "the path was rewritten inside of the guard, so one route has several actions and a duplicate may run; install the \
                 middleware that rewrites it, such as NormalizePath, outside of the guard, or name the action with Protect::action"
            );
        }
    }

    /// Decides the effect of the response. `guarded` is `None` for a request that no guard admitted.
    pub(super) fn judge(&self, answer: &impl HandlerResponse<F>, guarded: Option<&GuardedRequest>) -> Judgement {
        let status = match answer.outcome() {
            // The format of the route chooses the status that is sent.
            Some(Outcome::Rejected(code)) => code.status(),
            _ => answer.status(),
        };
        let facts = ResponseFacts {
            status,
            handler: answer.effect(),
            entry: guarded.map_or(Entry::Unmarked, GuardedRequest::entry),
            source: answer.source(),
            // Without protection, a wrong guess releases nothing.
            had_whole_body: guarded.is_none_or(|guarded| guarded.parsed().has_whole_body()),
        };
        let body = answer.body().ok().map(|body| &body[..]);
        judge(&self.route.policy, facts, || self.judge.as_ref()?(answer.head()?, body))
    }

    /// Returns the key to send back with every response.
    pub(super) fn echoed_key(&self, request: &F::Request) -> Option<Bytes> {
        let key = self.profile.echoes_key().then(|| request.header(header::IDEMPOTENCY_KEY).next())??;
        Some(Bytes::copy_from_slice(key))
    }

    /// Returns the header that says how long a response with this outcome is stored.
    pub(super) fn retention(&self, outcome: Outcome) -> Option<RetentionHeader> {
        let name = self.retention_header.as_ref().filter(|_| RetentionHeader::applies_to(outcome))?;
        RetentionHeader::of(&self.route.policy, name.clone())
    }

    /// Rejects the request, in the format of this route.
    pub(super) fn reject(&self, request: &F::Request, rejection: &Rejection) -> GuardResponse {
        let response = GuardResponse::formatted_to(request, &self.format, &self.route.guard, rejection);
        response.with_key(self.echoed_key(request))
    }

    /// Returns the response to store, or the reason why its body was not read.
    pub(super) fn reply(&self, answer: &impl HandlerResponse<F>) -> Result<Reply, NoReply> {
        let body = answer.body()?.clone();
        Ok(capture(answer.status(), answer.headers(), body, |name| self.kept_headers.keeps(name)))
    }
}

impl<F: Framework> Clone for RouteRules<F> {
    fn clone(&self) -> Self {
        Self {
            route: self.route.clone(),
            subject: self.subject.clone(),
            reader: self.reader.clone(),
            judge: self.judge.clone(),
            answer_limit: self.answer_limit,
            kept_headers: self.kept_headers.clone(),
            format: self.format.clone(),
            profile: self.profile,
            retention_header: self.retention_header.clone(),
            is_rewriting_logged: Arc::clone(&self.is_rewriting_logged),
        }
    }
}
