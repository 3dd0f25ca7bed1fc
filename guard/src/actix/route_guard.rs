use std::fmt;

use actix_web::guard::{Guard as RouteGuard, GuardContext};
use onceward_api::header;

use crate::guard::Guard;
use crate::http::{RequestHead as _, action_of, token_in};
use crate::intent::Intent;
use crate::mode::Mode;
use crate::policy::{Policy, TokenRules};
use crate::subject::Subject;

type GuardSubject = Box<dyn Fn(&GuardContext<'_>) -> Option<String>>;

/// A routing guard that matches requests with a valid token in the header or the query.
///
/// It only verifies the token's signature, expiry and binding: it does not consume the token and does not query the store, so a used
/// token matches as well. A guard that shares its secret through the store matches nothing until it has reached the store once. A guard
/// that does not [enforce](crate::Mode) matches everything. Protect the route with [`Protect`](super::Protect) in any case. A token
/// that is bound to a subject matches only if [`subject`](Self::subject) returns that subject.
///
/// ```
/// use actix_web::{HttpResponse, web};
/// use onceward::Guard;
/// use onceward::actix::HasToken;
/// use onceward::store::Memory;
///
/// let guard = Guard::new(Memory::new());
/// let orders = web::resource("/orders")
///     .route(web::post().guard(HasToken::new(&guard)).to(HttpResponse::Created))
///     .route(web::post().to(HttpResponse::BadRequest));
/// # let _ = orders;
/// ```
pub struct HasToken {
    guard: Guard,
    rules: TokenRules,
    action: Option<String>,
    subject: GuardSubject,
}

impl HasToken {
    /// Matches a token that is valid for the action `METHOD /path`.
    pub fn new(guard: &Guard) -> Self {
        Self { guard: guard.clone(), rules: TokenRules::new(), action: None, subject: Box::new(|_| None) }
    }

    /// Matches only a token that was issued for this action, and for this subject unless it is anonymous.
    #[must_use]
    pub fn bound(mut self) -> Self {
        self.rules = self.rules.bound();
        self
    }

    /// Names the action, as the route's `Protect` does.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// Sets the function that returns the subject of a request; `None` is anonymous.
    #[must_use]
    pub fn subject(mut self, subject: impl Fn(&GuardContext<'_>) -> Option<String> + 'static) -> Self {
        self.subject = Box::new(subject);
        self
    }
}

impl RouteGuard for HasToken {
    fn check(&self, context: &GuardContext<'_>) -> bool {
        if self.guard.mode() != Mode::Enforce {
            return true;
        }
        let head = context.head();
        let Ok(Some(token)) = token_in(head.header(header::TOKEN), head.query()) else { return false };
        let own = || action_of(head.method.as_str(), head.uri.path());
        let action = self.action.clone().unwrap_or_else(own);
        let subject = (self.subject)(context).map_or_else(Subject::anonymous, Subject::named);
        self.guard.recognises(&Policy::Token(self.rules.clone()), &Intent::new(&action, subject).credential(&token))
    }
}

impl fmt::Debug for HasToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HasToken").field("rules", &self.rules).field("action", &self.action).finish_non_exhaustive()
    }
}
