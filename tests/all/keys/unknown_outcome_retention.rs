//! Retention of a key whose outcome is unknown.

use std::time::Duration;

use onceward::{Intent, Key, KeyRules, Policy, RecordState, Subject, Verdict, testing};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The limit of *at most once*: the record of an unknown outcome expires too.
#[tokio::test]
async fn key_of_an_unknown_outcome_is_held_until_retention_ends() {
    for (rules, retain) in [(KeyRules::at_most_once(), HOUR * 24), (KeyRules::at_most_once().retain(HOUR), HOUR)] {
        let (guard, clock) = testing::guard();
        let key = Key::new("k").unwrap();
        let (policy, intent) = (Policy::key(rules), Intent::new("pay", Subject::named("alice")).key(&key));
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a free key") };
        pass.unknown().await.unwrap();
        clock.advance(retain - Duration::from_secs(1));
        assert!(matches!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Unknown(_)), "{retain:?}");
        assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Reject(_))), "{retain:?}");
        clock.advance(Duration::from_secs(2));
        assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Run(_))), "{retain:?}");
    }
}
