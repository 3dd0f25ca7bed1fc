//! Looks up the outcome of a submission: with `Onceward-Look` at the application, or with `/outcome` at the service.

use std::time::Duration;

use onceward_api::path::canonical_action;
use onceward_api::{Code, Outcome, OutcomeRequest, OutcomeResponse, Problem, Retry, State};
use tokio::time::sleep;

use super::RetryLoop;
use crate::attempt::AttemptResult;
use crate::backoff::Backoff;
use crate::client::Client;
use crate::credential::Credential;
use crate::credential_state::CredentialState;
use crate::error::{Error, ErrorKind};
use crate::on_unknown::OnUnknown;
use crate::outcome_service::{LookupError, OutcomeService, replayed};
use crate::rejection::{LaterRejection, Rejection};
use crate::response::Response;
use crate::submission::Plan;
use crate::transport::Transport;

/// The result of one lookup.
enum LookResult {
    /// The lookup ends with this result.
    Settled(Result<Response, Error>),
    /// The submission is in progress, or the lookup failed with this error. A later lookup may succeed.
    Later { retry_after: Option<Duration>, error: Option<Error> },
    /// The server does not support `Onceward-Look`.
    Unsupported,
}

/// Checks before anything is sent that the service can look up this submission.
///
/// # Errors
/// If it has a key and no subject.
pub(super) fn check(client: &Client, plan: &Plan) -> Result<(), Error> {
    let asks_service = plan.on_unknown == OnUnknown::Look && client.inner().outcomes.is_some();
    if asks_service && plan.credential != Credential::Token && plan.binding.subject.is_none() {
        return Err(Error::misuse(
            "the service looks up a key by action and subject: set `Submission::subject` to the client, as the application knows it",
        ));
    }
    Ok(())
}

impl<T: Transport> RetryLoop<'_, T> {
    /// Looks up the stored outcome, and waits while the submission is in progress. Returns `None` if the outcome stays unknown.
    pub(super) async fn look(&mut self, credential: &CredentialState) -> Option<Result<Response, Error>> {
        let client = self.client;
        let mut failure = None;
        for looks in 0..self.plan.limits.attempts {
            let result = match &client.inner().outcomes {
                Some(service) => self.look_at_service(service, credential).await,
                None => self.look_at_application(credential).await,
            };
            let retry_after = match result {
                LookResult::Settled(result) => return Some(result),
                LookResult::Unsupported => return None,
                LookResult::Later { retry_after, error } => {
                    failure = error;
                    retry_after
                }
            };
            let delay = Backoff::after(looks, retry_after, &self.plan.limits).delay(fastrand::f64());
            if delay >= self.time_left() {
                break;
            }
            sleep(delay).await;
        }
        failure.map(Err)
    }

    async fn look_at_application(&mut self, credential: &CredentialState) -> LookResult {
        let (result, _) = self.attempt(credential, true).await;
        match result {
            AttemptResult::Response(response) if response.outcome == Some(Outcome::Replayed) => {
                LookResult::Settled(Ok(Response::new(response, self.history.attempts)))
            }
            AttemptResult::Rejected(Rejection { problem, retry_after }) if problem.retry == Retry::Same => {
                LookResult::Later { retry_after, error: None }
            }
            AttemptResult::Rejected(rejection) => LookResult::Settled(Err(self.look_rejected(rejection, credential))),
            AttemptResult::RejectedLater(LaterRejection { retry: Retry::Same, retry_after, .. }) => {
                LookResult::Later { retry_after, error: None }
            }
            AttemptResult::Response(..) | AttemptResult::RejectedLater(_) | AttemptResult::Failed(_) => {
                LookResult::Unsupported
            }
            AttemptResult::NotSent(_) | AttemptResult::Refused(_) | AttemptResult::Lost(_) => {
                LookResult::Later { retry_after: None, error: None }
            }
        }
    }

    async fn look_at_service(&self, service: &OutcomeService, credential: &CredentialState) -> LookResult {
        let asked = self.question(credential);
        let looked = service.look_up(&self.client.inner().http, &asked, self.attempt_timeout()).await;
        let state = looked.as_ref().ok().map(|outcome| outcome.state);
        tracing::debug!(target: "onceward_client", ?state, "looked up the outcome at the service");
        let unknown = |reason: &str| {
            let error =
                Error::new(ErrorKind::Unknown, format!("the outcome is unknown, and the lookup failed: {reason}"));
            error.with_key(credential.key()).with_attempts(self.history.attempts)
        };
        match looked {
            Ok(outcome) => self.settled(&outcome, credential),
            Err(LookupError::Rejected(rejection)) if rejection.problem.code == Code::Unauthorized => {
                let error = unknown("the service rejected the API key: set the one of the service in `outcomes_from`");
                LookResult::Settled(Err(error.with_rejection(Some(rejection))))
            }
            Err(LookupError::Rejected(rejection)) if rejection.problem.retry == Retry::Same => {
                let error = unknown(&rejection.problem.detail);
                LookResult::Later {
                    retry_after: rejection.retry_after,
                    error: Some(error.with_rejection(Some(rejection))),
                }
            }
            Err(LookupError::Rejected(rejection)) => {
                LookResult::Settled(Err(self.look_rejected(rejection, credential)))
            }
            Err(LookupError::Unavailable { reason, retry_after }) => {
                let error = unknown("the service cannot be reached").with_source(Some(reason));
                LookResult::Later { retry_after, error: Some(error) }
            }
            Err(LookupError::Unusable(reason)) => LookResult::Settled(Err(unknown(&reason))),
        }
    }

    /// The request to `/outcome`: the action is the one in the plan, or method and path.
    fn question(&self, credential: &CredentialState) -> OutcomeRequest {
        let path = self.plan.url.as_ref().map_or("", |url| url.path());
        let by_path = || canonical_action(&format!("{} {path}", self.plan.method)).into_owned();
        OutcomeRequest {
            key: credential.key().map(|key| key.as_str().to_owned()),
            token: credential.token(),
            action: Some(self.plan.binding.action.clone().unwrap_or_else(by_path)),
            subject: self.plan.binding.subject.clone(),
        }
    }

    /// The result for a state of the record.
    fn settled(&self, outcome: &OutcomeResponse, credential: &CredentialState) -> LookResult {
        let code = match (outcome.state, &outcome.reply) {
            (State::Running, _) => return LookResult::Later { retry_after: None, error: None },
            (State::Done, Some(reply)) => match replayed(self.plan.url.as_ref(), reply) {
                Some(response) => return LookResult::Settled(Ok(Response::new(response, self.history.attempts))),
                None => Code::ReplyNotKept,
            },
            (State::Done, None) => Code::ReplyNotKept,
            // A token without a record was used, and its route stores no response.
            (State::Absent, _) if credential.key().is_none() => Code::OutcomeUnknown,
            (State::Absent | State::Issued, _) => Code::NotFound,
            (State::Unknown, _) => Code::OutcomeUnknown,
        };
        let rejection = Rejection { problem: Problem::new(code), retry_after: None };
        LookResult::Settled(Err(self.look_rejected(rejection, credential)))
    }

    /// The error after a lookup that was rejected.
    fn look_rejected(&self, rejection: Rejection, credential: &CredentialState) -> Error {
        let advice = match rejection.problem.code {
            Code::ReplyNotKept => return self.error(AttemptResult::Rejected(rejection), credential),
            Code::NotFound => {
                "the server has no record of it. It may not have run, or not yet: a request may still be in flight. \
                 Send it again with the same key, or look again later."
            }
            Code::TokenUsed => {
                "the reply to its token is stored for another action, subject or content. Where the service is asked, set \
                 `Submission::subject` and `Submission::action` to those that the application claims with."
            }
            _ => "the server's record does not settle it. Check the result before you send it again.",
        };
        let error = Error::new(ErrorKind::Unknown, format!("the outcome is unknown: {advice}"));
        error.with_rejection(Some(rejection)).with_key(credential.key()).with_attempts(self.history.attempts)
    }
}
