//! The output of a command line.

use std::process::Output;

use serde_json::Value;

/// Returns the exit code, and standard output followed by standard error.
pub fn said(output: &Output) -> (i32, String) {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap_or(-1), text)
}

/// Parses standard output as JSON.
pub fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
