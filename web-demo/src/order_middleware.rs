//! The middleware of each order route: applies the rate limit, counts the outcome, and drops the response if the request asks for it.

use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody, SizedStream};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::{Bytes, Data};
use actix_web::{Error, HttpResponse};
use futures_util::stream;
use onceward::actix::reject;
use onceward_api::{Outcome, header};

use crate::handler_mode::HandlerMode;
use crate::language::prefer_chosen;
use crate::shop::Shop;
use crate::visitor::Visitor;
use crate::visitor_accounts::Tally;

/// Time that the connection stays open after the headers of the response: the browser must have received them.
const DELAY_BEFORE_CLOSE: Duration = Duration::from_millis(50);

/// The `Content-Length` of a response that is cut off.
const ANNOUNCED_LENGTH: u64 = 64;

/// Admits an order, counts its outcome, and drops its response if the request asks for it.
pub(crate) async fn order_middleware<B: MessageBody + 'static>(
    shop: Data<Shop>,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    prefer_chosen(&mut request);
    let (visitor, mode) = (Visitor::of(request.request()), HandlerMode::of(request.request()));
    let permit = match shop.admit(visitor) {
        Ok(permit) => permit,
        Err(rejection) => {
            let answer = reject(request.request(), shop.guard(), &rejection);
            return Ok(request.into_response(answer));
        }
    };
    let answer = next.call(request).await?.map_into_boxed_body();
    drop(permit);
    let outcome = outcome(&answer);
    shop.count(visitor, |tally| count(tally, &outcome, answer.status()));
    let took_effect = answer.status().is_success() && outcome != Outcome::Replayed.as_str();
    if mode.loses && took_effect {
        return Ok(answer.into_response(lost()));
    }
    Ok(answer)
}

fn outcome<B>(answer: &ServiceResponse<B>) -> String {
    let said = answer.headers().get(header::OUTCOME).and_then(|value| value.to_str().ok());
    said.unwrap_or_default().to_owned()
}

/// Counts the outcome that the guard reported. Orders of the unguarded route are not counted here.
fn count(tally: &mut Tally, outcome: &str, status: StatusCode) {
    match outcome {
        "" | "unprotected" => {}
        "executed" if status.is_success() => tally.executed += 1,
        "executed" | "replayable" | "not_applied" | "not_released" | "unknown" => tally.failed += 1,
        "replayed" => tally.replayed += 1,
        _ => tally.refused += 1,
    }
}

/// A response that is cut off: it announces a body, and the connection is closed instead. Without the headers, a browser would retry the
/// request itself, on every open connection.
fn lost() -> HttpResponse {
    let nothing = stream::once(async {
        tokio::time::sleep(DELAY_BEFORE_CLOSE).await;
        Ok::<_, Error>(Bytes::new())
    });
    HttpResponse::Ok().body(SizedStream::new(ANNOUNCED_LENGTH, Box::pin(nothing)))
}
