//! Prometheus metrics: the recorder of this process, and the counters of the service.

use std::fmt;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use metrics::{Counter, counter, gauge};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use onceward_api::metric::{self, Metric, MetricKind};

use crate::context::Context;

/// The histogram buckets for the latency of the store, in seconds: from the memory store to far beyond the default timeout.
const BOUNDS: [f64; 18] = [
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0,
];
/// Interval for aggregating measurements. Until then each one uses memory, even if nothing scrapes the metrics.
const ADD_UP_EVERY: Duration = Duration::from_secs(1);

/// The metrics recorder of this process.
#[derive(Clone)]
pub struct MetricsRecorder(PrometheusHandle);

/// The counters of the service.
pub(crate) struct ServiceCounters {
    answered: [Counter; 5],
    pub(crate) shed: Counter,
    pub(crate) slow_bodies: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) limited_client: Counter,
    pub(crate) limited_all: Counter,
}

/// The counters, registered once, so that a request looks up no name.
pub(crate) static COUNTERS: LazyLock<ServiceCounters> = LazyLock::new(|| ServiceCounters {
    answered: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|class| counter!(metric::REQUESTS.name, "status" => class)),
    shed: counter!(metric::SHED.name),
    slow_bodies: counter!(metric::SLOW_BODIES.name),
    connections_refused: counter!(metric::CONNECTIONS_REFUSED.name),
    limited_client: counter!(metric::RATE_LIMITED.name, "scope" => "client"),
    limited_all: counter!(metric::RATE_LIMITED.name, "scope" => "all"),
});

impl MetricsRecorder {
    /// Installs the recorder. There is one per process: later calls return the same.
    ///
    /// # Errors
    /// If another recorder has been installed.
    pub fn install() -> Result<Self, BuildError> {
        static INSTALLED: OnceLock<MetricsRecorder> = OnceLock::new();
        if let Some(recorder) = INSTALLED.get() {
            return Ok(recorder.clone());
        }
        let durations = Matcher::Full(metric::STORE_DURATION.name.to_owned());
        let recorder = PrometheusBuilder::new().set_buckets_for_metric(durations, &BOUNDS)?;
        let recorder = Self(recorder.install_recorder()?);
        metric::OF_THE_SERVICE.iter().for_each(describe);
        LazyLock::force(&COUNTERS);
        gauge!(metric::BUILD.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Ok(INSTALLED.get_or_init(|| recorder).clone())
    }

    /// Returns all metrics, in the text format of Prometheus.
    pub(crate) fn render(&self, context: &Context) -> String {
        context.guard().report();
        gauge!(metric::IN_FLIGHT.name).set(context.limits().in_flight() as f64);
        self.0.render()
    }

    /// Aggregates measurements periodically, for as long as this future is polled.
    pub(crate) async fn add_up(&self) {
        loop {
            tokio::time::sleep(ADD_UP_EVERY).await;
            self.0.run_upkeep();
        }
    }
}

impl fmt::Debug for MetricsRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsRecorder").finish_non_exhaustive()
    }
}

impl ServiceCounters {
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, self.answered.len());
        self.answered[class - 1].increment(1);
    }
}

fn describe(metric: &Metric) {
    match metric.kind {
        MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
        MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
        MetricKind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
    }
}
