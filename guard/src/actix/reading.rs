//! What a route reads of its requests.

use std::sync::Arc;

use actix_web::dev::ServiceRequest;
use onceward_api::{Code, header};

use super::asked::{Asked, action_of};
use super::key_from::KeyFrom;
use super::whole::{Whole, too_large};
use crate::fingerprint::Fields;
use crate::intent::Subject;
use crate::policy::Policy;
use crate::refusal::Refusal;

/// What a route reads.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) action: Option<Arc<str>>,
    pub(super) key: KeyFrom,
    pub(super) is_optional: bool,
    pub(super) fields: Fields,
    pub(super) skips_large: bool,
    /// How much of a body is read.
    pub(super) limit: usize,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            action: None,
            key: KeyFrom::default(),
            is_optional: false,
            fields: Fields::all(),
            skips_large: false,
            limit: 256 * 1024,
        }
    }
}

impl Reading {
    /// What the request asks; `None` if it has no key and need not have one.
    pub(super) async fn read(
        &self,
        request: &mut ServiceRequest,
        policy: &Policy,
        subject: Subject<'static>,
    ) -> Result<Option<Asked>, Refusal> {
        let action = match &self.action {
            Some(action) => action.as_ref().to_owned(),
            None => action_of(request.method().as_str(), request.uri().path()),
        };
        match policy {
            Policy::Token { .. } => Asked::read(request, action, subject, self.limit).await.map(Some),
            // Apart, so that a token does not carry room for it.
            Policy::Key(_) => Box::pin(self.read_key(request, action, subject)).await,
        }
    }

    async fn read_key(
        &self,
        request: &mut ServiceRequest,
        action: String,
        subject: Subject<'static>,
    ) -> Result<Option<Asked>, Refusal> {
        let only_looks = request.headers().get(header::LOOK).is_some_and(|value| value == "true");
        // A key that is missing or malformed is told before the body is read, if it can be.
        let needs_body = self.key.needs_body();
        let early = if needs_body { None } else { self.key.find(request.request(), &Whole::unread())? };
        if early.is_none() && !needs_body {
            return self.without_key(only_looks);
        }
        let whole = Whole::read(request, self.limit).await?;
        if !whole.is_whole() && (needs_body || !(self.skips_large || only_looks)) {
            return Err(too_large(self.limit));
        }
        let key = if needs_body { self.key.find(request.request(), &whole)? } else { early };
        let Some(key) = key else { return self.without_key(only_looks) };
        let fingerprint = whole.is_whole().then(|| whole.fingerprint(request, &self.fields));
        Ok(Some(Asked::under_key(action, subject, key, fingerprint, only_looks)))
    }

    /// Whoever only looks has nothing run, not even unprotected.
    fn without_key(&self, only_looks: bool) -> Result<Option<Asked>, Refusal> {
        if self.is_optional && !only_looks { Ok(None) } else { Err(Code::KeyMissing.into()) }
    }
}
