//! One sample of all metrics, parsed from the Prometheus text format.

use std::collections::BTreeMap;

/// The prefix of our metrics.
const OURS: &str = "onceward_";

/// The metrics at one point in time.
#[derive(Debug, Default)]
pub(super) struct Sample {
    counts: BTreeMap<String, f64>,
    levels: BTreeMap<String, f64>,
    /// Sum in seconds, and count.
    durations: BTreeMap<String, (f64, f64)>,
}

impl Sample {
    /// Parses the text. Metrics of others, and lines that cannot be parsed, are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let mut sample = Self::default();
        let mut kinds = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                kinds.insert(name, kind);
            } else if let Some((name, labels, value)) = series(line) {
                sample.take(&kinds, name, &labels, value);
            }
        }
        sample
    }

    fn take(&mut self, kinds: &BTreeMap<&str, &str>, name: &str, labels: &str, value: f64) {
        let Some(ours) = name.strip_prefix(OURS) else { return };
        let shown = |name: &str| format!("{} {labels}", name.replace('_', " ")).trim_end().to_owned();
        let histogram = |end: &str| name.strip_suffix(end).filter(|name| kinds.get(name) == Some(&"histogram"));
        if histogram("_bucket").is_some() {
            // Sum and count are enough here.
        } else if histogram("_sum").is_some() {
            self.durations.entry(labels.to_owned()).or_default().0 += value;
        } else if histogram("_count").is_some() {
            self.durations.entry(labels.to_owned()).or_default().1 += value;
        } else if kinds.get(name) == Some(&"counter") {
            *self.counts.entry(shown(ours.trim_end_matches("_total"))).or_default() += value;
        } else if !name.ends_with("_info") {
            *self.levels.entry(shown(ours)).or_default() += value;
        }
    }

    /// Returns the counters; of those with labels, only the ones above zero.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&str, f64)> {
        let is_shown = |(name, count): &(&str, f64)| *count > 0.0 || !name.contains('=');
        self.counts.iter().map(|(name, count)| (name.as_str(), *count)).filter(is_shown)
    }

    pub(super) fn count(&self, name: &str) -> f64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Returns the gauges.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&str, f64)> {
        self.levels.iter().map(|(name, level)| (name.as_str(), *level))
    }

    /// Returns the average latency of the store in milliseconds, by verb.
    pub(super) fn latencies(&self) -> impl Iterator<Item = (&str, f64)> {
        let taken = self.durations.iter().filter(|(_, (_, count))| *count > 0.0);
        taken.map(|(verb, (sum, count))| (verb.as_str(), sum / count * 1e3))
    }
}

/// Parses a line into its name, its labels as `name=value`, and its value.
fn series(line: &str) -> Option<(&str, String, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty() && !label.starts_with("le="));
    let labels: Vec<_> = labels.map(|label| label.replace('"', "")).collect();
    Some((name, labels.join(" "), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_grouped_by_type() {
        let sample = Sample::parse(
            "# HELP onceward_tokens_issued_total Tokens.\n# TYPE onceward_tokens_issued_total counter\nonceward_tokens_issued_total 3\n\n\
             # TYPE onceward_verdicts_total counter\nonceward_verdicts_total{policy=\"token\",code=\"run\"} 2\n\
             onceward_verdicts_total{policy=\"token\",code=\"token_used\"} 0\n\
             # TYPE onceward_running_handlers gauge\nonceward_running_handlers 1\n\
             # TYPE onceward_store_duration_seconds histogram\nonceward_store_duration_seconds_bucket{verb=\"remove\",le=\"0.1\"} 2\n\
             onceward_store_duration_seconds_sum{verb=\"remove\"} 0.004\nonceward_store_duration_seconds_count{verb=\"remove\"} 2\n\
             # TYPE onceward_build_info gauge\nonceward_build_info{version=\"0.1.0\"} 1\n# TYPE other counter\nother 7\n",
        );
        let counts: Vec<_> = sample.counts().collect();
        assert_eq!(counts, [("tokens issued", 3.0), ("verdicts policy=token code=run", 2.0)]);
        assert_eq!(sample.levels().collect::<Vec<_>>(), [("running handlers", 1.0)]);
        assert_eq!(sample.latencies().collect::<Vec<_>>(), [("verb=remove", 2.0)]);
        assert_eq!(sample.count("verdicts policy=token code=token_used"), 0.0);
    }
}
