//! How long a run of which nobody can tell the end keeps its key.

use std::time::Duration;

use onceward::{Intent, Key, KeyRules, Policy, RecordState, Subject, Verdict, testing};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The limit of what *at most once* promises: a record expires, and so does one that says that nobody can tell.
#[tokio::test]
async fn key_of_an_unknown_outcome_is_held_for_as_long_as_retain_says_and_free_afterwards() {
    for (rules, retain) in [(KeyRules::at_most_once(), HOUR * 24), (KeyRules::at_most_once().retain(HOUR), HOUR)] {
        let (guard, clock) = testing::guard();
        let key = Key::new("k").unwrap();
        let (policy, intent) = (Policy::key(rules), Intent::new("pay", Subject::named("alice")).key(&key));
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("it is free") };
        pass.unknown().await.unwrap();
        clock.advance(retain - Duration::from_secs(1));
        assert!(matches!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Unknown(_)), "{retain:?}");
        assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Reject(_))), "{retain:?}");
        clock.advance(Duration::from_secs(2));
        assert!(matches!(guard.check(&policy, &intent).await, Ok(Verdict::Run(_))), "{retain:?}");
    }
}
