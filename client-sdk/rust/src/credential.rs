//! What a submission is known by.

use crate::error::Error;
use crate::key::Key;
use crate::on_unknown::Undecided;

/// What a submission is known by over all its tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token from the pool.
    Token,
    /// A random key, behind the name of an application if there is one.
    AnyKey(Option<String>),
    /// This key.
    Key(Key),
    /// This key, which may have been sent before.
    Resumed(Key),
}

impl Credential {
    /// Whether it may be left undecided like this.
    pub(crate) fn allows(&self, undecided: Undecided) -> Result<(), Error> {
        if *self == Self::Token && undecided == Undecided::Retry {
            return Err(Error::misuse(
                "`Undecided::Retry` is for keys: a token may be used up or too old by the time it is sent again. \
                 Use `with_keys`, or `Undecided::Report`.",
            ));
        }
        Ok(())
    }
}
