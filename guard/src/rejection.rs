//! Rejections: reasons why a submission did not run.

use std::borrow::Cow;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};

use crate::language::{Language, Texts};
use crate::reply::{NoReply, Reply};

/// Default time after which a client may retry.
const MOMENT: Duration = Duration::from_secs(1);

/// The reason why a submission did not run: a regular result, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    code: Code,
    /// `None` for the text of the code, which each language has.
    detail: Option<Cow<'static, str>>,
    /// The detail in other languages, by their tags.
    translations: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// True if the text was written for customers.
    is_message: bool,
    retry_after: Option<Duration>,
}

impl Rejection {
    /// Creates a rejection with the default text of its code.
    pub fn new(code: Code) -> Self {
        let is_worth_waiting = code.retry() == Retry::Same || code.status() == 503;
        let retry_after = is_worth_waiting.then_some(MOMENT);
        Self { code, detail: None, translations: Vec::new(), is_message: false, retry_after }
    }

    /// Replaces the text, for programs and developers. The client receives it, so it must not contain a token or a key. The page after a
    /// rejected form shows it in a collapsed section; see [`message`](Self::message).
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.set(detail.into(), false);
        self
    }

    /// Adds the [`detail`](Self::detail) in another language, such as `zh-CN`. Without translations, a detail is the same in all
    /// languages; with them, a language that has none receives the default text of the code.
    #[must_use]
    pub fn detail_in(mut self, tag: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        self.translations.push((tag.into(), detail.into()));
        self
    }

    /// Like [`detail`](Self::detail), with a text for customers: the page after a rejected form begins with it.
    #[must_use]
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.set(message.into(), true);
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
        self.detail.as_deref().filter(|_| self.is_message)
    }

    /// Returns the rejection as a problem of the HTTP API (RFC 9457), in English.
    pub fn problem(&self) -> Problem {
        let problem = Problem::new(self.code);
        match &self.detail {
            Some(detail) => problem.detail(&**detail),
            None => problem,
        }
    }

    /// Like [`problem`](Self::problem), in the language of these texts.
    pub fn problem_in(&self, texts: &Texts) -> Problem {
        let mut problem = Problem::new(self.code).detail(self.detail_for(texts));
        texts.title().clone_into(&mut problem.title);
        problem
    }

    fn detail_for<'a>(&'a self, texts: &'a Texts) -> &'a str {
        let translated = self.translations.iter().find(|(tag, _)| tag.eq_ignore_ascii_case(texts.tag()));
        match (&self.detail, translated) {
            (_, Some((_, translation))) => translation,
            (Some(detail), None) if self.translations.is_empty() || texts.tag() == Language::ENGLISH => detail,
            _ => texts.detail(),
        }
    }

    fn set(&mut self, detail: Cow<'static, str>, is_message: bool) {
        (self.detail, self.is_message) = (Some(detail), is_message);
        self.translations.clear();
    }
}

impl From<Code> for Rejection {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}

impl From<NoReply> for Rejection {
    fn from(reason: NoReply) -> Self {
        Self::new(Code::ReplyNotKept)
            .detail(format!("It was carried out; no response was stored. {}", reason.says()))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("请求已经执行，但响应没有保存。{}", reason.chinese()))
    }
}

/// The verdict on a duplicate, which never runs.
#[derive(Debug)]
pub(crate) enum Duplicate {
    /// The stored response of the first run.
    Replay(Reply),
    Reject(Rejection),
}
