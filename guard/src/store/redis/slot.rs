//! The hash slot of a key in a cluster.

use crc16::{State, XMODEM};

/// The number of slots in a cluster.
pub(super) const SLOTS: usize = 16_384;

/// Returns the slot of a key: of the text in its first braces (hash tag), if that is not empty, or else of the whole key.
pub(super) fn slot_of(key: &[u8]) -> usize {
    let hashed = key
        .iter()
        .position(|byte| *byte == b'{')
        .and_then(|open| {
            let rest = &key[open + 1..];
            rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
        })
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key);
    usize::from(State::<XMODEM>::calculate(hashed)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `CLUSTER KEYSLOT` of a server says.
    #[test]
    fn key_slot_matches_the_server() {
        for (key, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}b{bar}", 12_182),
            ("foo{}{bar}", 8_363),
            ("{", 4_092),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }
}
