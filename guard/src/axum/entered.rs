//! The mark of a handler, by which the guard knows whether the handler was called and has returned.

use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};

use crate::http::{GuardedRequest, HandlerMark};

/// Marks a handler, so that the guard knows whether it was called, and whether it has returned.
///
/// axum runs extractors and handler as one service, and a layer sees only the response. A 422 may come from the `Json` extractor, or from
/// a handler that has charged a card and passes on an error of its payment provider. A 408 may come from the handler, or from a
/// `TimeoutLayer` that has dropped it. With the mark the guard need not guess:
///
/// - If an extractor rejects the request, nothing took effect, whatever the status. The token or key is valid again.
/// - If the handler has returned, the response is the handler's, and the table of effects decides.
/// - If the handler was called and has not returned, a layer inside of the guard has dropped it or has caught its panic: the effect is
///   unknown, whatever the status.
///
/// ```
/// use axum::Router;
/// use axum::extract::Path;
/// use axum::routing::post;
/// use onceward::axum::{Protect, SubjectFrom, entered};
/// use onceward::{KeyRules, testing};
///
/// async fn pay(Path(order): Path<u32>) -> String {
///     format!("paid order {order}")
/// }
///
/// let (guard, _clock) = testing::guard();
/// let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
/// let app: Router = Router::new().route("/orders/{order}/pay", post(entered(pay)).layer(protect));
/// # let _ = app;
/// ```
///
/// Without the mark, every response counts as the handler's by its status, except that a 408 is unknown: it is the usual response of a
/// `TimeoutLayer`.
#[must_use]
pub fn entered<H>(handler: H) -> MarkedHandler<H> {
    MarkedHandler(handler)
}

/// A handler with a mark; see [`entered`].
#[derive(Clone)]
pub struct MarkedHandler<H>(H);

impl<H> fmt::Debug for MarkedHandler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkedHandler").finish_non_exhaustive()
    }
}

fn mark(request: &Request) -> HandlerMark {
    HandlerMark::extracting(request.extensions().get::<Arc<GuardedRequest>>().cloned())
}

impl<H, F, R, S> Handler<((),), S> for MarkedHandler<H>
where
    H: FnOnce() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = R> + Send,
    R: IntoResponse,
    S: Send + Sync + 'static,
{
    type Future = MarkedFuture;

    fn call(self, request: Request, state: S) -> Self::Future {
        let mark = mark(&request);
        let handler = move || mark.call(self.0);
        handler.call(request, state)
    }
}

/// The future of a handler in axum.
type MarkedFuture = std::pin::Pin<Box<dyn Future<Output = Response> + Send>>;

/// Implements [`Handler`] for marked functions with these arguments, by axum's implementation for a function with the same arguments.
macro_rules! mark_handlers {
    ($([$($part:ident),*] $last:ident;)*) => { $(
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the arguments are named like their types")]
        impl<H, F, R, S, M, $($part,)* $last> Handler<(M, $($part,)* $last,), S> for MarkedHandler<H>
        where
            H: FnOnce($($part,)* $last) -> F + Clone + Send + Sync + 'static,
            F: Future<Output = R> + Send,
            R: IntoResponse,
            S: Send + Sync + 'static,
            $($part: FromRequestParts<S> + Send,)*
            $last: FromRequest<S, M> + Send,
        {
            type Future = MarkedFuture;

            fn call(self, request: Request, state: S) -> Self::Future {
                let mark = mark(&request);
                let handler = move |$($part: $part,)* $last: $last| mark.call(|| self.0($($part,)* $last));
                Handler::<(M, $($part,)* $last,), S>::call(handler, request, state)
            }
        }
    )* };
}

mark_handlers! {
    [] A;
    [A] B;
    [A, B] C;
    [A, B, C] D;
    [A, B, C, D] E;
    [A, B, C, D, E] G;
    [A, B, C, D, E, G] I;
    [A, B, C, D, E, G, I] J;
    [A, B, C, D, E, G, I, J] K;
    [A, B, C, D, E, G, I, J, K] L;
    [A, B, C, D, E, G, I, J, K, L] N;
    [A, B, C, D, E, G, I, J, K, L, N] O;
    [A, B, C, D, E, G, I, J, K, L, N, O] P;
    [A, B, C, D, E, G, I, J, K, L, N, O, P] Q;
    [A, B, C, D, E, G, I, J, K, L, N, O, P, Q] T;
    [A, B, C, D, E, G, I, J, K, L, N, O, P, Q, T] U;
}
