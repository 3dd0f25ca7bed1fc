//! A submission of the blocking client.

use std::fmt;
use std::sync::Arc;

use reqwest::Body;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::multipart::Form;
use serde::Serialize;

use super::response::Response;
use super::runtime_thread::RuntimeThread;
use crate::error::Error;
use crate::key::Key;
use crate::on_unknown::OnUnknown;
use crate::retry_limits::RetryLimits;

/// One submission of a blocking client. It is configured like the async [`Submission`](crate::Submission), and [`send`](Self::send) blocks.
#[must_use = "a submission does nothing until it is sent"]
pub struct Submission {
    submission: crate::Submission,
    thread: Arc<RuntimeThread>,
}

/// Methods that the async submission has too.
macro_rules! same_as_async {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*);)*) => {
        impl Submission {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nSee [`Submission::", stringify!($name), "`](crate::Submission::", stringify!($name), ").")]
                pub fn $name(mut self, $($argument: $kind),*) -> Self {
                    self.submission = self.submission.$name($($argument),*);
                    self
                }
            )*
        }
    };
}

same_as_async! {
    /// Sets a JSON body.
    json(value: &(impl Serialize + ?Sized));
    /// Sets a urlencoded form as the body.
    form(value: &(impl Serialize + ?Sized));
    /// Sets a multipart form, built for each attempt.
    multipart(form: impl Fn() -> Form + Send + Sync + 'static);
    /// Sets a multipart form that can be sent only once.
    multipart_once(form: Form);
    /// Sets the body.
    body(body: impl Into<Body>);
    /// Sets a body that is built for each attempt.
    body_from(make: impl Fn() -> Body + Send + Sync + 'static);
    /// Adds a header.
    header(name: impl TryInto<HeaderName, Error: Into<http::Error>>, value: impl TryInto<HeaderValue, Error: Into<http::Error>>);
    /// Sets a header that identifies the client.
    identity(name: impl TryInto<HeaderName, Error: Into<http::Error>>, value: impl TryInto<HeaderValue, Error: Into<http::Error>>);
    /// Sets an access token in `Authorization`.
    bearer_auth(access: impl fmt::Display);
    /// Carries a token, also if the client is built with keys.
    with_token();
    /// Carries a random key, also if the client is built with tokens.
    with_key();
    /// Carries this key.
    key(key: Key);
    /// Carries a key that may have been sent before with the same content.
    resume(key: Key);
    /// Fetches a token that is valid for this action only.
    action(name: impl Into<String>);
    /// Fetches a token that is valid for this method and path only.
    bound();
    /// Fetches a token that is valid for this subject only.
    subject(name: impl Into<String>);
    /// Sets the limits of retries.
    limits(limits: RetryLimits);
    /// Sets the reaction to an unknown outcome.
    on_unknown(on_unknown: OnUnknown);
    /// Returns the response as soon as its headers arrive, without buffering the body.
    stream_response();
}

impl Submission {
    pub(super) fn new(submission: crate::Submission, thread: Arc<RuntimeThread>) -> Self {
        Self { submission, thread }
    }

    /// Sends the submission, with retries, and blocks until it has ended.
    ///
    /// # Errors
    /// If there is no response of the application. [`Error::ran_nothing`] and [`Error::is_unknown`] tell whether it may have taken effect.
    ///
    /// # Panics
    /// Inside an async runtime, before anything is sent. `tokio::task::spawn_blocking` is allowed.
    #[track_caller]
    pub fn send(self) -> Result<Response, Error> {
        let Self { submission, thread } = self;
        let response = thread.run(submission.send())?;
        Ok(Response::new(response, thread))
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.submission.fmt(f)
    }
}
