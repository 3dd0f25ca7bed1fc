//! The mark of a handler, by which the guard knows whether the handler was entered.

use std::fmt;
use std::marker::PhantomData;

use actix_web::dev::Payload;
use actix_web::{FromRequest, Handler, HttpRequest};
use futures_util::future::LocalBoxFuture;

use super::guarded;
use crate::http::{HandlerMark, MarkedRun};

/// Marks a handler, so that the guard knows whether it was entered.
///
/// actix-web runs extractors and handler as one service, and middleware sees only the response. A 400 may come from the `Json`
/// extractor, or from a handler that has charged a card and passes on an error of its payment provider. With the mark the guard need
/// not guess:
///
/// - If an extractor rejects the request, nothing took effect, whatever the error and its status. The token or key is valid again.
/// - If the handler was entered, the response is the handler's, and the table of effects decides.
///
/// ```
/// use actix_web::{HttpResponse, web};
/// use onceward::actix::{Protect, SubjectFrom, entered};
/// use onceward::{KeyRules, testing};
///
/// async fn pay(order: web::Json<u32>) -> HttpResponse {
///     HttpResponse::Created().body(format!("paid order {order}"))
/// }
///
/// let (guard, _clock) = testing::guard();
/// let payments = web::resource("/payments")
///     .wrap(Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once()))
///     .route(web::post().to(entered(pay)));
/// # let _ = payments;
/// ```
///
/// [`Protect::key`](crate::actix::Protect::key) documents what counts without a mark.
pub fn entered<H, Args>(handler: H) -> MarkedHandler<H, Args>
where
    H: Handler<Args>,
    Args: FromRequest + 'static,
{
    MarkedHandler { handler, args: PhantomData }
}

/// A handler with a mark; see [`entered`].
pub struct MarkedHandler<H, Args> {
    handler: H,
    args: PhantomData<fn(Args)>,
}

impl<H, Args> Handler<MarkedArgs<Args>> for MarkedHandler<H, Args>
where
    H: Handler<Args>,
    Args: FromRequest + 'static,
{
    type Output = H::Output;
    type Future = MarkedRun<H::Future>;

    fn call(&self, MarkedArgs { args, mark }: MarkedArgs<Args>) -> Self::Future {
        mark.call(|| self.handler.call(args))
    }
}

impl<H: Clone, Args> Clone for MarkedHandler<H, Args> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), args: PhantomData }
    }
}

impl<H, Args> fmt::Debug for MarkedHandler<H, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkedHandler").finish_non_exhaustive()
    }
}

/// The arguments of a marked handler, all of which were extracted.
pub struct MarkedArgs<Args> {
    args: Args,
    mark: HandlerMark,
}

impl<Args: FromRequest + 'static> FromRequest for MarkedArgs<Args> {
    type Error = Args::Error;
    type Future = LocalBoxFuture<'static, Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let mark = HandlerMark::extracting(guarded(request));
        let args = Args::from_request(request, payload);
        Box::pin(async move { Ok(Self { args: args.await?, mark }) })
    }
}

impl<Args> fmt::Debug for MarkedArgs<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkedArgs").finish_non_exhaustive()
    }
}
