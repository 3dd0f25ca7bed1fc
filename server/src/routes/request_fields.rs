//! Fields of request bodies, parsed into values of the guard.

use onceward::{Attempt, Key, Language, Rejection, RunId, Subject};
use onceward_api::Code;

use crate::http::bad_request;

pub(super) fn subject(name: Option<&str>) -> Subject<'_> {
    name.map_or_else(Subject::anonymous, Subject::named)
}

pub(super) fn key(text: &str) -> Result<Key, Rejection> {
    Key::new(text).map_err(|error| {
        Rejection::new(Code::KeyMalformed)
            .detail(format!("`key`: {error}."))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("`key`:{}", error.chinese()))
    })
}

pub(super) fn attempt(name: &str) -> Result<Attempt, Rejection> {
    Attempt::new(name).map_err(|error| {
        bad_request(format!("`attempt`: {error}."), "`attempt` 必须由 1 到 255 个可见的 ASCII 字符组成。")
    })
}

pub(super) fn run_id(text: &str) -> Result<RunId, Rejection> {
    text.parse().map_err(|_| {
        bad_request(
            "`run_id` must be the one from the response to `POST /token/redeem`.",
            "`run_id` 必须是 `POST /token/redeem` 响应中的值。",
        )
    })
}
