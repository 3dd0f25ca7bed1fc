//! The Onceward service: issues one-time tokens to browsers, and lets backends redeem each token once and claim keys and intervals.

mod admin;
pub mod app;
mod check;
pub mod cli;
pub mod config;
pub mod context;
pub mod generated_files;
mod guard_setup;
pub mod http;
pub mod logging;
pub mod metrics;
mod network;
pub mod openapi;
pub mod proxy;
pub mod routes;
mod startup_message;
mod store_health;
