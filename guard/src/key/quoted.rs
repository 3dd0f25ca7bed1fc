//! Parses a string item of a structured header with its parameters (RFC 9651, section 4.2).
//!
//! Each function takes the input after the character that announced its type, and returns the rest of it, or `None` if the value is not well
//! formed.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Parsers do not fail on missing padding, or on bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the text of a quoted string. Parameters after it must be well formed.
pub(super) fn unquote(value: &[u8]) -> Option<String> {
    let (text, rest) = string(value.strip_prefix(b"\"")?)?;
    parameters(rest)?.is_empty().then_some(text)
}

fn string(input: &[u8]) -> Option<(String, &[u8])> {
    let mut text = String::new();
    let mut bytes = input.iter();
    loop {
        let byte = match bytes.next()? {
            b'"' => return Some((text, bytes.as_slice())),
            b'\\' => bytes.next().filter(|byte| matches!(byte, b'"' | b'\\'))?,
            byte @ b' '..=b'~' => byte,
            _ => return None,
        };
        text.push(char::from(*byte));
    }
}

fn parameters(mut input: &[u8]) -> Option<&[u8]> {
    while let Some(parameter) = input.strip_prefix(b";") {
        let (_, name) = split(parameter, |byte| byte == b' ');
        name.first().filter(|byte| byte.is_ascii_lowercase() || **byte == b'*')?;
        let (_, rest) = split(name, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
        input = rest.strip_prefix(b"=").map_or(Some(rest), bare_item)?;
    }
    Some(input)
}

fn bare_item(input: &[u8]) -> Option<&[u8]> {
    let (first, rest) = input.split_first()?;
    match first {
        b'"' => string(rest).map(|(_, rest)| rest),
        b'%' => display_string(rest.strip_prefix(b"\"")?),
        b':' => byte_sequence(rest),
        b'?' => rest.strip_prefix(b"0").or_else(|| rest.strip_prefix(b"1")),
        b'@' => integer(rest),
        b'-' | b'0'..=b'9' => integer(input).or_else(|| decimal(input)),
        b'*' | b'A'..=b'Z' | b'a'..=b'z' => Some(split(rest, is_in_token).1),
        _ => None,
    }
}

/// Parses text in which `%` and two lowercase digits stand for a byte; together they are UTF-8.
fn display_string(input: &[u8]) -> Option<&[u8]> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let mut text = Vec::new();
    let mut bytes = input.iter();
    loop {
        text.push(match bytes.next()? {
            b'"' => return std::str::from_utf8(&text).is_ok().then_some(bytes.as_slice()),
            b'%' => u8::try_from(digit(bytes.next()?)? * 16 + digit(bytes.next()?)?).ok()?,
            byte @ b' '..=b'~' => *byte,
            _ => return None,
        });
    }
}

fn byte_sequence(input: &[u8]) -> Option<&[u8]> {
    let (encoded, rest) = split(input, |byte| byte != b':');
    BASE64.decode(encoded).ok()?;
    rest.strip_prefix(b":")
}

/// Parses up to 15 digits. No fraction follows.
fn integer(input: &[u8]) -> Option<&[u8]> {
    let (digits, rest) = split(input.strip_prefix(b"-").unwrap_or(input), |byte| byte.is_ascii_digit());
    ((1..=15).contains(&digits.len()) && !rest.starts_with(b".")).then_some(rest)
}

/// Parses up to 12 digits and a fraction of up to 3.
fn decimal(input: &[u8]) -> Option<&[u8]> {
    let (whole, rest) = split(input.strip_prefix(b"-").unwrap_or(input), |byte| byte.is_ascii_digit());
    let (fraction, rest) = split(rest.strip_prefix(b".")?, |byte| byte.is_ascii_digit());
    ((1..=12).contains(&whole.len()) && (1..=3).contains(&fraction.len())).then_some(rest)
}

fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

/// Splits the input before the first byte that does not belong to the prefix.
fn split(input: &[u8], is_in_prefix: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    input.split_at(input.iter().position(|byte| !is_in_prefix(*byte)).unwrap_or(input.len()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use sfv::{BareItem, Item, Parser};

    use super::*;

    /// The same with sfv, which implements the whole standard.
    fn with_sfv(value: &[u8]) -> Option<String> {
        match Parser::new(value).parse::<Item>().ok()?.bare_item {
            BareItem::String(text) => Some(text.into()),
            _ => None,
        }
    }

    #[test]
    fn numbers_have_15_digits_or_12_with_a_fraction_of_3() {
        for (number, is_good) in [
            ("999999999999999", true),
            ("-999999999999999", true),
            ("1000000000000000", false),
            ("999999999999.999", true),
            ("-0.0", true),
            ("1000000000000.0", false),
            ("1.0000", false),
            ("1.", false),
            ("-", false),
            ("@-1", true),
            ("@1.5", false),
        ] {
            let value = format!("\"k\";a={number}");
            assert_eq!(unquote(value.as_bytes()).is_some(), is_good, "{number}");
            assert_eq!(unquote(value.as_bytes()), with_sfv(value.as_bytes()), "{number}");
        }
    }

    #[test]
    fn display_strings_are_utf_8_in_lowercase_digits() {
        for (text, is_good) in
            [("%c3%bc", true), ("%C3%BC", false), ("%c3", false), ("%c", false), ("%zz", false), ("ü", false)]
        {
            let value = format!("\"k\";a=%\"{text}\"");
            assert_eq!(unquote(value.as_bytes()).is_some(), is_good, "{text}");
            assert_eq!(unquote(value.as_bytes()), with_sfv(value.as_bytes()), "{text}");
        }
    }

    /// Values that are well formed or nearly so: a quoted text, then pieces of parameters.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        let texts = ["", "k", r"\\", "\\\"", r"\n", " ", "\u{7f}", "ü"];
        let pieces = [
            ";", "; ", ";a", ";*b", ";a1_-.*", ";A", "=", "?0", "?1", "?2", "@1", "@-1", "@1.5", "0", "-1", "123456",
            "1.5", ".25", ".1234", "-", "tok/en", "*:", ":", ":YQ==:", ":YQ:", ":YR==:", ":Y:", ":Y Q:", "\"x\"", "\"",
            "\\\"", "\"\\\\\"", "%\"", "%c3%bc", "%c3", "%C3", "%\"%c3\"", "%\"a\"", " ", "\t", ",", "ü", "\0",
        ];
        let text = vec(select(texts.to_vec()), 0..4).prop_map(|parts| parts.concat());
        (text, vec(select(pieces.to_vec()), 0..10))
            .prop_map(|(text, parameters)| format!("\"{text}\"{}", parameters.concat()).into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn accepts_what_sfv_accepts(value in values()) {
            // The header's own blanks are trimmed before.
            let value = value.trim_ascii();
            prop_assert_eq!(unquote(value), with_sfv(value), "{}", String::from_utf8_lossy(value));
        }

        #[test]
        fn well_formed_parameters_are_accepted(
            names in vec("[a-z*][a-z0-9_.*-]{0,5}", 0..4),
            item in select(vec!["", "=1", "=-1.5", "=\"x;y\"", "=:YQ==:", "=?1", "=@0", "=t:o/k", "=%\"%e2%82%ac\""]),
        ) {
            let parameters: String = names.iter().map(|name| format!("; {name}{item}")).collect();
            let value = format!("\"k\"{parameters}");
            prop_assert_eq!(unquote(value.as_bytes()), Some("k".to_owned()), "{}", value);
        }
    }
}
