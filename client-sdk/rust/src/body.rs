//! The body of a submission. Some bodies can be sent again, others only once.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::multipart::Form;
use reqwest::{Client, Request, RequestBuilder};

type BodyFactory<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// The body of a submission.
#[derive(Default)]
pub(crate) enum Body {
    #[default]
    None,
    Bytes(Bytes),
    /// Built for each attempt.
    Stream(BodyFactory<reqwest::Body>),
    Form(BodyFactory<Form>),
    /// For one attempt only.
    SingleUse(SingleUseBody),
}

/// A body that can be sent once.
pub(crate) enum SingleUseBody {
    Stream(reqwest::Body),
    Form(Form),
    Sent,
}

impl Body {
    /// True if the body can be sent more than once.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self, Self::SingleUse(_))
    }

    /// Puts the body into a request. Returns `None` if it was already sent and cannot be sent again.
    ///
    /// # Errors
    /// If a part of a form is invalid.
    pub(crate) fn put_into(&mut self, mut request: Request, http: &Client) -> reqwest::Result<Option<Request>> {
        let form = |form, request| RequestBuilder::from_parts(http.clone(), request).multipart(form).build().map(Some);
        *request.body_mut() = match self {
            Self::None => None,
            Self::Bytes(bytes) => Some(bytes.clone().into()),
            Self::Stream(make) => Some(make()),
            Self::Form(make) => return form(make(), request),
            Self::SingleUse(once) => match std::mem::replace(once, SingleUseBody::Sent) {
                SingleUseBody::Stream(body) => Some(body),
                SingleUseBody::Form(made) => return form(made, request),
                SingleUseBody::Sent => return Ok(None),
            },
        };
        Ok(Some(request))
    }
}

impl From<reqwest::Body> for Body {
    /// A body whose bytes are in memory can be sent again.
    fn from(body: reqwest::Body) -> Self {
        match body.as_bytes() {
            Some(bytes) => Self::Bytes(Bytes::copy_from_slice(bytes)),
            None => Self::SingleUse(SingleUseBody::Stream(body)),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Bytes(_) => "Bytes",
            Self::Stream(_) => "Stream",
            Self::Form(_) => "Form",
            Self::SingleUse(_) => "SingleUse",
        })
    }
}
