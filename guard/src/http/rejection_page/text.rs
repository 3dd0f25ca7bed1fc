//! The text of the page for each code, in words that a customer knows.

use onceward_api::Code;

/// The sentences of a page.
pub(super) struct CustomerText {
    /// A few words.
    pub(super) title: &'static str,
    /// What happened, and whether it was carried out.
    pub(super) happened: &'static str,
    /// The next step for the customer.
    pub(super) next: &'static str,
    /// How to get back without a script.
    pub(super) back: &'static str,
}

const REOPEN: &str = "Go back, reload the form, and send it again.";
const WAIT: &str = "Wait a moment, then reload this page to send the same again.";
const CORRECT: &str = "Go back, check what you entered, and send it again. If that does not help, contact support.";
const ASK: &str = "Please do not send it again. Contact support and give them the details below.";
const NOTHING: &str = "Nothing was carried out.";
const TO_FORM: &str = "Your browser’s Back button leads to the form. What you typed is usually still there.";
const TO_LAST_PAGE: &str = "Your browser’s Back button leads to the page that you came from.";

impl CustomerText {
    /// Returns the text for a code.
    pub(super) fn of(code: Code) -> Self {
        let (title, happened, next) = match code {
            Code::TokenUsed => (
                "This was already sent",
                "We received this form before. It was not carried out a second time.",
                "Look for the confirmation of the first time. For another order or message, open the form again.",
            ),
            Code::KeyReused => (
                "This was already sent",
                "We received this form before, with other entries. The changed one was not carried out.",
                "Look for the confirmation of the first time. To send the changed one as well, open the form again.",
            ),
            Code::TooSoon => (
                "You have just sent this",
                "We received the same a moment ago. It was not carried out a second time.",
                "There is nothing left to do.",
            ),
            Code::ReplyNotKept => (
                "This was already carried out",
                "It was carried out when it was first sent, and not a second time. We can no longer show its confirmation.",
                "There is no need to send it again.",
            ),
            Code::InProgress => (
                "We are still working on it",
                "What you sent is being carried out right now. It will not be carried out twice.",
                "Wait a moment, then reload this page to see the result.",
            ),
            Code::OutcomeUnknown => (
                "We do not know how it ended",
                "What you sent was begun, and we could not find out how it ended. It is not begun a second time.",
                ASK,
            ),
            Code::Internal => (
                "Something went wrong",
                "There was an error on our side, and we cannot tell whether what you sent took effect.",
                ASK,
            ),
            Code::ClaimLost => (
                "This could not be finished",
                "What you sent is no longer being carried out here, and may have been carried out elsewhere.",
                ASK,
            ),
            Code::TokenExpired => {
                ("This form is too old", "The form was open for too long. Nothing was carried out.", REOPEN)
            }
            Code::TokenStale => (
                "This form is too old",
                "We have restarted since you opened the form, and cannot tell whether you sent it before. Nothing was carried out this time.",
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
                "We could not find out whether this was sent before, so nothing was carried out this time.",
                REOPEN,
            ),
            Code::StoreUnavailable => (
                "We cannot check this right now",
                "We cannot find out at the moment whether this was sent before, so nothing was carried out this time.",
                WAIT,
            ),
            Code::Locked => {
                ("Another one comes first", "We are still working on another one. Yours was not carried out yet.", WAIT)
            }
            Code::RateLimited => {
                ("That was too fast", "Too much was sent in a short time. Nothing was carried out.", WAIT)
            }
            Code::Overloaded => ("We are too busy right now", NOTHING, WAIT),
            Code::Unauthorized => (
                "Please sign in",
                "We do not know who is sending this. Nothing was carried out.",
                "Sign in, then send the form again.",
            ),
            Code::BodyTooLarge => (
                "This is too large",
                "What you sent is larger than what we accept. Nothing was carried out.",
                "Go back, shorten the text or choose a smaller file, and send it again.",
            ),
            Code::NotFound => (
                "There is nothing here",
                "There is nothing at this address.",
                "Check the address, or begin at the start page.",
            ),
            Code::MethodNotAllowed => (
                "This page cannot be opened like this",
                NOTHING,
                "Begin at the start page, and go to the form from there.",
            ),
            _ => ("We could not read this", "What was sent cannot be read. Nothing was carried out.", CORRECT),
        };
        let back = match code {
            Code::NotFound | Code::MethodNotAllowed => TO_LAST_PAGE,
            _ => TO_FORM,
        };
        Self { title, happened, next, back }
    }
}
