//! A service that is told to stop while callers still come.

use std::time::Duration;

use onceward_tests::client::token;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use onceward_tests::wait::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn while_its_last_requests_are_answered_nobody_is_let_in_whom_nobody_would_answer() {
    let redis = RedisServer::start();
    let patient = ["--store", &redis.url(), "--store-timeout", "8s", "--last-call", "500ms"];
    let mut service = OncewardServer::start(&patient);
    let address = service.url.trim_start_matches("http://").to_owned();
    token(&service.url).await;
    redis.freeze();
    let mut last = TcpStream::connect(&address).await.unwrap();
    last.write_all(b"POST /token HTTP/1.1\r\nhost: onceward\r\nconnection: close\r\n\r\n").await.unwrap();
    service.terminate();
    until("others are refused", LONG, || async { TcpStream::connect(&address).await.is_err() }).await;
    assert_eq!(service.ended(), None, "the last request is still waiting");
    redis.thaw();
    let mut answer = String::new();
    last.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    until("it ends", LONG, || std::future::ready(service.ended() == Some(0))).await;
}
