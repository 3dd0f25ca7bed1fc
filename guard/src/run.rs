//! Any function, run once: for jobs and message consumers.

use std::future::Future;

use onceward_api::{Code, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::guard::{Guard, Verdict};
use crate::intent::Intent;
use crate::mode::Mode;
use crate::not_kept::NotKept;
use crate::policy::{Effect, Policy};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::store::StoreError;

/// What came of running something once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran<T> {
    /// It ran now.
    Executed(T),
    /// It ran now, and nothing but its lease keeps a duplicate from running: that could not be written down yet, or the guard
    /// does not [enforce](crate::Mode), or the store could not be asked and the policy
    /// [fails open](crate::IntervalRules::fail_open).
    Unprotected(T),
    /// It ran before, and this is what came of it.
    Replayed(T),
}

impl<T> Ran<T> {
    /// What came of it, now or before.
    pub fn into_value(self) -> T {
        match self {
            Self::Executed(value) | Self::Unprotected(value) | Self::Replayed(value) => value,
        }
    }
}

/// Why nothing came of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// It was not run. If the refusal [says when](Refusal::retry_after), come back then: a message goes back to its queue.
    #[error("not run: {}", .0.code())]
    Refused(Refusal),
    /// It was not run, because the store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It ran and failed. Nothing is marked as done: the same may be tried again.
    #[error("it failed")]
    Failed(E),
    /// It ran before, and what came of it cannot be read as what is asked for now.
    #[error("what came of it before cannot be read: {0}")]
    Unreadable(serde_json::Error),
}

impl Guard {
    /// Runs some work once, and gives what came of it to every later caller with the same intent.
    ///
    /// Work that fails is not done: the next one with the same intent runs it again. Whoever comes while it runs is
    /// refused, and told when to come back. A future that is dropped in the middle leaves a run that nobody can tell the end of;
    /// in a task of its own it is not dropped.
    ///
    /// ```
    /// use onceward::{Intent, Key, KeyRules, Policy, Ran, Subject, testing};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let (guard, _clock) = testing::guard();
    /// let message = Key::of_parts(["billing", "4711"])?;
    /// let intent = Intent::new("send invoice", Subject::anonymous()).key(&message);
    /// let policy = Policy::key(KeyRules::new());
    ///
    /// let send = async || Ok::<_, std::io::Error>("sent".to_owned());
    /// assert_eq!(guard.run(&policy, &intent, send).await?, Ran::Executed("sent".to_owned()));
    /// let again = async || unreachable!("it is done");
    /// assert_eq!(guard.run::<String, std::io::Error, _, _>(&policy, &intent, again).await?.into_value(), "sent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// If nothing came of it.
    pub async fn run<T, E, F, W>(&self, policy: &Policy, intent: &Intent<'_>, work: W) -> Result<Ran<T>, RunError<E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
        W: FnOnce() -> F,
    {
        let checked = match self.mode() {
            Mode::Off => None,
            Mode::Observe => self.check_and_count(policy, intent).await,
            Mode::Enforce => match self.check(policy, intent).await {
                Err(error) if policy.fails_open(&error) => {
                    self.note_let_through(&intent.action, &error);
                    None
                }
                checked => Some(checked?),
            },
        };
        let pass = match checked {
            None => return work().await.map(Ran::Unprotected).map_err(RunError::Failed),
            Some(Verdict::Run(pass)) => pass,
            Some(Verdict::Replay(reply)) => {
                return serde_json::from_slice(reply.body()).map(Ran::Replayed).map_err(RunError::Unreadable);
            }
            Some(Verdict::Refuse(refusal)) => return Err(RunError::Refused(refusal)),
        };
        let value = match work().await {
            Ok(value) => value,
            Err(error) => {
                // If it cannot be given back now, that is tried on, or its lease ends it.
                let _ = pass
                    .release()
                    .await
                    .inspect_err(|error| tracing::warn!(%error, "work that failed is not free yet"));
                return Err(RunError::Failed(error));
            }
        };
        // What cannot be written as text is done all the same.
        let reply = serde_json::to_vec(&value).map(|body| Reply::new(200, body)).map_err(|_| NotKept::Unwritable);
        Ok(match pass.end(Effect::Happened, reply).await {
            Ok(crate::pass::Settled::Lost) | Err(_) => Ran::Unprotected(value),
            Ok(_) => Ran::Executed(value),
        })
    }

    /// Only the right to run; what would not have run is counted.
    async fn check_and_count(&self, policy: &Policy, intent: &Intent<'_>) -> Option<Verdict> {
        let outcome = match self.check(policy, intent).await {
            Ok(Verdict::Run(pass)) => return Some(Verdict::Run(pass)),
            Ok(Verdict::Replay(_)) => Outcome::Replayed,
            Ok(Verdict::Refuse(refusal)) => Outcome::Refused(refusal.code()),
            Err(error) => Outcome::Refused(Refusal::after(&error, policy, intent).code()),
        };
        self.observe(outcome, &intent.action);
        None
    }
}

impl<E> RunError<E> {
    /// Whether the same may be asked for again, a moment later. A duplicate within an interval is not temporary: asked for again after the
    /// interval, it would run. A [lock](crate::IntervalRules::release_always) that is held is.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal.code(), Code::InProgress | Code::Locked | Code::Overloaded),
            Self::Store(_) => true,
            Self::Failed(_) | Self::Unreadable(_) => false,
        }
    }
}
