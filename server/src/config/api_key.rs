//! The API key.

use std::fmt;

use super::placeholder::{self, FIX};

/// The least length of a key, as of a secret.
const SHORTEST: usize = 16;

/// The key that backends send. It is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key that can be sent in a header, and that nobody guesses. The error does not quote it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        match placeholder::refuse(text)?.as_bytes() {
            [] => Err(format!("it is empty, so everybody would have it; {FIX}")),
            bytes if !bytes.iter().all(u8::is_ascii_graphic) => Err(format!(
                "it has a blank or another character that cannot be sent in a header, which takes visible ASCII; {FIX}"
            )),
            bytes if bytes.len() < SHORTEST => {
                Err(format!("it has {} characters, and needs at least {SHORTEST}; {FIX}", bytes.len()))
            }
            _ => Ok(Self(text.to_owned())),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}
