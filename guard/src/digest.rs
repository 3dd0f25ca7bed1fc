//! Digests over several fields, each behind its length, so that no two different lists of fields are digested as the same bytes.

use sha2::digest::Update;
use sha2::{Digest as _, Sha256};

/// Feeds every field behind its length.
pub(crate) fn feed<'a>(digest: &mut impl Update, fields: impl IntoIterator<Item = &'a [u8]>) {
    for field in fields {
        digest.update(&(field.len() as u64).to_be_bytes());
        digest.update(field);
    }
}

/// SHA-256 of these fields.
pub(crate) fn of<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    feed(&mut digest, fields);
    digest.finalize().into()
}

/// The first half of a digest: 128 bits tell records apart.
pub(crate) fn half(whole: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cannot_lend_each_other_bytes() {
        let all = [of([&b"ab"[..], b"c"]), of([&b"a"[..], b"bc"]), of([&b"abc"[..]]), of([&b"abc"[..], b""])];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| one != other), "{at}");
        }
        assert_eq!(half(all[0]), all[0][..16]);
    }
}
