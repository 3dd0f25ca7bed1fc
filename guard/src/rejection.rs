//! Why nothing ran.

use std::borrow::Cow;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};

use crate::reply::{NoReply, Reply};

/// How long a caller waits before it asks again, where nothing better is known.
const MOMENT: Duration = Duration::from_secs(1);

/// Why nothing ran. It is an answer, not a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    code: Code,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// A rejection with what its code says of itself.
    pub fn new(code: Code) -> Self {
        let is_worth_waiting = code.retry() == Retry::Same || code.status() == 503;
        Self { code, detail: code.detail().into(), retry_after: is_worth_waiting.then_some(MOMENT) }
    }

    /// Says what it was this time. It goes to the client alone; a token or a key does not belong in it.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Says when the same may be sent again.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What a program goes by.
    pub fn code(&self) -> Code {
        self.code
    }

    /// When the same may be sent again, if it may.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The rejection as the contract's problem.
    pub fn problem(&self) -> Problem {
        Problem::new(self.code).detail(self.detail.clone())
    }
}

impl From<Code> for Rejection {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl From<NoReply> for Rejection {
    fn from(reason: NoReply) -> Self {
        Self::new(Code::ReplyNotKept).detail(format!("This submission was carried out before. {}", reason.says()))
    }
}

/// What a duplicate receives. It never runs.
#[derive(Debug)]
pub(crate) enum Duplicate {
    /// The stored response of the first run.
    Replay(Reply),
    Reject(Rejection),
}
