//! The Onceward service: issues one-time tokens to browsers, and lets backends redeem each of them once.

pub mod access;
mod administration;
pub mod app;
mod banner;
mod check;
pub mod cli;
mod clients;
pub mod config;
mod connections;
pub mod desk;
pub mod generated;
mod graceful_shutdown;
mod json_body;
mod kept;
pub mod limits;
pub mod listening;
pub mod meters;
pub mod mishap;
mod open_files;
mod original;
pub mod origins;
pub mod quota;
mod readiness;
pub mod routes;
pub mod specification;
pub mod telemetry;
