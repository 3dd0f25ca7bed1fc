//! Any function, run once: for jobs and message consumers.

use std::future::Future;

use onceward_api::{Code, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::IntoFailure;
use crate::guard::{Guard, Verdict};
use crate::intent::Intent;
use crate::mode::Mode;
use crate::no_reply::NoReply;
use crate::policy::{Effect, Policy};
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::store::StoreError;

/// What came of running something once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome<T> {
    /// It ran now.
    Executed(T),
    /// It ran now, and nothing but its lease keeps a duplicate from running: that could not be written down yet, or the guard
    /// does not [enforce](crate::Mode), or the store could not be asked and the policy
    /// [fails open](crate::IntervalRules::fail_open).
    Unprotected(T),
    /// It ran before, and this is what came of it.
    Replayed(T),
}

impl<T> RunOutcome<T> {
    /// What came of it, now or before.
    pub fn into_value(self) -> T {
        match self {
            Self::Executed(value) | Self::Unprotected(value) | Self::Replayed(value) => value,
        }
    }
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// It was not run. If the rejection [says when](Rejection::retry_after), come back then: a message goes back to its queue.
    #[error("not run: {}", .0.code())]
    Rejected(Rejection),
    /// It was not run, because the store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It ran and failed, and nothing took effect. The same may be tried again.
    #[error("the work failed, and did not take effect")]
    Failed(#[source] E),
    /// It ran and failed, and whether it took effect is unknown. A token stays used, a claim waits for its lease, or with
    /// [at most once](crate::KeyRules::at_most_once) until [`Guard::settle`] says how it ended.
    #[error("the work failed, and whether it took effect is unknown")]
    Unknown(#[source] E),
    /// It ran before, and what came of it cannot be read as what is asked for now.
    #[error("what came of it before cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

impl Guard {
    /// Runs some work once, and gives what came of it to every later caller with the same intent. A caller that comes while the
    /// work runs is refused, and told when to come back.
    ///
    /// # When the work fails
    ///
    /// An `Err` counts like a response with status 500, unless it is a [`Failure`](crate::Failure) that says more:
    ///
    /// | the work ends with | token, interval, key | key with [at most once](crate::KeyRules::at_most_once) |
    /// |---|---|---|
    /// | `Err(error)`, `Err(Failure::Failed(error))` | not applied: the next caller runs it again | unknown: it does not run again before [`Guard::settle`] |
    /// | `Err(Failure::NotApplied(error))` | not applied | not applied: the next caller runs it again |
    /// | `Err(Failure::Unknown(error))`, a panic, a future that is dropped | unknown: a token stays used, a claim waits for its lease | unknown |
    ///
    /// The caller gets [`RunError::Failed`] if the work was not applied, and [`RunError::Unknown`] if that is unknown.
    ///
    /// # Cancel safety
    ///
    /// **Not cancel safe**: dropping this future while the work runs leaves an unknown outcome. Spawn it as a task of its own
    /// where that may happen.
    ///
    /// # Examples
    ///
    /// ```
    /// use onceward::{Intent, Key, KeyRules, Policy, RunOutcome, Subject, testing};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let (guard, _clock) = testing::guard();
    /// let message = Key::of_parts(["billing", "4711"])?;
    /// let intent = Intent::new("send invoice", Subject::anonymous()).key(&message);
    /// let policy = Policy::key(KeyRules::retryable());
    ///
    /// let send = async || Ok::<_, std::io::Error>("sent".to_owned());
    /// assert_eq!(guard.run(&policy, &intent, send).await?, RunOutcome::Executed("sent".to_owned()));
    /// let again = async || unreachable!("it is done");
    /// assert_eq!(guard.run::<String, std::io::Error, _, _>(&policy, &intent, again).await?.into_value(), "sent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// Under `hold`, work says where it is certain that nothing took effect:
    ///
    /// ```
    /// use onceward::Failure::{self, NotApplied};
    /// use onceward::{Intent, Key, KeyRules, Policy, RunError, Subject, testing};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let (guard, _clock) = testing::guard();
    /// let message = Key::new("charge-4711")?;
    /// let intent = Intent::new("charge", Subject::named("alice")).key(&message);
    /// let policy = Policy::key(KeyRules::at_most_once());
    ///
    /// let closed = async || Err::<(), _>(NotApplied("the bank is closed"));
    /// let told = guard.run(&policy, &intent, closed).await;
    /// assert!(matches!(told, Err(RunError::Failed("the bank is closed"))));
    ///
    /// // Every error that converts into the inner one may be passed on with `?`.
    /// let lost = async || -> Result<(), Failure<Box<dyn std::error::Error>>> {
    ///     Err(std::io::Error::other("the response was lost"))?;
    ///     Ok(())
    /// };
    /// assert!(matches!(guard.run(&policy, &intent, lost).await, Err(RunError::Unknown(_))), "it may have been charged");
    /// let again = async || unreachable!("nobody knows whether it was charged");
    /// let told = guard.run::<(), std::io::Error, _, _>(&policy, &intent, again).await;
    /// assert!(matches!(told, Err(RunError::Rejected(_))), "outcome_unknown, until it is settled");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// If nothing came of it.
    pub async fn run<T, E, F, W>(
        &self,
        policy: &Policy,
        intent: &Intent<'_>,
        work: W,
    ) -> Result<RunOutcome<T>, RunError<E::Error>>
    where
        T: Serialize + DeserializeOwned,
        E: IntoFailure,
        F: Future<Output = Result<T, E>>,
        W: FnOnce() -> F,
    {
        let checked = match self.mode() {
            Mode::Off => None,
            Mode::Observe => self.check_and_count(policy, intent).await,
            Mode::Enforce => match self.check(policy, intent).await {
                Err(error) if policy.fails_open(&error) => {
                    self.note_let_through(&intent.action, &error);
                    None
                }
                checked => Some(checked?),
            },
        };
        let pass = match checked {
            None => return work().await.map(RunOutcome::Unprotected).map_err(|error| RunError::of(error, policy).0),
            Some(Verdict::Run(pass)) => pass,
            Some(Verdict::Replay(reply)) => {
                return serde_json::from_slice(reply.body()).map(RunOutcome::Replayed).map_err(RunError::Unreadable);
            }
            Some(Verdict::Reject(rejection)) => return Err(RunError::Rejected(rejection)),
        };
        let value = match work().await {
            Ok(value) => value,
            Err(error) => {
                let (error, effect) = RunError::of(error, policy);
                let _ = pass.settle(effect, None).await.inspect_err(|error| {
                    tracing::warn!(%error, ?effect, "could not settle the claim of work that failed; retrying in the background, or its lease ends it");
                });
                return Err(error);
            }
        };
        // What cannot be written as text is done all the same.
        let reply = serde_json::to_vec(&value).map(|body| Reply::new(200, body)).map_err(|_| NoReply::Unwritable);
        Ok(match pass.end(Effect::Applied, reply).await {
            Ok(crate::pass::Settled::Lost) | Err(_) => RunOutcome::Unprotected(value),
            Ok(_) => RunOutcome::Executed(value),
        })
    }

    /// Only the right to run; what would not have run is counted.
    async fn check_and_count(&self, policy: &Policy, intent: &Intent<'_>) -> Option<Verdict> {
        let outcome = match self.check(policy, intent).await {
            Ok(Verdict::Run(pass)) => return Some(Verdict::Run(pass)),
            Ok(Verdict::Replay(_)) => Outcome::Replayed,
            Ok(Verdict::Reject(rejection)) => Outcome::Rejected(rejection.code()),
            Err(error) => Outcome::Rejected(Rejection::after(&error, policy, intent).code()),
        };
        self.observe(outcome, &intent.action);
        None
    }
}

impl<E> RunError<E> {
    /// What is told of work that failed, and what that says about its effect.
    fn of(error: impl IntoFailure<Error = E>, policy: &Policy) -> (Self, Effect) {
        let failure = error.into_failure();
        let effect = failure.effect(policy);
        let told = if effect == Effect::Unknown { Self::Unknown } else { Self::Failed };
        (told(failure.into_inner()), effect)
    }

    /// Whether this call took effect: it did not, or that is unknown. A handler behind [`Protect`](crate::actix::Protect) that answers
    /// with this error passes it on, since a status alone cannot say it:
    ///
    /// ```
    /// # #[cfg(feature = "actix")] {
    /// use actix_web::HttpResponse;
    /// use onceward::RunError;
    /// use onceward::actix::MarkEffect as _;
    ///
    /// fn answer(error: &RunError<std::io::Error>) -> HttpResponse {
    ///     HttpResponse::ServiceUnavailable().finish().effect(error.effect())
    /// }
    /// # let _ = answer;
    /// # }
    /// ```
    pub fn effect(&self) -> Effect {
        match self {
            Self::Unknown(_) | Self::Store(StoreError::Unknown(_)) => Effect::Unknown,
            Self::Rejected(rejection) if rejection.code() == Code::OutcomeUnknown => Effect::Unknown,
            Self::Rejected(_) | Self::Store(_) | Self::Failed(_) | Self::Unreadable(_) => Effect::NotApplied,
        }
    }

    /// Whether the same may be asked for again, a moment later. A duplicate within an interval is not temporary: asked for again after the
    /// interval, it would run. A [lock](crate::IntervalRules::release_always) that is held is.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Rejected(rejection) => matches!(rejection.code(), Code::InProgress | Code::Locked | Code::Overloaded),
            Self::Store(_) => true,
            Self::Failed(_) | Self::Unknown(_) | Self::Unreadable(_) => false,
        }
    }
}
