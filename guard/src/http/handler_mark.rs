//! The mark of a handler, by which the guards around it know whether it was called, and whether it returned.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::guarded_request::GuardedRequest;

/// The mark of a handler that is about to be called; without a guard around the handler, nothing is recorded.
#[derive(Clone)]
pub(crate) struct HandlerMark(Option<Arc<GuardedRequest>>);

impl HandlerMark {
    /// Records that the extractors of a marked handler are called.
    pub(crate) fn extracting(guarded: Option<Arc<GuardedRequest>>) -> Self {
        guarded.iter().for_each(|guarded| guarded.note_extracting());
        Self(guarded)
    }

    /// Calls the handler, and records that it was called, and later that it has returned.
    pub(crate) fn call<F: Future>(self, handler: impl FnOnce() -> F) -> MarkedRun<F> {
        self.0.iter().for_each(|guarded| guarded.note_entered());
        MarkedRun { run: handler(), mark: self }
    }
}

pin_project! {
    /// A run of a marked handler.
    pub struct MarkedRun<F> {
        #[pin]
        run: F,
        mark: HandlerMark,
    }
}

impl<F: Future> Future for MarkedRun<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.run.poll(context));
        this.mark.0.iter().for_each(|guarded| guarded.note_returned());
        Poll::Ready(output)
    }
}
