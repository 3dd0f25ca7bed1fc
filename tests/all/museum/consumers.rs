//! Museum row about consumers of messages.

use onceward::store::Redis;
use onceward::{Guard, Intent, Key, KeyRules, Policy, Subject};
use onceward_tests::flawed::HastyConsumer;
use onceward_tests::ledger::Ledger;
use onceward_tests::redis_server::RedisServer;

use super::{ScenarioResult, ensure};

/// A consumer of either implementation.
enum Consumer {
    Onceward(Guard),
    Hasty(HastyConsumer),
}

impl Consumer {
    /// One delivery of a message whose work charges, and then fails.
    async fn deliver(&self, message: &str, ledger: &Ledger) {
        let charge = async || {
            ledger.record("charged");
            Err::<(), _>("the response of the bank was lost")
        };
        match self {
            Self::Onceward(guard) => {
                let key = Key::new(message).unwrap();
                let intent = Intent::new("charge", Subject::anonymous()).key(&key);
                // The result does not matter here, only the number of charges.
                let _ = guard.run(&Policy::key(KeyRules::at_most_once()), &intent, charge).await;
            }
            Self::Hasty(consumer) => {
                consumer.run(message, charge).await.unwrap();
            }
        }
    }
}

/// A queue redelivers a message until it is acknowledged.
async fn err_after_effect_scenario(consumer: Consumer) -> ScenarioResult {
    let ledger = Ledger::new();
    for _ in 0..3 {
        consumer.deliver("4711", &ledger).await;
    }
    let charged = ledger.count("charged");
    ensure(charged == 1, || format!("charged {charged} times"))
}

#[tokio::test]
async fn err_after_effect() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap());
    err_after_effect_scenario(Consumer::Onceward(guard)).await.unwrap();
    let hasty = HastyConsumer::open(&redis.url()).unwrap();
    let wrong = err_after_effect_scenario(Consumer::Hasty(hasty)).await.unwrap_err();
    assert_eq!(wrong, "charged 3 times");
}
