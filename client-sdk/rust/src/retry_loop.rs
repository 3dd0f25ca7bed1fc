//! The retry loop: sends the attempts of a submission, with a backoff between them, and resolves an unknown outcome. [`decide`] chooses
//! each step.

mod look;

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::time::Duration;

use onceward_api::Code;
use tokio::time::{Instant, sleep, timeout};

use crate::attempt::{Attempt, AttemptResult};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::credential::Credential;
use crate::credential_state::CredentialState;
use crate::error::{Error, ErrorKind};
use crate::on_unknown::OnUnknown;
use crate::response::Response;
use crate::retry_decision::{
    AttemptHistory, AttemptSummary, CredentialKind, Decision, RetryConditions, decide, leaves_unknown,
};
use crate::submission::Plan;
use crate::transport::Transport;

/// Minimum timeout of an attempt after a refused connection, even if it starts at the deadline.
const AFTER_REFUSAL: Duration = Duration::from_millis(250);

/// Sends a submission, with retries.
pub(crate) async fn submit<T: Transport>(
    client: &Client,
    transport: &mut T,
    plan: &mut Plan,
) -> Result<Response, Error> {
    plan.credential.allows(plan.on_unknown)?;
    look::check(client, plan)?;
    let (host, path) = plan.url.as_ref().map_or(("", ""), |url| (url.host_str().unwrap_or_default(), url.path()));
    let span = tracing::info_span!(target: "onceward_client", "submission", method = %plan.method, host, path);
    let is_resumed = matches!(plan.credential, Credential::ResumedKey(_));
    let (history, started) = (AttemptHistory::new(is_resumed), Instant::now());
    let mut retry_loop = RetryLoop { client, transport, plan, history, started, credentials_rejected: false };
    // Not `Instrument::instrument`, which moves the future.
    let mut run = pin!(retry_loop.run());
    poll_fn(|context| span.in_scope(|| run.as_mut().poll(context))).await
}

struct RetryLoop<'a, T> {
    client: &'a Client,
    transport: &'a mut T,
    plan: &'a mut Plan,
    history: AttemptHistory,
    started: Instant,
    /// True if the last attempt was rejected because of the client's credentials.
    credentials_rejected: bool,
}

impl<T: Transport> RetryLoop<'_, T> {
    async fn run(&mut self) -> Result<Response, Error> {
        let mut credential = CredentialState::acquire(self.client, self.plan, self.started).await?;
        loop {
            let (result, carried) = self.attempt(&credential, false).await;
            let Some(summary) = result.summary() else {
                self.history.attempts += 1;
                return Err(self.error(result, &credential));
            };
            let decision = decide(&self.history, summary, &self.conditions(summary, carried));
            self.history = self.history.and(summary, decision);
            let number = self.history.attempts;
            tracing::debug!(target: "onceward_client", number, ?summary, ?decision, "attempt finished");
            if let AttemptSummary::Rejected {
                code: Code::TokenExpired | Code::TokenStale | Code::TokenInvalid | Code::TokenMalformed,
                ..
            } = summary
            {
                credential.discard_pooled_tokens();
            }
            match decision {
                Decision::Retry(backoff) => wait(backoff).await,
                Decision::RefreshCredentials => self.credentials_rejected = true,
                Decision::NewToken(backoff) => {
                    wait(backoff).await;
                    let replaced = credential.replace_token(self.time_left()).await;
                    replaced.map_err(|error| error.with_attempts(self.history.attempts))?;
                }
                // Boxed, since it is rare and its future is large.
                Decision::Unknown => return Box::pin(self.resolve_unknown(result, carried, &credential)).await,
                Decision::Return | Decision::Reject | Decision::NotSent => return self.finish(result, &credential),
            }
        }
    }

    /// Returns the response, or the error that explains why there is none.
    fn finish(&self, result: AttemptResult, credential: &CredentialState) -> Result<Response, Error> {
        match result {
            AttemptResult::Response(response) => Ok(Response::new(response, self.history.attempts)),
            result => Err(self.error(result, credential)),
        }
    }

    fn error(&self, result: AttemptResult, credential: &CredentialState) -> Error {
        let error = match result {
            AttemptResult::Failed(error) if self.history.in_doubt() => error.in_doubt(),
            AttemptResult::Failed(error) => error,
            AttemptResult::Rejected(rejection) => Error::rejected(rejection, credential.kind()),
            AttemptResult::NotSent(error) => {
                let message = "could not connect, so nothing was sent: is the server running, and is the URL correct?";
                Error::new(ErrorKind::NotSent, message).with_source(Some(error))
            }
            AttemptResult::Refused(error) => {
                let refused = match self.history.was_always_refused() {
                    true => {
                        format!("every connection was refused for {:.1?}, so nothing was sent", self.started.elapsed())
                    }
                    false => "earlier attempts ran nothing, and the last connection was refused".to_owned(),
                };
                let message = format!("{refused}: is the server running, and is the URL correct?");
                Error::new(ErrorKind::NotSent, message).with_source(Some(error))
            }
            result => return self.unknown(result, credential),
        };
        error.with_key(credential.key()).with_attempts(self.history.attempts)
    }

    /// Handles an unknown outcome as [`OnUnknown`] is set.
    async fn resolve_unknown(
        &mut self,
        result: AttemptResult,
        carried: CredentialKind,
        credential: &CredentialState,
    ) -> Result<Response, Error> {
        let unknown = self.unknown(result, credential);
        // The lookup of the service sends no request to the application. The other one carries the whole request: a server without support
        // for `Onceward-Look` runs it, with the same token or key.
        let may_send = carried != CredentialKind::Nothing && self.plan.body.is_repeatable();
        let may_look = may_send || self.client.inner().outcomes.is_some();
        if self.plan.on_unknown != OnUnknown::Look || !may_look {
            return Err(unknown);
        }
        self.look(credential).await.unwrap_or(Err(unknown))
    }

    fn unknown(&self, result: AttemptResult, credential: &CredentialState) -> Error {
        let advice = match credential.key() {
            Some(_) => {
                "Check the result, or send the same content with the same key (`Error::key`, `Submission::resume`)."
            }
            None => "Check the result before you send it again: with another token it is a new submission.",
        };
        let (reason, rejection, source) = match result {
            AttemptResult::Rejected(rejection) => {
                let code = rejection.problem.code;
                let reason = match leaves_unknown(code) {
                    true => format!("the response was {code}"),
                    false => format!("the last attempt was rejected ({code}), and an earlier one may have run"),
                };
                (reason, Some(rejection), None)
            }
            AttemptResult::RejectedLater(rejection) => {
                (format!("the response was {}, which this version does not know", rejection.outcome), None, None)
            }
            AttemptResult::Response(response) => {
                (format!("the response was {}", response.response.status()), None, None)
            }
            AttemptResult::NotSent(error) | AttemptResult::Refused(error) => {
                ("an earlier attempt had no response".to_owned(), None, Some(error))
            }
            AttemptResult::Lost(error) => ("the response was lost".to_owned(), None, Some(error)),
            AttemptResult::Failed(error) => return error,
        };
        let error = Error::new(ErrorKind::Unknown, format!("the outcome is unknown: {reason}. {advice}"));
        let error = error.with_rejection(rejection).with_source(source);
        error.with_key(credential.key()).with_attempts(self.history.attempts)
    }

    /// Sends one attempt. Returns its result, and the credential that its last request carried.
    async fn attempt(&mut self, credential: &CredentialState, is_look: bool) -> (AttemptResult, CredentialKind) {
        let inner = self.client.inner();
        let authorization = match &inner.authorization {
            None => None,
            Some(authorization) => {
                let is_rejected = std::mem::take(&mut self.credentials_rejected);
                match authorization.value(is_rejected, self.attempt_timeout()).await {
                    Ok(value) => Some(value),
                    Err(error) => {
                        let error = Error::misuse(format!("the `Authorization` value could not be fetched: {error}"));
                        return (AttemptResult::Failed(error), credential.kind());
                    }
                }
            }
        };
        let limit = self.attempt_timeout();
        let mut attempt = Attempt {
            transport: &mut *self.transport,
            http: &inner.http,
            key_header: &inner.key_header,
            plan: &mut *self.plan,
            credential,
            authorization,
            carried: credential.kind(),
            is_look,
            in_doubt: self.history.in_doubt(),
            outcome: None,
            is_submission: true,
            target: None,
        };
        let result = {
            let sent = pin!(attempt.send());
            timeout(limit, sent).await
        };
        (result.unwrap_or_else(|_| attempt.timed_out(limit)), attempt.carried)
    }

    fn conditions(&self, summary: AttemptSummary, carried: CredentialKind) -> RetryConditions {
        // While every connection was refused, there is nothing to look up.
        let may_have_run = summary != AttemptSummary::Refused || self.history.in_doubt();
        let reserved = if may_have_run { self.reserved_for_look() } else { Duration::ZERO };
        RetryConditions {
            limits: self.plan.limits,
            time_left: self.time_left().saturating_sub(reserved),
            is_repeatable: self.plan.body.is_repeatable(),
            carried,
            until_deadline: self.plan.on_unknown == OnUnknown::Retry,
            is_refreshable: self.client.inner().authorization.is_some(),
        }
    }

    fn attempt_timeout(&self) -> Duration {
        let shortest = if self.history.ends_refused { AFTER_REFUSAL } else { Duration::from_millis(1) };
        self.time_left().max(shortest).min(self.plan.limits.attempt_timeout)
    }

    fn time_left(&self) -> Duration {
        self.plan.limits.deadline.saturating_sub(self.started.elapsed())
    }

    fn reserved_for_look(&self) -> Duration {
        if self.plan.on_unknown == OnUnknown::Look { self.plan.limits.deadline / 4 } else { Duration::ZERO }
    }
}

async fn wait(backoff: Backoff) {
    sleep(backoff.delay(fastrand::f64())).await;
}

#[cfg(test)]
mod tests;
