//! `onceward audit`: lists claims in a log that have no end and no live owner.

mod claim_state;
mod event_log;
mod line_count;

use clap::ArgMatches;
use onceward::{Guard, Snapshot};
use serde_json::json;
use tokio::time::Instant;

use self::claim_state::{ClaimState, fate};
use self::event_log::{EventLog, OpenClaim};
use super::argument::{is_set, texts};
use super::liveness;
use super::output::{Failure, Output};
use super::store::{guard, reachable};
use super::token::lasting;
use crate::config::Config;

/// The advice for the memory store.
const INSTEAD: &str = "Its records end with the process, so there is nothing to settle.";
/// A claim and its state.
type AuditedClaim = (OpenClaim, ClaimState);

pub(super) async fn audit(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    reachable(config, INSTEAD)?;
    let files: Vec<_> = texts(matches, "FILE").map(str::to_owned).collect();
    let log = EventLog::read(&files)?;
    log.check()?;
    let guard = guard(config, INSTEAD).await?;
    let begun = Instant::now();
    let seen = examine(&guard, log.open()).await?;
    let mut judged = judge(&guard, seen, begun, is_set(matches, "wait")).await?;
    // A claim that has ended since the log was read has no record either, so the log is read again. Stdin cannot be read twice.
    let is_input = files.is_empty() || files.iter().any(|file| file == "-");
    let now = if is_input { log } else { EventLog::read(&files)? };
    judged.retain(|(open, _)| now.is_open(open));
    Ok(report(&now, judged))
}

async fn examine(guard: &Guard, open: Vec<OpenClaim>) -> Result<Vec<(OpenClaim, Snapshot)>, Failure> {
    let mut asked = Vec::with_capacity(open.len());
    for open in open {
        let seen = guard.look_at(&open.ticket).await?;
        asked.push((open, seen));
    }
    Ok(asked)
}

/// Returns the state of each claim. A claim whose owner seems to be gone is read a second time, a lease later: a live owner has renewed it by
/// then, whatever the clocks say. With `waits`, claims that may still be alive are awaited too.
async fn judge(
    guard: &Guard,
    seen: Vec<(OpenClaim, Snapshot)>,
    begun: Instant,
    waits: bool,
) -> Result<Vec<AuditedClaim>, Failure> {
    let own = || seen.iter().filter(|(open, seen)| seen.run == Some(open.run)).map(|(_, seen)| seen);
    let wait = own().filter_map(|seen| seen.lease.max(seen.doubt)).max();
    let Some(wait) = wait.filter(|_| waits || own().any(|seen| liveness::silence(seen).is_some())) else {
        let judged = |(open, seen)| {
            let fate = fate(&open, &seen);
            (open, fate)
        };
        return Ok(seen.into_iter().map(judged).collect());
    };
    liveness::wait(begun, wait).await;
    let mut judged = Vec::with_capacity(seen.len());
    for (open, before) in seen {
        let now = guard.look_at(&open.ticket).await?;
        let is_in_doubt = |seen| fate(&open, seen).doubt().is_some();
        let is_own = now.run == Some(open.run);
        let is_alive = is_own && now.is_renewed_since(&before) || is_in_doubt(&before) && is_in_doubt(&now);
        let fate = if is_alive { ClaimState::Alive } else { fate(&open, &now) };
        judged.push((open, fate));
    }
    Ok(judged)
}

fn report(log: &EventLog, judged: Vec<AuditedClaim>) -> Output {
    let doubt = judged.iter().filter_map(|(_, fate)| fate.doubt()).max();
    let in_doubt = judged.iter().filter(|(_, fate)| fate.doubt().is_some()).count();
    let alive = judged.iter().filter(|(_, fate)| matches!(fate, ClaimState::Alive)).count();
    let gone: Vec<_> = judged.into_iter().filter(|(_, fate)| fate.is_gone()).collect();
    let (skipped, skipped_events) = log.skipped();
    let json = json!({
        "events": log.events(),
        "claims": gone.iter().map(|(open, fate)| open.json(fate)).collect::<Vec<_>>(),
        "alive": alive,
        "in_doubt": in_doubt,
        "not_json": log.not_json(),
        "skipped": skipped,
        "skipped_events": skipped_events,
        "known_within_ms": doubt.map(|doubt| doubt.as_millis() as u64),
    });
    let mut text = log.remarks();
    for (open, fate) in &gone {
        text += &format!(
            "{}  {}\n  {}\n  run {}, started {}\n",
            open.ticket,
            on_one_line(&open.action),
            fate.says(),
            open.run,
            open.since
        );
        text += &fate.fix(open).map(|fix| format!("  -> {fix}\n")).unwrap_or_default();
    }
    text += &match gone.len() {
        0 => "No claim has lost its owner.\n".to_owned(),
        count => format!("\n{count} claim(s) whose owner is gone or whose outcome is unknown.\n"),
    };
    if let Some(doubt) = doubt {
        text += &format!(
            "{in_doubt} more claim(s) have no end in the log. The claims of a process that has just died look alive until their lease expires: \
             run this again in {}, or with --wait.\n",
            lasting(doubt)
        );
    }
    if gone.is_empty() { Output::fine(text, json) } else { Output::problem(text, json) }
}

/// Replaces control characters in an action: it may be the decoded path of a client's request.
fn on_one_line(action: &str) -> String {
    action.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use onceward::store::Memory;
    use onceward::{Intent, Key, KeyRules, ManualClock, Policy, Subject, Ticket, Verdict};

    use super::event_log::LastEvent;
    use super::*;

    #[test]
    fn action_with_line_breaks_stays_on_one_line() {
        assert_eq!(
            on_one_line("POST /a\nNo claim has lost its owner.\u{1b}[2J"),
            "POST /a\u{fffd}No claim has lost its owner.\u{fffd}[2J"
        );
        assert_eq!(on_one_line("POST /o'brien/é"), "POST /o'brien/é");
    }

    /// Two machines; the operator's clock is far ahead.
    #[tokio::test]
    async fn only_dead_owners_are_listed_despite_clock_skew() {
        let (store, ahead) = (Arc::new(Memory::new()), ManualClock::new());
        ahead.advance(Duration::from_secs(20 * 365 * 24 * 60 * 60));
        let owners = [(); 2].map(|()| Guard::new(Arc::clone(&store)));
        let operator = Guard::builder(store).clock((&ahead).into()).build();
        let policy = Policy::key(KeyRules::at_most_once().lease(Duration::from_millis(300)).unwrap());
        let (mut open, mut passes) = (Vec::new(), Vec::new());
        for (owner, name) in owners.iter().zip(["alive", "dead"]) {
            let key = Key::new(name).unwrap();
            let intent = Intent::new("a", Subject::anonymous()).key(&key);
            let Ok(Verdict::Run(pass)) = owner.check(&policy, &intent).await else { panic!("the key is free") };
            let ticket = Ticket::of_key(&Subject::anonymous(), "a", &key);
            open.push(OpenClaim::new(pass.run_id().unwrap(), ticket, LastEvent::Claimed));
            passes.push(pass);
        }
        // A signed pass is no longer renewed by its guard.
        passes.pop().unwrap().into_signed().await.unwrap();
        let begun = Instant::now();
        let seen = examine(&operator, open).await.unwrap();
        let judged = judge(&operator, seen, begun, false).await.unwrap();
        let fates: Vec<_> = judged.iter().map(|(_, fate)| *fate).collect();
        assert_eq!(fates, [ClaimState::Alive, ClaimState::Held]);
        drop(passes);
    }
}
