//! Random keys.

use uuid::Uuid;

use super::{BadKey, Key};

/// Generates a unique key: a UUID v4, prefixed with the name of an application if one is given. The prefix shows in logs where the key
/// comes from. Generating a key needs no network and no clock.
///
/// ```
/// let key = onceward_client::generate_key(Some("billing"))?;
/// assert!(key.as_str().starts_with("billing-"));
/// assert_ne!(key, onceward_client::generate_key(Some("billing"))?);
/// # Ok::<(), onceward_client::BadKey>(())
/// ```
///
/// # Errors
/// If the name of the application is empty, is longer than 200 characters, or contains a character that is not visible ASCII.
pub fn generate_key(application: Option<&str>) -> Result<Key, BadKey> {
    let id = Uuid::new_v4();
    match application {
        None => Key::new(id.to_string()),
        Some(name) if name.is_empty() || name.len() > 200 => Err(BadKey::Length),
        Some(name) => Key::new(format!("{name}-{id}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn generated_keys_are_unique_version_4_uuids() {
        let keys: HashSet<Key> = (0..1000).map(|_| generate_key(None).unwrap()).collect();
        assert_eq!(keys.len(), 1000);
        assert!(keys.iter().all(|key| Uuid::parse_str(key.as_str()).unwrap().get_version_num() == 4));
    }

    #[test]
    fn key_prefix_is_prepended_or_rejected_if_invalid() {
        assert!(generate_key(Some("billing")).unwrap().as_str().starts_with("billing"));
        assert!(generate_key(Some("")).is_err() && generate_key(Some("my app")).is_err());
        assert!(generate_key(Some(&"x".repeat(201))).is_err() && generate_key(Some(&"x".repeat(200))).is_ok());
    }
}
