//! An application that logs through the `log` crate and has no tracing subscriber. A logger is one per process, so this is a binary of
//! its own.

use std::sync::Mutex;

use log::{LevelFilter, Log, Metadata, Record};
use onceward::{Intent, Key, KeyRules, Policy, Subject, Verdict, testing};

/// Keeps what is logged: level, target and text.
struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.0.lock().expect("no test panics").push(format!(
            "{} {} {}",
            record.level(),
            record.target(),
            record.args()
        ));
    }

    fn flush(&self) {}
}

/// Returns the lines that have all of these words.
fn lines(words: &[&str]) -> Vec<String> {
    let lines = LINES.0.lock().expect("no test panics");
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
}

#[tokio::test]
async fn events_name_their_action_and_a_dropped_pass_is_warned_of_without_a_tracing_subscriber() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(LevelFilter::Info);
    let (guard, _clock) = testing::guard();
    let policy = Policy::key(KeyRules::retryable());
    let (paid, dropped) = (Key::new("order-4711").unwrap(), Key::new("order-4712").unwrap());
    let intent = |key| Intent::new("POST /payments", Subject::anonymous()).key(key);
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent(&paid)).await else { panic!("it is the first") };
    pass.complete(None).await.unwrap();
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent(&dropped)).await else { panic!("it is the first") };
    drop(pass);
    for event in ["claimed", "completed"] {
        let found = lines(&["INFO onceward::event", &format!("event=\"{event}\""), "action=\"POST /payments\""]);
        assert!(!found.is_empty(), "{event}: {:#?}", LINES.0.lock().unwrap());
    }
    assert_eq!(lines(&["WARN onceward::pass", "a pass was dropped"]).len(), 1, "{:#?}", LINES.0.lock().unwrap());
    assert!(lines(&["order-471"]).is_empty(), "no key is logged");
}
