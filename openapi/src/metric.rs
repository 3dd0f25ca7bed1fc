//! Prometheus metrics: names, kinds and help texts.
//!
//! No label contains content or the identity of a client: every value comes from a fixed list.

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// The description, one sentence.
    pub help: &'static str,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases.
    Counter,
    /// The current value.
    Gauge,
    /// The number of observations in each bucket.
    Histogram,
}

/// No label.
pub const ISSUED: Metric = counter("onceward_tokens_issued_total", "Tokens issued.");
/// Labels `policy` and `code`.
pub const VERDICTS: Metric =
    counter("onceward_verdicts_total", "Submissions by policy and verdict: run, replay, or the code of the rejection.");
/// Label `outcome`.
pub const WAITS: Metric = counter(
    "onceward_waits_total",
    "Duplicates that waited for the first: answered by its reply, ran (the first was not applied), or timed out waiting.",
);
/// Labels `policy` and `event`.
pub const CLAIMS: Metric = counter(
    "onceward_claims_total",
    "Events of claims: claimed, completed, released, unknown (outcome unknown), lost (to another run).",
);
/// Label `outcome`.
pub const RENEWALS: Metric = counter("onceward_renewals_total", "Renewals of claims: renewed, or failed and retried.");
/// No label.
pub const UNPROTECTED: Metric = counter(
    "onceward_unprotected_total",
    "Submissions that ran unprotected, because the store was unavailable and their policy fails open.",
);
/// Label `outcome`.
pub const WOULD_HAVE: Metric = counter(
    "onceward_would_have_total",
    "Submissions that an enforcing guard would not have run, in observe mode: by the code of the rejection, or replayed; or unread, if that is unknown.",
);
/// Label `verb`.
pub const STORE_DURATION: Metric = Metric {
    name: "onceward_store_duration_seconds",
    kind: MetricKind::Histogram,
    help: "Latency of the store, by verb.",
};
/// Labels `verb` and `kind`.
pub const STORE_ERRORS: Metric = counter(
    "onceward_store_errors_total",
    "Errors of the store, by verb: not_executed (nothing was changed) or unknown (the reply was lost).",
);
/// No label.
pub const RUNNING: Metric = gauge(
    "onceward_running_handlers",
    "Handlers in flight under the guard in this process, including those whose outcome is still being stored.",
);
/// No label.
pub const WAITING: Metric = gauge("onceward_waiting_duplicates", "Duplicates that are waiting for the first request.");
/// No label.
pub const RETRYING: Metric = gauge(
    "onceward_retrying_claims",
    "Claims whose last write failed or was lost, and that wait for a retry; when there are too many, new claims are rejected.",
);
/// No label.
pub const CLAIMS_OPEN: Metric = gauge(
    "onceward_claims_open",
    "At-most-once claims that backends opened through this process and have not settled, including overdue ones.",
);
/// No label.
pub const CLAIMS_OVERDUE: Metric = gauge(
    "onceward_claims_overdue",
    "Claims of onceward_claims_open whose lease has expired: a duplicate receives outcome_unknown until the backend or an operator settles them.",
);
/// No label.
pub const SLOW_NODES: Metric = gauge(
    "onceward_store_slow_nodes",
    "Redis servers on which most commands time out: new work is rejected immediately until they respond in time.",
);
/// No label.
pub const MEMORY_RECORDS: Metric =
    gauge("onceward_memory_records", "Records in the memory store, including expired ones.");
/// Label `kind`.
pub const MEMORY_BYTES: Metric = gauge("onceward_memory_bytes", "Bytes in the memory store, by kind of record.");
/// Label `kind`.
pub const MEMORY_RESPONSES: Metric = gauge(
    "onceward_memory_response_bytes",
    "The part of onceward_memory_bytes that is stored responses, the oldest of which are dropped when the share is full.",
);
/// Label `kind`.
pub const MEMORY_DROPPED: Metric = counter(
    "onceward_memory_responses_dropped_total",
    "Responses that the memory store had no room for, or dropped to make room: their duplicates receive reply_not_kept.",
);
/// Label `kind`.
pub const MEMORY_LIMIT: Metric = gauge(
    "onceward_memory_limit_bytes",
    "Maximum bytes in the memory store, by kind of record; a share that is full of records rejects new ones.",
);

/// Label `status`.
pub const REQUESTS: Metric =
    counter("onceward_http_requests_total", "Responses of the service, by class of status: 2xx to 5xx.");
/// No label.
pub const IN_FLIGHT: Metric = gauge("onceward_http_requests_in_flight", "Requests in flight.");
/// No label.
pub const SHED: Metric =
    counter("onceward_http_requests_shed_total", "Requests rejected because max_in_flight was reached.");
/// No label.
pub const SLOW_BODIES: Metric =
    counter("onceward_http_slow_bodies_total", "Requests rejected because their body did not arrive in time.");
/// No label.
pub const CONNECTIONS_REFUSED: Metric = counter(
    "onceward_http_connections_refused_total",
    "Connections closed immediately because their client had too many open while half of max_connections were in use.",
);
/// Label `scope`.
pub const RATE_LIMITED: Metric = counter(
    "onceward_rate_limited_total",
    "Token requests beyond the rate limit: that of the client, or that of all clients together.",
);
/// Label `version`.
pub const BUILD: Metric = gauge("onceward_build_info", "Always 1; the version is in its label.");

/// The metrics of the library.
pub const OF_THE_LIBRARY: [Metric; 20] = [
    ISSUED,
    VERDICTS,
    WAITS,
    CLAIMS,
    RENEWALS,
    UNPROTECTED,
    WOULD_HAVE,
    STORE_DURATION,
    STORE_ERRORS,
    RUNNING,
    WAITING,
    RETRYING,
    CLAIMS_OPEN,
    CLAIMS_OVERDUE,
    SLOW_NODES,
    MEMORY_RECORDS,
    MEMORY_BYTES,
    MEMORY_RESPONSES,
    MEMORY_DROPPED,
    MEMORY_LIMIT,
];

/// The additional metrics of the service.
pub const OF_THE_SERVICE: [Metric; 7] =
    [REQUESTS, IN_FLIGHT, SHED, SLOW_BODIES, CONNECTIONS_REFUSED, RATE_LIMITED, BUILD];

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_prefixed_unique_and_follow_prometheus() {
        let all: Vec<Metric> = OF_THE_LIBRARY.into_iter().chain(OF_THE_SERVICE).collect();
        for (at, metric) in all.iter().enumerate() {
            let rest = metric.name.strip_prefix("onceward_").unwrap();
            assert!(rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{metric:?}");
            assert_eq!(rest.ends_with("_total"), metric.kind == MetricKind::Counter, "{metric:?}");
            assert_eq!(rest.ends_with("_seconds"), metric.kind == MetricKind::Histogram, "{metric:?}");
            assert!(metric.help.ends_with('.'), "{metric:?}");
            assert!(all[at + 1..].iter().all(|other| other.name != metric.name), "{metric:?}");
        }
    }
}
