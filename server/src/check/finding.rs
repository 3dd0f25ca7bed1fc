//! One result of a check: a sentence, and a fix if it is a problem.

use serde_json::{Value, json};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// No problem.
    Fine,
    /// Worth knowing.
    Note,
    /// The store works, and may fail later.
    Warning,
    /// The store does not work, or breaks a guarantee.
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

/// One result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The subject, in one word.
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

    /// Names the subject of a sentence that begins with "It" or "This".
    pub(crate) fn about(mut self, name: &str) -> Self {
        let rest = ["It ", "This "].iter().find_map(|pronoun| self.says.strip_prefix(pronoun));
        if let Some(rest) = rest {
            self.says = format!("{name} {rest}");
        }
        self
    }

    pub(crate) fn json(&self) -> Value {
        json!({"level": self.level.as_str(), "topic": self.topic, "says": self.says, "fix": self.fix})
    }
}
