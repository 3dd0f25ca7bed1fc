//! Test harness: real servers, an independent ledger, proxies with faults, and flawed implementations on which the tests of each
//! guarantee must fail.

pub mod actix_framework;
pub mod actix_handlers;
pub mod annotated_shop;
pub mod axum_framework;
pub mod axum_server;
pub mod browser_pages;
pub mod call;
pub mod charging_app;
pub mod claiming_shop;
pub mod client;
pub mod command_output;
pub mod concurrent_orders;
pub mod consumer;
pub mod contract;
pub mod database;
pub mod faulty_http_proxy;
pub mod faulty_tcp_proxy;
pub mod flawed;
pub mod gateway;
pub mod handler;
pub mod interval_routes;
pub mod key_routes;
pub mod ledger;
pub mod legacy_shop;
pub mod listening_port;
pub mod metrics;
pub mod peer;
pub mod policy_walkthrough;
pub mod polling;
pub mod postgres;
pub mod postgres_payments;
pub mod rabbitmq_server;
pub mod random_faults;
pub mod raw_http;
pub mod readme_program;
pub mod redis_cluster;
pub mod redis_server;
pub mod remembered_routes;
pub mod reply;
pub mod reserved_port;
pub mod routes;
pub mod sdk_client;
pub mod sentinels;
pub mod service;
pub mod service_calls;
pub mod shop;
pub mod shop_handlers;
pub mod sqlite_payments;
pub mod stopping_proxy;
pub mod submission_tally;
pub mod test_server;
pub mod tls_redis;
pub mod verdict_tally;
pub mod wall_clock;
pub mod web_framework;

/// The Rust examples of the README, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ReadmePage;

/// The Rust examples of the page about logs, run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/logging.md")]
struct LoggingPage;

/// The Rust example of the page about formats of rejections, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../docs/profiles.md")]
struct ProfilesPage;

/// The Rust example of the README of the library, run as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../guard/README.md")]
struct LibraryReadmePage;
