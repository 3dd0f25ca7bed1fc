//! What is done around each order: whoever comes too fast is sent away before anything is asked, what became of the order is
//! counted, and an answer that is to be lost is lost.

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

use crate::books::Tally;
use crate::conduct::Conduct;
use crate::shop::Shop;
use crate::visitor::Visitor;

/// How long the connection is held once the answer has begun: the browser has to have seen it begin.
const BEFORE_THE_CUT: Duration = Duration::from_millis(50);

/// How many bytes an answer promises that has none.
const PROMISED: u64 = 64;

/// Goes with an order, from the door and back to it.
pub(crate) async fn attend<B: MessageBody + 'static>(
    shop: Data<Shop>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let (visitor, conduct) = (Visitor::of(request.request()), Conduct::of(request.request()));
    let place = match shop.admit(visitor) {
        Ok(place) => place,
        Err(rejection) => {
            let answer = reject(request.request(), shop.guard(), &rejection);
            return Ok(request.into_response(answer));
        }
    };
    let answer = next.call(request).await?.map_into_boxed_body();
    drop(place);
    let outcome = outcome(&answer);
    shop.count(visitor, |tally| note(tally, &outcome, answer.status()));
    let took_effect = answer.status().is_success() && outcome != Outcome::Replayed.as_str();
    if conduct.loses && took_effect {
        return Ok(answer.into_response(lost()));
    }
    Ok(answer)
}

fn outcome<B>(answer: &ServiceResponse<B>) -> String {
    let said = answer.headers().get(header::OUTCOME).and_then(|value| value.to_str().ok());
    said.unwrap_or_default().to_owned()
}

/// Orders at the counter without a guard are not in the picture of what a guard does.
fn note(tally: &mut Tally, outcome: &str, status: StatusCode) {
    match outcome {
        "" | "unprotected" => {}
        "executed" if status.is_success() => tally.executed += 1,
        "executed" | "replayable" | "not_applied" | "not_released" | "unknown" => tally.failed += 1,
        "replayed" => tally.replayed += 1,
        _ => tally.refused += 1,
    }
}

/// An answer that ends before it has said anything: it promises a body, and the connection is closed instead. Were there not
/// even its head, a browser would send the request again by itself, on every connection that it has open.
fn lost() -> HttpResponse {
    let nothing = stream::once(async {
        tokio::time::sleep(BEFORE_THE_CUT).await;
        Ok::<_, Error>(Bytes::new())
    });
    HttpResponse::Ok().body(SizedStream::new(PROMISED, Box::pin(nothing)))
}
