use std::fmt;

use actix_web::http::StatusCode;
use actix_web::{Error, HttpResponse, ResponseError};

/// Marks the error of an extractor of your own: the handler was not entered, so nothing has happened, and a key may be sent
/// again with what was wrong put right. Errors of actix-web's own extractors need no mark, except for a
/// `String` that is none.
///
/// ```
/// use actix_web::error::ErrorBadRequest;
/// use onceward::actix::NotEntered;
///
/// fn refuse() -> actix_web::Error {
///     NotEntered::new(ErrorBadRequest("the signature is missing")).into()
/// }
/// # assert_eq!(refuse().as_response_error().status_code(), 400);
/// ```
#[derive(Debug)]
pub struct NotEntered(Error);

impl NotEntered {
    /// Marks an error. It is answered as it would be without.
    pub fn new(error: impl Into<Error>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for NotEntered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for NotEntered {
    fn status_code(&self) -> StatusCode {
        self.0.as_response_error().status_code()
    }

    fn error_response(&self) -> HttpResponse {
        self.0.error_response()
    }
}
