use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::error::ErrorInternalServerError;
use actix_web::{Error, FromRequest, HttpMessage as _, HttpRequest};

use crate::run_id::RunId;

/// A handler may ask for the name of its run, to write it beside what it does. Where there may be none, ask for an
/// `Option<RunId>`.
impl FromRequest for RunId {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let run = request.extensions().get::<RunId>().copied();
        ready(
            run.ok_or_else(|| {
                ErrorInternalServerError("this route is not protected by a key, so its runs have no name")
            }),
        )
    }
}
