//! Counts the lines of one log by kind, to tell whether it can be audited.

use serde_json::Value;

use crate::cli::output::Failure;

/// What can be audited.
const EXPECTED: &str = "expected the JSON lines that the service writes with `--log json` at the level info or finer, or an application of \
     the target onceward::event (`journalctl -o cat` and `docker logs` print them as they were written)";

/// How many lines of each kind a log has.
#[derive(Debug, Default, Clone)]
pub(super) struct LineCount {
    /// What the log is called.
    pub(super) name: String,
    /// Tell of a run.
    pub(super) events: usize,
    /// Tell of something else, at a level at which events are logged.
    info: usize,
    /// Are of a level at which events may not be logged.
    alarms: usize,
    /// Name an event and cannot be read: no timestamp, ticket or run as we write them.
    pub(super) broken_events: usize,
    /// Are JSON without a timestamp.
    undated: usize,
    /// Are no JSON.
    pub(super) not_json: usize,
    /// Is no JSON, and may be half written: the last line.
    cut: usize,
}

impl LineCount {
    pub(super) fn of(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Counts a line that is JSON and tells of no run that could be read.
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

    /// Counts a line that is no JSON, nor blank.
    pub(super) fn count_strange(&mut self, is_whole: bool) {
        if is_whole { self.not_json += 1 } else { self.cut += 1 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events + self.info + self.alarms + self.skipped() + self.cut == 0
    }

    /// Lines that were skipped. The last one, if it is half written, is not counted.
    pub(super) fn skipped(&self) -> usize {
        self.broken_events + self.undated + self.not_json
    }

    /// Why nothing can be said by this log.
    pub(super) fn complaint(&self) -> Option<Failure> {
        if self.events + self.info > 0 {
            return None;
        }
        let found = [
            (self.not_json + self.cut, "line(s) that are not JSON"),
            (self.undated, "JSON line(s) without a timestamp and a level"),
            (self.broken_events, "event(s) without a timestamp, a ticket or a run that can be read"),
            (self.alarms, "line(s) of the levels warn and error alone"),
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
