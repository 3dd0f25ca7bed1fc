use std::convert::Infallible;
use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};

use crate::run_id::RunId;

/// A handler may ask for the name of its run, to write it beside what it does. A run that has no claim, because its route has
/// none or because its guard is switched off, has a name all the same.
impl FromRequest for RunId {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let run = request.extensions().get::<RunId>().copied();
        ready(Ok(run.unwrap_or_else(RunId::new)))
    }
}
