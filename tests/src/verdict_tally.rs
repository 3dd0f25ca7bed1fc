//! Counts the outcomes of each token, independently of Onceward.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use onceward::store::StoreError;
use onceward::{Attempt, Guard, Intent, Policy, Subject, TokenRules, Verdict};
use onceward_api::Code;

/// Retention of a remembered response.
const KEPT: Duration = Duration::from_secs(600);

/// Returns the number of repetitions: `few` in `make test`, `promised` in `make faults`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
pub fn times(few: usize, promised: usize) -> usize {
    if std::env::var_os("FAULTS").is_some() { promised } else { few }
}

/// The guard's decision on a token, as the caller received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenOutcome {
    /// The caller may run.
    Accepted,
    /// The token is used.
    Used,
    /// The token is from an earlier epoch.
    Stale,
    /// The outcome is unknown.
    Unknown,
    /// The store did not execute the command.
    NotExecuted,
    /// Another rejection.
    Other(Code),
}

/// A way to redeem a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// A plain redeem.
    Plain,
    /// A redeem by a named attempt.
    Attempt(Attempt),
    /// A redeem that remembers the response.
    Remembered,
}

impl Presentation {
    /// Returns one of the three, by number. An attempt gets a new name.
    pub fn by(number: usize) -> Self {
        match number % 3 {
            0 => Self::Plain,
            1 => Self::Attempt(Attempt::new(uuid::Uuid::new_v4().to_string()).expect("a name")),
            _ => Self::Remembered,
        }
    }
}

/// Redeems a token plainly and completes the run.
pub async fn redeem(guard: &Guard, token: &str) -> TokenOutcome {
    present(guard, token, &Presentation::Plain).await
}

/// Redeems a token and completes the run.
pub async fn present(guard: &Guard, token: &str, how: &Presentation) -> TokenOutcome {
    let intent = Intent::new("a", Subject::anonymous()).credential(token);
    match how {
        Presentation::Plain => decide(guard, Policy::token(), intent).await,
        Presentation::Attempt(attempt) => decide(guard, Policy::token(), intent.attempt(attempt)).await,
        Presentation::Remembered => decide(guard, Policy::Token(TokenRules::new().remember(KEPT)), intent).await,
    }
}

async fn decide(guard: &Guard, policy: Policy, intent: Intent<'_>) -> TokenOutcome {
    match guard.check(&policy, &intent).await {
        Ok(Verdict::Run(pass)) => {
            // A plain token is redeemed by now. For the others, the guard retries in the background if this fails.
            let _ = pass.complete(None).await;
            TokenOutcome::Accepted
        }
        Ok(Verdict::Reject(rejection)) => match rejection.code() {
            Code::TokenUsed => TokenOutcome::Used,
            Code::TokenStale => TokenOutcome::Stale,
            other => TokenOutcome::Other(other),
        },
        Ok(verdict) => panic!("unexpected verdict for a token: {verdict:?}"),
        Err(StoreError::NotExecuted(_)) => TokenOutcome::NotExecuted,
        Err(_) => TokenOutcome::Unknown,
    }
}

/// The outcomes of every token.
#[derive(Default)]
pub struct Tally(Mutex<HashMap<String, Vec<TokenOutcome>>>);

impl Tally {
    /// Records an outcome of a token and returns it.
    pub fn note(&self, token: &str, told: TokenOutcome) -> TokenOutcome {
        let mut all = self.0.lock().expect("lock not poisoned");
        all.entry(token.to_owned()).or_default().push(told);
        told
    }

    /// Returns the number of times that this outcome was recorded, over all tokens.
    pub fn count(&self, told: TokenOutcome) -> usize {
        let all = self.0.lock().expect("lock not poisoned");
        all.values().flatten().filter(|each| **each == told).count()
    }

    /// Returns the number of tokens that were accepted more than once.
    pub fn doubles(&self) -> usize {
        self.tokens(|told| count(told, TokenOutcome::Accepted) > 1)
    }

    /// Returns the number of tokens that were reported as used although no caller was accepted and no outcome was unknown.
    pub fn used_without_acceptance(&self) -> usize {
        let has = |told: &[TokenOutcome], one| count(told, one) > 0;
        self.tokens(|told| {
            has(told, TokenOutcome::Used) && !has(told, TokenOutcome::Accepted) && !has(told, TokenOutcome::Unknown)
        })
    }

    fn tokens(&self, are: impl Fn(&[TokenOutcome]) -> bool) -> usize {
        let all = self.0.lock().expect("lock not poisoned");
        all.values().filter(|told| are(told)).count()
    }

    /// Asserts that there are neither doubles nor false duplicates.
    ///
    /// # Panics
    /// If a token was accepted twice, or reported as used without an accepted caller.
    pub fn is_clean(&self) {
        assert_eq!(
            (self.doubles(), self.used_without_acceptance()),
            (0, 0),
            "doubles, and used without an accepted caller: {self}"
        );
    }
}

fn count(told: &[TokenOutcome], one: TokenOutcome) -> usize {
    told.iter().filter(|each| **each == one).count()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.lock().expect("lock not poisoned");
        let mut sums = HashMap::<TokenOutcome, usize>::new();
        for told in all.values().flatten() {
            *sums.entry(*told).or_default() += 1;
        }
        write!(f, "{} tokens, {sums:?}", all.len())
    }
}
