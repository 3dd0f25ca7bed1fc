//! The bytes that a connection has read, and that do not yet make up a whole reply.

use std::ops::Range;

/// The initial size: about two hundred replies.
const SIZE: usize = 16 * 1024;
/// A buffer that has grown beyond this size for a long reply is released after it.
const LARGE: usize = 1024 * 1024;

/// A buffer that grows for a long reply.
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    /// The bytes that have been read and not consumed.
    unread: Range<usize>,
}

impl InputBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; SIZE], unread: 0..0 }
    }

    /// Returns the space for the next bytes, which is never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.unread.end == self.bytes.len() {
            self.make_space();
        }
        &mut self.bytes[self.unread.end..]
    }

    /// Records that so many bytes of the space have been filled.
    pub(super) fn add(&mut self, count: usize) {
        self.unread.end += count;
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.unread.clone()]
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.unread.start += count;
        if self.unread.is_empty() {
            self.unread = 0..0;
            if self.bytes.len() > LARGE {
                *self = Self::new();
            }
        }
    }

    /// Moves what is left to the front, or grows if the buffer is full of it.
    fn make_space(&mut self) {
        if self.unread.start == 0 {
            self.bytes.resize(self.bytes.len() * 2, 0);
        } else {
            self.bytes.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds bytes as a socket would, and returns how many fitted.
    fn fill(buffer: &mut InputBuffer, bytes: &[u8]) -> usize {
        let space = buffer.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        buffer.add(count);
        count
    }

    #[test]
    fn bytes_are_kept_in_order_until_they_are_consumed() {
        let mut buffer = InputBuffer::new();
        let sent: Vec<u8> = (0..3 * SIZE).map(|number| (number % 251) as u8).collect();
        let (mut added, mut consumed) = (0, 0);
        while consumed < sent.len() {
            added += fill(&mut buffer, &sent[added..(added + 5_000).min(sent.len())]);
            assert_eq!(buffer.unread(), &sent[consumed..added]);
            let part = buffer.unread().len().min(3_000);
            buffer.consume(part);
            consumed += part;
        }
        assert!(buffer.bytes.len() <= 4 * SIZE, "{}", buffer.bytes.len());
    }

    #[test]
    fn buffer_grows_for_a_long_reply_and_shrinks_after_it() {
        let (mut buffer, long) = (InputBuffer::new(), vec![7; 2 * LARGE]);
        let mut added = 0;
        while added < long.len() {
            added += fill(&mut buffer, &long[added..]);
        }
        assert_eq!(buffer.unread(), long);
        buffer.consume(long.len());
        assert_eq!((buffer.unread().len(), buffer.bytes.len()), (0, SIZE));
    }
}
