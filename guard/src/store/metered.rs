//! Measures the duration and the failures of each verb.

use std::future::Future;

use metrics::{Counter, Histogram, counter, histogram};
use onceward_api::metric;
use tokio::time::Instant;

use super::StoreError;

/// A verb of the store, as metrics name it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Insert,
    Swap,
    Remove,
    Look,
    Epoch,
    Ping,
}

impl Verb {
    const ALL: [Self; 6] = [Self::Insert, Self::Swap, Self::Remove, Self::Look, Self::Epoch, Self::Ping];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Swap => "swap",
            Self::Remove => "remove",
            Self::Look => "look",
            Self::Epoch => "epoch",
            Self::Ping => "ping",
        }
    }
}

/// The metrics of a store.
pub(super) struct StoreMetrics([VerbMetrics; Verb::ALL.len()]);

/// The metrics of one verb.
struct VerbMetrics {
    duration: Histogram,
    not_executed: Counter,
    unknown: Counter,
}

impl StoreMetrics {
    /// Registers the metrics with the currently installed recorder.
    pub(super) fn new() -> Self {
        Self(Verb::ALL.map(VerbMetrics::new))
    }

    /// Measures a command of this verb.
    pub(super) async fn time<T>(
        &self,
        verb: Verb,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let metrics = &self.0[verb as usize];
        let begun = Instant::now();
        let done = command.await;
        metrics.duration.record(begun.elapsed());
        match &done {
            Ok(_) => {}
            Err(StoreError::NotExecuted(_)) => metrics.not_executed.increment(1),
            Err(StoreError::Unknown(_)) => metrics.unknown.increment(1),
        }
        done
    }
}

impl VerbMetrics {
    fn new(verb: Verb) -> Self {
        let verb = verb.as_str();
        let failed = |kind: &'static str| counter!(metric::STORE_ERRORS.name, "verb" => verb, "kind" => kind);
        Self {
            duration: histogram!(metric::STORE_DURATION.name, "verb" => verb),
            not_executed: failed("not_executed"),
            unknown: failed("unknown"),
        }
    }
}
