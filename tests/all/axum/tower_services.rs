//! The layer around plain tower services, without a router.

use std::convert::Infallible;
use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use futures_util::future::join_all;
use http_body::Frame;
use onceward::store::Memory;
use onceward::tower::{Entered, GuardedBody, Protect, RequireProtection, SubjectFrom};
use onceward::{Binding, Guard, KeyRules, Mode};
use onceward_tests::polling::until;
use tokio::sync::Notify;
use tower::{BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_http::timeout::TimeoutLayer;

fn request(key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/it").header("idempotency-key", key).body(body.into()).unwrap()
}

fn by_key(guard: &Guard) -> Protect<onceward::tower::protect::KeyPolicy> {
    Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once())
}

fn outcome<B>(response: &Response<B>) -> &str {
    response.headers()["onceward-outcome"].to_str().unwrap()
}

/// A service of which each clone has to be polled before it is called.
struct Strict {
    is_ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<GuardedBody<Body>>> for Strict {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<GuardedBody<Body>>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being polled ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new("done".to_owned())))
    }
}

#[tokio::test]
async fn service_that_was_polled_ready_is_the_one_called() {
    let (guard, calls) = (Guard::new(Memory::new()), Arc::new(AtomicUsize::new(0)));
    let mut service = by_key(&guard).layer(Strict { is_ready: false, calls: Arc::clone(&calls) });
    for (key, expected) in [("a", "executed"), ("b", "executed"), ("a", "replayed")] {
        let response = service.ready().await.unwrap().call(request(key, "")).await.unwrap();
        assert_eq!(outcome(&response), expected);
    }
    let get = Request::get("/it").body(Body::empty()).unwrap();
    assert_eq!(service.ready().await.unwrap().call(get).await.unwrap().status(), 200);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn failed_service_has_an_unknown_outcome() {
    let guard = Guard::new(Memory::new());
    let inner = service_fn(async |_: Request<GuardedBody<Body>>| {
        pending::<()>().await;
        Ok::<_, BoxError>(Response::new(Body::from("done")))
    });
    // The timeout of tower itself drops the handler, and fails without a response.
    let stack = ServiceBuilder::new().layer(by_key(&guard)).timeout(Duration::from_millis(20)).service(inner);
    let failed = stack.clone().oneshot(request("k", "")).await;
    assert!(failed.unwrap_err().is::<tower::timeout::error::Elapsed>(), "the error reaches the outer service");
    let again = stack.oneshot(request("k", "")).await.unwrap();
    assert_eq!((again.status().as_u16(), outcome(&again)), (409, "outcome_unknown"));
}

#[tokio::test]
async fn marked_service_that_a_timeout_drops_is_unknown_whatever_the_status() {
    for status in [200, 400, 429, 500, 503] {
        let (guard, begun) = (Guard::new(Memory::new()), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&begun);
        let inner = service_fn(move |_: Request<GuardedBody<Body>>| {
            count.fetch_add(1, Ordering::SeqCst);
            pending::<Result<Response<Body>, Infallible>>()
        });
        let timeout = TimeoutLayer::with_status_code(StatusCode::from_u16(status).unwrap(), Duration::from_millis(20));
        let stack = ServiceBuilder::new().layer(by_key(&guard)).layer(timeout).layer(Entered).service(inner);
        let first = stack.clone().oneshot(request("k", "")).await.unwrap();
        assert_eq!((first.status().as_u16(), outcome(&first)), (status, "unknown"));
        let again = stack.oneshot(request("k", "")).await.unwrap();
        assert_eq!((again.status().as_u16(), outcome(&again)), (409, "outcome_unknown"), "{status}");
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn services_with_one_place_run_each_of_many_concurrent_keys_once() {
    let (guard, runs) = (Guard::new(Memory::new()), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&runs);
    let inner = service_fn(move |_: Request<GuardedBody<Body>>| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, BoxError>(Response::new(Body::from("done")))
        }
    });
    let stack = ServiceBuilder::new().layer(by_key(&guard)).buffer(4).concurrency_limit(1).service(inner);
    let calls = (0..40).map(|number| stack.clone().oneshot(request(&(number % 10).to_string(), "")));
    let mut executed = 0;
    for response in join_all(calls).await {
        let response = response.unwrap();
        executed += usize::from(outcome(&response) == "executed");
        assert!(["executed", "replayed", "in_progress"].contains(&outcome(&response)), "{response:?}");
    }
    assert_eq!((executed, runs.load(Ordering::SeqCst)), (10, 10));
}

/// A service that responds after `end` is notified.
fn waiting(
    ended: &Arc<AtomicUsize>,
    end: &Arc<Notify>,
) -> impl Service<Request<GuardedBody<Body>>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static
+ use<> {
    let (ended, end) = (Arc::clone(ended), Arc::clone(end));
    service_fn(move |_| {
        let (ended, end) = (Arc::clone(&ended), Arc::clone(&end));
        async move {
            end.notified().await;
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(Response::new(Body::from("done")))
        }
    })
}

#[tokio::test]
async fn call_that_is_dropped_before_its_first_poll_claims_nothing() {
    let (guard, ended, end) = (Guard::new(Memory::new()), Arc::default(), Arc::new(Notify::new()));
    let mut service = by_key(&guard).layer(waiting(&ended, &end));
    drop(service.ready().await.unwrap().call(request("k", "")));
    end.notify_one();
    let response = service.ready().await.unwrap().call(request("k", "")).await.unwrap();
    assert_eq!((outcome(&response), ended.load(Ordering::SeqCst)), ("executed", 1));
}

#[tokio::test]
async fn call_that_is_dropped_after_its_first_poll_runs_to_its_end() {
    let (guard, ended, end) = (Guard::new(Memory::new()), Arc::default(), Arc::new(Notify::new()));
    let mut service = by_key(&guard).layer(waiting(&ended, &end));
    let mut call = Box::pin(service.ready().await.unwrap().call(request("k", "")));
    assert!(poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await);
    drop(call);
    let in_flight = service.ready().await.unwrap().call(request("k", "")).await.unwrap();
    assert_eq!(outcome(&in_flight), "in_progress");
    end.notify_one();
    until("the handler has ended", Duration::from_secs(5), || ready(ended.load(Ordering::SeqCst) == 1)).await;
    guard.drain().await;
    let look =
        by_key(&guard).layer(service_fn(async |_: Request<GuardedBody<Body>>| -> Result<Response<Body>, Infallible> {
            panic!("a duplicate runs")
        }));
    let mut asked = request("k", "");
    asked.headers_mut().insert("onceward-look", "true".parse().unwrap());
    assert_eq!(outcome(&look.oneshot(asked).await.unwrap()), "replayed");
}

#[tokio::test]
async fn require_protection_without_a_router_judges_each_submission() {
    let guard = Guard::new(Memory::new());
    let bare = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("done"))));
    let inner =
        service_fn(async |_: Request<GuardedBody<Body>>| Ok::<_, Infallible>(Response::new(Body::from("done"))));
    let require = RequireProtection::new(&guard);
    let (bare, guarded) = (require.layer(bare), require.layer(by_key(&guard).layer(inner)));
    for key in ["a", "b"] {
        assert_eq!(bare.clone().oneshot(request(key, "")).await.unwrap().status(), 500);
        assert_eq!(guarded.clone().oneshot(request(key, "")).await.unwrap().status(), 200);
    }
    assert_eq!(require.unprotected(), ["POST (no route)"]);
}

/// A body with two chunks and a trailer.
struct WithTrailers(Vec<Frame<Bytes>>);

impl WithTrailers {
    fn new() -> Self {
        let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), "7".parse().unwrap())]);
        Self(vec![
            Frame::trailers(trailers),
            Frame::data(Bytes::from_static(b"two")),
            Frame::data(Bytes::from_static(b"one ")),
        ])
    }
}

impl HttpBody for WithTrailers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

/// Reads a body to its end.
async fn read(mut body: impl HttpBody<Data = Bytes, Error = BoxError> + Unpin) -> (Vec<u8>, Option<HeaderMap>) {
    let (mut data, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        match frame.unwrap().into_data() {
            Ok(chunk) => data.extend(chunk),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    (data, trailers)
}

#[tokio::test]
async fn body_and_trailers_reach_the_service_unchanged_in_every_mode() {
    for mode in [Mode::Enforce, Mode::Observe, Mode::Off] {
        let guard = Guard::builder(Memory::new()).mode(mode).build();
        let inner = service_fn(async |request: Request<GuardedBody<WithTrailers>>| {
            let (data, trailers) = read(request.into_body()).await;
            assert_eq!(trailers.unwrap()["x-checksum"], "7");
            Ok::<_, Infallible>(Response::new(Body::from(data)))
        });
        let request = Request::post("/it").header("idempotency-key", "k").body(WithTrailers::new()).unwrap();
        let response = by_key(&guard).layer(inner).oneshot(request).await.unwrap();
        assert_eq!(read(response.into_body()).await.0, b"one two", "{mode:?}");
    }
}

#[tokio::test]
async fn streamed_response_and_its_trailers_reach_the_client() {
    let guard = Guard::new(Memory::new());
    let inner =
        service_fn(async |_: Request<GuardedBody<Body>>| Ok::<_, Infallible>(Response::new(WithTrailers::new())));
    let service = by_key(&guard).layer(inner);
    let response = service.clone().oneshot(request("k", "")).await.unwrap();
    assert_eq!(outcome(&response), "executed");
    let (data, trailers) = read(response.into_body()).await;
    assert_eq!((&data[..], &trailers.unwrap()["x-checksum"]), (&b"one two"[..], &"7".parse().unwrap()));
    let again = service.oneshot(request("k", "")).await.unwrap();
    assert_eq!((again.status().as_u16(), outcome(&again)), (409, "reply_not_kept"));
}

/// A body of two parts, of which the second never arrives, or breaks off.
fn half_of_a_body(end: Option<std::io::Error>) -> Body {
    use futures_util::stream::{self, StreamExt as _};
    let first = stream::iter([Ok::<_, std::io::Error>("half of")]);
    match end {
        Some(error) => Body::from_stream(first.chain(stream::iter([Err(error)]))),
        None => Body::from_stream(first.chain(stream::pending())),
    }
}

#[tokio::test]
async fn whole_body_is_read_before_a_plain_token_is_used() {
    let guard = Guard::new(Memory::new());
    let token = guard.issue(Duration::from_secs(60), Binding::none()).await.unwrap();
    let post = |body: Body| Request::post("/it").header("onceward-token", token.as_str()).body(body).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let inner = service_fn(move |request: Request<GuardedBody<Body>>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Infallible>(Response::new(format!("{:?}", request.body().size_hint().exact()))) }
    });
    let protect = Protect::token(&guard, SubjectFrom::anonymous()).body_limit(10).whole_body();
    let service = protect.layer(inner);
    let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    for (body, status) in [(Body::from("x".repeat(11)), 413), (half_of_a_body(Some(broken)), 400)] {
        assert_eq!(service.clone().oneshot(post(body)).await.unwrap().status(), status);
    }
    let stated = Request::post("/it").header("onceward-token", token.as_str()).header("content-length", 11);
    let response = service.clone().oneshot(stated.body(half_of_a_body(None)).unwrap()).await.unwrap();
    assert_eq!(response.status(), 413, "by its length, without reading it");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let response = service.oneshot(post(Body::from("x".repeat(10)))).await.unwrap();
    assert_eq!((response.status(), outcome(&response)), (StatusCode::OK, "executed"), "the token is still valid");
}
