//! Prometheus metrics of a service or a guard.

use std::collections::BTreeMap;

use metrics_exporter_prometheus::PrometheusBuilder;
use onceward::Guard;
use onceward_api::metric;

use crate::client::{http, send};

/// Returns the number of duplicates that wait in this guard for the first request.
pub fn waiting(guard: &Guard) -> usize {
    Metrics::reported_by(guard).sum(metric::WAITING.name, &[]) as usize
}

/// One scrape of `/metrics`.
#[derive(Debug)]
pub struct Metrics {
    /// The response body.
    pub text: String,
    /// Every series with its labels, and its value.
    pub series: BTreeMap<String, f64>,
}

impl Metrics {
    /// Scrapes the service at this URL.
    pub async fn of(url: &str) -> Self {
        let answer = send(http().get(format!("{url}/metrics"))).await;
        assert_eq!(
            (answer.status, answer.headers["cache-control"].to_str().ok()),
            (200, Some("no-store")),
            "{answer:?}"
        );
        assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        Self::parse(String::from_utf8(answer.body.to_vec()).expect("UTF-8"))
    }

    /// Reads the gauges of a guard in this process.
    pub fn reported_by(guard: &Guard) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || guard.report());
        Self::parse(recorder.handle().render())
    }

    fn parse(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let series = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        });
        Self { series: series.collect(), text }
    }

    /// Returns the sum of every series of this name that has all these labels, each written as `name="value"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let own = self.series.iter().filter(|(series, _)| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.iter().all(|label| rest.contains(label))
        });
        own.map(|(_, value)| value).sum()
    }
}
