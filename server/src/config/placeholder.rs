//! Placeholders: what an example has in the place of a secret.

/// How placeholders begin, in small letters.
const BEGINNINGS: [&str; 6] = ["change-me", "change_me", "changeme", "replace-me", "replaceme", "your-"];

/// How a secret is made.
pub(super) const FIX: &str = "make one with `openssl rand -hex 32`";

/// Refuses a text that stands in an example and that everybody knows. The error does not quote it.
pub(super) fn refuse(text: &str) -> Result<&str, String> {
    let small = text.to_ascii_lowercase();
    let is_bracketed = small.starts_with('<') && small.ends_with('>');
    if is_bracketed || BEGINNINGS.iter().any(|beginning| small.starts_with(beginning)) {
        return Err(format!("it is the placeholder of an example, which everybody knows; {FIX}"));
    }
    Ok(text)
}
