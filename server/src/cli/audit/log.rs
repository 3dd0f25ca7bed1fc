//! The event log, read for claims that were begun and never ended.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use jiff::{SignedDuration, Timestamp};
use onceward::{RunId, Ticket};
use serde_json::{Value, json};

use super::verdict::Fate;
use crate::cli::said::Failure;

/// The clocks of two processes may differ by this much. In one log the order is certain.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

/// A claim that has no end in the log.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) run: RunId,
    pub(super) ticket: Ticket,
    pub(super) action: String,
    /// As the log has it.
    pub(super) since: String,
    pub(super) begun: Begun,
}

/// What the log says of it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// It was claimed.
    Claimed,
    /// It ended, and nobody can tell how.
    LeftUnknown,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Journal {
    runs: HashMap<RunId, Run>,
    /// How many lines told of a run.
    pub(super) events: usize,
    /// How many lines told of nothing that could be read.
    strange: usize,
}

#[derive(Debug, Default)]
struct Run {
    /// The last time that it was claimed, or left as unknown.
    open: Option<(Moment, Open)>,
    /// The last time that it ended.
    ended: Option<Moment>,
}

/// When a line was written, and to which log.
#[derive(Debug, Clone, Copy)]
struct Moment {
    log: usize,
    time: Timestamp,
}

/// One line of the log.
struct Line {
    event: String,
    open: Open,
    time: Timestamp,
}

impl Journal {
    /// Reads these logs to their ends; without any, the input.
    pub(super) fn read(files: &[String]) -> Result<Self, Failure> {
        let mut journal = Self::default();
        if files.is_empty() {
            journal.take("the input", 0, std::io::stdin().lock())?;
        }
        for (at, path) in files.iter().enumerate() {
            let wrong = |error| Failure::usage(format!("{path} cannot be read: {error}"));
            match path.as_str() {
                "-" => journal.take("the input", at, std::io::stdin().lock())?,
                path => journal.take(path, at, BufReader::new(File::open(path).map_err(wrong)?))?,
            }
        }
        Ok(journal)
    }

    fn take(&mut self, name: &str, log: usize, mut lines: impl BufRead) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = lines.read_until(b'\n', &mut bytes);
            if read.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))? == 0 {
                return Ok(());
            }
            match serde_json::from_slice::<Value>(&bytes) {
                Ok(line) => Line::of(&line).into_iter().for_each(|line| self.note(log, line)),
                // The last line may be half written.
                Err(_) if bytes.ends_with(b"\n") && !bytes.trim_ascii().is_empty() => self.strange += 1,
                Err(_) => {}
            }
        }
    }

    fn note(&mut self, log: usize, line: Line) {
        self.events += 1;
        let moment = Moment { log, time: line.time };
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
    pub(super) fn open(&self) -> Vec<Open> {
        let mut open: Vec<_> = self.runs.values().filter_map(Run::open).collect();
        open.sort_by_key(|(moment, open)| (moment.time, open.run.to_string()));
        open.into_iter().map(|(_, open)| open.clone()).collect()
    }

    pub(super) fn is_open(&self, open: &Open) -> bool {
        self.runs.get(&open.run).is_some_and(|run| run.open().is_some())
    }

    /// What to say if this does not look like a log of ours.
    pub(super) fn complaint(&self) -> String {
        match (self.events, self.strange) {
            (0, 0) => {
                "There is no event in this log. Events are logged at the level info, by `--log json`.\n".to_owned()
            }
            (0, count) => {
                format!("There is no event in this log, and {count} line(s) are no JSON. Log with `--log json`.\n")
            }
            (_, 0) => String::new(),
            (_, count) => format!("{count} line(s) are no JSON, and were left out.\n"),
        }
    }
}

impl Run {
    fn open(&self) -> Option<&(Moment, Open)> {
        let (begun, _) = self.open.as_ref()?;
        self.open.as_ref().filter(|_| !self.ended.is_some_and(|ended| ended.ends(begun)))
    }
}

impl Moment {
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

impl Line {
    /// A line that tells of a run, with its fields at the top or, as others write it, under `fields`.
    fn of(line: &Value) -> Option<Self> {
        let field = |name: &str| line.get(name).or_else(|| line.get("fields")?.get(name))?.as_str();
        let time = line.get("timestamp")?.as_str()?;
        let open = Open {
            run: field("run")?.parse().ok()?,
            ticket: field("ticket")?.parse().ok()?,
            action: field("action").unwrap_or_default().to_owned(),
            since: time.to_owned(),
            begun: if field("event")? == "unknown" { Begun::LeftUnknown } else { Begun::Claimed },
        };
        Some(Self { event: field("event")?.to_owned(), open, time: time.parse().ok()? })
    }
}

impl Open {
    #[cfg(test)]
    pub(super) fn new(run: RunId, ticket: Ticket, begun: Begun) -> Self {
        Self { run, ticket, action: String::new(), since: String::new(), begun }
    }

    pub(super) fn json(&self, fate: &Fate) -> Value {
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
        let mut journal = Journal::default();
        for (at, log) in logs.iter().enumerate() {
            journal.take("a log", at, log.as_bytes()).unwrap();
        }
        journal.open().into_iter().map(|open| open.run.to_string()).collect()
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
        let mut journal = Journal::default();
        journal.take("a log", 0, &b"plain text\n"[..]).unwrap();
        assert!(journal.complaint().contains("--log json"), "{}", journal.complaint());
    }
}
