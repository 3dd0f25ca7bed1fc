//! The decimal value of a number, whatever its spelling.

use std::borrow::Cow;

/// Maximum number of digits before or after the point that are written without an exponent.
const PLAIN: u64 = 40;

/// Returns the canonical spelling of a JSON literal: `1`, `1.0`, `10e-1` and `1E0` are one number, and no digit is lost. A literal that is
/// not a number, or whose exponent does not fit into 64 bits, stays as it is.
pub(super) fn canonical(literal: &str) -> Cow<'_, str> {
    let unsigned = literal.strip_prefix('-').unwrap_or(literal);
    let is_canonical = unsigned.len() <= PLAIN as usize && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    if (is_canonical && literal != "-0") || !unsigned.starts_with(|first: char| first.is_ascii_digit()) {
        return Cow::Borrowed(literal);
    }
    match Decimal::parse(unsigned) {
        None => Cow::Borrowed(literal),
        Some(decimal) if decimal.digits.is_empty() => Cow::Borrowed("0"),
        Some(decimal) => Cow::Owned(format!("{}{}", &literal[..literal.len() - unsigned.len()], decimal.spell())),
    }
}

/// `digits · 10^exponent`.
struct Decimal {
    /// Neither begins nor ends with a zero; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a valid JSON number without its sign.
    fn parse(number: &str) -> Option<Self> {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_end_matches('0');
        let shift = i64::try_from(all.len() - significant.len()).ok()? - i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(shift)?;
        Some(Self { digits: significant.trim_start_matches('0').to_owned(), exponent })
    }

    fn spell(&self) -> String {
        let Self { digits, exponent } = self;
        let zeros = exponent.unsigned_abs();
        if *exponent >= 0 && digits.len() as u64 + zeros.min(PLAIN) <= PLAIN {
            return format!("{digits}{}", "0".repeat(zeros as usize));
        }
        if *exponent < 0 && zeros <= PLAIN {
            let padded = format!("{digits:0>width$}", width = zeros as usize + 1);
            let (whole, fraction) = padded.split_at(padded.len() - zeros as usize);
            return format!("{whole}.{fraction}");
        }
        format!("{digits}e{exponent}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_value_are_one() {
        for (canonical_spelling, others) in [
            ("1", &["1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000", "100e-2"][..]),
            ("0", &["-0", "0.0", "-0.0e5", "0e99"]),
            ("-1.5", &["-1.50", "-15e-1", "-0.15E1"]),
            ("0.001", &["1e-3", "0.0010", "0.01e-1"]),
            ("100", &["1e2", "100.0", "0.1e3"]),
            ("12345678901234567890", &["1234567890123456789e1", "12345678901234567890.0"]),
            ("1e400", &["10e399", "1.0e400", "0.1e401"]),
            ("1e-400", &["0.1e-399"]),
            ("1e9223372036854775807", &["1.0e9223372036854775807", "10e9223372036854775806"]),
        ] {
            assert_eq!(canonical(canonical_spelling), canonical_spelling);
            for other in others {
                assert_eq!(canonical(other), canonical_spelling, "{other}");
            }
        }
    }

    #[test]
    fn other_literals_and_immense_exponents_stay() {
        for literal in ["true", "false", "null", "1e99999999999999999999", "10e9223372036854775807"] {
            assert_eq!(canonical(literal), literal);
        }
    }

    proptest! {
        #[test]
        fn canonical_spelling_has_the_same_value(mantissa: i64, exponent in -60i64..60, zeros in 0usize..4) {
            let spelled = format!("{mantissa}{}e{}", "0".repeat(zeros), exponent - zeros as i64);
            let plain = format!("{mantissa}e{exponent}");
            prop_assert_eq!(canonical(&spelled), canonical(&plain));
            let canonical = canonical(&plain).into_owned();
            prop_assert_eq!(super::canonical(&canonical), canonical.as_str());
            let (value, other): (f64, f64) = (plain.parse().unwrap(), canonical.parse().unwrap());
            prop_assert_eq!(value, other);
        }

        #[test]
        fn different_values_have_different_spellings(one: i64, other: i64, at in -60i64..60) {
            prop_assume!(one != other);
            let (one, other) = (format!("{one}e{at}"), format!("{other}e{at}"));
            prop_assert_ne!(canonical(&one), canonical(&other));
        }
    }
}
