//! The command line: the service, and commands for operators.
//!
//! A command returns its output as text and as JSON, and does not print by itself.

mod argument;
mod audit;
mod check;
mod command;
mod completions;
mod config;
mod healthcheck;
mod http_client;
mod key;
mod liveness;
mod migrate;
mod output;
mod proxy;
mod stats;
mod store;
mod table;
mod token;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::ArgMatches;

use self::output::{Failure, Output};
use crate::app::{Application, prepare};
use crate::config::sources::Sources;
use crate::config::{Config, ConfigError, environment};
use crate::http::panic_handler;
use crate::proxy::app::Proxy;

/// The result of a command.
type CommandResult = Result<Output, Failure>;

/// Runs the command line and returns the exit code: 0 success, 1 a problem, 2 wrong usage or an invalid setting.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    panic_handler::install_hook();
    let arguments: Vec<_> = arguments.into_iter().collect();
    let matches = match command::command().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(usage) => return explain(&usage, arguments.iter().any(|argument| argument == "--json")),
    };
    match matches.subcommand() {
        None | Some(("serve", _)) => serve(&matches).await,
        Some(("proxy", below)) if below.subcommand().is_none() => proxy(&matches).await,
        Some((name, below)) => finish(below, dispatch(name, below, &matches).await),
    }
}

/// Prints a usage error, or the help, which goes to stdout and exits with 0.
fn explain(usage: &clap::Error, is_json: bool) -> ExitCode {
    let code = u8::try_from(usage.exit_code()).unwrap_or(2);
    if is_json && code != 0 {
        return print(
            &Failure { code, text: usage.to_string().trim_start_matches("error: ").trim_end().to_owned() },
            true,
        );
    }
    let _ = usage.print();
    ExitCode::from(code)
}

async fn serve(matches: &ArgMatches) -> ExitCode {
    let config = match prepare(|| Config::for_service(&sources(matches)?)) {
        Ok(config) => config,
        Err(error) => return fail(2, &error),
    };
    let application = match Application::build(config).await {
        Ok(application) => application,
        Err(error) => return fail(1, &error),
    };
    match application.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &error),
    }
}

async fn proxy(matches: &ArgMatches) -> ExitCode {
    let config = match prepare(|| Config::for_proxy(&sources(matches)?)) {
        Ok(config) => config,
        Err(error) => return fail(2, &error),
    };
    let proxy = match Proxy::build(config).await {
        Ok(proxy) => proxy,
        Err(error) => return fail(1, &error),
    };
    match proxy.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &error),
    }
}

async fn dispatch(name: &str, matches: &ArgMatches, root: &ArgMatches) -> CommandResult {
    match (name, matches.subcommand()) {
        ("check", _) => check::check(matches, &sources(root)?).await,
        ("proxy", Some(("explain", below))) => proxy::explain(below, &sources(root)?),
        ("healthcheck", _) => healthcheck::healthcheck(matches, &settings(root)?).await,
        ("stats", _) => stats::stats(matches, &settings(root)?).await,
        ("audit", _) => audit::audit(matches, &settings(root)?).await,
        ("token", Some(("issue", below))) => token::issue(below, &settings(root)?).await,
        ("token", Some(("inspect", below))) => token::inspect(below, &settings(root)?).await,
        ("token", Some(("revoke", below))) => token::revoke(below, &settings(root)?).await,
        ("key", Some(("look", below))) => key::look(below, &settings(root)?).await,
        ("key", Some(("settle", below))) => key::settle(below, &settings(root)?).await,
        ("migrate", _) => migrate::migrate(matches, &settings(root)?).await,
        ("config", Some(("init", _))) => Ok(config::init()),
        ("config", Some(("schema", _))) => Ok(config::schema()),
        ("completions", _) => completions::completions(matches),
        _ => Err(Failure::usage("there is no such command; `onceward --help` lists them")),
    }
}

/// Reads all sources of settings.
fn sources(matches: &ArgMatches) -> Result<Sources, ConfigError> {
    Sources::gather(matches, environment()?)
}

/// Returns the settings for a command other than `serve`.
fn settings(matches: &ArgMatches) -> Result<Config, ConfigError> {
    Config::for_command(&sources(matches)?)
}

/// Prints the result of a command.
fn finish(matches: &ArgMatches, result: CommandResult) -> ExitCode {
    let is_json = argument::is_json(matches);
    match result {
        Ok(output) => {
            // The reader may have closed the pipe.
            let _ = std::io::stdout().write_all(output.shown(is_json).as_bytes());
            ExitCode::from(output.code)
        }
        Err(failure) => print(&failure, is_json),
    }
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    print(&Failure { code, text: error.to_string() }, false)
}

fn print(failure: &Failure, is_json: bool) -> ExitCode {
    let _ = std::io::stderr().write_all(failure.shown(is_json).as_bytes());
    ExitCode::from(failure.code)
}
