//! What comes of work that runs once.

use onceward_api::Code;

use crate::effect::Effect;
use crate::failure::IntoFailure;
use crate::policy::Policy;
use crate::rejection::Rejection;
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
    #[error("{0}")]
    Store(#[from] StoreError),
    /// It ran and failed, and nothing took effect. The same may be tried again.
    #[error("the work failed, and did not take effect")]
    Failed(#[source] E),
    /// It ran and failed, and whether it took effect is unknown. A token stays used, a claim waits for its lease, or with
    /// [at most once](crate::KeyRules::at_most_once) until [`Guard::settle`](crate::Guard::settle) says how it ended.
    #[error("the work failed, and whether it took effect is unknown")]
    Unknown(#[source] E),
    /// It ran before, and what came of it cannot be read as what is asked for now.
    #[error("what came of it before cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

impl<E> RunError<E> {
    /// What is told of work that failed, and what that says about its effect.
    pub(crate) fn of(error: impl IntoFailure<Error = E>, policy: &Policy) -> (Self, Effect) {
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
