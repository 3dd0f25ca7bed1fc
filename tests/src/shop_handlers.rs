//! The handlers of the shop. They behave as the request headers say, and record each run in the ledger.

use std::time::Duration;

use onceward::Effect;

use crate::call::{BodyStream, Call};
use crate::reply::Reply;

/// Request header: the order to record in the ledger.
pub const ORDER: &str = "x-order";
/// Request header: the status of the handler's response.
pub const STATUS: &str = "x-status";
/// Request header: the effect that the handler marks.
pub const EFFECT: &str = "x-effect";
/// Request header: milliseconds that the handler takes.
pub const TAKES: &str = "x-takes";
/// Request header: the subject of the request.
pub const USER: &str = "x-user";
/// Request header: number of padding bytes in the response.
pub const SIZE: &str = "x-size";
/// Request header: milliseconds that the handler takes after its effect.
pub const THEN: &str = "x-then";

/// Takes [`TAKES`], records the order, and responds as the headers say.
pub async fn order(call: Call) -> Reply {
    if let Some(millis) = call.number(TAKES) {
        call.ledger.record("begun");
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    call.ledger.record(call.header(ORDER).unwrap_or("order"));
    let status = call.number(STATUS).and_then(|status| u16::try_from(status).ok()).filter(|status| *status >= 100);
    let reply = Reply::new(status.unwrap_or(200)).body(format!("ordered with {} bytes", call.body.len()));
    let reply = if call.header("x-failed").is_some() { reply.header("x-failed", "yes") } else { reply };
    match call.header(EFFECT) {
        Some("happened") => reply.effect(Effect::Applied),
        Some("did not") => reply.effect(Effect::NotApplied),
        Some("unknown") => reply.effect(Effect::Unknown),
        _ => reply,
    }
}

/// Like [`order`], but responds with a receipt that is unique to this run.
pub async fn purchase(call: Call) -> Reply {
    let (size, then) = (call.number(SIZE).unwrap_or(0), call.number(THEN).unwrap_or(0));
    let receipt = uuid::Uuid::new_v4().to_string();
    let reply = order(call).await;
    tokio::time::sleep(Duration::from_millis(then)).await;
    let location = format!("/receipts/{receipt}");
    reply.header("location", &location).body(receipt + &"x".repeat(size as usize))
}

/// Records the order and panics.
pub async fn panics(call: Call) -> Reply {
    call.ledger.record(call.header(ORDER).unwrap_or("order"));
    panic!("the handler panics on purpose")
}

/// Begins before its body has arrived.
pub async fn streamed(call: Call, body: BodyStream) -> Reply {
    call.ledger.record("begun");
    match body.read(1024).await {
        Ok(_) => call.ledger.record(call.header(ORDER).unwrap_or("order")),
        Err(_) => return Reply::new(400),
    }
    Reply::new(200)
}

/// Streams the body back.
pub async fn echo(_: Call, body: BodyStream) -> Reply {
    Reply::new(200).streamed(body.into_pieces())
}

/// Blocks its worker thread for [`TAKES`].
#[expect(clippy::disallowed_methods, reason = "the tests need a handler that blocks its thread")]
pub async fn block(call: Call) -> Reply {
    call.ledger.record("blocking");
    std::thread::sleep(Duration::from_millis(call.number(TAKES).unwrap_or(0)));
    call.ledger.record("unblocked");
    Reply::new(200)
}
