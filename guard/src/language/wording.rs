//! The texts of one code in one language.

use std::borrow::Cow;

use onceward_api::Code;

/// The texts of one code: for the problem, and for the page that a customer sees.
#[derive(Debug, Clone)]
pub struct Wording {
    pub(super) title: Cow<'static, str>,
    pub(super) detail: Cow<'static, str>,
    pub(super) page: Option<PageText>,
}

impl Wording {
    /// Creates the texts of a problem: a short summary, and the cause with the next step. The page for customers is in English unless
    /// [`page`](Self::page) sets it.
    pub fn new(title: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: title.into(), detail: detail.into(), page: None }
    }

    /// Sets the page for customers.
    #[must_use]
    pub fn page(mut self, page: PageText) -> Self {
        self.page = Some(page);
        self
    }
}

/// The sentences of the page that a customer sees after a rejected form.
#[derive(Debug, Clone)]
pub struct PageText {
    /// The heading: a few words.
    pub(crate) title: Cow<'static, str>,
    /// States what happened, and whether it was carried out.
    pub(crate) happened: Cow<'static, str>,
    /// The next step for the customer.
    pub(crate) next: Cow<'static, str>,
}

impl PageText {
    /// Creates the page's heading, the sentence that states what happened and whether it was carried out, and the next step.
    pub fn new(
        title: impl Into<Cow<'static, str>>,
        happened: impl Into<Cow<'static, str>>,
        next: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { title: title.into(), happened: happened.into(), next: next.into() }
    }
}

/// The words that every page for customers has.
#[derive(Debug, Clone)]
pub struct PageLabels {
    /// How to go back to the form.
    pub back_to_form: Cow<'static, str>,
    /// How to go back, if the form would invite the customer to send it again, or if there was none.
    pub back_to_last_page: Cow<'static, str>,
    /// The link to the start page.
    pub start_page: Cow<'static, str>,
    /// The heading of the details, which are collapsed.
    pub details: Cow<'static, str>,
    /// The label of the code and the status.
    pub code: Cow<'static, str>,
    /// The label of the path.
    pub address: Cow<'static, str>,
    /// The label of the problem's detail.
    pub explanation: Cow<'static, str>,
    /// The label of the id of the request.
    pub request: Cow<'static, str>,
}

impl PageLabels {
    /// Returns the way back, which needs no script.
    pub(crate) fn back_after(&self, code: Code) -> &str {
        match code {
            Code::NotFound
            | Code::MethodNotAllowed
            // The form would invite the customer to send it again.
            | Code::OutcomeUnknown
            | Code::Internal
            | Code::ClaimLost
            | Code::UpstreamTimeout
            | Code::UpstreamFailed => &self.back_to_last_page,
            _ => &self.back_to_form,
        }
    }
}
