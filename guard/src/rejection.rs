//! Rejections: reasons why a submission did not run.

use std::borrow::Cow;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};

use crate::reply::{NoReply, Reply};

/// Default time after which a client may retry.
const MOMENT: Duration = Duration::from_secs(1);

/// The reason why a submission did not run: a regular result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    code: Code,
    detail: Cow<'static, str>,
    /// True if the text was written for customers.
    is_message: bool,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// Creates a rejection with the default text of its code.
    pub fn new(code: Code) -> Self {
        let is_worth_waiting = code.retry() == Retry::Same || code.status() == 503;
        let retry_after = is_worth_waiting.then_some(MOMENT);
        Self { code, detail: code.detail().into(), is_message: false, retry_after }
    }

    /// Replaces the text, for programs and developers. The client receives it, so it must not contain a token or a key. The page after a
    /// rejected form shows it in a collapsed section; see [`message`](Self::message).
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        (self.detail, self.is_message) = (detail.into(), false);
        self
    }

    /// Like [`detail`](Self::detail), with a text for customers: the page after a rejected form begins with it.
    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        (self.detail, self.is_message) = (message.into(), true);
        self
    }

    /// Sets the time after which the client may retry.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Returns the code, for programs.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the time after which the client may retry, or `None` if a retry does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the text for customers, if there is one.
    pub(crate) fn message_for_people(&self) -> Option<&str> {
        self.is_message.then_some(&*self.detail)
    }

    /// Returns the rejection as a problem of the HTTP API (RFC 9457).
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
        Self::new(Code::ReplyNotKept).detail(format!("It was carried out; no response was stored. {}", reason.says()))
    }
}

/// The verdict on a duplicate, which never runs.
#[derive(Debug)]
pub(crate) enum Duplicate {
    /// The stored response of the first run.
    Replay(Reply),
    Reject(Rejection),
}
