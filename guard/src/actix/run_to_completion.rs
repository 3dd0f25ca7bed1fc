//! A run that nobody cancels: it goes on in a task of its own when whoever waited for it has gone.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::rt;
use futures_util::future::LocalBoxFuture;
use tracing::{Instrument as _, Span};

/// A future that is polled in place as long as somebody waits for it, since a task for each request costs more than all
/// the rest of it. Dropped in the middle, what is left of it becomes a task.
pub(super) struct RunToCompletion<T: 'static> {
    stage: RunStage<T>,
    span: Span,
    idle: Idle,
}

/// Whether it only waits for somebody else at the moment, and need not go on.
pub(super) type Idle = Rc<Cell<bool>>;

enum RunStage<T> {
    /// Nothing of it has happened, so nothing has to go on.
    Waiting(LocalBoxFuture<'static, T>),
    Begun(LocalBoxFuture<'static, T>),
    Over,
}

/// It panicked with this, so whether it took effect is not known.
pub(super) struct Panicked(pub(super) Box<dyn Any + Send>);

impl<T: 'static> RunToCompletion<T> {
    pub(super) fn new(run: impl Future<Output = T> + 'static, idle: Idle) -> Self {
        Self { stage: RunStage::Waiting(Box::pin(run)), span: Span::current(), idle }
    }
}

impl<T: 'static> Future for RunToCompletion<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (RunStage::Waiting(mut run) | RunStage::Begun(mut run)) = mem::replace(&mut self.stage, RunStage::Over)
        else {
            return Poll::Ready(Err(Panicked(Box::new("polled after its end"))));
        };
        match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.stage = RunStage::Begun(run);
                Poll::Pending
            }
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(why) => Poll::Ready(Err(Panicked(why))),
        }
    }
}

impl<T: 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let RunStage::Begun(run) = mem::replace(&mut self.stage, RunStage::Over)
            && !self.idle.get()
        {
            rt::spawn(run.instrument(self.span.clone()));
        }
    }
}
