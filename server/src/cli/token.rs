//! `onceward token`: issues, inspects and revokes tokens.

use std::time::{Duration, SystemTime};

use clap::ArgMatches;
use jiff::Timestamp;
use onceward::{Binding, Guard, Intent, IssueError, RecordState, Revocation, Subject, TokenInfo};
use serde_json::{Value, json};

use super::argument::{number, optional_duration, text};
use super::output::{Failure, Output};
use super::store::guard;
use super::table::table;
use crate::config::Config;

/// Issues tokens, one per line.
pub(super) async fn issue(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let count = number(matches, "count", 1..=1000)?;
    let ttl = optional_duration(matches, "ttl")?.unwrap_or(config.token_ttl);
    if !Guard::TOKEN_TTL.contains(&ttl) {
        return Err(Failure::usage("--ttl: must be between 1s and 24h"));
    }
    let guard = guard(config, "Query the running service: curl -X POST http://127.0.0.1:8080/token.").await?;
    let mut tokens = Vec::new();
    for _ in 0..count {
        let mut bound = Binding::none();
        bound = text(matches, "action").into_iter().fold(bound, Binding::action);
        bound = text(matches, "subject").map(Subject::named).into_iter().fold(bound, Binding::subject);
        tokens.push(guard.issue(ttl, bound).await.map_err(|error| match error {
            IssueError::Store(error) => Failure::from(error),
            error => Failure::usage(error.to_string()),
        })?);
    }
    let lines = tokens.iter().map(|token| format!("{}\n", token.as_str())).collect::<String>();
    let each = tokens.iter().map(
        |token| json!({"token": token.as_str(), "expires_at": moment(token.expires_at()), "expires_in": ttl.as_secs()}),
    );
    Ok(Output::fine(lines, json!({"tokens": each.collect::<Vec<_>>()})))
}

/// Shows the signature, binding, expiry and state of a token, without using it.
pub(super) async fn inspect(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let token = token_argument(matches)?;
    let guard = guard(config, "Query the running service: POST /outcome with {\"token\": …}.").await?;
    let subject = text(matches, "subject").map_or(Subject::anonymous(), Subject::named);
    let intent = Intent::new(text(matches, "action").unwrap_or_default(), subject).credential(&token);
    match guard.inspect(&intent).await? {
        Some(inspected) => Ok(report(&inspected, matches)),
        None => Ok(Output::problem(
            "This is not a token: a token begins with ow1_ and has 70 characters.\n",
            json!({"shape": "none"}),
        )),
    }
}

/// Revokes a token.
pub(super) async fn revoke(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let token = token_argument(matches)?;
    let guard = guard(config, "Redeem it through the running service: POST /token/redeem.").await?;
    let (code, word, says) = match guard.revoke(&token).await? {
        Revocation::Now => (0, "revoked", "The token is revoked: requests with it are rejected as token_revoked."),
        Revocation::Gone => (
            0,
            "gone",
            "The token was revoked before, or has no record here: it was used, it has expired, or it belongs to another store or prefix. \
             It can no longer be used in this store, and a request in flight cannot give it back.",
        ),
        Revocation::Used => (1, "used", "The token is already used, and cannot be given back."),
        Revocation::InUse => (
            1,
            "in_use",
            "A run uses the token, or the outcome of that run is unknown, so nothing was changed. If the run is settled as not applied, the token works again: revoke it then.",
        ),
        Revocation::Malformed => {
            (1, "malformed", "This is not a token: a token begins with ow1_ and has 70 characters.")
        }
        _ => (1, "unknown", "This version does not know the result."),
    };
    Ok(Output { code, text: format!("{says}\n"), json: json!({"result": word, "says": says}) })
}

/// Returns the token from the argument, or from stdin, which keeps it out of the shell history and the process list.
fn token_argument(matches: &ArgMatches) -> Result<String, Failure> {
    let named = text(matches, "TOKEN").unwrap_or_default();
    if named != "-" {
        return Ok(named.to_owned());
    }
    let read = std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::usage(format!("the token cannot be read from stdin: {error}")))?;
    Ok(read.trim().to_owned())
}

fn report(token: &TokenInfo, matches: &ArgMatches) -> Output {
    let unnamed = |names: bool, flag: &str| names && text(matches, flag).is_none();
    let is_vague = unnamed(token.names_action, "action") || unnamed(token.names_subject, "subject");
    let (signature, signed) = match (token.is_ours, is_vague) {
        (true, _) => ("good", "good: signed with a secret of this store or of these settings"),
        (false, true) => ("unchecked", "cannot be checked without the binding: add --action and --subject"),
        (false, false) => ("wrong", "wrong: forged, signed with another secret, or bound to another action or subject"),
    };
    let bound = match (token.names_action, token.names_subject) {
        (false, false) => "nothing: accepted on every route that does not require a binding",
        (true, false) => "an action",
        (false, true) => "a subject",
        (true, true) => "an action and a subject",
    };
    let (state, stands) = state(&token.snapshot.state);
    let late = token.late.as_ref().map(|rejection| rejection.code().as_str());
    let expiry = moment(token.expires_at);
    let expiry =
        format!("{}{}", expiry.as_str().unwrap_or("never"), late.map(|code| format!(" ({code})")).unwrap_or_default());
    let is_good = token.is_ours && late.is_none() && token.snapshot.state == RecordState::Issued;
    let rows = [
        ("shape", "a token of version 1".to_owned()),
        ("signature", signed.to_owned()),
        ("bound to", bound.to_owned()),
        ("expires", expiry),
        ("record", stands.to_owned()),
        ("ticket", token.ticket.to_string()),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let verdict = if is_good { "The token can be used." } else { "The token cannot be used, or its state is unknown." };
    let json = json!({
        "shape": "token", "signature": signature, "names_action": token.names_action, "names_subject": token.names_subject,
        "expires_at": moment(token.expires_at), "late": late, "state": state, "ticket": token.ticket.to_string(), "good": is_good,
    });
    Output { code: u8::from(!is_good), text: format!("{}\n{verdict}\n", table("", &rows)), json }
}

fn state(seen: &RecordState) -> (&'static str, &'static str) {
    match seen {
        RecordState::Issued => ("issued", "issued, not used"),
        RecordState::Absent => ("absent", "none: used, expired, or of another store"),
        RecordState::Revoked => ("revoked", "revoked before it was used"),
        RecordState::Running(_) => ("running", "in use, on a route that stores replies"),
        RecordState::Unknown(_) => ("unknown", "used, outcome unknown: settle it with `onceward key settle`"),
        RecordState::Done(_) => ("done", "used"),
        _ => ("unknown", "a state that this version does not know"),
    }
}

/// Formats a time as an RFC 3339 timestamp.
pub(super) fn moment(time: SystemTime) -> Value {
    Timestamp::try_from(time).map_or(Value::Null, |moment| Value::String(moment.to_string()))
}

/// Formats a duration for people.
pub(super) fn lasting(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}
