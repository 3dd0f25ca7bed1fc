//! The output of a command, as text and as JSON.

use std::io::{IsTerminal as _, Write as _};

use onceward::store::{BadAddress, StoreError};
use serde_json::{Value, json};

use crate::config::ConfigError;

/// The output of a command, and its exit code.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) code: u8,
    /// For people; ends with a new line.
    pub(super) text: String,
    /// For programs.
    pub(super) json: Value,
}

/// Prints why a command takes a while, if stderr is a terminal.
pub(super) fn meanwhile(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = stderr.write_all(format!("onceward: {text}\n").as_bytes());
    }
}

/// The error of a command, and its exit code.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) text: String,
}

impl Output {
    pub(super) fn fine(text: impl Into<String>, json: Value) -> Self {
        Self { code: 0, text: text.into(), json }
    }

    /// The command ran and found a problem.
    pub(super) fn problem(text: impl Into<String>, json: Value) -> Self {
        Self { code: 1, ..Self::fine(text, json) }
    }

    pub(super) fn shown(&self, is_json: bool) -> String {
        if is_json { format!("{}\n", self.json) } else { self.text.clone() }
    }
}

impl Failure {
    pub(super) fn problem(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into() }
    }

    /// The command line or a setting is wrong.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into() }
    }

    pub(super) fn shown(&self, is_json: bool) -> String {
        if is_json { format!("{}\n", json!({"error": self.text})) } else { format!("onceward: {}\n", self.text) }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<BadAddress> for Failure {
    fn from(error: BadAddress) -> Self {
        Self::usage(format!("store: {error}"))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        Self::problem(format!(
            "{}. Run `onceward check` to find out what is wrong with the store.",
            text.trim_end_matches('.')
        ))
    }
}
