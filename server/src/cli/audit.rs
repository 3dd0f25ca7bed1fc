//! Claims in a log whose owner is gone: begun, never ended, and nobody at work on them.

mod log;
mod verdict;

use std::time::Duration;

use clap::ArgMatches;
use onceward::Guard;
use serde_json::json;
use tokio::time::Instant;

use self::log::{Journal, Open};
use self::verdict::{Fate, fate};
use super::argument::{is_set, texts};
use super::said::{Failure, Said};
use super::store::guard;
use super::token::lasting;
use crate::config::Config;

/// What to do where the store cannot be reached.
const INSTEAD: &str = "Its records end with it, so there is nothing to settle.";
/// What is waited beyond a lease, so that a renewal that is due has come.
const BEYOND: Duration = Duration::from_millis(300);

/// A claim, and what is known of it.
type Judged = (Open, Fate);

pub(super) async fn audit(matches: &ArgMatches, config: &Config) -> Result<Said, Failure> {
    let guard = guard(config, INSTEAD).await?;
    let files: Vec<_> = texts(matches, "FILE").map(str::to_owned).collect();
    let journal = Journal::read(&files)?;
    let begun = Instant::now();
    let mut judged = ask(&guard, journal.open()).await?;
    if is_set(matches, "wait") {
        judged = wait(&guard, judged, begun).await?;
    }
    // What has ended since the log was read is no concern of ours, though its record is gone. An input cannot be read again.
    let is_input = files.is_empty() || files.iter().any(|file| file == "-");
    let now = if is_input { journal } else { Journal::read(&files)? };
    judged.retain(|(open, _)| now.is_open(open));
    Ok(told(&now, judged))
}

async fn ask(guard: &Guard, open: Vec<Open>) -> Result<Vec<Judged>, Failure> {
    let mut judged = Vec::with_capacity(open.len());
    for open in open {
        let fate = fate(&open, &guard.examine(&open.ticket).await?);
        judged.push((open, fate));
    }
    Ok(judged)
}

/// Waits until each that may be alive has had to renew its claim, and asks again: then it is alive.
async fn wait(guard: &Guard, judged: Vec<Judged>, begun: Instant) -> Result<Vec<Judged>, Failure> {
    let doubt = judged.iter().filter_map(|(_, fate)| fate.doubt()).max();
    let Some(doubt) = doubt else { return Ok(judged) };
    tokio::time::sleep_until(begun + doubt + BEYOND).await;
    let mut after = Vec::with_capacity(judged.len());
    for (open, before) in judged {
        let is_in_doubt = before.doubt().is_some();
        let now = fate(&open, &guard.examine(&open.ticket).await?);
        after.push((open, if is_in_doubt && now.doubt().is_some() { Fate::Alive } else { now }));
    }
    Ok(after)
}

fn told(journal: &Journal, judged: Vec<Judged>) -> Said {
    let doubt = judged.iter().filter_map(|(_, fate)| fate.doubt()).max();
    let in_doubt = judged.iter().filter(|(_, fate)| fate.doubt().is_some()).count();
    let alive = judged.iter().filter(|(_, fate)| matches!(fate, Fate::Alive)).count();
    let gone: Vec<_> = judged.into_iter().filter(|(_, fate)| fate.is_gone()).collect();
    let json = json!({
        "events": journal.events,
        "claims": gone.iter().map(|(open, fate)| open.json(fate)).collect::<Vec<_>>(),
        "alive": alive,
        "in_doubt": in_doubt,
        "not_json": journal.strange,
        "known_within_ms": doubt.map(|doubt| doubt.as_millis() as u64),
    });
    let mut text = journal.complaint();
    for (open, fate) in &gone {
        text +=
            &format!("{}  {}\n  {}\n  run {}, begun {}\n", open.ticket, open.action, fate.says(), open.run, open.since);
        text += &fate.fix(open).map(|fix| format!("  -> {fix}\n")).unwrap_or_default();
    }
    text += &match gone.len() {
        0 => "No claim has lost its owner.\n".to_owned(),
        count => format!("\n{count} claim(s) whose owner is gone, or whose end nobody can tell.\n"),
    };
    if let Some(doubt) = doubt {
        text += &format!(
            "{in_doubt} more began and have not ended. If a process has just died, its claims look alive for a lease: ask again in {}, \
             or with --wait.\n",
            lasting(doubt)
        );
    }
    if gone.is_empty() { Said::fine(text, json) } else { Said::problem(text, json) }
}
