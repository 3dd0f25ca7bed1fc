//! The client's reaction to an unknown outcome.

/// The client's reaction to an unknown outcome: no attempt is left, the deadline has passed, or the server reported `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Returns an error with [`is_unknown`](crate::Error::is_unknown) and the key. For interactive programs: the user decides. With
    /// [`RetryLimits::attempts`](crate::RetryLimits::attempts) of one, the error is returned after the first attempt.
    #[default]
    Report,
    /// Looks up the stored outcome with `Onceward-Look`, which never runs the handler of a route that Onceward protects. If the outcome stays
    /// unknown, or if the body cannot be sent again, it does the same as `Report`. For jobs. A quarter of the deadline is reserved for the
    /// lookup. With [`outcomes_from`](crate::ClientBuilder::outcomes_from), it looks the outcome up at the service instead, and sends
    /// nothing to the application.
    Look,
    /// Retries with the same key until the deadline. For jobs. Requires a key: with a token, [`build`](crate::ClientBuilder::build) or
    /// [`send`](crate::Submission::send) fails.
    Retry,
}
