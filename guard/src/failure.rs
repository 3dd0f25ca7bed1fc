//! Errors of work that runs once, with the effect of the work.

use std::fmt::Display;

use crate::effect::Effect;
use crate::policy::Policy;

/// The error of work under [`Guard::run`](crate::Guard::run) that states whether the work took effect.
///
/// Any other error counts as [`Failed`](Self::Failed), and the policy decides the effect. `?` converts every error that converts into `E`.
///
/// ```
/// use onceward::Failure::{self, NotApplied, Unknown};
/// # struct Bank;
/// # impl Bank {
/// #     async fn balance(&self) -> std::io::Result<u32> { Ok(10) }
/// #     async fn charge(&self, _: u32) -> std::io::Result<()> { Ok(()) }
/// # }
///
/// async fn pay(bank: &Bank, amount: u32) -> Result<(), Failure<Box<dyn std::error::Error>>> {
///     // An error here converts with `?`, and the policy decides the effect.
///     let balance = bank.balance().await?;
///     if balance < amount {
///         // Nothing was charged: the message may be delivered again.
///         return Err(NotApplied("not enough money".into()));
///     }
///     // If the response is lost, the bank may have charged.
///     bank.charge(amount).await.map_err(|error| Unknown(error.into()))
/// }
/// # let _ = pay(&Bank, 5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure<E> {
    /// The work failed, which counts like a response with status 500: not applied, but unknown under a key with [at most
    /// once](crate::KeyRules::at_most_once).
    Failed(E),
    /// The work did not take effect: the token or key is free again, also under *at most once*.
    NotApplied(E),
    /// The work may have taken effect: the token stays used. A claim expires with its lease, or under *at most once* stays until it is
    /// settled.
    Unknown(E),
}

impl<E> Failure<E> {
    /// Returns the error itself.
    pub fn into_inner(self) -> E {
        match self {
            Self::Failed(error) | Self::NotApplied(error) | Self::Unknown(error) => error,
        }
    }

    /// Returns the effect of the work under this policy.
    pub(crate) fn effect(&self, policy: &Policy) -> Effect {
        match self {
            Self::Failed(_) => policy.effect_of_failure(),
            Self::NotApplied(_) => Effect::NotApplied,
            Self::Unknown(_) => Effect::Unknown,
        }
    }
}

/// Converts every error. `Failure` does not implement `Display`, so this does not conflict with `impl From<T> for T`.
impl<E, F: Display> From<F> for Failure<E>
where
    E: From<F>,
{
    fn from(error: F) -> Self {
        Self::Failed(error.into())
    }
}

/// An error of work under [`Guard::run`](crate::Guard::run): any type that implements `Display`, or a [`Failure`] of any type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of work that runs once",
    note = "implement `std::fmt::Display` for it, or return `onceward::Failure<{Self}>`"
)]
pub trait IntoFailure {
    /// The error that the caller of `run` receives.
    type Error;

    /// Converts the error into a [`Failure`].
    fn into_failure(self) -> Failure<Self::Error>;
}

impl<E: Display> IntoFailure for E {
    type Error = E;

    fn into_failure(self) -> Failure<E> {
        Failure::Failed(self)
    }
}

impl<E> IntoFailure for Failure<E> {
    type Error = E;

    fn into_failure(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{IntervalRules, KeyRules, TokenRules};

    #[test]
    fn failure_counts_like_500_unless_it_states_the_effect() {
        let key = |rules| Policy::key(rules);
        for (policy, expected) in [
            (Policy::token(), Effect::NotApplied),
            (Policy::Token(TokenRules::new().remember_by(KeyRules::retryable())), Effect::NotApplied),
            (Policy::interval(IntervalRules::new()), Effect::NotApplied),
            (key(KeyRules::retryable()), Effect::NotApplied),
            (key(KeyRules::at_most_once()), Effect::Unknown),
        ] {
            assert_eq!(policy.effect(500), expected, "{policy:?}");
            assert_eq!(Failure::Failed(()).effect(&policy), expected, "{policy:?}");
            assert_eq!(Failure::NotApplied(()).effect(&policy), Effect::NotApplied, "{policy:?}");
            assert_eq!(Failure::Unknown(()).effect(&policy), Effect::Unknown, "{policy:?}");
        }
        // A failure has no response to store.
        let everything = KeyRules::retryable().replay_everything();
        assert_eq!(Failure::Failed(()).effect(&key(everything)), Effect::NotApplied);
        assert_eq!(Failure::Failed(()).effect(&key(KeyRules::at_most_once().replay_everything())), Effect::Unknown);
    }
}
