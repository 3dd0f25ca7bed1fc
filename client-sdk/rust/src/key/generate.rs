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
    prefixed(application, Uuid::new_v4())
}

/// Like [`generate_key`], with a UUID v7, which begins with the time in milliseconds: keys that one process generates sort in the order of
/// their generation, and those of several processes by their clocks. Rows with such keys are inserted at the end of an index.
///
/// The key shows when it was generated. Two keys are still never equal if a clock is set back.
///
/// ```
/// let keys = [(); 2].map(|()| onceward_client::generate_ordered_key(Some("billing")).expect("a valid prefix"));
/// assert!(keys[0].as_str() < keys[1].as_str());
/// ```
///
/// # Errors
/// As for [`generate_key`].
pub fn generate_ordered_key(application: Option<&str>) -> Result<Key, BadKey> {
    prefixed(application, Uuid::now_v7())
}

/// Adds the name of the application to an id.
fn prefixed(application: Option<&str>, id: Uuid) -> Result<Key, BadKey> {
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
    fn ordered_keys_are_version_7_uuids_in_ascending_order() {
        let before = now_millis();
        let keys: Vec<Key> = (0..10_000).map(|_| generate_ordered_key(None).unwrap()).collect();
        assert!(
            keys.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str()),
            "a key is not larger than the one before"
        );
        for key in &keys {
            let id = Uuid::parse_str(key.as_str()).unwrap();
            assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
            // The first 48 bits are the time. The counter of a burst may run ahead of the clock by a moment.
            let millis = u64::try_from(id.as_u128() >> 80).unwrap();
            assert!((before..=now_millis() + 1_000).contains(&millis), "{key:?}");
        }
    }

    #[test]
    fn ordered_keys_of_concurrent_threads_are_unique() {
        let generate = || (0..1_000).map(|_| generate_ordered_key(Some("billing")).unwrap()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(generate)).collect();
        let keys: HashSet<Key> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(keys.len(), 8_000);
    }

    #[expect(clippy::disallowed_methods, reason = "a UUID v7 has the time of the wall clock")]
    fn now_millis() -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap()
    }

    #[test]
    fn key_prefix_is_prepended_or_rejected_if_invalid() {
        assert!(generate_key(Some("billing")).unwrap().as_str().starts_with("billing"));
        assert!(generate_key(Some("")).is_err() && generate_key(Some("my app")).is_err());
        assert!(generate_key(Some(&"x".repeat(201))).is_err() && generate_key(Some(&"x".repeat(200))).is_ok());
    }
}
