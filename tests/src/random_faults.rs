//! A network that fails one request in three.

use std::time::Duration;

use onceward_api::Code;

use crate::faulty_http_proxy::{HttpFault, RecordedRequest};

/// The longest delay of a response.
const LATEST: u64 = 600;

/// Chooses a fault for a third of all requests of a client to an application.
pub fn between_client_and_application(seen: &RecordedRequest) -> HttpFault {
    if fastrand::u8(0..3) > 0 {
        return HttpFault::None;
    }
    let rejections = [Code::StoreUnavailable, Code::Overloaded, Code::RateLimited];
    let submitted = [Code::InProgress, Code::RedeemUnknown, Code::TokenExpired, Code::TokenStale];
    let by_key = seen.headers.contains_key("idempotency-key");
    match fastrand::u8(0..10) {
        6 => HttpFault::Reject(rejections[fastrand::usize(0..rejections.len())]),
        7 if seen.fetches() => HttpFault::Instead(503),
        // A request with a key never receives `token_expired`.
        7 => HttpFault::Reject(submitted[fastrand::usize(0..if by_key { 1 } else { submitted.len() })]),
        8 => HttpFault::Instead([429, 502, 503, 504][fastrand::usize(0..4)]),
        other => on_the_wire(other),
    }
}

/// Chooses a fault for a third of all calls of a backend to the service.
pub fn between_application_and_service(_: &RecordedRequest) -> HttpFault {
    if fastrand::u8(0..3) > 0 {
        return HttpFault::None;
    }
    match fastrand::u8(0..8) {
        6 => HttpFault::Instead([502, 503, 504][fastrand::usize(0..3)]),
        other => on_the_wire(other),
    }
}

/// Returns a fault of the network, by a number from 0 to 9.
fn on_the_wire(number: u8) -> HttpFault {
    match number {
        0 => HttpFault::CutBefore,
        1 => HttpFault::CutRequest,
        2 | 3 => HttpFault::CutAnswer(0),
        4 => HttpFault::CutAnswer(fastrand::usize(1..100)),
        5 => HttpFault::Delay(Duration::from_millis(fastrand::u64(0..LATEST))),
        _ => HttpFault::After([502, 504][fastrand::usize(0..2)]),
    }
}
