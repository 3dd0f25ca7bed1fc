//! The API key.

use std::fmt;

use super::placeholder::{self, FIX};

/// The minimum length of a key, the same as of a secret.
const SHORTEST: usize = 16;

/// The key that backends send. It is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Accepts a key that can be sent in a header and is hard to guess. The error does not quote it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        match placeholder::refuse(text)?.as_bytes() {
            [] => Err(format!("it is empty; {FIX}")),
            bytes if !bytes.iter().all(u8::is_ascii_graphic) => Err(format!(
                "it contains a blank or another character that cannot be sent in a header; use visible ASCII only: {FIX}"
            )),
            bytes if bytes.len() < SHORTEST => {
                Err(format!("it has {} characters, but at least {SHORTEST} are required; {FIX}", bytes.len()))
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
