//! The text format of durations in bodies and settings: `250ms`, `90s`, `10m`, `24h`, `7d`.
//!
//! One whole number and one unit, nothing else. As a serde module it reads and writes an optional field:
//! `#[serde(with = "onceward_api::duration")]`; use `onceward_api::duration::required` for a required field.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Each unit with its length in milliseconds, longest first: the order in which [`text`] tries them.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses a duration such as `90s`. The error quotes the text.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration: write a whole number and ms, s, m, h or d, as in `90s`");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(*millis).map(Duration::from_millis).ok_or_else(wrong)
}

/// Formats a duration in the longest unit that represents it exactly, rounded down to milliseconds.
pub fn text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (unit, length) = UNITS
        .into_iter()
        .find(|(_, length)| millis >= *length && millis.is_multiple_of(*length))
        .unwrap_or(("s", 1_000));
    format!("{}{unit}", millis / length)
}

/// Like [`text`], with a space between number and unit, for sentences: `250 ms`.
pub fn spaced(duration: Duration) -> String {
    let text = text(duration);
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    format!("{number} {unit}")
}

/// Writes an optional duration as text.
pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(duration) => serializer.serialize_str(&text(*duration)),
        None => serializer.serialize_none(),
    }
}

/// Reads an optional duration from text.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| parse(&text)).transpose().map_err(serde::de::Error::custom)
}

/// The serde module for a required field.
pub mod required {
    use super::{Deserialize as _, Deserializer, Duration, Serializer, parse, text};

    /// Writes a duration as text.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(*value))
    }

    /// Reads a duration from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_round_trips() {
        for written in ["250ms", "0s", "1s", "90s", "10m", "24h", "7d"] {
            let shortest = text(parse(written).unwrap());
            assert_eq!(parse(&shortest), parse(written));
        }
        assert_eq!(text(Duration::from_secs(90)), "90s");
        assert_eq!(text(Duration::from_secs(1800)), "30m");
        assert_eq!(text(Duration::ZERO), "0s");
        assert_eq!(
            (spaced(Duration::from_millis(250)), spaced(Duration::from_secs(10))),
            ("250 ms".into(), "10 s".into())
        );
    }

    #[test]
    fn malformed_duration_is_rejected_and_quoted() {
        for wrong in
            ["", "90", "s", "-5s", "+5s", "1.5s", "1 s", "1h30m", "x", "99999999999999999999s", "99999999999999999d"]
        {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
