//! Typed access to command-line arguments.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::ArgMatches;

use super::output::Failure;

/// Returns true if `--json` is given, on this command or on a subcommand.
pub(super) fn is_json(matches: &ArgMatches) -> bool {
    is_set(matches, "json") || matches.subcommand().is_some_and(|(_, below)| is_json(below))
}

pub(super) fn is_set(matches: &ArgMatches, name: &str) -> bool {
    matches!(matches.try_get_one::<bool>(name), Ok(Some(true)))
}

pub(super) fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.try_get_one::<String>(name).ok().flatten().map(String::as_str)
}

pub(super) fn texts<'a>(matches: &'a ArgMatches, name: &str) -> impl Iterator<Item = &'a str> {
    matches.try_get_many::<String>(name).ok().flatten().into_iter().flatten().map(String::as_str)
}

pub(super) fn optional_duration(matches: &ArgMatches, name: &str) -> Result<Option<Duration>, Failure> {
    let read = |text| onceward_api::duration::parse(text).map_err(|error| Failure::usage(format!("--{name}: {error}")));
    text(matches, name).map(read).transpose()
}

/// Returns a duration of at least one millisecond.
pub(super) fn duration(matches: &ArgMatches, name: &str) -> Result<Duration, Failure> {
    match optional_duration(matches, name)? {
        None => Err(Failure::usage(format!("--{name} is missing"))),
        Some(Duration::ZERO) => Err(Failure::usage(format!("--{name}: the duration must be positive, as in `2s`"))),
        Some(duration) => Ok(duration),
    }
}

pub(super) fn number(matches: &ArgMatches, name: &str, allowed: RangeInclusive<u32>) -> Result<u32, Failure> {
    let given = text(matches, name).unwrap_or_default();
    given.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
        Failure::usage(format!(
            "--{name}: `{given}` is not a whole number from {} to {}",
            allowed.start(),
            allowed.end()
        ))
    })
}
