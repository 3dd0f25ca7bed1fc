//! What is done about a submission of which nobody can tell whether it happened.

/// What is done once a submission has ended without an answer: every try is used up, the deadline is over, or a server said
/// that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Undecided {
    /// The caller is told that it is unknown, and gets the key. For whoever has a person waiting: that person decides. With
    /// [`Limits::tries`](crate::Limits::tries) of one it is told at once.
    #[default]
    Report,
    /// The server is asked what is on record, with `Onceward-Look`, and never runs anything for that. If that tells nothing,
    /// it is reported, and so is one whose body cannot be sent again. For jobs. A quarter of the deadline is kept for it.
    Ask,
    /// The same is sent again and again under the same key, until the deadline. For jobs whose server goes by keys; a
    /// submission that carries a token is refused with this.
    Retry,
}
