//! `a=1&b=2`: a query, or a form in the body.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::content_digest::{ContentDigest, Tag};
use super::fields::Fields;
use super::multimap::{self, Named};

/// Decoded to bytes, not to text: bytes that are no text would all become the same one.
struct Pair<'a> {
    name: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
}

/// Writes the pairs that count. There is no text that is not some list of pairs.
pub(super) fn write(text: &[u8], fields: &Fields, to: &mut ContentDigest) {
    to.tag(Tag::Pairs);
    multimap::write(read(text), &fields.chosen, to);
}

fn read(text: &[u8]) -> Vec<Pair<'_>> {
    text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(read_pair).collect()
}

fn read_pair(pair: &[u8]) -> Pair<'_> {
    let mut halves = pair.splitn(2, |byte| *byte == b'=');
    let mut half = || decode(halves.next().unwrap_or_default());
    Pair { name: half(), value: half() }
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

impl Named for Pair<'_> {
    fn name(&self) -> &[u8] {
        &self.name
    }

    fn write(&self, to: &mut ContentDigest) {
        to.bytes(&self.value);
    }
}
