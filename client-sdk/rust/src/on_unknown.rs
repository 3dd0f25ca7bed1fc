//! The client's reaction to an unknown outcome.

/// The client's reaction if the outcome of a submission is unknown: all attempts are used, the deadline has passed, or the server reported
/// an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Returns an error with [`is_unknown`](crate::Error::is_unknown) and the key. For interactive callers: the user decides. With
    /// [`RetryLimits::attempts`](crate::RetryLimits::attempts) of one, the user learns it at once.
    #[default]
    Report,
    /// Looks up the stored outcome with `Onceward-Look`, which never runs the handler. If that does not settle it, or if the body cannot be
    /// sent again, it is reported. For jobs. A quarter of the deadline is reserved for it.
    Look,
    /// Retries under the same key until the deadline. For jobs whose server takes keys; a submission that carries a token is rejected with
    /// this.
    Retry,
}
