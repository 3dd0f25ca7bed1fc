//! The command-line flags, generated from the settings.

use clap::{Arg, Command};

use super::setting::{SETTINGS, Setting, names};

/// The most common settings: `-h` shows only these.
const USUAL: [&str; 6] = ["listen", "store", "api_key", "api_key_file", "cors_origins", "token_ttl"];

/// The heading of the proxy's settings in the help.
pub(crate) const PROXY_HEADING: &str = "Proxy";

/// Returns all flags: `--config`, and one for each setting.
pub(crate) fn flags() -> impl Iterator<Item = Arg> {
    let config = Arg::new("config").long("config").value_name("FILE").help("TOML file with settings");
    let config = config.help_heading("Settings");
    [config].into_iter().chain(names().map(|(name, setting)| flag(&name, setting)))
}

/// Returns a command line that accepts settings only.
pub(super) fn bare() -> Command {
    Command::new("onceward").args(flags())
}

fn flag(name: &str, setting: &Setting) -> Arg {
    let is_file = name != setting.name;
    let help = match (is_file, setting.default) {
        (true, _) => format!("File that contains the value of `{}`", setting.name),
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
    // A switch without a value is on.
    if value == "BOOL" { argument.num_args(0..=1).default_missing_value("true") } else { argument }
}

/// Returns the heading for a setting in the help.
fn heading(name: &str) -> &'static str {
    match name {
        "store" | "prefix" | "store_timeout" | "wait_for" | "memory_limit" | "allow_eviction" => "Store",
        "secret" | "secret_previous" | "share_every" | "token_ttl" => "Tokens",
        "api_key" | "allow_unauthenticated" | "cors_origins" | "trusted_proxies" => "Access",
        name if name.starts_with("rate_") || name.starts_with("max_") || name == "request_timeout" => "Limits",
        "log" | "log_level" | "request_log" | "last_call" | "drain_limit" => "Operation",
        "proxy_path" | "require" | "profile" | "rejections" | "retention_header" | "well_known"
        | "credential_headers" | "inject" | "body_limit" | "buffer_limit" => PROXY_HEADING,
        name if name.starts_with("upstream") => PROXY_HEADING,
        _ => "Settings",
    }
}

/// Returns every setting with its value in a settings file: the default, or an example.
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
        ("URL", None) => quoted("http://127.0.0.1:3000"),
        ("FILE", None) => quoted("/etc/ssl/upstream-ca.pem"),
        (_, None) => quoted("change-me-to-something-long"),
    }
}
