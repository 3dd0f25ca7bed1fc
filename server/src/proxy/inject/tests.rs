//! Tests of the injector as a whole: requests, responses and streamed bodies.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{Empty, Full};

use super::csp::Obstacle;
use super::{Injector, MaybeInjected};

const TAG: &str = "<script src=\"/_onceward/sdk/onceward.js\" defer data-forms=\"all\"></script>";
/// The tag that a page in Chinese receives in addition.
const CHINESE: &str = "<script src=\"/_onceward/sdk/onceward.zh-CN.js\" defer></script>";
const PAGE: &str = "<!doctype html><html lang=\"a>b\"><head><title>a</title></head><body>text</body></html>";

/// A body of these frames.
#[derive(Debug, Default)]
struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

impl Frames {
    fn of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(chunks.into_iter().map(|chunk| Ok(Frame::data(Bytes::copy_from_slice(chunk)))).collect())
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front())
    }
}

/// Returns all frames of a body that is never pending.
fn frames<B: Body<Data = Bytes>>(body: B) -> Vec<Result<Frame<Bytes>, B::Error>> {
    let (mut body, mut context) = (pin!(body), Context::from_waker(Waker::noop()));
    let mut frames = Vec::new();
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        frames.push(frame);
    }
    frames
}

fn text<B: Body<Data = Bytes>>(body: B) -> String {
    let data = frames(body).into_iter().filter_map(|frame| frame.ok()?.into_data().ok());
    String::from_utf8(data.flatten().collect()).unwrap()
}

fn html<B>(body: B) -> Response<B> {
    Response::builder().header(CONTENT_TYPE, "text/html").body(body).unwrap()
}

fn inject<B>(response: Response<B>) -> Response<MaybeInjected<B>> {
    Injector::new("/_onceward").apply(response)
}

/// Returns the body of this page after the injection, if it arrives in these chunks.
fn injected<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    text(inject(html(Frames::of(chunks))).into_body())
}

fn expected() -> String {
    PAGE.replace("<head>", &format!("<head>{TAG}"))
}

fn is_unchanged(response: Response<&'static str>) -> bool {
    let (status, headers) = (response.status(), response.headers().clone());
    let response = inject(response.map(|page| Full::new(Bytes::from(page))));
    let is_same = (response.status(), response.headers()) == (status, &headers);
    is_same && text(response.into_body()) == PAGE
}

#[test]
fn page_receives_the_tag_for_every_split() {
    let page = PAGE.as_bytes();
    for first in 0..=page.len() {
        for second in first..=page.len() {
            let body = injected([&page[..first], &page[first..second], &page[second..]]);
            assert_eq!(body, expected(), "split at {first} and {second}");
        }
    }
    assert_eq!(injected(page.chunks(1)), expected());
}

#[test]
fn page_in_chinese_receives_the_messages_too() {
    for (attributes, added) in [
        (" lang=zh", CHINESE),
        (" class='a>b' LANG=\"zh-CN\"", CHINESE),
        (" lang=\"ZH-hans\" dir=ltr", CHINESE),
        ("", ""),
        (" lang=en", ""),
        (" lang=zha", ""),
        (" data-lang=zh", ""),
    ] {
        let page = |tags: &str| format!("<!doctype html><html{attributes}><head>{tags}<title>a</title></head></html>");
        let (sent, expected) = (page(""), page(&format!("{TAG}{added}")));
        for split in 0..=sent.len() {
            assert_eq!(injected([&sent.as_bytes()[..split], &sent.as_bytes()[split..]]), expected, "split at {split}");
        }
    }
    let policy = "script-src 'nonce-YWJj'; connect-src 'self'";
    let page = html(Full::new(Bytes::from("<html lang=zh><body>")));
    let (mut parts, body) = page.into_parts();
    parts.headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    let page = text(inject(Response::from_parts(parts, body)).into_body());
    assert!(page.contains("zh-CN.js\" defer nonce=\"YWJj\"></script><body>"), "{page}");
}

#[test]
fn fragment_passes_for_every_split() {
    let fragment = "<!-- row --><hr><html><head></head></html>".as_bytes();
    for split in 0..=fragment.len() {
        assert_eq!(injected([&fragment[..split], &fragment[split..]]).as_bytes(), fragment, "split at {split}");
    }
}

#[test]
fn start_of_a_page_passes_as_it_arrives() {
    let frames = frames(
        inject(html(Frames::of(["<!doctype html><!-- long", " -->\n<he", "ad>"].map(str::as_bytes)))).into_body(),
    );
    let texts: Vec<_> = frames.into_iter().map(|frame| frame.unwrap().into_data().unwrap()).collect();
    assert_eq!(texts, ["<!doctype html><!-- long", " -->\n", "<head>", TAG]);
}

#[test]
fn chunks_after_the_tag_are_not_copied() {
    let chunks = [Bytes::from("<head><title>"), Bytes::from("text <head>")];
    let body = Frames(chunks.iter().map(|chunk| Ok(Frame::data(chunk.clone()))).collect());
    let sent: Vec<_> =
        frames(inject(html(body)).into_body()).into_iter().map(|frame| frame.unwrap().into_data().unwrap()).collect();
    let places = [chunks[0].as_ptr(), chunks[0][6..].as_ptr(), chunks[1].as_ptr()];
    assert_eq!([sent[0].as_ptr(), sent[2].as_ptr(), sent[3].as_ptr()], places);
    assert_eq!((sent[3].as_ref(), sent.len()), (b"text <head>".as_slice(), 4));
}

#[test]
fn page_that_ends_early_passes() {
    for page in ["", "<", "<!doctype html>", "<!doctype html><hea", "<html lang=\"", "<html><!-- a"] {
        assert_eq!(injected(page.as_bytes().chunks(3)), page);
    }
}

#[test]
fn error_of_the_body_passes() {
    let mut body = Frames::of(["<html><he".as_bytes()]);
    body.0.push_back(Err("reset"));
    let frames = frames(inject(html(body)).into_body());
    assert_eq!(frames[0].as_ref().unwrap().data_ref().unwrap(), "<html>");
    assert_eq!(frames[1].as_ref().unwrap_err(), &"reset");
}

#[test]
fn trailers_follow_the_held_bytes() {
    let trailers = HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"a\""))]);
    let mut body = Frames::of(["<html><he".as_bytes()]);
    body.0.push_back(Ok(Frame::trailers(trailers.clone())));
    let frames: Vec<_> = frames(inject(html(body)).into_body()).into_iter().map(Result::unwrap).collect();
    assert_eq!(frames[0].data_ref().unwrap(), "<html>");
    assert_eq!(frames[1].data_ref().unwrap(), "<he");
    assert_eq!(frames[2].trailers_ref().unwrap(), &trailers);
    assert_eq!(frames.len(), 3);
}

#[test]
fn response_that_is_no_page_passes_unchanged() {
    let with =
        |name: &str, value: &str| Response::builder().header(name, value).header(ETAG, "\"a\"").body(PAGE).unwrap();
    assert!(is_unchanged(with("content-type", "text/plain")));
    assert!(is_unchanged(with("content-type", "text/html; charset=utf-16")));
    assert!(is_unchanged(with("content-length", "7")));
    let part = Response::builder().status(StatusCode::PARTIAL_CONTENT).header(CONTENT_TYPE, "text/html");
    assert!(is_unchanged(part.body(PAGE).unwrap()));
}

#[test]
fn unchanged_body_keeps_its_size_and_end() {
    let injector = Injector::new("/_onceward");
    let body = injector.apply(Response::new(Full::new(Bytes::from(PAGE)))).into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(PAGE.len() as u64), false));
    assert!(injector.apply(Response::new(Empty::<Bytes>::new())).into_body().is_end_stream());
}

#[test]
fn injected_body_has_no_exact_size_until_the_tag_is_placed() {
    let size = PAGE.len() as u64;
    let mut body = inject(html(Full::new(Bytes::from(PAGE)))).into_body();
    let hint = body.size_hint();
    assert_eq!(
        (hint.lower(), hint.upper(), hint.exact()),
        (size, Some(size + (TAG.len() + CHINESE.len()) as u64), None)
    );
    let first = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Some(Ok(first))) = first else { panic!("a frame") };
    let sent = first.data_ref().unwrap().len();
    assert_eq!(body.size_hint().exact(), Some((expected().len() - sent) as u64));
    assert!(!body.is_end_stream());
    assert_eq!(text(&mut body).len(), expected().len() - sent);
    assert!(body.is_end_stream());
}

#[test]
fn held_bytes_keep_the_body_from_its_end() {
    let mut body = inject(html(Full::new(Bytes::from("<html><he")))).into_body();
    drop(Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())));
    assert_eq!((body.is_end_stream(), body.size_hint().lower()), (false, 3));
    assert_eq!(text(&mut body), "<he");
    assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
}

#[test]
fn head_response_has_the_headers_of_the_page() {
    let page =
        || Response::builder().header(CONTENT_TYPE, "text/html").header(ETAG, "\"a\"").header(CONTENT_LENGTH, "85");
    let head = inject(page().body(Empty::<Bytes>::new()).unwrap());
    let get = inject(page().body(Full::new(Bytes::from(PAGE))).unwrap());
    assert_eq!(head.headers(), get.headers());
    assert_eq!(
        (head.headers().get(CONTENT_LENGTH), &head.headers()[ETAG]),
        (None, &HeaderValue::from_static("W/\"a\""))
    );
    assert!(head.body().is_end_stream());
    assert_eq!(text(head.into_body()), "");
}

#[test]
fn nonce_of_the_policy_is_on_the_tag() {
    let policy = "script-src 'nonce-abc' 'strict-dynamic'";
    let page = Response::builder().header(CONTENT_TYPE, "text/html").header(CONTENT_SECURITY_POLICY, policy);
    let body = text(inject(page.body(Full::new(Bytes::from(PAGE))).unwrap()).into_body());
    assert_eq!(body, expected().replace("\"all\">", "\"all\" nonce=\"abc\">"));
}

#[test]
fn page_whose_policy_forbids_the_script_passes_unchanged() {
    let page = Response::builder().header(CONTENT_TYPE, "text/html").header(ETAG, "\"a\"").header(CONTENT_LENGTH, "85");
    assert!(is_unchanged(page.header(CONTENT_SECURITY_POLICY, "script-src 'none'").body(PAGE).unwrap()));
}

#[test]
fn obstacle_is_logged_once_for_each_directive() {
    let injector = Injector::new("/_onceward");
    let logged = ["script-src", "script-src", "connect-src", "script-src"]
        .map(|name| injector.warn(Obstacle::NotSelf { wanted: "script-src", found: name }));
    assert_eq!(logged, [true, false, true, false]);
}

#[test]
fn path_of_the_proxy_is_escaped_in_the_tag() {
    let page = Injector::new("/a\"><b>&").apply(html(Full::new(Bytes::from("<head>"))));
    let tag = TAG.replace("/_onceward", "/a&quot;&gt;&lt;b&gt;&amp;");
    assert_eq!(text(page.into_body()), format!("<head>{tag}"));
}

type Lines = [(&'static str, &'static str)];

fn headers(lines: &Lines) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

/// Asserts what `prepare` makes of the headers of a request.
fn assert_prepared(method: Method, before: &Lines, after: &Lines) {
    let mut prepared = headers(before);
    Injector::new("/_onceward").prepare(&method, &mut prepared);
    assert_eq!(prepared, headers(after), "{method} {before:?}");
}

const PAGES: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const IDENTITY: (&str, &str) = ("accept-encoding", "identity");
const CONDITIONAL: [(&str, &str); 5] = [
    ("accept-encoding", "gzip"),
    ("if-modified-since", "Tue, 18 Nov 2025 12:00:00 GMT"),
    ("if-none-match", "\"a\""),
    ("if-range", "\"a\""),
    ("range", "bytes=1-2"),
];

#[test]
fn navigation_asks_the_upstream_for_a_whole_unencoded_page() {
    let lines = [[PAGES].as_slice(), &CONDITIONAL].concat();
    for method in [Method::GET, Method::HEAD] {
        assert_prepared(method, &lines, &[PAGES, IDENTITY]);
    }
    assert_prepared(Method::GET, &[("accept", "TEXT/HTML")], &[("accept", "TEXT/HTML"), IDENTITY]);
}

#[test]
fn conditions_of_other_methods_stay() {
    let condition = ("if-none-match", "*");
    assert_prepared(Method::PUT, &[PAGES, ("accept-encoding", "br"), condition], &[PAGES, IDENTITY, condition]);
}

#[test]
fn request_for_anything_else_stays_unchanged() {
    let lines = [[("accept", "*/*")].as_slice(), &CONDITIONAL].concat();
    assert_prepared(Method::GET, &lines, &lines);
    assert_prepared(Method::GET, &CONDITIONAL, &CONDITIONAL);
}

#[test]
fn injected_body_can_be_moved_between_threads() {
    fn assert_moves<B: Body<Data = Bytes> + Send + Unpin>(_: B) {}
    assert_moves(inject(html(Full::new(Bytes::from(PAGE)))).into_body());
}
