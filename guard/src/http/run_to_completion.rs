//! A run that is not cancelled: it continues in a separate task when its client disconnects.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll};

use tracing::instrument::Instrumented;
use tracing::{Instrument as _, Span};

use super::framework::Framework;
use super::route_rules::RouteRules;

/// A future that is polled in place as long as its client waits for it, since a task per request costs more than the rest of the guard.
/// If it is dropped after it has started, the rest of it is spawned as a task. `R` is a boxed future.
pub(crate) struct RunToCompletion<F: Framework, R: Future + Unpin> {
    stage: RunStage<R>,
    span: Span,
    idle: Idle,
    rules: Arc<RouteRules<F>>,
    spawn: fn(Instrumented<RestOfRun<F, R>>),
}

/// True while the run only waits for another run, and may be dropped; `None` on a route where no run waits.
#[derive(Clone, Default)]
pub(crate) struct Idle(Option<Arc<AtomicBool>>);

enum RunStage<R> {
    /// The run has not been polled, so it may be dropped.
    Waiting(R),
    Begun(R),
    Over,
}

/// The payload of a handler's panic. The outcome of the run is unknown.
pub(crate) struct HandlerPanic(pub(crate) Box<dyn Any + Send>);

impl Idle {
    /// Creates the state of a run on a route where duplicates wait, or do not.
    pub(crate) fn new(waits: bool) -> Self {
        Self(waits.then(Arc::default))
    }

    pub(super) fn set(&self, is_idle: bool) {
        self.0.iter().for_each(|idle| idle.store(is_idle, Ordering::Relaxed));
    }

    fn is_idle(&self) -> bool {
        self.0.as_ref().is_some_and(|idle| idle.load(Ordering::Relaxed))
    }
}

impl<F: Framework, R: Future + Unpin> RunToCompletion<F, R> {
    /// Wraps a run. `spawn` spawns the rest of it.
    pub(crate) fn new(run: R, idle: Idle, rules: Arc<RouteRules<F>>, spawn: fn(Instrumented<RestOfRun<F, R>>)) -> Self {
        Self { stage: RunStage::Waiting(run), span: Span::current(), idle, rules, spawn }
    }

    pub(crate) fn rules(&self) -> &RouteRules<F> {
        &self.rules
    }
}

impl<F: Framework, R: Future + Unpin> Future for RunToCompletion<F, R> {
    type Output = Result<R::Output, HandlerPanic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (RunStage::Waiting(mut run) | RunStage::Begun(mut run)) = mem::replace(&mut self.stage, RunStage::Over)
        else {
            return Poll::Ready(Err(HandlerPanic(Box::new("polled after its end"))));
        };
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut run).poll(context))) {
            Ok(Poll::Pending) => {
                self.stage = RunStage::Begun(run);
                Poll::Pending
            }
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(why) => Poll::Ready(Err(HandlerPanic(why))),
        }
    }
}

impl<F: Framework, R: Future + Unpin> Drop for RunToCompletion<F, R> {
    fn drop(&mut self) {
        if let RunStage::Begun(run) = mem::replace(&mut self.stage, RunStage::Over)
            && !self.idle.is_idle()
        {
            let (rules, idle) = (Arc::clone(&self.rules), self.idle.clone());
            let rest = RestOfRun { run, unfinished: Unfinished { rules, idle, has_ended: false } };
            (self.spawn)(rest.instrument(self.span.clone()));
        }
    }
}

/// The rest of a run whose client has disconnected. Its fields are dropped in this order.
pub(crate) struct RestOfRun<F: Framework, R> {
    run: R,
    unfinished: Unfinished<F>,
}

impl<F: Framework, R: Future + Unpin> Future for RestOfRun<F, R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.run).poll(context).map(|_| self.unfinished.has_ended = true)
    }
}

/// A run without a client that has not completed. It is dropped only when its runtime shuts down.
struct Unfinished<F: Framework> {
    rules: Arc<RouteRules<F>>,
    idle: Idle,
    has_ended: bool,
}

impl<F: Framework> Drop for Unfinished<F> {
    fn drop(&mut self) {
        // A draining server has waited for its limit, and logs that itself. A panic has been reported.
        let is_expected = self.rules.route.guard.is_draining() || self.idle.is_idle() || std::thread::panicking();
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
            target: "onceward::http",
            "the server stopped while a handler was in flight, so the handler was dropped and its outcome is unknown; run the server \
             with onceward::actix::serve instead of HttpServer::run, or with onceward::axum::serve instead of axum::serve, so that a \
             shutdown waits for handlers"
        );
    });
}
