//! The request log: the responses that are logged, and the fields of a line.

use std::io::IsTerminal as _;

use actix_web::{HttpMessage as _, HttpRequest};
use onceward::Kind;
use onceward_api::Code;

/// The responses to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestLog {
    /// Every response.
    #[default]
    All,
    /// Responses with status 400 or above. Rejections of duplicates are among them.
    Errors,
    /// None.
    Off,
}

impl RequestLog {
    /// Returns `All` if stdout is a terminal, otherwise `Errors`.
    pub fn auto() -> Self {
        if std::io::stdout().is_terminal() { Self::All } else { Self::Errors }
    }

    /// Returns true if a response with this status is logged.
    pub(crate) fn has(self, status: u16) -> bool {
        match self {
            Self::All => true,
            Self::Errors => status >= 400,
            Self::Off => false,
        }
    }
}

/// The policy of a request, as named in metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoggedPolicy {
    Token,
    Remembered,
    Key,
    Interval,
}

impl LoggedPolicy {
    /// Stores the policy of a request, for its line in the log.
    pub(crate) fn note(self, request: &HttpRequest) {
        request.extensions_mut().insert(self);
    }

    /// Returns the policy of a claim on a record of this kind.
    pub(crate) fn of_claim(kind: Kind) -> Self {
        match kind {
            Kind::Token => Self::Remembered,
            Kind::Interval => Self::Interval,
            Kind::Key | Kind::Secret => Self::Key,
        }
    }

    /// Returns the stored policy.
    pub(crate) fn of(request: &HttpRequest) -> Option<&'static str> {
        Some(match request.extensions().get::<Self>()? {
            Self::Token => "token",
            Self::Remembered => "remembered",
            Self::Key => "key",
            Self::Interval => "interval",
        })
    }
}

/// Returns the problem code of a response with this `Onceward-Outcome`.
pub(crate) fn problem_code(outcome: Option<&[u8]>) -> Option<&'static str> {
    Code::ALL.iter().map(|code| code.as_str()).find(|code| outcome == Some(code.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_log_includes_every_status_from_400() {
        for (status, is_error) in [(200, false), (304, false), (400, true), (409, true), (503, true)] {
            assert_eq!(RequestLog::Errors.has(status), is_error, "{status}");
            assert!(RequestLog::All.has(status) && !RequestLog::Off.has(status));
        }
    }
}
