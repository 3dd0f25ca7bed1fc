//! Digests over several fields. Each field is prefixed with its length, so that two different lists of fields never give the same input.

use sha2::digest::Update;
use sha2::{Digest as _, Sha256};

/// Feeds the digest with the length and the bytes of every field.
pub(crate) fn feed<'a>(digest: &mut impl Update, fields: impl IntoIterator<Item = &'a [u8]>) {
    for field in fields {
        digest.update(&(field.len() as u64).to_be_bytes());
        digest.update(field);
    }
}

/// Returns the SHA-256 digest of these fields.
pub(crate) fn of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    feed(&mut digest, fields);
    digest.finalize().into()
}

/// Returns the first half of a digest: 128 bits are enough to distinguish records.
pub(crate) fn half(whole: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_bytes_between_fields_changes_the_digest() {
        let all = [of([&b"ab"[..], b"c"]), of([&b"a"[..], b"bc"]), of([&b"abc"[..]]), of([&b"abc"[..], b""])];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other), "{at}");
        }
        assert_eq!(half(all[0]), all[0][..16]);
    }
}
