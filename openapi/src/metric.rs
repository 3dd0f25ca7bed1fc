//! What is counted and measured, under the names that Prometheus knows it by.
//!
//! No label ever holds what a caller has sent or who it is: every value is one of a list that is known beforehand.

/// One metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it is read.
    pub kind: MetricKind,
    /// What it tells, in a sentence.
    pub help: &'static str,
}

/// How a metric is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It only ever grows.
    Counter,
    /// It is as it is at the moment.
    Gauge,
    /// How many were below each of some bounds.
    Histogram,
}

/// Tokens that were given out.
pub const ISSUED: Metric = counter("onceward_tokens_issued_total", "Tokens that were issued.");
/// Labels `policy` and `code`.
pub const VERDICTS: Metric = counter(
    "onceward_verdicts_total",
    "Submissions by policy and by what was decided: run, replay, or the code of the rejection.",
);
/// Label `outcome`.
pub const WAITS: Metric = counter(
    "onceward_waits_total",
    "Duplicates that waited for the first: answered by its reply, ran (the first was not applied), or in vain.",
);
/// Labels `policy` and `event`.
pub const CLAIMS: Metric = counter(
    "onceward_claims_total",
    "What became of claims: claimed, completed, released, unknown (nobody can tell how it ended), lost (to somebody else).",
);
/// Label `outcome`.
pub const RENEWALS: Metric =
    counter("onceward_renewals_total", "Renewals of claims: renewed, or failed and tried again.");
/// No label.
pub const UNPROTECTED: Metric = counter(
    "onceward_unprotected_total",
    "Submissions that ran unprotected, because the store could not be asked and their policy fails open.",
);
/// Label `outcome`.
pub const WOULD_HAVE: Metric = counter(
    "onceward_would_have_total",
    "What would not have run, had the guard not only observed: by the code of the rejection, or replayed; or unread, if that is not known.",
);
/// Label `verb`.
pub const STORE_DURATION: Metric = Metric {
    name: "onceward_store_duration_seconds",
    kind: MetricKind::Histogram,
    help: "How long the store took, by verb.",
};
/// Labels `verb` and `kind`.
pub const STORE_ERRORS: Metric = counter(
    "onceward_store_errors_total",
    "Failures of the store, by verb: not_executed (certainly nothing was changed) or unknown (the answer was lost).",
);
/// No label.
pub const RUNNING: Metric =
    gauge("onceward_running_handlers", "What runs under the guard in this process, or is still being written down.");
/// No label.
pub const WAITING: Metric = gauge("onceward_waiting_duplicates", "Duplicates that wait for the first at this moment.");
/// No label.
pub const RETRYING: Metric = gauge(
    "onceward_retrying_claims",
    "Claims whose last write failed or was lost, and that wait to be written or taken back; when there are too many, new claims are rejected.",
);
/// No label.
pub const CLAIMS_OPEN: Metric = gauge(
    "onceward_claims_open",
    "Claims at most once that backends have made through this process and have not ended, the overdue ones included.",
);
/// No label.
pub const CLAIMS_OVERDUE: Metric = gauge(
    "onceward_claims_overdue",
    "Claims of onceward_claims_open whose lease has expired: a duplicate receives outcome_unknown until the backend or an operator settles them.",
);
/// No label.
pub const SLOW_NODES: Metric = gauge(
    "onceward_store_slow_nodes",
    "Redis servers on which most commands time out: new work is rejected at once until they answer in time.",
);
/// No label.
pub const MEMORY_RECORDS: Metric =
    gauge("onceward_memory_records", "Records in the memory store, those included that are over.");
/// Label `kind`.
pub const MEMORY_BYTES: Metric = gauge("onceward_memory_bytes", "What the memory store holds, by kind of record.");
/// Label `kind`.
pub const MEMORY_RESPONSES: Metric = gauge(
    "onceward_memory_response_bytes",
    "How much of onceward_memory_bytes is stored responses, the oldest of which are dropped when the share is full.",
);
/// Label `kind`.
pub const MEMORY_DROPPED: Metric = counter(
    "onceward_memory_responses_dropped_total",
    "Responses that the memory store had no room for, or dropped to make room: their duplicates receive reply_not_kept.",
);
/// Label `kind`.
pub const MEMORY_LIMIT: Metric = gauge(
    "onceward_memory_limit_bytes",
    "How much the memory store may hold of each kind; a share that is full of records rejects new ones.",
);

/// Label `status`.
pub const REQUESTS: Metric =
    counter("onceward_http_requests_total", "Requests that the service has answered, by class of status: 2xx to 5xx.");
/// No label.
pub const IN_FLIGHT: Metric =
    gauge("onceward_http_requests_in_flight", "Requests that are being answered at this moment.");
/// No label.
pub const SHED: Metric =
    counter("onceward_http_requests_shed_total", "Requests that were refused because too many were being answered.");
/// No label.
pub const SLOW_BODIES: Metric =
    counter("onceward_http_slow_bodies_total", "Requests that were refused because their body did not arrive in time.");
/// No label.
pub const CONNECTIONS_REFUSED: Metric = counter(
    "onceward_http_connections_refused_total",
    "Connections that were closed at once because their client had too many open while half of max_connections were in use.",
);
/// Label `scope`.
pub const RATE_LIMITED: Metric = counter(
    "onceward_rate_limited_total",
    "Requests for tokens beyond a quota: that of the client, or that of all clients together.",
);
/// Label `version`.
pub const BUILD: Metric = gauge("onceward_build_info", "Always 1; the version is in its label.");

/// What the library tells.
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

/// What the service tells beside that.
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
    fn names_are_ours_follow_prometheus_and_are_there_once() {
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
