//! The headers of a stored response, in the form in which a record holds them, so that a replay copies none of them.

use std::borrow::Cow;

use bytes::Bytes;

use super::KEPT;

/// Headers, one after the other: the length of the name in two bytes, the name, the length of the value in two bytes, the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StoredHeaders {
    block: Bytes,
    count: usize,
    /// True if a header was too long for its length to be stored; it was left out.
    lacks_one: bool,
}

impl StoredHeaders {
    /// Adds a header. The name has to be in lower case.
    pub(super) fn push(&mut self, name: &str, value: &[u8]) {
        let lengths = (u16::try_from(name.len()), u16::try_from(value.len()));
        let (Ok(of_name), Ok(of_value)) = lengths else {
            self.lacks_one = true;
            return;
        };
        let mut block = Vec::from(std::mem::take(&mut self.block));
        block.reserve_exact(4 + name.len() + value.len());
        block.extend_from_slice(&of_name.to_be_bytes());
        block.extend_from_slice(name.as_bytes());
        block.extend_from_slice(&of_value.to_be_bytes());
        block.extend_from_slice(value);
        (self.block, self.count) = (block.into(), self.count + 1);
    }

    /// Reads this many headers from the beginning of `bytes`, and returns them with the rest. Returns `None` if they are malformed.
    pub(super) fn read(count: u16, bytes: &Bytes) -> Option<(Self, Bytes)> {
        let mut rest = &bytes[..];
        for _ in 0..count {
            (_, rest) = split_header(rest)?;
        }
        let end = bytes.len() - rest.len();
        Some((Self { block: bytes.slice(..end), count: usize::from(count), lacks_one: false }, bytes.slice(end..)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut rest = &self.block[..];
        std::iter::from_fn(move || {
            let (header, others) = split_header(rest)?;
            rest = others;
            Some(header)
        })
    }

    /// Returns the headers for a response. Values share the memory of the record, and only names that are not stored by default are copied.
    pub(super) fn shared(&self) -> impl Iterator<Item = (Cow<'static, str>, Bytes)> {
        self.iter().map(|(name, value)| {
            let known = KEPT.into_iter().find(|kept| *kept == name);
            (known.map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed), self.block.slice_ref(value))
        })
    }

    /// Returns the encoded headers, and their number.
    pub(super) fn encoded(&self) -> (&[u8], usize) {
        (&self.block, self.count)
    }

    /// Returns whether the headers can be stored.
    pub(super) fn fit(&self) -> bool {
        !self.lacks_one && u16::try_from(self.count).is_ok()
    }

    /// Returns the size of names and values, in bytes.
    pub(super) fn size(&self) -> usize {
        self.block.len() - 4 * self.count
    }
}

/// The name and the value of a header.
type Header<'a> = (&'a str, &'a [u8]);

/// Splits off the first header.
fn split_header(block: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let (name, rest) = split_field(block)?;
    let (value, rest) = split_field(rest)?;
    Some(((std::str::from_utf8(name).ok()?, value), rest))
}

/// Splits off the first field, which follows its length.
fn split_field(block: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = block.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> StoredHeaders {
        let mut headers = StoredHeaders::default();
        headers.push("location", b"/orders/1");
        headers.push("x-empty", b"");
        headers
    }

    #[test]
    fn encoded_headers_are_read_back_with_the_rest() {
        let headers = some();
        let bytes = Bytes::from([headers.encoded().0, b"body"].concat());
        assert_eq!(StoredHeaders::read(2, &bytes), Some((headers.clone(), Bytes::from_static(b"body"))));
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("location", &b"/orders/1"[..]), ("x-empty", b"")]);
        assert_eq!((headers.size(), headers.encoded().1), ("location/orders/1x-empty".len(), 2));
    }

    #[test]
    fn malformed_headers_are_not_read() {
        let headers = some();
        let encoded = headers.encoded().0;
        for end in 0..encoded.len() {
            assert_eq!(StoredHeaders::read(2, &Bytes::copy_from_slice(&encoded[..end])), None, "{end}");
        }
        assert_eq!(StoredHeaders::read(1, &Bytes::from_static(b"\0\x01\xff\0\0")), None, "a name that is not UTF-8");
    }

    #[test]
    fn header_that_is_too_long_does_not_fit() {
        let mut headers = some();
        headers.push("x-longest", &vec![0; usize::from(u16::MAX)]);
        assert!(headers.fit());
        headers.push("x-longer", &vec![0; usize::from(u16::MAX) + 1]);
        assert!(!headers.fit() && headers.iter().count() == 3);
    }

    #[test]
    fn shared_values_are_not_copied() {
        let headers = some();
        let shared: Vec<_> = headers.shared().collect();
        assert!(matches!(shared[0].0, Cow::Borrowed("location")) && matches!(shared[1].0, Cow::Owned(_)));
        let block = headers.encoded().0.as_ptr_range();
        assert!(block.contains(&shared[0].1.as_ptr()));
    }
}
