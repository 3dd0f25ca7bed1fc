//! The request log: which responses get a line, and what the line says of a request beside its status.

use std::io::IsTerminal as _;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::{HttpMessage as _, HttpRequest};
use onceward::Kind;
use onceward_api::{Code, header};

/// Which responses are logged.
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
    /// Every response where people read along on a terminal, and otherwise the errors.
    pub fn auto() -> Self {
        if std::io::stdout().is_terminal() { Self::All } else { Self::Errors }
    }

    /// Whether a response with this status is logged.
    pub(crate) fn has(self, status: StatusCode) -> bool {
        match self {
            Self::All => true,
            Self::Errors => status.as_u16() >= 400,
            Self::Off => false,
        }
    }
}

/// The policy that a request was decided by, or would have been, as metrics name it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LoggedPolicy {
    Token,
    Remembered,
    Key,
    Interval,
}

impl LoggedPolicy {
    /// Notes the policy of a request, for its line in the log.
    pub(crate) fn note(self, request: &HttpRequest) {
        request.extensions_mut().insert(self);
    }

    /// The policy of a claim on a record of this kind.
    pub(crate) fn of_claim(kind: Kind) -> Self {
        match kind {
            Kind::Token => Self::Remembered,
            Kind::Interval => Self::Interval,
            Kind::Key | Kind::Secret => Self::Key,
        }
    }

    /// The policy that was noted.
    pub(crate) fn of(request: &HttpRequest) -> Option<&'static str> {
        Some(match request.extensions().get::<Self>()? {
            Self::Token => "token",
            Self::Remembered => "remembered",
            Self::Key => "key",
            Self::Interval => "interval",
        })
    }
}

/// The code of the problem that a response tells.
pub(crate) fn problem_code(headers: &HeaderMap) -> Option<&'static str> {
    let told = headers.get(header::OUTCOME)?;
    Code::ALL.iter().map(|code| code.as_str()).find(|code| told == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_every_status_from_400_on() {
        for (status, is_error) in [(200, false), (304, false), (400, true), (409, true), (503, true)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(RequestLog::Errors.has(status), is_error, "{status}");
            assert!(RequestLog::All.has(status) && !RequestLog::Off.has(status));
        }
    }
}
