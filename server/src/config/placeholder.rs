//! Rejects the placeholders that examples use in place of a secret.

/// The beginnings of placeholders, in lower case.
const BEGINNINGS: [&str; 6] = ["change-me", "change_me", "changeme", "replace-me", "replaceme", "your-"];

/// The advice for creating a secret.
pub(super) const FIX: &str = "generate one with `openssl rand -hex 32`";

/// Rejects a placeholder, which is public. The error does not quote it.
pub(super) fn refuse(text: &str) -> Result<&str, String> {
    let small = text.to_ascii_lowercase();
    let is_bracketed = small.starts_with('<') && small.ends_with('>');
    if is_bracketed || BEGINNINGS.iter().any(|beginning| small.starts_with(beginning)) {
        return Err(format!("it is the placeholder of an example, which is public; {FIX}"));
    }
    Ok(text)
}
