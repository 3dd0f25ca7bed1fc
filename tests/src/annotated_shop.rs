//! A shop whose handlers are protected by `#[once]`.

mod actix;
mod axum;

use std::time::Duration;

use onceward::Guard;
use onceward::http::{Framework, Protection, RequestHead as _, SubjectSource};
use serde::Deserialize;

pub use self::actix::{configure, without_guard};
pub use self::axum::router;
use crate::ledger::Ledger;
use crate::shop::USER;
use crate::test_server::TestServer;

/// The text that a duplicate within the interval receives.
pub const MESSAGE: &str = "We have received this message already.";

/// The body of every submission.
#[derive(Debug, Deserialize)]
pub struct Submission {
    order: Order,
    /// The status of the response. Default: 201.
    #[serde(default)]
    status: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct Order {
    id: String,
}

impl Submission {
    /// Handles the submission: records the order, and returns a status and a receipt that no other run returns.
    async fn handle(self, ledger: &Ledger) -> (u16, String) {
        ledger.record(&self.order.id);
        // Long enough for duplicates to arrive in the meantime.
        tokio::time::sleep(Duration::from_millis(20)).await;
        (self.status.unwrap_or(201), receipt())
    }

    /// Records the order and panics.
    fn panic<T>(self, ledger: &Ledger) -> T {
        ledger.record(&self.order.id);
        panic!("the handler panics on purpose")
    }
}

/// Returns a receipt that no other run returns.
fn receipt() -> String {
    format!("receipt {}", uuid::Uuid::new_v4())
}

/// The subject of a request, as a route names it in place of the default.
fn user<F: Framework>() -> SubjectSource<F::Request> {
    SubjectSource::resolver(|request: &F::Request| String::from_utf8(request.header(USER).next()?.to_vec()).ok())
}

/// A web framework for which `#[once]` exists.
pub trait Annotated: crate::web_framework::WebFramework {
    /// The kind of `peer` that serves this shop.
    const ANNOTATED_PEER: &'static str;

    /// Serves the shop with two worker threads.
    fn serve_annotated(guard: &Guard, ledger: &Ledger) -> TestServer {
        Self::serve_protected(guard, ledger, Protection::new(guard, SubjectSource::anonymous()))
    }

    /// Serves the shop with this guard and subject.
    fn serve_protected(guard: &Guard, ledger: &Ledger, protection: Protection<Self>) -> TestServer;

    /// Serves the shop inside of a `RequireProtection`.
    fn serve_required(guard: &Guard, ledger: &Ledger) -> TestServer;
}
