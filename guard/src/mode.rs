//! How much a guard does, for a service that brings one in step by step.

/// How much a guard does, on its routes and in [`Guard::run`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Nothing: no command is sent to the store, and no byte of a request or an answer is changed.
    Off,
    /// It checks, counts and logs what it would not let run, and changes nothing for the caller. It does not wait for a body
    /// either: where the guard looks into one that has not arrived, the handler is called first and the request is judged after
    /// its answer, by the body that the handler has read by then.
    Observe,
    /// It protects.
    #[default]
    Enforce,
}
