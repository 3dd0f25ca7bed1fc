//! An application that logs with `env_logger` and has no tracing subscriber. There is one logger per process, so this is a separate
//! test binary.

use std::io;
use std::sync::Mutex;

use env_logger::Target;
use log::LevelFilter;
use onceward::{Intent, Key, KeyRules, Policy, Subject, Verdict, testing};

/// The output of the logger.
static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Written;

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.lock().expect("no test panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines that have all of these words.
fn lines(words: &[&str]) -> Vec<String> {
    let written = WRITTEN.lock().expect("no test panics");
    let text = String::from_utf8_lossy(&written).into_owned();
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

#[tokio::test]
async fn env_logger_receives_events_and_dropped_pass_warning() {
    env_logger::Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("onceward::event", LevelFilter::Info)
        .target(Target::Pipe(Box::new(Written)))
        .init();
    let (guard, _clock) = testing::guard();
    let policy = Policy::key(KeyRules::retryable());
    let (paid, dropped) = (Key::new("order-4711").unwrap(), Key::new("order-4712").unwrap());
    let intent = |key| Intent::new("POST /payments", Subject::anonymous()).key(key);
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent(&paid)).await else { panic!("the first request runs") };
    pass.complete(None).await.unwrap();
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent(&dropped)).await else {
        panic!("the first request runs")
    };
    drop(pass);
    for event in ["claimed", "completed"] {
        let words = ["INFO", "onceward::event", &format!("event=\"{event}\""), "action=\"POST /payments\""];
        assert!(!lines(&words).is_empty(), "{event}: {:#?}", lines(&[]));
    }
    assert_eq!(lines(&["WARN", "onceward::pass", "a pass was dropped"]).len(), 1, "{:#?}", lines(&[]));
    assert!(lines(&["order-471"]).is_empty(), "no key is logged");
}
