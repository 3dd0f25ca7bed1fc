//! The flags of the command line, made from the settings.

use clap::{Arg, Command};

use super::setting::{SETTINGS, Setting, names};

/// What most people set: a short help shows these alone.
const USUAL: [&str; 6] = ["listen", "store", "api_key", "api_key_file", "cors_origins", "token_ttl"];

/// Every flag: the file with settings, and one for each setting.
pub(crate) fn flags() -> impl Iterator<Item = Arg> {
    let config = Arg::new("config").long("config").value_name("FILE").help("A TOML file with settings");
    let config = config.help_heading("Settings");
    [config].into_iter().chain(names().map(|(name, setting)| flag(&name, setting)))
}

/// A command line of settings alone.
pub(super) fn bare() -> Command {
    Command::new("onceward").args(flags())
}

fn flag(name: &str, setting: &Setting) -> Arg {
    let is_file = name != setting.name;
    let help = match (is_file, setting.default) {
        (true, _) => format!("A file that holds {}", setting.name),
        (false, Some(default)) => format!("{} [default: {default}]", setting.help),
        (false, None) => setting.help.to_owned(),
    };
    let value = if is_file { "FILE" } else { setting.value };
    let argument = Arg::new(name.to_owned())
        .long(name.replace('_', "-"))
        .value_name(value)
        .help(help)
        .help_heading(heading(setting.name))
        .hide_short_help(!USUAL.contains(&name));
    // A switch needs no value to be on.
    if value == "BOOL" { argument.num_args(0..=1).default_missing_value("true") } else { argument }
}

/// Under which heading a setting stands in the help.
fn heading(name: &str) -> &'static str {
    match name {
        "store" | "prefix" | "store_timeout" | "wait_for" | "memory_limit" | "allow_eviction" => "Store",
        "secret" | "secret_previous" | "share_every" | "token_ttl" => "Tokens",
        "api_key" | "allow_unauthenticated" | "cors_origins" | "trusted_proxies" => "Callers",
        name if name.starts_with("rate_") || name.starts_with("max_") || name == "request_timeout" => "Limits",
        "log" | "log_level" | "request_log" | "last_call" | "drain_limit" => "Operation",
        _ => "Settings",
    }
}

/// Every setting with the text that stands for it in a file, as it is by default or might be.
pub(crate) fn examples() -> impl Iterator<Item = (&'static Setting, String)> {
    SETTINGS.iter().map(|setting| (setting, example(setting)))
}

fn example(setting: &Setting) -> String {
    let quoted = |text: &str| format!("\"{text}\"");
    match (setting.value, setting.default) {
        ("COUNT" | "COUNT or off", Some(default)) => default.to_owned(),
        ("BOOL", Some(default @ ("true" | "false"))) => default.to_owned(),
        (_, Some(default)) => quoted(default),
        ("LIST", None) => "[]".to_owned(),
        ("ADDRESS", None) => quoted("127.0.0.1:9090"),
        (_, None) => quoted("change-me-to-something-long"),
    }
}
