//! The choice of token or key that identifies a submission.

use crate::error::Error;
use crate::key::Key;
use crate::on_unknown::OnUnknown;

/// The token or key that identifies a submission in all its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A token from the pool.
    Token,
    /// A random key, prefixed with the name of an application if there is one.
    GeneratedKey(Option<String>),
    /// This key.
    Key(Key),
    /// This key, which may have been sent before.
    ResumedKey(Key),
}

impl Credential {
    /// Checks that this credential supports `on_unknown`.
    ///
    /// # Errors
    /// If a token is combined with [`OnUnknown::Retry`].
    pub(crate) fn allows(&self, on_unknown: OnUnknown) -> Result<(), Error> {
        if *self == Self::Token && on_unknown == OnUnknown::Retry {
            return Err(Error::misuse(
                "`OnUnknown::Retry` requires a key: a token may be used or expired by the time it is sent again. \
                 Use `with_keys`, or `OnUnknown::Report`.",
            ));
        }
        Ok(())
    }
}
