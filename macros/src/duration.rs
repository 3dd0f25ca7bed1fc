//! Durations as the settings of the service write them: one whole number and one unit.

use syn::{LitStr, Result};

/// Each unit with its length in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses a duration, and returns its milliseconds.
pub(crate) fn millis(text: &LitStr) -> Result<u64> {
    parse(&text.value()).ok_or_else(|| {
        let wrong = text.value();
        syn::Error::new(
            text.span(),
            format!("`{wrong}` is not a duration: write a whole number and ms, s, m, h or d, as in `\"90s\"`"),
        )
    })
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_settings() {
        let good = ["0s", "1ms", "1500ms", "90s", "10m", "24h", "7d", "007s", "18446744073709551615ms"];
        let bad = ["", "s", "10", "10 m", "1.5s", "-1s", "+1s", "1h30m", "10M", "10min", "18446744073709551615s"];
        for text in good.into_iter().chain(bad) {
            let of_settings = onceward_api::duration::parse(text).ok().map(|duration| duration.as_millis());
            assert_eq!(parse(text).map(u128::from), of_settings, "{text}");
        }
        assert!(good.into_iter().all(|text| parse(text).is_some()));
        assert!(bad.into_iter().all(|text| parse(text).is_none()));
    }
}
