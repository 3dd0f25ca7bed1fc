//! The API key.

use std::fmt;

/// The key that backends send. It is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key that can be sent in a header. The error does not quote it.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let fix = "set 1 or more visible ASCII characters, as `openssl rand -hex 32` makes them";
        match text.as_bytes() {
            [] => Err(format!("it is empty, so everybody would have it; {fix}")),
            bytes if bytes.iter().all(u8::is_ascii_graphic) => Ok(Self(text.to_owned())),
            _ => Err(format!("it has a blank or another character that cannot be sent in a header; {fix}")),
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
