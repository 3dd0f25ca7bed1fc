//! Encodes and decodes the fields of a record.

/// Reads fields in order. A missing field is `None`.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn small(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads whether a field follows. Each value has one encoding only, so that equal records are equal bytes.
    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// Reads an optional field.
    pub(super) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    /// Returns the remaining bytes.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Writes an optional field.
pub(super) fn write_optional(to: &mut Vec<u8>, bytes: Option<&[u8]>) {
    to.push(u8::from(bytes.is_some()));
    to.extend_from_slice(bytes.unwrap_or_default());
}
