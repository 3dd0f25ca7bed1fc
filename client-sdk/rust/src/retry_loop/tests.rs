use onceward_api::Problem;
use reqwest::{Method, ResponseBuilderExt as _};

use super::*;
use crate::retry_limits::RetryLimits;
use crate::transport::TransportError;

const DEADLINE: Duration = Duration::from_secs(10);

/// A server that refuses connections until it is up.
struct Restarting {
    up: Instant,
    refused: u32,
    ran: u32,
}

impl Restarting {
    fn up_after(time: Duration) -> Self {
        Self { up: Instant::now() + time, refused: 0, ran: 0 }
    }
}

impl Transport for Restarting {
    async fn send(&mut self, request: reqwest::Request) -> Result<reqwest::Response, TransportError> {
        if Instant::now() < self.up {
            self.refused += 1;
            return Err(TransportError::Refused("connection refused".into()));
        }
        self.ran += 1;
        let response = http::Response::builder().status(201).url(request.url().clone()).body("ordered");
        Ok(response.expect("valid response").into())
    }
}

async fn submit_to(server: &mut Restarting, limits: RetryLimits) -> Result<Response, Error> {
    let client = Client::builder().with_keys().limits(limits).build().expect("valid settings");
    let url = "http://shop.example/orders".parse().expect("valid URL");
    submit(&client, server, &mut Plan::new(&client, Method::POST, Some(url))).await
}

#[tokio::test(start_paused = true)]
async fn submission_survives_server_restart_and_runs_once() {
    let mut server = Restarting::up_after(Duration::from_secs(3));
    let response = submit_to(&mut server, RetryLimits::new().deadline(DEADLINE)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.ran), (201, 1));
    assert!(response.attempts() > 5, "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn dead_server_fails_submission_at_deadline() {
    for on_unknown in [OnUnknown::Report, OnUnknown::Look] {
        let begun = Instant::now();
        let mut server = Restarting::up_after(Duration::from_secs(3600));
        let client = Client::builder().with_keys().on_unknown(on_unknown).limits(RetryLimits::new().deadline(DEADLINE));
        let client = client.build().unwrap();
        let url = "http://shop.example/orders".parse().unwrap();
        let error = submit(&client, &mut server, &mut Plan::new(&client, Method::POST, Some(url))).await.unwrap_err();
        let elapsed = begun.elapsed();
        assert!(error.ran_nothing() && error.to_string().contains("every connection was refused"), "{error:?}");
        assert!(DEADLINE <= elapsed && elapsed < DEADLINE + Duration::from_millis(10), "{elapsed:?}");
        assert!((10..40).contains(&server.refused), "{} attempts", server.refused);
    }
}

/// A server that rejects every request as a later version may.
struct LaterVersion {
    status: u16,
    retry: &'static str,
    requests: u32,
}

impl Transport for LaterVersion {
    async fn send(&mut self, request: reqwest::Request) -> Result<reqwest::Response, TransportError> {
        self.requests += 1;
        let response = http::Response::builder().status(self.status).url(request.url().clone());
        let response = response.header("onceward-outcome", "something").header("onceward-retry", self.retry);
        let response = response.header("location", "/elsewhere").header("content-type", Problem::CONTENT_TYPE);
        Ok(response.body(r#"{"code":"something","retry":"no"}"#).expect("valid response").into())
    }
}

#[tokio::test(start_paused = true)]
async fn code_of_a_later_version_is_no_response_of_the_application() {
    let client = Client::builder().with_keys().limits(RetryLimits::new().attempts(3)).build().unwrap();
    for status in [200, 303, 409, 429, 502, 503] {
        for (retry, requests) in [("no", 1), ("new_token", 1), ("of a later version", 1), ("same", 3)] {
            let mut server = LaterVersion { status, retry, requests: 0 };
            let url = "http://shop.example/orders".parse().unwrap();
            let sent = submit(&client, &mut server, &mut Plan::new(&client, Method::POST, Some(url))).await;
            let error = sent.unwrap_err();
            assert!(error.is_unknown() && error.to_string().contains("something"), "{status} {retry}: {error}");
            assert_eq!(server.requests, requests, "{status} {retry}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn client_without_retries_returns_a_refused_connection_at_once() {
    let begun = Instant::now();
    let mut server = Restarting::up_after(Duration::from_secs(3));
    let error = submit_to(&mut server, RetryLimits::new().attempts(1)).await.unwrap_err();
    assert!(error.ran_nothing() && server.refused == 1 && begun.elapsed().is_zero(), "{error:?}");
}
