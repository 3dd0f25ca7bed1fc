//! Reads event logs and finds claims without an end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use jiff::{SignedDuration, Timestamp};
use onceward::{RunId, Ticket};
use serde_json::{Value, json};

use super::claim_state::ClaimState;
use super::line_count::LineCount;
use crate::cli::output::Failure;

/// The clocks of two processes may differ by this much. In one log the order is certain.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

/// A claim that has no end in the log.
#[derive(Debug, Clone)]
pub(super) struct OpenClaim {
    pub(super) run: RunId,
    pub(super) ticket: Ticket,
    pub(super) action: String,
    /// The timestamp, as in the log.
    pub(super) since: String,
    pub(super) begun: LastEvent,
}

/// The last event of a claim without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEvent {
    /// The run was claimed.
    Claimed,
    /// The run ended, and its outcome is unknown.
    LeftUnknown,
}

/// The runs in all logs that were read.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    runs: HashMap<RunId, RunEvents>,
    /// The line counts of each log.
    logs: Vec<LineCount>,
}

#[derive(Debug, Default)]
struct RunEvents {
    /// The last time that the run was claimed, or left as unknown.
    open: Option<(LogTime, OpenClaim)>,
    /// The last time that the run ended.
    ended: Option<LogTime>,
}

/// The time of a line, and the log it is in.
#[derive(Debug, Clone, Copy)]
struct LogTime {
    log: usize,
    time: Timestamp,
}

/// One line of the log.
struct EventLine {
    event: String,
    open: OpenClaim,
    time: Timestamp,
}

impl EventLog {
    /// Reads these logs to their ends; without any, stdin.
    pub(super) fn read(files: &[String]) -> Result<Self, Failure> {
        let mut log = Self::default();
        if files.is_empty() {
            log.take("stdin", std::io::stdin().lock())?;
        }
        for path in files {
            let wrong = |error| Failure::usage(format!("{path} cannot be read: {error}"));
            match path.as_str() {
                "-" => log.take("stdin", std::io::stdin().lock())?,
                path => log.take(path, BufReader::new(File::open(path).map_err(wrong)?))?,
            }
        }
        Ok(log)
    }

    /// Rejects logs that cannot be audited. An empty one beside others may have been rotated a moment ago.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let are_all_empty = self.logs.iter().all(LineCount::is_empty);
        let counted = self.logs.iter().filter(|log| are_all_empty || !log.is_empty());
        counted.filter_map(LineCount::complaint).next().map_or(Ok(()), Err)
    }

    fn take(&mut self, name: &str, mut lines: impl BufRead) -> Result<(), Failure> {
        let (at, mut read, mut bytes) = (self.logs.len(), LineCount::of(name), Vec::new());
        loop {
            bytes.clear();
            let got = lines.read_until(b'\n', &mut bytes);
            if got.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))? == 0 {
                self.logs.push(read);
                return Ok(());
            }
            match serde_json::from_slice::<Value>(&bytes) {
                Ok(line) => match EventLine::of(&line) {
                    Some(line) => {
                        read.events += 1;
                        self.note(at, line);
                    }
                    None => read.count_other(&line),
                },
                Err(_) if bytes.trim_ascii().is_empty() => {}
                Err(_) => read.count_strange(bytes.ends_with(b"\n")),
            }
        }
    }

    fn note(&mut self, log: usize, line: EventLine) {
        let moment = LogTime { log, time: line.time };
        let run = self.runs.entry(line.open.run).or_default();
        match line.event.as_str() {
            // A repeated attempt claims twice; the later claim counts.
            "claimed" | "unknown" if run.open.as_ref().is_none_or(|(before, _)| !moment.is_before(before)) => {
                run.open = Some((moment, line.open));
            }
            "completed" | "released" | "lost" if run.ended.is_none_or(|before| !moment.is_before(&before)) => {
                run.ended = Some(moment);
            }
            _ => {}
        }
    }

    /// Returns every claim without an end, the oldest first.
    pub(super) fn open(&self) -> Vec<OpenClaim> {
        let mut open: Vec<_> = self.runs.values().filter_map(RunEvents::open).collect();
        open.sort_by_key(|(moment, open)| (moment.time, open.run.to_string()));
        open.into_iter().map(|(_, open)| open.clone()).collect()
    }

    pub(super) fn is_open(&self, open: &OpenClaim) -> bool {
        self.runs.get(&open.run).is_some_and(|run| run.open().is_some())
    }

    /// Returns the number of lines with an event of a run.
    pub(super) fn events(&self) -> usize {
        self.sum(|log| log.events)
    }

    /// Returns the number of lines that are not JSON.
    pub(super) fn not_json(&self) -> usize {
        self.sum(|log| log.not_json)
    }

    /// Returns the number of skipped lines, and how many of these name an event.
    pub(super) fn skipped(&self) -> (usize, usize) {
        (self.sum(LineCount::skipped), self.sum(|log| log.broken_events))
    }

    fn sum(&self, count: impl Fn(&LineCount) -> usize) -> usize {
        self.logs.iter().map(count).sum()
    }

    /// Returns remarks about empty logs and skipped lines.
    pub(super) fn remarks(&self) -> String {
        let mut text = String::new();
        for log in self.logs.iter().filter(|log| log.is_empty()) {
            text += &format!("{} is empty.\n", log.name);
        }
        match self.skipped() {
            (0, _) => {}
            (count, 0) => text += &format!("{count} line(s) were skipped: they are not from Onceward.\n"),
            (count, events) => {
                text += &format!(
                    "{count} line(s) were skipped. {events} of them name an event without a valid timestamp, ticket or run, and are \
                     missing from this audit.\n"
                );
            }
        }
        if self.events() == 0 {
            text += "No run started or ended in this log.\n";
        }
        text
    }
}

impl RunEvents {
    fn open(&self) -> Option<&(LogTime, OpenClaim)> {
        let (begun, _) = self.open.as_ref()?;
        self.open.as_ref().filter(|_| !self.ended.is_some_and(|ended| ended.ends(begun)))
    }
}

impl LogTime {
    fn is_before(&self, other: &Self) -> bool {
        self.time < other.time
    }

    /// Returns true if this is the end of a run that began at `begun`. The clocks of two logs may differ; the same attempt, and so the
    /// same run, is hardly ever claimed again so soon after its end.
    fn ends(&self, begun: &Self) -> bool {
        let leeway = if self.log == begun.log { SignedDuration::ZERO } else { CLOCKS };
        self.time.saturating_add(leeway).is_ok_and(|late| late >= begun.time)
    }
}

impl EventLine {
    /// Reads a line with an event of a run; its fields are at the top level or, as other formatters write them, under `fields`.
    fn of(line: &Value) -> Option<Self> {
        let field = |name: &str| line.get(name).or_else(|| line.get("fields")?.get(name))?.as_str();
        let time = line.get("timestamp")?.as_str()?;
        let open = OpenClaim {
            run: field("run")?.parse().ok()?,
            ticket: field("ticket")?.parse().ok()?,
            action: field("action").unwrap_or_default().to_owned(),
            since: time.to_owned(),
            begun: if field("event")? == "unknown" { LastEvent::LeftUnknown } else { LastEvent::Claimed },
        };
        Some(Self { event: field("event")?.to_owned(), open, time: time.parse().ok()? })
    }
}

impl OpenClaim {
    #[cfg(test)]
    pub(super) fn new(run: RunId, ticket: Ticket, begun: LastEvent) -> Self {
        Self { run, ticket, action: String::new(), since: String::new(), begun }
    }

    pub(super) fn json(&self, fate: &ClaimState) -> Value {
        json!({
            "ticket": self.ticket.to_string(), "run": self.run.to_string(), "action": self.action, "since": self.since,
            "fate": fate.as_str(), "says": fate.says(),
        })
    }
}

#[cfg(test)]
mod tests {
    use onceward::Kind;

    use super::*;

    const RUNS: [&str; 3] = [
        "00000000-0000-4000-8000-00000000000a",
        "00000000-0000-4000-8000-00000000000b",
        "00000000-0000-4000-8000-00000000000c",
    ];

    fn line(second: u32, event: &str, run: &str) -> String {
        let ticket = Ticket::of(Kind::Key, run.as_bytes());
        format!(
            "{{\"timestamp\":\"2026-11-16T10:00:{second:02}.5Z\",\"event\":\"{event}\",\"action\":\"pay\",\"ticket\":\"{ticket}\",\"run\":\"{run}\"}}\n"
        )
    }

    /// Returns the runs without an end in these logs.
    fn open(logs: &[String]) -> Vec<String> {
        let mut log = EventLog::default();
        for text in logs {
            log.take("a log", text.as_bytes()).unwrap();
        }
        log.open().into_iter().map(|open| open.run.to_string()).collect()
    }

    #[test]
    fn unfinished_runs_are_open_in_order_of_time() {
        let [a, b, c] = RUNS;
        let log =
            [line(1, "claimed", b), line(2, "claimed", a), line(3, "claimed", c), line(4, "completed", a)].concat();
        assert_eq!(open(&[log]), [b, c]);
        for end in ["completed", "released", "lost"] {
            assert_eq!(open(&[line(1, "claimed", a) + &line(2, end, a)]), [""; 0], "{end}");
        }
        assert_eq!(open(&[line(1, "claimed", a) + &line(2, "unknown", a)]), [a], "the record may still be held");
        assert_eq!(open(&[line(1, "refused", a)]), [""; 0], "another request was rejected");
    }

    #[test]
    fn end_in_another_log_with_clock_skew_counts() {
        let [a, ..] = RUNS;
        assert_eq!(open(&[line(40, "claimed", a), line(10, "completed", a)]), [""; 0]);
        assert_eq!(open(&[line(40, "claimed", a) + &line(10, "completed", a)]), [a], "in one log the order is certain");
    }

    #[test]
    fn attempt_rerun_after_its_end_is_open_again() {
        let [a, ..] = RUNS;
        let log = [line(1, "claimed", a), line(2, "released", a), line(3, "claimed", a)].concat();
        assert_eq!(open(std::slice::from_ref(&log)), [a]);
        assert_eq!(open(&[log + &line(4, "completed", a)]), [""; 0]);
        let twice = [line(1, "claimed", a), line(2, "claimed", a), line(3, "completed", a)].concat();
        assert_eq!(open(&[twice]), [""; 0], "claimed twice, ended once");
    }

    #[test]
    fn foreign_nested_and_truncated_lines_are_tolerated() {
        let [a, ..] = RUNS;
        let nested = line(1, "claimed", a).replace("\"event\"", "\"fields\":{\"event\"").replace("}\n", "}}\n");
        assert_eq!(
            open(&[format!("{{\"message\":\"listening\"}}\n\nno JSON\n{nested}{}", &line(2, "completed", a)[..40])]),
            [a]
        );
    }
}
