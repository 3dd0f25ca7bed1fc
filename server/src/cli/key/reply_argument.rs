//! The reply that an operator provides in place of a lost one. Settling is final, so a reply that could not be stored unchanged is
//! rejected.

use actix_web::http::header::{HeaderName, HeaderValue};
use clap::ArgMatches;
use onceward::{KeyRules, Reply};

use crate::cli::argument::{number, text, texts};
use crate::cli::output::Failure;

/// Returns the reply for duplicates, if one is given.
pub(super) fn reply(matches: &ArgMatches, rules: &KeyRules) -> Result<Option<Reply>, Failure> {
    let file = text(matches, "body_file");
    let is_given = text(matches, "status").is_some() || file.is_some() || texts(matches, "header").next().is_some();
    if !is_given {
        return Ok(None);
    }
    let status = if text(matches, "status").is_some() { number(matches, "status", 200..=599)? } else { 200 };
    let body = match file {
        Some(path) => std::fs::read(path)
            .map_err(|error| Failure::usage(format!("--body-file: {path} cannot be read: {error}")))?,
        None => Vec::new(),
    };
    let mut reply = Reply::new(u16::try_from(status).unwrap_or(200), body);
    for header in texts(matches, "header") {
        reply = with_header(reply, header)?;
    }
    if !rules.keeps(&reply) {
        return Err(Failure::usage(
            "the reply is larger than 1 MiB and cannot be stored; without a reply, a duplicate receives 409 reply_not_kept",
        ));
    }
    Ok(Some(reply))
}

fn with_header(reply: Reply, header: &str) -> Result<Reply, Failure> {
    let (name, value) = header.split_once(':').map(|(name, value)| (name.trim(), value.trim())).unwrap_or_default();
    if HeaderName::try_from(name).is_err() || HeaderValue::from_str(value).is_err() {
        return Err(Failure::usage(format!(
            "--header: `{header}` is malformed; use the form `content-type: text/plain`"
        )));
    }
    if value.len() > usize::from(u16::MAX) {
        return Err(Failure::usage(format!(
            "--header: the value of `{name}` is longer than 65,535 bytes and cannot be stored"
        )));
    }
    let before = reply.headers().count();
    let reply = reply.header(name, value);
    if reply.headers().count() == before {
        return Err(Failure::usage(format!("--header: `{name}` is never stored; remove it")));
    }
    Ok(reply)
}
