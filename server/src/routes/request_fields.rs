//! Fields of request bodies, parsed into values of the guard.

use onceward::{Attempt, Key, Rejection, RunId, Subject};
use onceward_api::Code;

use crate::http::bad_request;

pub(super) fn subject(name: Option<&str>) -> Subject<'_> {
    name.map_or_else(Subject::anonymous, Subject::named)
}

pub(super) fn key(text: &str) -> Result<Key, Rejection> {
    Key::new(text).map_err(|error| Rejection::new(Code::KeyMalformed).detail(format!("`key`: {error}.")))
}

pub(super) fn attempt(name: &str) -> Result<Attempt, Rejection> {
    Attempt::new(name).map_err(|error| bad_request(format!("`attempt`: {error}.")))
}

pub(super) fn run_id(text: &str) -> Result<RunId, Rejection> {
    text.parse().map_err(|_| bad_request("`run_id` must be the one from the response to `POST /token/redeem`."))
}
