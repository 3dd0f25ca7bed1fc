//! How well a language suits an `Accept-Language` header (RFC 9110, section 12.5.4; lookup of RFC 4647).

use std::cmp::Reverse;

/// The weights that the ranges of a header give to one language.
#[derive(Debug, Default)]
pub(super) struct Preference {
    /// The range that names the language most precisely, and its weight.
    closest: Option<(Closeness, u16)>,
    /// The highest weight of a range that names the language.
    named: Option<Choice>,
    /// What `*` says.
    any: Option<Choice>,
}

/// How precisely a range names a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    /// The range is a part of the tag: `pt` of `pt-BR`.
    Prefix,
    /// The tag is a part of the range: `en` of `en-GB`; or both are the same script of Chinese.
    Related,
    Exact,
}

/// An acceptable language: its weight in thousandths, the place of the range, and how precisely that names the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    weight: u16,
    place: usize,
    /// `None` if the range is `*`.
    closeness: Option<Closeness>,
}

impl Choice {
    pub(super) fn is_better_than(self, other: Self) -> bool {
        let rank = |choice: Self| (choice.weight, Reverse(choice.place), choice.closeness);
        rank(self) > rank(other)
    }
}

impl Preference {
    /// Reads a header for one language.
    pub(super) fn of(tag: &str, header: &str) -> Self {
        let mut preference = Self::default();
        for (place, range) in header.split(',').enumerate() {
            let mut parts = range.split(';');
            let range = parts.next().unwrap_or_default().trim();
            preference.add(range, Choice { weight: weight(parts), place, closeness: closeness(tag, range) });
        }
        preference
    }

    fn add(&mut self, range: &str, choice: Choice) {
        if range == "*" {
            self.any = self.any.or(Some(choice));
            return;
        }
        let Some(closeness) = choice.closeness else { return };
        // Of several ranges that are equally close, the one with the highest weight counts: `en-GB;q=0, en-US` accepts `en`.
        self.closest = self.closest.max(Some((closeness, choice.weight)));
        if self.named.is_none_or(|other| choice.is_better_than(other)) {
            self.named = Some(choice);
        }
    }

    /// Returns `None` if the header does not accept the language.
    pub(super) fn choice(self) -> Option<Choice> {
        match self.closest {
            Some((_, 0)) => None,
            Some(_) => self.named,
            None => self.any.filter(|any| any.weight > 0),
        }
    }
}

/// Returns the weight of a range in thousandths; an invalid one counts as 0.
fn weight<'a>(mut parameters: impl Iterator<Item = &'a str>) -> u16 {
    let quality = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    });
    let quality = quality.map_or(Ok(1.0), str::parse::<f32>);
    quality.ok().filter(|quality| (0.0..=1.0).contains(quality)).map_or(0, |quality| (quality * 1000.0).round() as u16)
}

fn closeness(tag: &str, range: &str) -> Option<Closeness> {
    if tag.eq_ignore_ascii_case(range) {
        return Some(Closeness::Exact);
    }
    match (chinese_script(tag), chinese_script(range)) {
        (Some(Some(ours)), Some(Some(theirs))) => return (ours == theirs).then_some(Closeness::Related),
        // Most readers of plain `zh` read Simplified Chinese.
        (Some(Some(ours)), Some(None)) => return (ours == Script::Simplified).then_some(Closeness::Prefix),
        _ => {}
    }
    if begins_with(range, tag) {
        return Some(Closeness::Related);
    }
    begins_with(tag, range).then_some(Closeness::Prefix)
}

/// Returns whether `part` is the first subtags of `tag`.
fn begins_with(tag: &str, part: &str) -> bool {
    !part.is_empty()
        && tag.as_bytes().get(part.len()) == Some(&b'-')
        && tag.as_bytes()[..part.len()].eq_ignore_ascii_case(part.as_bytes())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    Simplified,
    Traditional,
}

/// Returns the script of a Chinese tag; the inner `None` if the tag does not determine it. Returns `None` for other languages.
fn chinese_script(tag: &str) -> Option<Option<Script>> {
    let mut subtags = tag.split('-');
    if !subtags.next()?.eq_ignore_ascii_case("zh") {
        return None;
    }
    let script = subtags.find_map(|subtag| match subtag.to_ascii_lowercase().as_str() {
        "hans" | "cn" | "sg" | "my" => Some(Script::Simplified),
        "hant" | "tw" | "hk" | "mo" => Some(Script::Traditional),
        _ => None,
    });
    Some(script)
}
