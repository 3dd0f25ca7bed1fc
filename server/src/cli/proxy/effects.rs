//! The effects of a route's responses, by status.

use onceward::store::Memory;
use onceward::{Effect, Guard};

use crate::proxy::route::ProxyRoute;
use crate::proxy::rule::guard_of_route;
use crate::proxy::settings::ProxySettings;

/// Returns the statuses of each effect, as ranges, or nothing if the route checks no requests.
pub(super) fn effects(route: &ProxyRoute, settings: &ProxySettings) -> Vec<(&'static str, String)> {
    // Nothing is stored: the guard of the route knows its policy, with what the profile demands.
    let Ok(Some(protect)) = guard_of_route(route, settings, &Guard::new(Memory::new())) else { return Vec::new() };
    let effect = |status: u16| route.effects.of(status).unwrap_or_else(|| protect.policy().effect(status));
    [("applied", Effect::Applied), ("not applied", Effect::NotApplied), ("unknown", Effect::Unknown)]
        .map(|(name, of)| (name, ranges((200..600).filter(|status| effect(*status) == of))))
        .into()
}

/// Formats ascending numbers as ranges: `200-400, 402`.
fn ranges(numbers: impl Iterator<Item = u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = |(begin, end): (u16, u16)| if begin == end { begin.to_string() } else { format!("{begin}-{end}") };
    ranges.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}
