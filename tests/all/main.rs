//! Onceward against real parts. Each module is one kind of promise; each test's name says which promise it is.
#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod bad_input;
mod binding;
mod defects;
mod demo;
mod demo_bounds;
mod demo_snippets;
mod faults;
mod functions;
mod hidden_token;
mod intervals;
mod keys;
mod keys_commands;
mod keys_content;
mod keys_crashes;
mod keys_faults;
mod keys_look;
mod keys_races;
mod keys_replay;
mod keys_settling;
mod keys_trace;
mod keys_upkeep;
mod keys_wire;
mod lifecycle;
mod museum;
mod near;
mod races;
mod readme;
mod remembered;
mod rollout;
mod sdk;
mod sdk_bodies;
mod sdk_faults;
mod sdk_input;
mod sdk_kills;
mod sdk_pool;
mod sdk_undecided;
mod sdk_wire;
mod service;
mod service_callers;
mod service_input;
mod service_operation;
mod service_sdk;
mod service_secrets;
mod service_settings;
mod service_specification;
mod service_start;
mod service_stop;
mod settling;
mod stores;
mod stories;
mod tree;
mod waiting;
mod wrapping;

/// The shop as a program of its own.
const PEER: &str = env!("CARGO_BIN_EXE_peer");
