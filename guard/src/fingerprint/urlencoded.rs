//! URL-encoded pairs, `a=1&b=2`: a query, or a form in the body.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::content_digest::{ContentDigest, Tag};
use super::fields::Fields;
use super::multimap::{self, Named};

/// A pair, decoded to bytes and not to text: all bytes that are not valid UTF-8 would become the same replacement character.
struct Pair<'a> {
    name: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
}

/// Writes the included pairs. Every text is a valid list of pairs.
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
