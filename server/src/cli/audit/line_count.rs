//! Counts the lines of one log by kind, to decide whether it can be audited.

use serde_json::Value;

use crate::cli::output::Failure;

/// The description of a log that can be audited.
const EXPECTED: &str = "expected the JSON lines that the service logs with `--log json` at level info or finer, or that an application logs for the \
     target onceward::event (`journalctl -o cat` and `docker logs` print them unchanged)";

/// The number of lines of each kind in a log.
#[derive(Debug, Default, Clone)]
pub(super) struct LineCount {
    /// The name of the log.
    pub(super) name: String,
    /// Lines with an event of a run.
    pub(super) events: usize,
    /// Other lines, at a level at which events are logged.
    info: usize,
    /// Lines at a level at which events may not be logged.
    alarms: usize,
    /// Lines that name an event without a valid timestamp, ticket or run.
    pub(super) broken_events: usize,
    /// JSON lines without a timestamp.
    undated: usize,
    /// Lines that are not JSON.
    pub(super) not_json: usize,
    /// The last line, if it is not JSON: it may be half written.
    cut: usize,
}

impl LineCount {
    pub(super) fn of(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Counts a JSON line without a valid event.
    pub(super) fn count_other(&mut self, line: &Value) {
        let field = |name: &str| line.get(name).or_else(|| line.get("fields")?.get(name));
        let time = line.get("timestamp").and_then(Value::as_str).map(str::parse::<jiff::Timestamp>);
        let is_dated = time.is_some_and(|time| time.is_ok());
        let level = line.get("level").and_then(Value::as_str).unwrap_or_default().to_ascii_uppercase();
        match (is_dated, level.as_str()) {
            _ if ["event", "ticket", "run"].into_iter().all(|name| field(name).is_some()) => self.broken_events += 1,
            (true, "INFO" | "DEBUG" | "TRACE") => self.info += 1,
            (true, "WARN" | "ERROR") => self.alarms += 1,
            _ => self.undated += 1,
        }
    }

    /// Counts a line that is neither JSON nor blank.
    pub(super) fn count_strange(&mut self, is_whole: bool) {
        if is_whole { self.not_json += 1 } else { self.cut += 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events + self.info + self.alarms + self.skipped() + self.cut == 0
    }

    /// Returns the number of skipped lines, without a half-written last one.
    pub(super) fn skipped(&self) -> usize {
        self.broken_events + self.undated + self.not_json
    }

    /// Returns an error if this log cannot be audited.
    pub(super) fn complaint(&self) -> Option<Failure> {
        if self.events + self.info > 0 {
            return None;
        }
        let found = [
            (self.not_json + self.cut, "line(s) that are not JSON"),
            (self.undated, "JSON line(s) without a timestamp and a level"),
            (self.broken_events, "event(s) without a valid timestamp, ticket or run"),
            (self.alarms, "line(s) of the levels warn and error only"),
        ];
        let found: Vec<_> =
            found.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        let name = &self.name;
        Some(Failure::usage(match found.is_empty() {
            true => format!("{name} is empty: {EXPECTED}"),
            false => format!("{name} cannot be audited: {EXPECTED}; found {}", found.join(", ")),
        }))
    }
}
