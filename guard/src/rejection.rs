//! Rejections: reasons why a submission did not run.

use std::borrow::Cow;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};

use crate::reply::{NoReply, Reply};

/// Default time after which a client may retry.
const MOMENT: Duration = Duration::from_secs(1);

/// The reason why a submission did not run. It is a regular result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    code: Code,
    detail: Cow<'static, str>,
    /// Whether the text was written for people who do not know the code.
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

    /// Replaces the text, for programs and developers. It is sent to the client only; it must not contain a token or a key. On the page
    /// that a person sees after a rejected form it is folded away; see [`message`](Self::message).
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        (self.detail, self.is_message) = (detail.into(), false);
        self
    }

    /// Like [`detail`](Self::detail), with a text for customers: it is the first sentence of the page that they see after a rejected form.
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

    /// Returns the time after which the client may retry, if it may.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the text for customers, if there is one.
    pub(crate) fn message_for_people(&self) -> Option<&str> {
        self.is_message.then_some(&*self.detail)
    }

    /// Returns the rejection as a problem, as the contract defines it.
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

/// The verdict on a duplicate, which never runs.
#[derive(Debug)]
pub(crate) enum Duplicate {
    /// The stored response of the first run.
    Replay(Reply),
    Reject(Rejection),
}
