//! The log: its format and level, and one line per request, without the query.

use std::io::IsTerminal as _;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{Error, HttpResponse};
use tracing::Instrument as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;
use crate::context::Context;
use crate::http::request_log::{LoggedPolicy, RequestLog, problem_code};
use crate::metrics::COUNTERS;
use crate::network::connections::BusyConnection;

/// The id of a request, in its response and in every log line about it.
const REQUEST_ID: HeaderName = HeaderName::from_static(onceward_api::header::REQUEST_ID);

/// The common prefix of our own crates.
const OURS: &str = "onceward";
/// The target of the events that `onceward audit` reads.
const EVENTS: &str = "onceward::event";

/// Returns true if the log is human-readable.
pub fn is_human(form: LogFormat) -> bool {
    match form {
        LogFormat::Auto => std::io::stdout().is_terminal(),
        LogFormat::Human => true,
        LogFormat::Json => false,
    }
}

/// Starts the log at this level.
pub fn begin(form: LogFormat, level: LevelFilter) {
    let registry = tracing_subscriber::registry().with(targets(level));
    let lines = tracing_subscriber::fmt::layer().with_target(false);
    if is_human(form) {
        registry.with(lines.with_ansi(std::io::stdout().is_terminal())).init();
    } else {
        registry.with(lines.json().flatten_event(true).with_span_list(false)).init();
    }
}

/// Returns the log levels by target. `level` applies to our own crates. Events are always logged at info, because `onceward audit` needs them.
/// Other crates log warnings at most: they do not know what is a secret here.
fn targets(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target(OURS, level)
        .with_target(EVENTS, level.max(LevelFilter::INFO))
}

/// Logs a request with its id, and closes its connection during a graceful shutdown. This is the outermost middleware, so it sees the start and the
/// end of every request.
pub async fn observe<B: MessageBody>(mut request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<B>, Error> {
    let _busy = BusyConnection::on(&request);
    let id = request_id(request.headers().get(&REQUEST_ID).map(HeaderValue::as_bytes));
    // The page of a rejection shows the id.
    if let Ok(id) = HeaderValue::from_str(&id) {
        request.headers_mut().insert(REQUEST_ID, id);
    }
    let (method, path) = (request.method().clone(), request.path().to_owned());
    let context = request.app_data::<Data<Context>>();
    let is_draining = context.is_some_and(|context| context.guard().is_draining());
    let request_log = context.map_or(RequestLog::All, |context| context.request_log());
    // The highest level, so that every line has the id at every log level.
    let span = tracing::error_span!("request", id = %id);
    let begun = tokio::time::Instant::now();
    let answer = next.call(request).instrument(span.clone()).await;
    let micros = begun.elapsed().as_micros() as u64;
    let status = match &answer {
        Ok(answer) => answer.status(),
        Err(error) => error.as_response_error().status_code(),
    };
    let status = status.as_u16();
    COUNTERS.answered(status);
    if request_log.has(status) {
        let (code, policy) = match &answer {
            Ok(answer) => {
                let outcome = answer.headers().get(onceward_api::header::OUTCOME).map(HeaderValue::as_bytes);
                (problem_code(outcome), LoggedPolicy::of(answer.request()))
            }
            Err(_) => (None, None),
        };
        span.in_scope(|| tracing::info!(%method, path, status, code, policy, micros, "answered"));
    }
    match answer {
        Ok(mut answer) => {
            sign(answer.response_mut(), &id, is_draining);
            Ok(answer)
        }
        Err(mut error) => {
            error.add_response_mapper(move |mut answer| {
                sign(&mut answer, &id, is_draining);
                answer
            });
            Err(error)
        }
    }
}

/// Adds the request id to a response, and `Connection: close` if it is the last one on its connection.
fn sign<B>(answer: &mut HttpResponse<B>, id: &str, is_last: bool) {
    if let Ok(id) = HeaderValue::from_str(id) {
        answer.headers_mut().insert(REQUEST_ID, id);
    }
    if is_last {
        answer.head_mut().set_connection_type(ConnectionType::Close);
    }
}

/// Maximum length of an id that a client sends.
const LONGEST_ID: usize = 128;

/// Returns the id that the client sent, if it is safe to log, or a new one.
pub(crate) fn request_id(given: Option<&[u8]>) -> String {
    let given = given.and_then(|id| std::str::from_utf8(id).ok());
    let is_plain = |id: &&str| (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(is_safe_in_logs);
    given.filter(is_plain).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// Returns whether a byte is visible, and neither a quote, a backslash nor a brace, which may end or extend a field of a log line.
fn is_safe_in_logs(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b'{' | b'}')
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn request_id_of_the_client_is_kept_if_it_is_safe_to_log() {
        let longest = "a".repeat(128);
        let aws = "Root=1-67891233-abcdef012345678912345678;Parent=53995c3f42cd8ad8;Sampled=1";
        for id in ["trace-1", "trace_1", "Root=1-abc", aws, "a/b+c:d.e~f@g", longest.as_str(), "1"] {
            assert_eq!(request_id(Some(id.as_bytes())), id);
        }
        let too_long = "a".repeat(129);
        for id in
            ["", "a b", "a\"b", "a'b", "a`b", "a\\b", "a}b", "a\tb", "a\nb", "a\x7fb", "caf\u{e9}", too_long.as_str()]
        {
            let new = request_id(Some(id.as_bytes()));
            assert!(new != id && uuid::Uuid::parse_str(&new).is_ok(), "{id:?}: {new}");
        }
        assert!(uuid::Uuid::parse_str(&request_id(Some(b"\xff"))).is_ok());
        assert!(uuid::Uuid::parse_str(&request_id(None)).is_ok());
    }

    #[test]
    fn level_applies_to_own_crates_and_others_log_warnings() {
        let everything = targets(LevelFilter::TRACE);
        for own in ["onceward", "onceward::store::redis::link", "onceward_server::routes::token"] {
            assert!(everything.would_enable(own, &Level::TRACE), "{own}");
        }
        for other in ["redis", "redis::aio", "actix_http::h1::dispatcher", "actix_server", "mio::poll", "log"] {
            assert!(everything.would_enable(other, &Level::WARN), "{other}");
            assert!(!everything.would_enable(other, &Level::INFO), "{other}");
        }
        let little = targets(LevelFilter::ERROR);
        assert!(!little.would_enable("onceward_server", &Level::WARN) && !little.would_enable("redis", &Level::WARN));
        assert!(little.would_enable("redis", &Level::ERROR));
        assert!(little.would_enable(EVENTS, &Level::INFO) && !little.would_enable(EVENTS, &Level::DEBUG));
        assert!(everything.would_enable(EVENTS, &Level::TRACE));
    }
}
