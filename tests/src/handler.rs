//! A handler of the acceptance suite: one function for every web framework.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use onceward::http::RequestIntent;
use serde_json::Value;

use crate::call::{BodyStream, Call};
use crate::reply::Reply;

/// A function that responds to a [`Call`], and to what the framework extracts from the request for it.
pub type Respond<T> = Arc<dyn Fn(Call, T) -> BoxFuture<'static, Reply> + Send + Sync>;

/// A handler, by what it takes from the request.
#[derive(Clone)]
pub struct Handler {
    /// The function.
    pub takes: Takes,
    /// Whether the adapter's `entered` wraps the handler.
    pub is_marked: bool,
}

/// The parts of a request that a handler takes.
#[derive(Clone)]
pub enum Takes {
    /// Only the head.
    Head(Respond<()>),
    /// The whole body, as [`Call::body`].
    Body(Respond<()>),
    /// The body as it arrives.
    Stream(Respond<BodyStream>),
    /// The body as JSON, by the extractor of the framework.
    Json(Respond<Value>),
    /// The intent of the guarded request.
    Intent(Respond<RequestIntent>),
}

impl Handler {
    /// A handler that reads only the head.
    pub fn of_head<F: Future<Output = Reply> + Send + 'static>(
        respond: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Takes::Head(Arc::new(move |call, ()| Box::pin(respond(call)))))
    }

    /// A handler that takes the whole body.
    pub fn of_body<F: Future<Output = Reply> + Send + 'static>(
        respond: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Takes::Body(Arc::new(move |call, ()| Box::pin(respond(call)))))
    }

    /// A handler that begins before its body has arrived.
    pub fn of_stream<F: Future<Output = Reply> + Send + 'static>(
        respond: impl Fn(Call, BodyStream) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Takes::Stream(Arc::new(move |call, body| Box::pin(respond(call, body)))))
    }

    /// A handler that takes a JSON body.
    pub fn of_json<F: Future<Output = Reply> + Send + 'static>(
        respond: impl Fn(Call, Value) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Takes::Json(Arc::new(move |call, json| Box::pin(respond(call, json)))))
    }

    /// A handler that takes the intent of its request.
    pub fn of_intent<F: Future<Output = Reply> + Send + 'static>(
        respond: impl Fn(Call, RequestIntent) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(Takes::Intent(Arc::new(move |call, intent| Box::pin(respond(call, intent)))))
    }

    fn new(takes: Takes) -> Self {
        Self { takes, is_marked: false }
    }

    /// Marks the handler with the adapter's `entered`.
    #[must_use]
    pub fn marked(self) -> Self {
        Self { is_marked: true, ..self }
    }
}
