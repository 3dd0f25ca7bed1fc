//! The header that says how long a response is stored.

use std::borrow::Cow;

use bytes::Bytes;
use onceward_api::{Outcome, header};

use crate::policy::Policy;

/// The header of a route that says how long its responses are stored, in whole seconds, rounded down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetentionHeader {
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: Bytes,
}

impl RetentionHeader {
    /// The name without a choice of the application.
    pub(super) const NAME: Cow<'static, str> = Cow::Borrowed(header::RETENTION);

    /// Creates the header for a policy; `None` if it stores no responses.
    pub(super) fn of(policy: &Policy, name: Cow<'static, str>) -> Option<Self> {
        // Rounded down, since a client relies on it: a retry within this time never runs. The response of an interval is stored for at
        // least a second.
        let least = u64::from(matches!(policy, Policy::Interval(_)));
        let seconds = policy.retention()?.as_secs().max(least);
        Some(Self { name, value: seconds.to_string().into() })
    }

    /// Returns whether a response with this outcome is stored.
    pub(super) fn applies_to(outcome: Outcome) -> bool {
        matches!(outcome, Outcome::Executed | Outcome::Replayable | Outcome::Replayed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::{IntervalRules, KeyRules, TokenRules};

    #[test]
    fn header_has_the_retention_of_the_policy_in_seconds_rounded_down() {
        let value = |policy: Policy| {
            let header = RetentionHeader::of(&policy, RetentionHeader::NAME)?;
            assert_eq!(header.name, "onceward-retention");
            String::from_utf8(header.value.to_vec()).ok()
        };
        let (minute, interval) = (Duration::from_secs(60), || IntervalRules::new().every(Duration::from_millis(2_500)));
        assert_eq!(value(Policy::key(KeyRules::at_most_once())).as_deref(), Some("86400"));
        assert_eq!(value(Policy::Token(TokenRules::new().remember(minute))).as_deref(), Some("60"));
        assert_eq!(value(Policy::interval(interval().unwrap().remember())).as_deref(), Some("2"));
        let short = IntervalRules::new().every(Duration::from_millis(500)).unwrap().remember();
        assert_eq!(value(Policy::interval(short)).as_deref(), Some("1"));
        assert_eq!(value(Policy::interval(interval().unwrap())), None);
        assert_eq!(value(Policy::token()), None);
    }
}
