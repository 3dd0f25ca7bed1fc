//! The texts in English. The titles and details of problems are in the crate `onceward-api`.

use std::borrow::Cow;

use onceward_api::Code;

use super::wording::{PageLabels, PageText, Wording};

const REOPEN: &str = "Go back, reload the form, and send it again.";
const WAIT: &str = "Wait a moment, then reload this page to send it again.";
const CORRECT: &str = "Go back, check what you entered, and send it again. If that does not help, contact support.";
const ASK: &str = "Please do not send it again. Contact support and give them the details below.";
const LOOK_OR_ASK: &str = "If you opened a page, reload it. If you sent a form, please do not send it again: contact support and give them \
     the details below.";
const NOTHING: &str = "Nothing was carried out.";

pub(super) const LABELS: PageLabels = PageLabels {
    back_to_form: Cow::Borrowed(
        "Your browser’s Back button takes you to the form. Your entries are usually still there.",
    ),
    back_to_last_page: Cow::Borrowed("Your browser’s Back button takes you to the previous page."),
    start_page: Cow::Borrowed("Go to the start page"),
    details: Cow::Borrowed("Details for support"),
    code: Cow::Borrowed("Code"),
    address: Cow::Borrowed("Address"),
    explanation: Cow::Borrowed("Explanation"),
    request: Cow::Borrowed("Request"),
};

/// Returns the texts of a code.
pub(super) fn wording(code: Code) -> Wording {
    Wording::new(code.title(), code.detail()).page(page(code))
}

/// Returns the page for a code, in words that customers know.
pub(super) fn page(code: Code) -> PageText {
    let (title, happened, next) = match code {
        Code::TokenUsed => (
            "This was already sent",
            "We received this form before. It was not carried out a second time.",
            "Look for your first confirmation. To send something new, open the form again.",
        ),
        Code::KeyReused => (
            "This was already sent",
            "We received this form before, with different entries. The changed version was not carried out.",
            "Look for your first confirmation. To send the changed version as well, open the form again.",
        ),
        Code::TooSoon => (
            "You have just sent this",
            "We received the same form a moment ago. It was not carried out a second time.",
            "You do not need to do anything else.",
        ),
        Code::ReplyNotKept => (
            "This was already carried out",
            "It was carried out when you first sent it, and not a second time. We cannot show the confirmation again.",
            "You do not need to send it again.",
        ),
        Code::InProgress => (
            "We are still working on it",
            "What you sent is being carried out right now. It will not be carried out twice.",
            "Wait a moment, then reload this page to see the result.",
        ),
        Code::OutcomeUnknown => (
            "We do not know how it ended",
            "We started to work on what you sent, but do not know whether it was finished. We did not start again.",
            ASK,
        ),
        Code::Internal => (
            "Something went wrong",
            "There was an error on our side. We do not know whether what you sent was carried out.",
            ASK,
        ),
        Code::UpstreamUnavailable => ("This is not available right now", NOTHING, WAIT),
        Code::UpstreamTimeout | Code::UpstreamFailed => (
            "We do not know how it ended",
            "No complete answer came back. If you sent a form, we do not know whether it was carried out.",
            LOOK_OR_ASK,
        ),
        Code::ClaimLost => (
            "This could not be finished",
            "What you sent is no longer being carried out here. It may have been carried out elsewhere.",
            ASK,
        ),
        Code::TokenExpired => {
            ("This form has expired", "The form was open for too long. Nothing was carried out.", REOPEN)
        }
        Code::TokenStale => (
            "This form has expired",
            "We restarted after you opened the form, and do not know whether you sent it before. Nothing was carried out this time.",
            "If you sent it before, look for a confirmation first. Otherwise go back, reload the form, and send it again.",
        ),
        Code::TokenMissing | Code::TokenMalformed | Code::TokenInvalid => (
            "Please open the form again",
            "The form was not complete when it was sent. Nothing was carried out.",
            REOPEN,
        ),
        Code::TokenRevoked => (
            "This form was withdrawn",
            NOTHING,
            "If you did not expect that, contact support and give them the details below.",
        ),
        Code::RedeemUnknown => (
            "We could not check this",
            "We could not find out whether you sent this before, so nothing was carried out this time.",
            REOPEN,
        ),
        Code::StoreUnavailable => (
            "We cannot check this right now",
            "At the moment we cannot find out whether you sent this before, so nothing was carried out this time.",
            WAIT,
        ),
        Code::Locked => (
            "Please wait a moment",
            "We are still working on something else. What you sent was not carried out yet.",
            WAIT,
        ),
        Code::RateLimited => {
            ("That was too fast", "Too many forms were sent in a short time. Nothing was carried out.", WAIT)
        }
        Code::Overloaded => ("We are too busy right now", NOTHING, WAIT),
        Code::Unauthorized => {
            ("Please sign in", "You are not signed in. Nothing was carried out.", "Sign in, then send the form again.")
        }
        Code::BodyTooLarge => (
            "This is too large",
            "What you sent is larger than we accept. Nothing was carried out.",
            "Go back, shorten the text or choose a smaller file, and send it again.",
        ),
        Code::NotFound => {
            ("Page not found", "There is nothing at this address.", "Check the address, or go to the start page.")
        }
        Code::MethodNotAllowed => {
            ("This page cannot be opened directly", NOTHING, "Go to the start page, and open the form from there.")
        }
        _ => ("We could not read this form", "We could not read what you sent. Nothing was carried out.", CORRECT),
    };
    PageText::new(title, happened, next)
}
