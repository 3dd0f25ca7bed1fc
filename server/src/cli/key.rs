//! `onceward key`: shows the record of a key, and settles a run whose outcome is unknown.

mod reply_argument;

use std::time::Duration;

use clap::ArgMatches;
use jiff::Timestamp;
use onceward::api::Code;
use onceward::{Effect, Key, KeyRules, Kind, RecordState, Reply, RunId, Snapshot, Subject, Ticket};
use serde_json::{Value, json};

use self::reply_argument::reply;
use super::argument::{is_set, optional_duration, text};
use super::liveness;
use super::output::{Failure, Output};
use super::store::guard;
use super::token::{lasting, moment};
use crate::config::Config;
use crate::routes::claim::RETAIN;

/// The prefix of every ticket.
const TICKET_PREFIX: &str = "ticket:";

/// The advice for the memory store.
const INSTEAD: &str = "Query the running service: POST /outcome with {\"key\": …, \"action\": …, \"subject\": …}.";

/// Shows the record of a key, without changing it.
pub(super) async fn look(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let ticket = ticket(matches)?;
    let examined = guard(config, INSTEAD).await?.look_at(&ticket).await?;
    let (state, says) = describe(&examined, ticket.kind());
    let run = examined.run.map(|run| run.to_string());
    let mut json = json!({"ticket": ticket.to_string(), "state": state, "run": run, "says": says});
    if let RecordState::Done(Ok(reply)) = &examined.state {
        json["reply"] = shown(reply);
    }
    let run = run.map(|run| format!("run     {run}\n")).unwrap_or_default();
    Ok(Output::fine(format!("ticket  {ticket}\n{run}state   {state}: {says}\n"), json))
}

/// Settles a run whose outcome is unknown.
pub(super) async fn settle(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let ticket = ticket(matches)?;
    let run = text(matches, "run").map(str::parse::<RunId>).transpose();
    let run = run.map_err(|_| Failure::usage("--run: use the id that `audit` and the log print"))?;
    let effect = if is_set(matches, "applied") { Effect::Applied } else { Effect::NotApplied };
    let rules = retain(matches)?.into_iter().fold(KeyRules::retryable(), KeyRules::retain);
    let reply = reply(matches, &rules)?;
    let guard = guard(config, INSTEAD).await?;
    // Settling names the run that was read here, so no later run is settled by mistake.
    let seen = guard.look_at(&ticket).await?;
    let run = run.or(seen.run);
    if liveness::is_alive(&guard, &ticket, &seen).await? {
        return Err(Failure::problem(
            "the run is still alive: its claim was renewed while this command waited, so nothing was changed. The clock of this machine is \
             ahead of the owner's by more than a lease; synchronize both (NTP).",
        ));
    }
    match guard.settle_ticket(&rules, ticket, run, effect, reply.clone()).await?.into_result() {
        Err(rejection) => Err(Failure::problem(rejection_text(rejection.code(), &seen))),
        Ok(()) if seen.state == RecordState::Absent => Err(Failure::problem(rejection_text(Code::NotFound, &seen))),
        Ok(()) if !matches!(seen.state, RecordState::Unknown(_)) => Ok(unchanged(ticket)),
        Ok(()) => Ok(settled(ticket, run, effect, reply.is_some())),
    }
}

/// Returns the given ticket, or the ticket of the given key. Errors quote neither: it may be a token by mistake.
fn ticket(matches: &ArgMatches) -> Result<Ticket, Failure> {
    let (named, key, ticket) = (text(matches, "KEY"), text(matches, "key"), text(matches, "ticket"));
    // Only the positional argument can be either.
    let ticket = ticket.or(named.filter(|named| named.starts_with(TICKET_PREFIX)));
    let (action, subject) = (text(matches, "action"), text(matches, "subject"));
    if let Some(ticket) = ticket {
        if action.or(subject).is_some() {
            return Err(Failure::usage(
                "a ticket includes its action and subject: remove --action and --subject; to pass a key that looks like a ticket, use --key",
            ));
        }
        return ticket
            .parse()
            .map_err(|error| Failure::usage(format!("{error}; to pass a key that looks like a ticket, use --key")));
    }
    let key = key.or(named).ok_or_else(|| Failure::usage("a key with its --action, or a ticket, is required"))?;
    let key = Key::new(key).map_err(|error| Failure::usage(format!("the key: {error}")))?;
    let action = action.ok_or_else(|| {
        Failure::usage(
            "a key belongs to an action and a subject: add --action, as in --action 'POST /payments', and --subject",
        )
    })?;
    let subject = subject.map_or_else(Subject::anonymous, Subject::named);
    Ok(Ticket::of_key(&subject, action, &key))
}

/// Returns the retention, if one is given.
fn retain(matches: &ArgMatches) -> Result<Option<Duration>, Failure> {
    match optional_duration(matches, "retain")? {
        Some(retain) if !RETAIN.contains(&retain) => {
            Err(Failure::usage("--retain: the retention must be between 1s and 400d"))
        }
        retain => Ok(retain),
    }
}

/// The run was already settled in this way.
fn unchanged(ticket: Ticket) -> Output {
    let says = "The run was already settled, and nothing was changed: `onceward key look` shows the record.";
    Output::fine(format!("{says}\n"), json!({"ticket": ticket.to_string(), "settled": false, "says": says}))
}

/// The JSON is also a valid line of the event log: once it is appended there, `audit` no longer lists the run.
fn settled(ticket: Ticket, run: Option<RunId>, effect: Effect, has_reply: bool) -> Output {
    let (event, says) = match (effect, has_reply) {
        (Effect::Applied, true) => ("completed", "Applied: a duplicate receives the reply that you gave."),
        (Effect::Applied, false) => ("completed", "Applied: a duplicate receives 409 reply_not_kept."),
        _ if ticket.kind() == Kind::Token => {
            ("released", "Not applied. The token does not work again: the client needs a new one.")
        }
        _ => ("released", "Not applied: the next request with the key runs."),
    };
    let run = run.map(|run| run.to_string());
    let json = json!({
        "timestamp": Timestamp::now().to_string(), "level": "INFO", "event": event, "ticket": ticket.to_string(), "run": run,
        "settled": true, "says": says,
    });
    Output::fine(format!("Settled. {says}\n"), json)
}

fn rejection_text(code: Code, seen: &Snapshot) -> String {
    match code {
        Code::InProgress => {
            let within = seen.doubt.map(|doubt| format!(" within {}", lasting(doubt))).unwrap_or_default();
            format!(
                "the run may still be alive, so nothing was changed. If its process has died, its lease expires{within}: retry then."
            )
        }
        Code::NotFound => {
            "there is no record, so nothing was changed. It was settled or released, it has expired, or the key, action, subject, store or \
             prefix is wrong."
                .to_owned()
        }
        Code::ClaimLost => {
            "the run is already settled, or another run holds the key by now; `onceward key look` shows the record".to_owned()
        }
        other => format!("the run could not be settled: {other}"),
    }
}

fn describe(examined: &Snapshot, kind: Kind) -> (&'static str, String) {
    match &examined.state {
        RecordState::Absent if kind == Kind::Token => {
            ("absent", "no record: the token was used, it has expired, or it belongs to another store".to_owned())
        }
        RecordState::Absent => ("absent", "no record; the next request runs".to_owned()),
        RecordState::Running(since) => {
            let since = moment(*since);
            let since = since.as_str().unwrap_or("an unknown time");
            let doubt = examined.doubt.map(lasting).unwrap_or_default();
            ("running", format!("since {since}; if its process has died, the lease expires within {doubt}"))
        }
        RecordState::Unknown(_) => (
            "unknown",
            "the run started, and its outcome is unknown; find out whether it took effect, then use `onceward key settle`".to_owned(),
        ),
        RecordState::Done(Ok(reply)) => (
            "done",
            format!("duplicates receive the stored reply: status {}, {} bytes", reply.status(), reply.body().len()),
        ),
        RecordState::Done(Err(reason)) => ("done", format!("the run took effect. {}", reason.says())),
        RecordState::Revoked => ("revoked", "the token was revoked before it was used".to_owned()),
        RecordState::Issued => ("issued", "the token is not used".to_owned()),
        _ => ("unknown", "a state that this version does not know".to_owned()),
    }
}

/// Returns a stored reply without header values and body: those belong to the client.
fn shown(reply: &Reply) -> Value {
    let headers: Vec<_> = reply.headers().map(|(name, _)| name).collect();
    json!({"status": reply.status(), "headers": headers, "bytes": reply.body().len()})
}
