//! What a submission says, and whether it can be said again.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::multipart::Form;
use reqwest::{Client, Request, RequestBuilder};

type Make<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// The body of a submission.
#[derive(Default)]
pub(crate) enum Body {
    #[default]
    None,
    Whole(Bytes),
    /// Made anew for each try.
    Made(Make<reqwest::Body>),
    Form(Make<Form>),
    /// Good for one try.
    Once(Once),
}

/// Something that is there until it is sent.
pub(crate) enum Once {
    Body(reqwest::Body),
    Form(Form),
    Gone,
}

impl Body {
    /// Whether it can be sent, once more if it was sent before.
    pub(crate) fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Once(_))
    }

    /// Puts it into a request, if it is still there.
    ///
    /// # Errors
    /// If a form has a part that cannot be written.
    pub(crate) fn put_into(&mut self, mut request: Request, http: &Client) -> reqwest::Result<Option<Request>> {
        let form = |form, request| RequestBuilder::from_parts(http.clone(), request).multipart(form).build().map(Some);
        *request.body_mut() = match self {
            Self::None => None,
            Self::Whole(bytes) => Some(bytes.clone().into()),
            Self::Made(make) => Some(make()),
            Self::Form(make) => return form(make(), request),
            Self::Once(once) => match std::mem::replace(once, Once::Gone) {
                Once::Body(body) => Some(body),
                Once::Form(made) => return form(made, request),
                Once::Gone => return Ok(None),
            },
        };
        Ok(Some(request))
    }
}

impl From<reqwest::Body> for Body {
    /// What has all its bytes at hand can be sent again.
    fn from(body: reqwest::Body) -> Self {
        match body.as_bytes() {
            Some(bytes) => Self::Whole(Bytes::copy_from_slice(bytes)),
            None => Self::Once(Once::Body(body)),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Whole(_) => "Whole",
            Self::Made(_) => "Made",
            Self::Form(_) => "Form",
            Self::Once(_) => "Once",
        })
    }
}
