//! The rules of the proxy's claims that its own settings imply.

use std::time::Duration;

use onceward::{IntervalRules, KeyRules};

use super::settings::ProxySettings;
use super::upstream::REPLY_LIMIT;

/// Minimum time for which a claim is renewed.
const LEAST_CEILING: Duration = Duration::from_secs(60 * 60);
/// Time for sending a request after it was claimed, and for storing its outcome, beside `upstream_timeout`.
const SETTLING: Duration = Duration::from_secs(60);

/// Limits the size of stored responses to what the proxy reads of one, and renews the claim for as long as a run may take.
pub(super) fn stored(rules: KeyRules, settings: &ProxySettings) -> KeyRules {
    rules.reply_limit(REPLY_LIMIT).ceiling(longest_run(settings))
}

/// Extends an interval for as long as a run may take.
pub(super) fn renewed(rules: &IntervalRules, settings: &ProxySettings) -> IntervalRules {
    rules.clone().ceiling(longest_run(settings))
}

/// Returns the time after which no run is left: a claim that ended before could let a duplicate run beside it.
fn longest_run(settings: &ProxySettings) -> Duration {
    settings.upstream_timeout.saturating_add(SETTLING).max(LEAST_CEILING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn settings(upstream_timeout: &str) -> ProxySettings {
        let arguments = ["onceward", "--upstream-timeout", upstream_timeout];
        Config::from(arguments.map(Into::into), []).unwrap().proxy
    }

    #[test]
    fn claim_is_renewed_for_longer_than_a_run_may_take() {
        for (upstream_timeout, renewed_for) in [("5m", 60), ("2h", 121), ("48h", 48 * 60 + 1)] {
            let (settings, ceiling) = (settings(upstream_timeout), Duration::from_secs(renewed_for * 60));
            let rules = KeyRules::retryable();
            assert_eq!(stored(rules.clone(), &settings), rules.reply_limit(REPLY_LIMIT).ceiling(ceiling));
            assert_eq!(renewed(&IntervalRules::new(), &settings), IntervalRules::new().ceiling(ceiling));
        }
    }
}
