//! The handler of the contract shop. The request headers decide what it does.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use onceward::Effect;

use crate::call::Call;
use crate::reply::Reply;
use crate::shop_handlers::{EFFECT, ORDER, SIZE, STATUS, TAKES, THEN};

/// Request header: the moment at which the handler fails, or the effect that its failure states.
pub const RAISE: &str = "x-raise";
/// Request header: the number of chunks of a streamed response.
pub const STREAM: &str = "x-stream";
/// Request header: `yes` breaks the streamed response after its first chunk.
pub const FAIL_STREAM: &str = "x-fail-stream";
/// Request header: milliseconds after which the shop's own timeout ends the request.
pub const TIMEOUT: &str = "x-timeout";
/// Response header: the id of the run.
pub const RUN: &str = "x-run";

/// Pause between two chunks.
const BETWEEN_CHUNKS: Duration = Duration::from_millis(20);

/// Records an order, and responds as the headers say. Any method but POST returns the number of lines in the ledger.
pub async fn order(call: Call) -> Reply {
    if call.method != reqwest::Method::POST {
        return Reply::new(200).body(call.ledger.runs().len().to_string());
    }
    if let Some(millis) = call.number(TAKES) {
        call.ledger.record("begun");
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    match call.header(RAISE) {
        Some("before") => return failure(),
        Some("not-applied") => return failure().effect(Effect::NotApplied),
        _ => {}
    }
    call.ledger.record(call.header(ORDER).unwrap_or("order"));
    match call.header(RAISE) {
        Some("after") => return failure(),
        Some("unknown") => return failure().effect(Effect::Unknown),
        Some("timeout") => return Reply::new(504).body("a call has timed out"),
        _ => {}
    }
    tokio::time::sleep(Duration::from_millis(call.number(THEN).unwrap_or(0))).await;
    receipt(&call)
}

/// The response to an error of the handler, in Rust.
fn failure() -> Reply {
    Reply::new(500).body("the handler failed")
}

fn receipt(call: &Call) -> Reply {
    let run = uuid::Uuid::new_v4().to_string();
    let status = call.number(STATUS).and_then(|status| u16::try_from(status).ok()).unwrap_or(201);
    let reply = Reply::new(status)
        .header("location", &format!("/orders/{run}"))
        .header("content-type", "application/octet-stream")
        .header("link", r#"</orders>; rel="collection""#)
        .header("link", &format!(r#"</orders/{run}>; rel="self""#))
        .header("set-cookie", &format!("run={run}"))
        .header("set-cookie", "visited=yes")
        .header(RUN, &run);
    let reply = match call.number(STREAM) {
        Some(chunks) => reply.streamed(chunks_of(chunks, call.header(FAIL_STREAM).is_some())),
        None if status == 204 => reply,
        None => reply.body(body_of(&run, call.number(SIZE).unwrap_or(0))),
    };
    match call.header(EFFECT) {
        Some("applied") => reply.effect(Effect::Applied),
        Some("not-applied") => reply.effect(Effect::NotApplied),
        Some("unknown") => reply.effect(Effect::Unknown),
        _ => reply,
    }
}

/// Every byte, the id of the run, and padding.
fn body_of(run: &str, padding: u64) -> Vec<u8> {
    let padding = usize::try_from(padding).unwrap_or(0);
    (0..=u8::MAX).chain(run.bytes()).chain(std::iter::repeat_n(b'x', padding)).collect()
}

fn chunks_of(count: u64, breaks: bool) -> impl Stream<Item = io::Result<Bytes>> {
    stream::iter(0..count).then(move |number| async move {
        tokio::time::sleep(BETWEEN_CHUNKS).await;
        if breaks && number > 0 {
            return Err(io::Error::other("the stream breaks on purpose"));
        }
        Ok(Bytes::from(format!("chunk {number}\n")))
    })
}
