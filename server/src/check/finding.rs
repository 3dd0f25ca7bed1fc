//! One result of a check: a sentence, and how to fix the problem.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// As it should be.
    Fine,
    /// Something to know of.
    Note,
    /// It works, and may hurt one day.
    Warning,
    /// It does not work, or breaks what is promised.
    Problem,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// What it is about, in a word.
    pub(crate) topic: &'static str,
    pub(crate) says: String,
    pub(crate) fix: Option<String>,
}

impl Finding {
    pub(crate) fn fine(topic: &'static str, says: impl Into<String>) -> Self {
        Self { level: Level::Fine, topic, says: says.into(), fix: None }
    }

    pub(crate) fn note(topic: &'static str, says: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::fine(topic, says) }
    }

    pub(crate) fn warning(topic: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, fix: Some(fix.into()), ..Self::fine(topic, says) }
    }

    pub(crate) fn problem(topic: &'static str, says: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::warning(topic, says, fix) }
    }

    pub(crate) fn json(&self) -> Value {
        json!({"level": self.level.as_str(), "topic": self.topic, "says": self.says, "fix": self.fix})
    }
}
