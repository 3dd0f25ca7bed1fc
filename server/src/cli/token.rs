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

/// Issues tokens, one on each line.
pub(super) async fn issue(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let count = number(matches, "count", 1..=1000)?;
    let ttl = optional_duration(matches, "ttl")?.unwrap_or(config.token_ttl);
    if !Guard::TOKEN_TTL.contains(&ttl) {
        return Err(Failure::usage("--ttl: a token lives from 1s to 24h"));
    }
    let guard = guard(config, "Ask the service itself: curl -X POST http://127.0.0.1:8080/token.").await?;
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

/// Says everything that can be said of a token, and uses nothing up.
pub(super) async fn inspect(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let token = token_argument(matches)?;
    let guard = guard(config, "Ask the service itself: POST /outcome with {\"token\": …}.").await?;
    let subject = text(matches, "subject").map_or(Subject::anonymous(), Subject::named);
    let intent = Intent::new(text(matches, "action").unwrap_or_default(), subject).credential(&token);
    match guard.inspect(&intent).await? {
        Some(inspected) => Ok(report(&inspected, matches)),
        None => Ok(Output::problem(
            "This is no token: one begins with ow1_ and has 70 characters.\n",
            json!({"shape": "none"}),
        )),
    }
}

/// Takes a token out of use.
pub(super) async fn revoke(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let token = token_argument(matches)?;
    let guard = guard(config, "Redeem it at the service itself: POST /token/redeem.").await?;
    let (code, word, says) = match guard.revoke(&token).await? {
        Revocation::Now => (0, "revoked", "It is revoked: a request with it is refused with token_revoked."),
        Revocation::Gone => (
            0,
            "gone",
            "It was revoked before, or nothing was on record of it here: it was used, it has expired, or it is of another store or prefix. \
             In this store it cannot be used any more, and a request that is using it cannot give it back.",
        ),
        Revocation::Used => (1, "used", "It was used already, and cannot be given back any more."),
        Revocation::InUse => (
            1,
            "in_use",
            "A run uses it, or the effect of that run is unknown, so it is left alone. If the run turns out as not applied, the token works again: revoke it then.",
        ),
        Revocation::Malformed => (1, "malformed", "This is no token: one begins with ow1_ and has 70 characters."),
        _ => (1, "unknown", "What became of it is not known to this version."),
    };
    Ok(Output { code, text: format!("{says}\n"), json: json!({"result": word, "says": says}) })
}

/// The token that is named, or that stands on the input: there it is in no history and no list of processes.
fn token_argument(matches: &ArgMatches) -> Result<String, Failure> {
    let named = text(matches, "TOKEN").unwrap_or_default();
    if named != "-" {
        return Ok(named.to_owned());
    }
    let read = std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::usage(format!("the token cannot be read from the input: {error}")))?;
    Ok(read.trim().to_owned())
}

fn report(token: &TokenInfo, matches: &ArgMatches) -> Output {
    let unnamed = |names: bool, flag: &str| names && text(matches, flag).is_none();
    let is_vague = unnamed(token.names_action, "action") || unnamed(token.names_subject, "subject");
    let (signature, signed) = match (token.is_ours, is_vague) {
        (true, _) => ("good", "good: signed with a secret of this store or of these settings"),
        (false, true) => ("unchecked", "cannot be checked without what it is bound to: give --action and --subject"),
        (false, false) => ("wrong", "wrong: forged, signed with another secret, or bound to another action or subject"),
    };
    let bound = match (token.names_action, token.names_subject) {
        (false, false) => "nothing: good on every route that does not ask for more",
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
        ("on record", stands.to_owned()),
        ("ticket", token.ticket.to_string()),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let verdict = if is_good { "It can be used." } else { "It cannot be used, or nobody can tell from here." };
    let json = json!({
        "shape": "token", "signature": signature, "names_action": token.names_action, "names_subject": token.names_subject,
        "expires_at": moment(token.expires_at), "late": late, "state": state, "ticket": token.ticket.to_string(), "good": is_good,
    });
    Output { code: u8::from(!is_good), text: format!("{}\n{verdict}\n", table("", &rows)), json }
}

fn state(seen: &RecordState) -> (&'static str, &'static str) {
    match seen {
        RecordState::Issued => ("issued", "issued, and not used"),
        RecordState::Absent => ("absent", "nothing: used, expired, or of another store"),
        RecordState::Revoked => ("revoked", "revoked before it was used"),
        RecordState::Running(_) => ("running", "in use at this moment, on a route that remembers answers"),
        RecordState::Unknown(_) => {
            ("unknown", "used, and nobody can tell how that ended: `onceward key settle` settles it")
        }
        RecordState::Done(_) => ("done", "used"),
        _ => ("unknown", "something that this version does not know"),
    }
}

/// A time as a date, to the millisecond.
pub(super) fn moment(time: SystemTime) -> Value {
    Timestamp::try_from(time).map_or(Value::Null, |moment| Value::String(moment.to_string()))
}

/// How long something takes, for people.
pub(super) fn lasting(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}
