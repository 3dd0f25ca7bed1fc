//! A run that is not cancelled: it continues in a separate task when its client disconnects.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::{Context, Poll};

use actix_web::rt;
use futures_util::future::LocalBoxFuture;
use tracing::{Instrument as _, Span};

use super::middleware::RouteRules;

/// A future that is polled in place as long as its client waits for it, since a task per request costs more than the rest of the guard.
/// If it is dropped after it has started, the rest of it is spawned as a task.
pub(super) struct RunToCompletion<T: 'static> {
    stage: RunStage<T>,
    span: Span,
    idle: Idle,
    rules: Rc<RouteRules>,
}

/// True while the run only waits for another run, and may be dropped; `None` on a route where no run waits.
pub(super) type Idle = Option<Rc<Cell<bool>>>;

enum RunStage<T> {
    /// The run has not been polled, so it may be dropped.
    Waiting(LocalBoxFuture<'static, T>),
    Begun(LocalBoxFuture<'static, T>),
    Over,
}

/// The payload of a handler's panic. The outcome of the run is unknown.
pub(super) struct HandlerPanic(pub(super) Box<dyn Any + Send>);

impl<T: 'static> RunToCompletion<T> {
    pub(super) fn new(run: impl Future<Output = T> + 'static, idle: Idle, rules: Rc<RouteRules>) -> Self {
        Self { stage: RunStage::Waiting(Box::pin(run)), span: Span::current(), idle, rules }
    }

    pub(super) fn rules(&self) -> &RouteRules {
        &self.rules
    }
}

fn is_idle(idle: &Idle) -> bool {
    idle.as_ref().is_some_and(|idle| idle.get())
}

impl<T: 'static> Future for RunToCompletion<T> {
    type Output = Result<T, HandlerPanic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (RunStage::Waiting(mut run) | RunStage::Begun(mut run)) = mem::replace(&mut self.stage, RunStage::Over)
        else {
            return Poll::Ready(Err(HandlerPanic(Box::new("polled after its end"))));
        };
        match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
            Ok(Poll::Pending) => {
                self.stage = RunStage::Begun(run);
                Poll::Pending
            }
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(why) => Poll::Ready(Err(HandlerPanic(why))),
        }
    }
}

impl<T: 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let RunStage::Begun(run) = mem::replace(&mut self.stage, RunStage::Over)
            && !is_idle(&self.idle)
        {
            let (rules, idle) = (Rc::clone(&self.rules), self.idle.clone());
            let unfinished = Unfinished { rules, idle, has_ended: false };
            let rest = async move {
                // Moved as a whole; otherwise the task would drop it before the run.
                let mut unfinished = unfinished;
                run.await;
                unfinished.has_ended = true;
            };
            rt::spawn(rest.instrument(self.span.clone()));
        }
    }
}

/// A run without a client that has not completed. It is dropped only when its runtime shuts down.
struct Unfinished {
    rules: Rc<RouteRules>,
    idle: Idle,
    has_ended: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A draining server has waited for its limit, and logs that itself. A panic has been reported.
        let is_expected = self.rules.route.guard.is_draining() || is_idle(&self.idle) || std::thread::panicking();
        if !self.has_ended && !is_expected {
            warn_of_missing_drain();
        }
    }
}

/// Warns, once per process, that the server stopped without waiting for handlers.
fn warn_of_missing_drain() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            target: "onceward::actix",
            "the server stopped while a handler was in flight, so the handler was dropped and its outcome is unknown; run the server \
             with onceward::actix::serve instead of HttpServer::run, so that a shutdown waits for handlers"
        );
    });
}
