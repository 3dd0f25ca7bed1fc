//! `onceward proxy explain`: shows which rule of the proxy a request gets.

mod effects;
mod explanation;
mod rules;

use clap::ArgMatches;
use http::Method;

use self::explanation::Explanation;
use super::argument::text;
use super::output::{Failure, Output};
use crate::config::Config;
use crate::config::sources::Sources;

pub(super) fn explain(matches: &ArgMatches, sources: &Sources) -> Result<Output, Failure> {
    let method = method(text(matches, "METHOD").unwrap_or_default())?;
    let path = path(text(matches, "PATH").unwrap_or_default())?;
    let config = Config::for_command(sources)?;
    let written = sources.proxy_table().map(|table| table.written()).unwrap_or_default();
    let explanation = Explanation::of(&method, path, &config.proxy, written);
    Ok(Output::fine(explanation.text(), explanation.json()))
}

/// Methods are case-sensitive.
fn method(text: &str) -> Result<Method, Failure> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if upper == text => Ok(method),
        Ok(_) => Err(Failure::usage(format!("METHOD: `{text}` must be in upper case: {upper}"))),
        Err(_) => Err(Failure::usage(format!("METHOD: `{text}` is not a method, such as POST"))),
    }
}

/// Returns the path without its query.
fn path(text: &str) -> Result<&str, Failure> {
    let path = text.split(['?', '#']).next().unwrap_or_default();
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(Failure::usage(format!(
            "PATH: `{text}` must start with a slash, as in /orders/7: write it without scheme and host"
        )))
    }
}

#[cfg(test)]
mod tests;
