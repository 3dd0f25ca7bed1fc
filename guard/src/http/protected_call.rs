//! The future of a protected service.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::audience::Audience;
use super::framework::Framework;
use super::middleware::after_panic;
use super::response::GuardResponse;
use super::run_to_completion::{HandlerPanic, RunToCompletion};

/// The response of a protected service. `R` is a boxed future; a box around both variants would cost another allocation per request.
pub struct ProtectedCall<F: Framework, R: Future + Unpin>(CallKind<F, R>);

enum CallKind<F: Framework, R: Future + Unpin> {
    Untouched(R),
    Guarded {
        run: RunToCompletion<F, R>,
        /// The parts of the request that the response to a panic needs.
        audience: Audience<F>,
        respond: fn(GuardResponse) -> R::Output,
    },
}

impl<F: Framework, R: Future + Unpin> ProtectedCall<F, R> {
    /// Creates the response to a request that no guard checks.
    pub(crate) fn untouched(call: R) -> Self {
        Self(CallKind::Untouched(call))
    }

    /// Creates the response of a run. `respond` sends a response in place of a handler that panicked.
    pub(crate) fn guarded(
        run: RunToCompletion<F, R>,
        audience: Audience<F>,
        respond: fn(GuardResponse) -> R::Output,
    ) -> Self {
        Self(CallKind::Guarded { run, audience, respond })
    }
}

impl<F: Framework, R: Future + Unpin> Future for ProtectedCall<F, R>
where
    Self: Unpin,
{
    type Output = R::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R::Output> {
        match &mut self.get_mut().0 {
            CallKind::Untouched(call) => Pin::new(call).poll(context),
            CallKind::Guarded { run, audience, respond } => {
                let result = ready!(Pin::new(&mut *run).poll(context));
                Poll::Ready(result.unwrap_or_else(|HandlerPanic(why)| respond(after_panic(why, run.rules(), audience))))
            }
        }
    }
}

impl<F: Framework, R: Future + Unpin> fmt::Debug for ProtectedCall<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedCall").finish_non_exhaustive()
    }
}
