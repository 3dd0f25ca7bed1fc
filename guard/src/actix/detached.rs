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
pub(super) struct Detached<T: 'static> {
    stage: Stage<T>,
    span: Span,
    idle: Idle,
}

/// Whether it only waits for somebody else at the moment, and need not go on.
pub(super) type Idle = Rc<Cell<bool>>;

enum Stage<T> {
    /// Nothing of it has happened, so nothing has to go on.
    Waiting(LocalBoxFuture<'static, T>),
    Begun(LocalBoxFuture<'static, T>),
    Over,
}

/// It panicked with this, so whether it took effect is not known.
pub(super) struct Panicked(pub(super) Box<dyn Any + Send>);

impl<T: 'static> Detached<T> {
    pub(super) fn new(run: impl Future<Output = T> + 'static, idle: Idle) -> Self {
        Self { stage: Stage::Waiting(Box::pin(run)), span: Span::current(), idle }
    }
}

impl<T: 'static> Future for Detached<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (Stage::Waiting(mut run) | Stage::Begun(mut run)) = mem::replace(&mut self.stage, Stage::Over) else {
            return Poll::Ready(Err(Panicked(Box::new("polled after its end"))));
        };
        match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.stage = Stage::Begun(run);
                Poll::Pending
            }
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(why) => Poll::Ready(Err(Panicked(why))),
        }
    }
}

impl<T: 'static> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Stage::Begun(run) = mem::replace(&mut self.stage, Stage::Over)
            && !self.idle.get()
        {
            rt::spawn(run.instrument(self.span.clone()));
        }
    }
}
