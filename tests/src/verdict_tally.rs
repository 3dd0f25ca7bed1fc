//! What callers were told of each token, counted with nothing of Onceward in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use onceward::store::StoreError;
use onceward::{Attempt, Guard, Intent, Policy, Subject, TokenRules, Verdict};
use onceward_api::Code;

/// How long an answer is remembered.
const KEPT: Duration = Duration::from_secs(600);

/// How often something is done: a few times in `make test`, and as often as is promised in `make faults`.
#[expect(clippy::disallowed_methods, reason = "a test has no settings file")]
pub fn times(few: usize, promised: usize) -> usize {
    if std::env::var_os("FAULTS").is_some() { promised } else { few }
}

/// The guard's decision on a token, as the caller received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenOutcome {
    /// Go on.
    Accepted,
    /// Somebody has used it.
    Used,
    /// It is of an earlier epoch.
    Stale,
    /// Nobody can tell.
    Unknown,
    /// The store was not asked, or did nothing.
    NotExecuted,
    /// Something else.
    Other(Code),
}

/// How a token is presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presentation {
    /// As it is.
    Plain,
    /// By a try of its own.
    Attempt(Attempt),
    /// Where the answer is remembered.
    Remembered,
}

impl Presentation {
    /// One of them, by this number; the attempt is a new one.
    pub fn by(number: usize) -> Self {
        match number % 3 {
            0 => Self::Plain,
            1 => Self::Attempt(Attempt::new(uuid::Uuid::new_v4().to_string()).expect("a name")),
            _ => Self::Remembered,
        }
    }
}

/// Redeems a plain token and settles it as done.
pub async fn redeem(guard: &Guard, token: &str) -> TokenOutcome {
    present(guard, token, &Presentation::Plain).await
}

/// Presents a token and settles it as done.
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
            // A plain token is spent by now; what could not be written down of another is tried on.
            let _ = pass.complete(None).await;
            TokenOutcome::Accepted
        }
        Ok(Verdict::Reject(rejection)) => match rejection.code() {
            Code::TokenUsed => TokenOutcome::Used,
            Code::TokenStale => TokenOutcome::Stale,
            other => TokenOutcome::Other(other),
        },
        Ok(verdict) => panic!("a token is not answered with {verdict:?}"),
        Err(StoreError::NotExecuted(_)) => TokenOutcome::NotExecuted,
        Err(_) => TokenOutcome::Unknown,
    }
}

/// What was told of every token.
#[derive(Default)]
pub struct Tally(Mutex<HashMap<String, Vec<TokenOutcome>>>);

impl Tally {
    /// Writes down what was told of a token, and hands it on.
    pub fn note(&self, token: &str, told: TokenOutcome) -> TokenOutcome {
        let mut all = self.0.lock().expect("nobody panics with it");
        all.entry(token.to_owned()).or_default().push(told);
        told
    }

    /// How often this was told, of all tokens together.
    pub fn count(&self, told: TokenOutcome) -> usize {
        let all = self.0.lock().expect("nobody panics with it");
        all.values().flatten().filter(|each| **each == told).count()
    }

    /// How many tokens were accepted more than once.
    pub fn doubles(&self) -> usize {
        self.tokens(|told| count(told, TokenOutcome::Accepted) > 1)
    }

    /// How many tokens were called used although nobody was let through with them, and nobody was left in doubt.
    pub fn used_by_nobody(&self) -> usize {
        let has = |told: &[TokenOutcome], one| count(told, one) > 0;
        self.tokens(|told| {
            has(told, TokenOutcome::Used) && !has(told, TokenOutcome::Accepted) && !has(told, TokenOutcome::Unknown)
        })
    }

    fn tokens(&self, are: impl Fn(&[TokenOutcome]) -> bool) -> usize {
        let all = self.0.lock().expect("nobody panics with it");
        all.values().filter(|told| are(told)).count()
    }

    /// # Panics
    /// If a token was accepted twice, or called used without a user.
    pub fn is_clean(&self) {
        assert_eq!((self.doubles(), self.used_by_nobody()), (0, 0), "doubles, and used by nobody: {self}");
    }
}

fn count(told: &[TokenOutcome], one: TokenOutcome) -> usize {
    told.iter().filter(|each| **each == one).count()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.lock().expect("nobody panics with it");
        let mut sums = HashMap::<TokenOutcome, usize>::new();
        for told in all.values().flatten() {
            *sums.entry(*told).or_default() += 1;
        }
        write!(f, "{} tokens, {sums:?}", all.len())
    }
}
