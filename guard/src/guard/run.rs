//! Runs any function once, for jobs and message consumers.

use std::future::Future;

use onceward_api::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Guard;
use crate::effect::Effect;
use crate::failure::IntoFailure;
use crate::intent::Intent;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::reply::{NoReply, Reply};
use crate::run::{RunError, RunOutcome};
use crate::settled::Settled;
use crate::verdict::Verdict;

pub(super) async fn run<T, E, F, W>(
    guard: &Guard,
    policy: &Policy,
    intent: &Intent<'_>,
    work: W,
) -> Result<RunOutcome<T>, RunError<E::Error>>
where
    T: Serialize + DeserializeOwned,
    E: IntoFailure,
    F: Future<Output = Result<T, E>>,
    W: FnOnce() -> F,
{
    let checked = match guard.mode() {
        Mode::Off => None,
        Mode::Observe => check_and_count(guard, policy, intent).await,
        Mode::Enforce => match guard.check(policy, intent).await {
            Err(error) if guard.fails_open(policy, &error) => {
                guard.note_unprotected(&intent.action, &error);
                None
            }
            checked => Some(checked?),
        },
    };
    let pass = match checked {
        None => return work().await.map(RunOutcome::Unprotected).map_err(|error| RunError::of(error, policy).0),
        Some(Verdict::Run(pass)) => pass,
        Some(Verdict::Replay(reply)) => {
            return serde_json::from_slice(reply.body()).map(RunOutcome::Replayed).map_err(RunError::Unreadable);
        }
        Some(Verdict::Reject(rejection)) => return Err(RunError::Rejected(rejection)),
    };
    let value = match work().await {
        Ok(value) => value,
        Err(error) => {
            let (error, effect) = RunError::of(error, policy);
            let _ = pass.settle(effect, None).await.inspect_err(|error| {
                tracing::debug!(%error, ?effect, "could not settle failed work; a claim is retried in the background, a token stays used");
            });
            return Err(error);
        }
    };
    // The run took effect even if its value cannot be serialized.
    let reply = serde_json::to_vec(&value).map(|body| Reply::new(200, body)).map_err(|_| NoReply::Unwritable);
    Ok(match pass.end(Effect::Applied, reply).await {
        Ok(Settled::Lost) | Err(_) => RunOutcome::Unprotected(value),
        Ok(_) => RunOutcome::Executed(value),
    })
}

/// Returns a verdict to run. Counts any other outcome and returns `None`, so that the work runs unprotected.
async fn check_and_count(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Option<Verdict> {
    let outcome = match guard.check(policy, intent).await {
        Ok(Verdict::Run(pass)) => return Some(Verdict::Run(pass)),
        Ok(Verdict::Replay(_)) => Outcome::Replayed,
        Ok(Verdict::Reject(rejection)) => Outcome::Rejected(rejection.code()),
        Err(error) => Outcome::Rejected(Guard::rejection_after(&error, policy, intent).code()),
    };
    guard.0.observe(outcome, &intent.action);
    None
}
