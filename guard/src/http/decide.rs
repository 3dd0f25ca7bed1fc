//! Decides whether a request runs, and settles its run.

use std::sync::Arc;
use std::time::Duration;

use onceward_api::Outcome;

use super::effect::Judgement;
use super::guarded_request::GuardedRequest;
use super::request::ParsedRequest;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::pass::Pass;
use crate::policy::Policy;
use crate::rejection::Rejection;
use crate::reply::{NoReply, Reply};
use crate::settled::Settled;
use crate::token::Token;
use crate::verdict::Verdict;

/// The rules of a route that do not depend on the framework.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) guard: Guard,
    pub(crate) policy: Policy,
    /// Maximum time that a duplicate waits for the first request. `None` or zero: it does not wait.
    pub(crate) wait: Option<Duration>,
    pub(crate) mode: Mode,
    /// True if a response carries a new token.
    pub(crate) next_token: bool,
}

/// The decision about a request. `R` is what a run needs: its pass, and later the whole admitted request.
pub(crate) enum Decision<R> {
    Run(R),
    Replay(Reply),
    /// The request runs without protection: it has no key and the key is optional, or the store failed and the policy fails open.
    Unprotected,
}

/// A request that may run, with its pass.
pub(crate) struct AdmittedRequest {
    pub(crate) guarded: Arc<GuardedRequest>,
    pub(crate) pass: Pass,
}

impl<R> Decision<R> {
    /// Converts what a run needs.
    pub(crate) fn map_run<T>(self, admit: impl FnOnce(R) -> T) -> Decision<T> {
        match self {
            Self::Run(run) => Decision::Run(admit(run)),
            Self::Replay(reply) => Decision::Replay(reply),
            Self::Unprotected => Decision::Unprotected,
        }
    }
}

impl Route {
    pub(crate) fn new(guard: &Guard, policy: Policy) -> Self {
        Self { guard: guard.clone(), policy, wait: None, mode: Mode::Enforce, next_token: false }
    }

    /// Returns the effective mode: the route's, limited by the guard's.
    pub(crate) fn mode(&self) -> Mode {
        self.mode.min(self.guard.mode())
    }

    /// Returns whether a duplicate waits for the first request. An observed request does not wait.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_some_and(|longest| !longest.is_zero()) && self.mode() == Mode::Enforce
    }

    /// Counts a rejection that precedes the guard's decision.
    pub(crate) fn count(&self, rejection: Rejection) -> Rejection {
        self.guard.count_rejection(&self.policy, rejection.code());
        rejection
    }

    /// Returns the request that this pass admits, inside of the guard `outer`.
    pub(crate) fn admit(
        &self,
        parsed: ParsedRequest,
        pass: Pass,
        outer: Option<Arc<GuardedRequest>>,
    ) -> AdmittedRequest {
        AdmittedRequest { guarded: GuardedRequest::new(parsed, self.policy.label().as_str(), &pass, outer), pass }
    }

    /// Decides about a request that outer guards may have admitted. The client receives the error as the response. A duplicate stops
    /// waiting when `enough` completes. The future is cancel safe while `idle` was last called with `true`.
    pub(crate) async fn decide<F: Future<Output = ()>>(
        &self,
        parsed: &ParsedRequest,
        outer: Option<&GuardedRequest>,
        enough: impl FnOnce(Duration) -> F,
        idle: impl Fn(bool),
    ) -> Result<Decision<Pass>, Rejection> {
        let intent = parsed.intent();
        let failed = |error| {
            tracing::debug!(%error, action = parsed.action(), "could not check the request; the handler does not run");
            Guard::rejection_after(&error, &self.policy, &intent)
        };
        if parsed.only_looks() {
            let seen = Box::pin(self.guard.look(&self.policy, &intent)).await.map_err(failed)?;
            return seen.into_reply().map(Decision::Replay);
        }
        let decided = match (self.guard.decide(&self.policy, &intent).await, outer) {
            (Ok(Verdict::Reject(rejection)), Some(outer)) => {
                Ok(Verdict::Reject(Box::pin(self.unless_nested(rejection, parsed, outer)).await))
            }
            (decided, _) => decided,
        };
        let checked = match (decided, self.wait) {
            // `enough` also ends the wait of a client that has closed its connection.
            (Ok(Verdict::Reject(rejection)), Some(longest)) if self.waits() => {
                Box::pin(self.guard.wait_if_in_progress(rejection, &self.policy, &intent, enough(longest), idle)).await
            }
            (checked, _) => checked,
        };
        self.guard.count_verdict(&self.policy, &checked, &intent);
        if let Err(error) = &checked
            && self.guard.fails_open(&self.policy, error)
        {
            self.guard.note_unprotected(parsed.action(), error);
            return Ok(Decision::Unprotected);
        }
        match checked.map_err(failed)? {
            Verdict::Run(pass) => Ok(Decision::Run(pass)),
            Verdict::Replay(reply) => Ok(Decision::Replay(reply)),
            Verdict::Reject(rejection) => Err(rejection),
        }
    }

    /// Settles a run by its response, before the response is sent. Without a reply, the pass has ended unwritten. Returns the outcome to
    /// report, and the next token if the route sends one.
    pub(crate) async fn settle(
        &self,
        AdmittedRequest { guarded, pass }: &mut AdmittedRequest,
        judgement: Judgement,
        reply: Option<Result<Reply, NoReply>>,
        reported: Option<Outcome>,
    ) -> (Outcome, Option<Token>) {
        let successor = self.next_token.then(|| pass.binding(&guarded.parsed().intent()));
        let settled = match reply {
            None => Ok(Settled::Final),
            // Boxed, so that the future of a run with nothing to write is small.
            Some(reply) => Box::pin(pass.write(judgement.effect, reply)).await,
        };
        if let Err(error) = &settled {
            tracing::debug!(
                %error, effect = ?judgement.effect,
                "could not record the outcome of the run; a claim is retried in the background, a plain token stays used"
            );
        }
        let outcome = judgement.outcome(reported, &settled, &self.policy);
        let next = match (settled, successor) {
            (Ok(Settled::Final), Some(successor)) => {
                let issued = Box::pin(self.guard.issue(self.guard.token_ttl(), successor)).await;
                issued.inspect_err(|error| tracing::debug!(%error, "could not issue the next token")).ok()
            }
            _ => None,
        };
        (outcome, next)
    }
}
