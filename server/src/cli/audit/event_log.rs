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
    /// As the log has it.
    pub(super) since: String,
    pub(super) begun: LastEvent,
}

/// What the log says of it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastEvent {
    /// It was claimed.
    Claimed,
    /// It ended, and nobody can tell how.
    LeftUnknown,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    runs: HashMap<RunId, RunEvents>,
    /// What was read of each log.
    logs: Vec<LineCount>,
}

#[derive(Debug, Default)]
struct RunEvents {
    /// The last time that it was claimed, or left as unknown.
    open: Option<(LogTime, OpenClaim)>,
    /// The last time that it ended.
    ended: Option<LogTime>,
}

/// When a line was written, and to which log.
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
    /// Reads these logs to their ends; without any, the input.
    pub(super) fn read(files: &[String]) -> Result<Self, Failure> {
        let mut log = Self::default();
        if files.is_empty() {
            log.take("the input", std::io::stdin().lock())?;
        }
        for path in files {
            let wrong = |error| Failure::usage(format!("{path} cannot be read: {error}"));
            match path.as_str() {
                "-" => log.take("the input", std::io::stdin().lock())?,
                path => log.take(path, BufReader::new(File::open(path).map_err(wrong)?))?,
            }
        }
        Ok(log)
    }

    /// Refuses logs by which nothing can be said. An empty one beside others may have been rotated a moment ago.
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
            // Whoever asked twice for one attempt has claimed twice; the later counts.
            "claimed" | "unknown" if run.open.as_ref().is_none_or(|(before, _)| !moment.is_before(before)) => {
                run.open = Some((moment, line.open));
            }
            "completed" | "released" | "lost" if run.ended.is_none_or(|before| !moment.is_before(&before)) => {
                run.ended = Some(moment);
            }
            _ => {}
        }
    }

    /// Every claim without an end, the oldest first.
    pub(super) fn open(&self) -> Vec<OpenClaim> {
        let mut open: Vec<_> = self.runs.values().filter_map(RunEvents::open).collect();
        open.sort_by_key(|(moment, open)| (moment.time, open.run.to_string()));
        open.into_iter().map(|(_, open)| open.clone()).collect()
    }

    pub(super) fn is_open(&self, open: &OpenClaim) -> bool {
        self.runs.get(&open.run).is_some_and(|run| run.open().is_some())
    }

    /// How many lines told of a run.
    pub(super) fn events(&self) -> usize {
        self.sum(|log| log.events)
    }

    /// How many lines are no JSON.
    pub(super) fn not_json(&self) -> usize {
        self.sum(|log| log.not_json)
    }

    /// How many lines were left out, and how many of these name an event.
    pub(super) fn skipped(&self) -> (usize, usize) {
        (self.sum(LineCount::skipped), self.sum(|log| log.broken_events))
    }

    fn sum(&self, count: impl Fn(&LineCount) -> usize) -> usize {
        self.logs.iter().map(count).sum()
    }

    /// What to say of what could not be read, and of what was not there.
    pub(super) fn remarks(&self) -> String {
        let mut text = String::new();
        for log in self.logs.iter().filter(|log| log.is_empty()) {
            text += &format!("{} is empty.\n", log.name);
        }
        match self.skipped() {
            (0, _) => {}
            (count, 0) => text += &format!("{count} line(s) were skipped: they are no lines of Onceward's log.\n"),
            (count, events) => {
                text += &format!(
                    "{count} line(s) were skipped. {events} of them name an event without a timestamp, a ticket or a run that can be \
                     read: what they tell of is not in this audit.\n"
                );
            }
        }
        if self.events() == 0 {
            text += "No run began or ended in this log.\n";
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

    /// Whether this is the end of what began then. Of two logs the clocks may differ; the same attempt, and so the same run, is
    /// hardly claimed again so soon after its end.
    fn ends(&self, begun: &Self) -> bool {
        let leeway = if self.log == begun.log { SignedDuration::ZERO } else { CLOCKS };
        self.time.saturating_add(leeway).is_ok_and(|late| late >= begun.time)
    }
}

impl EventLine {
    /// A line that tells of a run, with its fields at the top or, as others write it, under `fields`.
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

    /// The runs without an end in these logs.
    fn open(logs: &[String]) -> Vec<String> {
        let mut log = EventLog::default();
        for text in logs {
            log.take("a log", text.as_bytes()).unwrap();
        }
        log.open().into_iter().map(|open| open.run.to_string()).collect()
    }

    #[test]
    fn what_was_begun_and_not_ended_is_open_in_the_order_of_time() {
        let [a, b, c] = RUNS;
        let log =
            [line(1, "claimed", b), line(2, "claimed", a), line(3, "claimed", c), line(4, "completed", a)].concat();
        assert_eq!(open(&[log]), [b, c]);
        for end in ["completed", "released", "lost"] {
            assert_eq!(open(&[line(1, "claimed", a) + &line(2, end, a)]), [""; 0], "{end}");
        }
        assert_eq!(open(&[line(1, "claimed", a) + &line(2, "unknown", a)]), [a], "it may be held");
        assert_eq!(open(&[line(1, "refused", a)]), [""; 0], "somebody else was refused");
    }

    #[test]
    fn an_end_may_stand_in_another_log_whose_clock_is_a_little_behind() {
        let [a, ..] = RUNS;
        assert_eq!(open(&[line(40, "claimed", a), line(10, "completed", a)]), [""; 0]);
        assert_eq!(open(&[line(40, "claimed", a) + &line(10, "completed", a)]), [a], "in one log the order is certain");
    }

    #[test]
    fn an_attempt_that_ran_again_after_its_end_is_open_again() {
        let [a, ..] = RUNS;
        let log = [line(1, "claimed", a), line(2, "released", a), line(3, "claimed", a)].concat();
        assert_eq!(open(std::slice::from_ref(&log)), [a]);
        assert_eq!(open(&[log + &line(4, "completed", a)]), [""; 0]);
        let twice = [line(1, "claimed", a), line(2, "claimed", a), line(3, "completed", a)].concat();
        assert_eq!(open(&[twice]), [""; 0], "asked for twice, ended once");
    }

    #[test]
    fn other_lines_nested_fields_and_half_a_line_are_taken_as_they_come() {
        let [a, ..] = RUNS;
        let nested = line(1, "claimed", a).replace("\"event\"", "\"fields\":{\"event\"").replace("}\n", "}}\n");
        assert_eq!(
            open(&[format!("{{\"message\":\"listening\"}}\n\nno JSON\n{nested}{}", &line(2, "completed", a)[..40])]),
            [a]
        );
    }
}
