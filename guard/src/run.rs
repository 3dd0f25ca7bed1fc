//! Results and errors of work that runs once.

use onceward_api::Code;

use crate::effect::Effect;
use crate::failure::IntoFailure;
use crate::policy::Policy;
use crate::rejection::Rejection;
use crate::store::StoreError;

/// The result of work that runs once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome<T> {
    /// This call ran the work.
    Executed(T),
    /// This call ran the work, and only its lease, if it has one, keeps a duplicate from running. The outcome could not be stored yet, or
    /// the guard does not [enforce](crate::Mode), or the store failed and the policy [fails open](crate::IntervalRules::fail_open).
    Unprotected(T),
    /// An earlier call ran the work, and this is its result.
    Replayed(T),
}

impl<T> RunOutcome<T> {
    /// Returns the result, whichever call ran the work.
    pub fn into_value(self) -> T {
        match self {
            Self::Executed(value) | Self::Unprotected(value) | Self::Replayed(value) => value,
        }
    }
}

/// The reason why the work has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work did not run. If the rejection has a [delay](Rejection::retry_after), retry after it; a consumer returns the message to its
    /// queue.
    #[error("not run: {}", .0.code())]
    Rejected(Rejection),
    /// The store could not be reached, so [`Guard::run`](crate::Guard::run) did not run the work. From `Guard::transact`: the transaction
    /// was not committed, or with [`StoreError::Unknown`] may have been committed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The work ran and failed, and did not take effect. It may be retried.
    #[error("the work failed and did not take effect")]
    Failed(#[source] E),
    /// The work ran and failed, and the outcome is unknown. A token stays used. A claim expires with its lease, or under
    /// [at most once](crate::KeyRules::at_most_once) stays until [`Guard::settle`](crate::Guard::settle) records the outcome.
    #[error("the work failed and the outcome is unknown")]
    Unknown(#[source] E),
    /// An earlier call ran the work, and its result cannot be deserialized as the requested type.
    #[error("the stored result cannot be deserialized as the requested type")]
    Unreadable(#[source] serde_json::Error),
}

impl<E> RunError<E> {
    /// Converts an error of the work, and returns the effect of the work under this policy.
    pub(crate) fn of(error: impl IntoFailure<Error = E>, policy: &Policy) -> (Self, Effect) {
        let failure = error.into_failure();
        let effect = failure.effect(policy);
        let variant = if effect == Effect::Unknown { Self::Unknown } else { Self::Failed };
        (variant(failure.into_inner()), effect)
    }

    /// Returns the effect of this call: not applied or unknown.
    ///
    /// A handler behind [`Protect`](crate::actix::Protect) that responds with this error marks its response with the effect, since a status
    /// alone does not express it:
    ///
    /// ```
    /// # #[cfg(feature = "actix")] {
    /// use actix_web::HttpResponse;
    /// use onceward::RunError;
    /// use onceward::actix::MarkEffect as _;
    ///
    /// fn response(error: &RunError<std::io::Error>) -> HttpResponse {
    ///     HttpResponse::ServiceUnavailable().finish().effect(error.effect())
    /// }
    /// # let _ = response;
    /// # }
    /// ```
    pub fn effect(&self) -> Effect {
        match self {
            Self::Unknown(_) | Self::Store(StoreError::Unknown(_)) => Effect::Unknown,
            Self::Rejected(rejection) if rejection.code() == Code::OutcomeUnknown => Effect::Unknown,
            Self::Rejected(_) | Self::Store(_) | Self::Failed(_) | Self::Unreadable(_) => Effect::NotApplied,
        }
    }

    /// Returns whether a retry after a short backoff may succeed. `too_soon` is not temporary: a retry after the interval would run the
    /// duplicate. A held [lock](crate::IntervalRules::release_always) is temporary.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Rejected(rejection) => matches!(rejection.code(), Code::InProgress | Code::Locked | Code::Overloaded),
            Self::Store(_) => true,
            Self::Failed(_) | Self::Unknown(_) | Self::Unreadable(_) => false,
        }
    }
}
