//! `onceward key`: shows the record of a key, and settles a run whose effect is unknown.

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

/// What the text of every ticket begins with.
const TICKET_PREFIX: &str = "ticket:";

/// What to do where the store cannot be reached.
const INSTEAD: &str = "Ask the service itself: POST /outcome with {\"key\": …, \"action\": …, \"subject\": …}.";

/// Says what is on record, and changes nothing.
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
    let run = run.map_err(|_| Failure::usage("--run: write it as `audit` and the log do"))?;
    let effect = if is_set(matches, "applied") { Effect::Applied } else { Effect::NotApplied };
    let rules = retain(matches)?.into_iter().fold(KeyRules::retryable(), KeyRules::retain);
    let reply = reply(matches, &rules)?;
    let guard = guard(config, INSTEAD).await?;
    // Named once it is known, so that what is settled is what was seen.
    let seen = guard.look_at(&ticket).await?;
    let run = run.or(seen.run);
    if liveness::is_alive(&guard, &ticket, &seen).await? {
        return Err(Failure::problem(
            "it is still running: its claim was renewed while this command looked, so it is left alone. This machine's clock is ahead \
             of its owner's by more than a lease; have both keep time (NTP).",
        ));
    }
    match guard.settle_ticket(&rules, ticket, run, effect, reply.clone()).await?.into_result() {
        Err(rejection) => Err(Failure::problem(refused(rejection.code(), &seen))),
        Ok(()) if seen.state == RecordState::Absent => Err(Failure::problem(refused(Code::NotFound, &seen))),
        Ok(()) if !matches!(seen.state, RecordState::Unknown(_)) => Ok(unchanged(ticket)),
        Ok(()) => Ok(settled(ticket, run, effect, reply.is_some())),
    }
}

/// The ticket that is named, or that of the key that is. Neither is quoted in an error: a token may stand there by mistake.
fn ticket(matches: &ArgMatches) -> Result<Ticket, Failure> {
    let (named, key, ticket) = (text(matches, "KEY"), text(matches, "key"), text(matches, "ticket"));
    // Only what is named without a flag can be either.
    let ticket = ticket.or(named.filter(|named| named.starts_with(TICKET_PREFIX)));
    let (action, subject) = (text(matches, "action"), text(matches, "subject"));
    if let Some(ticket) = ticket {
        if action.or(subject).is_some() {
            return Err(Failure::usage(
                "a ticket names its action and subject: leave --action and --subject out; a key that looks like a ticket is given with --key",
            ));
        }
        return ticket
            .parse()
            .map_err(|error| Failure::usage(format!("{error}; a key that looks like it is given with --key")));
    }
    let key = key.or(named).ok_or_else(|| Failure::usage("name a key with its --action, or a ticket"))?;
    let key = Key::new(key).map_err(|error| Failure::usage(format!("the key: {error}")))?;
    let action = action.ok_or_else(|| {
        Failure::usage(
            "a key is of one action and subject: add --action, as in --action 'POST /payments', and --subject",
        )
    })?;
    let subject = subject.map_or_else(Subject::anonymous, Subject::named);
    Ok(Ticket::of_key(&subject, action, &key))
}

/// How long it is to be remembered, if that is given.
fn retain(matches: &ArgMatches) -> Result<Option<Duration>, Failure> {
    match optional_duration(matches, "retain")? {
        Some(retain) if !RETAIN.contains(&retain) => Err(Failure::usage("--retain: it is remembered from 1s to 400d")),
        retain => Ok(retain),
    }
}

/// It was so before anybody came to settle it.
fn unchanged(ticket: Ticket) -> Output {
    let says = "That was on record before, and nothing was changed: `onceward key look` says what is there.";
    Output::fine(format!("{says}\n"), json!({"ticket": ticket.to_string(), "settled": false, "says": says}))
}

/// What was done, also as a line of the log: appended to it, `audit` knows of it.
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

fn refused(code: Code, seen: &Snapshot) -> String {
    match code {
        Code::InProgress => {
            let within = seen.doubt.map(|doubt| format!(" within {}", lasting(doubt))).unwrap_or_default();
            format!(
                "it is still running, as far as can be told, so it is left alone. If its process has died, that is known{within}: try again then."
            )
        }
        Code::NotFound => {
            "nothing is on record, so nothing was changed. It was settled or released, its time is over, or the key, the action, the subject, \
             the store or the prefix is another."
                .to_owned()
        }
        Code::ClaimLost => {
            "it is settled already, or another run has it by now; `onceward key look` says what is on record".to_owned()
        }
        other => format!("it could not be settled: {other}"),
    }
}

fn describe(examined: &Snapshot, kind: Kind) -> (&'static str, String) {
    match &examined.state {
        RecordState::Absent if kind == Kind::Token => {
            ("absent", "nothing is on record: it was used, it has expired, or it is of another store".to_owned())
        }
        RecordState::Absent => ("absent", "nothing is on record; the next request runs".to_owned()),
        RecordState::Running(since) => {
            let since = moment(*since);
            let since = since.as_str().unwrap_or("an unknown time");
            let doubt = examined.doubt.map(lasting).unwrap_or_default();
            ("running", format!("since {since}; a process that died would be known within {doubt}"))
        }
        RecordState::Unknown(_) => (
            "unknown",
            "it began, and nobody can tell how it ended; find out, and say so with `onceward key settle`".to_owned(),
        ),
        RecordState::Done(Ok(reply)) => (
            "done",
            format!("answered {}, {} bytes, which whoever sends it again gets", reply.status(), reply.body().len()),
        ),
        RecordState::Done(Err(reason)) => ("done", format!("it was carried out. {}", reason.says())),
        RecordState::Revoked => ("revoked", "the token was revoked before it was used".to_owned()),
        RecordState::Issued => ("issued", "a token that nobody has used".to_owned()),
        _ => ("unknown", "something that this version does not know".to_owned()),
    }
}

/// A kept answer, without what it says: that is the caller's.
fn shown(reply: &Reply) -> Value {
    let headers: Vec<_> = reply.headers().map(|(name, _)| name).collect();
    json!({"status": reply.status(), "headers": headers, "bytes": reply.body().len()})
}
