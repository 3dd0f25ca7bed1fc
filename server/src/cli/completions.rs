//! `onceward completions`: completion scripts for shells.

use clap::ArgMatches;
use clap_complete::{Shell, generate};
use serde_json::json;

use super::argument::text;
use super::command::listed;
use super::output::{Failure, Output};

pub(super) fn completions(matches: &ArgMatches) -> Result<Output, Failure> {
    let name = text(matches, "SHELL").unwrap_or_default();
    let shell = match name {
        "bash" => Shell::Bash,
        "fish" => Shell::Fish,
        "zsh" => Shell::Zsh,
        _ => return Err(Failure::usage("there are completions for bash, fish and zsh")),
    };
    let mut script = Vec::new();
    generate(shell, &mut listed(), "onceward", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(Output::fine(script.clone(), json!({"shell": name, "script": script})))
}
