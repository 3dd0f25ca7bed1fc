//! The value of a record: inline if it is a few bytes, otherwise shared with its readers.

use std::ops::Deref;
use std::sync::Arc;

use crate::store::{Bytes, Room};

/// The maximum length of an inline value. An issued token has two bytes; a claim has about a hundred.
const INLINE: usize = 22;

/// A stored value.
pub(super) enum StoredValue {
    /// A value without an allocation of its own.
    Inline { length: u8, bytes: [u8; INLINE] },
    /// Any other value.
    Shared(Arc<[u8]>),
}

impl StoredValue {
    pub(super) fn new(value: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match (bytes.get_mut(..value.len()), u8::try_from(value.len())) {
            (Some(start), Ok(length)) => {
                start.copy_from_slice(value);
                Self::Inline { length, bytes }
            }
            _ => Self::Shared(value.into()),
        }
    }

    /// Returns the value for a reader. A small one is copied, which is cheaper than sharing it; a large one is shared.
    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Shared(shared) if shared.len() > Room::SMALL => Bytes::from_owner(Arc::clone(shared)),
            Self::Shared(_) | Self::Inline { .. } => Bytes::copy_from_slice(self),
        }
    }
}

impl Deref for StoredValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Shared(shared) => shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_any_length_is_returned_unchanged() {
        for length in [0, 1, 2, INLINE - 1, INLINE, INLINE + 1, Room::SMALL, Room::SMALL + 1, 70_000] {
            let value: Vec<u8> = (0..length).map(|number| number as u8).collect();
            let stored = StoredValue::new(&value);
            assert_eq!(*stored, value, "{length}");
            assert_eq!(stored.to_bytes(), value, "{length}");
            assert_eq!(matches!(stored, StoredValue::Inline { .. }), length <= INLINE);
        }
    }

    #[test]
    fn large_value_is_shared_with_its_reader() {
        let (small, large) = (StoredValue::new(&[1; Room::SMALL]), StoredValue::new(&[1; Room::SMALL + 1]));
        assert_ne!(small.to_bytes().as_ptr(), small.as_ptr());
        assert_eq!(large.to_bytes().as_ptr(), large.as_ptr());
    }

    #[test]
    fn value_takes_twenty_four_bytes_of_an_entry() {
        assert_eq!(size_of::<StoredValue>(), 24);
    }
}
