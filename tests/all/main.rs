//! Tests of Onceward against real servers, stores and clients. Each folder is one topic; the name of a test states its result.
#![allow(clippy::unwrap_used, reason = "all of this is tests")]

/// The middleware of actix-web, in what no other framework has.
mod actix {
    mod extractors;
    mod middleware_errors;
    mod middleware_order;
    mod path_rewriting;
    mod require_protection;
    pub(crate) mod store_per_worker;
}

/// The tower layer, and its axum routes and extractors, where they differ from actix-web.
mod axum {
    mod disconnect;
    mod extractors;
    mod layers;
    mod require_protection;
    mod tower_services;
}

/// The command line.
mod cli {
    mod audit;
    mod check_redis;
    mod check_sqlite;
    mod commands;
}

mod contract;

/// The demo shop.
mod demo {
    mod backend_snippets;
    mod code_snippets;
    mod hostile_visitors;
    mod shop;
}

/// README, docs and their examples, and rules for the sources of the tests.
mod docs {
    mod backend_examples;
    mod chinese_readme;
    mod guarantees;
    mod links;
    mod literal_sleeps;
    pub(crate) mod pages;
    mod readme;
    mod translated_details;
}

/// Gateways that send an auth request to the service before they forward a request.
mod gateways {
    mod browser_pages;
    mod forward_auth;
    mod hostile_clients;
    mod outcome_header;
    mod recipes;
    mod upstream_failover;
}

/// The test harness itself.
mod harness {
    mod real_servers;
}

/// Intervals and locks.
mod intervals {
    mod remembered;
    mod windows_and_locks;
}

/// Keys: requests that share one, responses to duplicates, and the state after a crash or a fault.
mod keys {
    pub(crate) mod audit_log;
    mod background_writes;
    mod crashes;
    mod effect_of_response;
    mod fingerprints;
    mod forwarded_errors;
    mod http_bodies;
    mod key_sources;
    mod lookup_and_settle;
    mod paused_process;
    mod races;
    mod redis_commands;
    mod redis_faults;
    mod replay;
    mod response_not_stored;
    mod unknown_outcome_retention;
    pub(crate) mod unreadable_keys;
    mod waiting;
}

/// The library without HTTP, and its dependencies.
mod library {
    mod dependencies;
    mod run_function;
    mod startup_errors;
}

/// The attribute `#[once]`.
mod macros {
    mod compile_errors;
    mod handlers;
    mod missing_guard;
    mod races;
    mod route_macro;
}

/// The middleware, on every web framework: several guards, outcomes, paths, rollout, disconnects and shutdown.
mod middleware {
    mod conflicting_guards;
    mod description;
    mod disconnect_and_shutdown;
    mod languages;
    mod nested_guards;
    mod outcome_header;
    mod path_spellings;
    mod request_intent;
    mod retention_header;
    mod rollout;
}
mod museum;

/// The cargo and npm packages.
mod packaging {
    mod cargo_packages;
    mod npm_package;
    mod rust_version;
}
mod patterns;

/// The proxy, in front of an application that knows nothing of Onceward.
mod proxy {
    mod bodies;
    mod body_buffer;
    mod cors;
    mod counted_connections;
    mod description;
    mod faults;
    mod headers;
    mod identities;
    mod malformed_http;
    mod malformed_responses;
    mod memory;
    mod operations;
    mod page;
    mod profiles;
    mod recipes;
    mod replayed_headers;
    mod routes;
    mod semantics;
    mod slow_clients;
    mod submission;
    mod unknown_outcomes;
    mod upgrades;
    mod upstream_timeouts;
}

/// Rejections in every format: what the client receives, and what the SDKs decide.
mod rejections {
    mod decisions;
    mod formats;
    mod matrix;
    mod own_formats;
    mod profiles;
    mod proxy;
    mod proxy_template;
}

/// The recipes of the guides: webhooks, queues, scheduled jobs and locks.
mod recipes {
    mod named_locks;
    mod rabbitmq;
    mod scheduled_jobs;
    mod webhooks;
}

/// The store on Redis: one server, Sentinel, Cluster, and their faults.
mod redis {
    pub(crate) mod cluster;
    mod command_batches;
    pub(crate) mod epochs;
    mod eviction_warning;
    pub(crate) mod faults;
    mod latency_faults;
    mod lost_replies;
    mod native_commands;
    mod out_of_memory;
    mod sentinel;
    mod store;
    mod thread_connections;
    mod tls_and_acl;
}

/// Whole scenarios across processes.
mod scenarios {
    mod end_to_end;
    mod soak;
}

/// The Rust client SDK.
mod sdk {
    mod bad_input;
    mod blocking;
    mod bodies;
    mod intervals;
    mod killed_servers;
    mod network_faults;
    mod outcome_service;
    mod refused_connections;
    mod reqwest_middleware;
    mod retries_and_redirects;
    mod submissions;
    mod token_pool;
    mod unknown_outcome;
}

/// The service over HTTP.
mod service {
    mod admin_listener;
    mod bad_input;
    mod body_limits;
    pub(crate) mod claims;
    mod connection_flood;
    mod cors_and_rate_limit;
    mod deployment_files;
    mod description;
    mod graceful_shutdown;
    mod head_requests;
    mod languages;
    mod log_lines;
    mod long_claims;
    mod malformed_http;
    mod max_in_flight;
    mod metrics;
    mod open_claims;
    mod openapi;
    mod operation;
    mod redeem;
    mod repeated_release;
    mod request_limits;
    mod sdk_script;
    mod secrets_in_logs;
    mod settings;
    mod slow_clients;
    mod startup_output;
    mod token_and_interval_claims;
}

/// The store and transactions on PostgreSQL and SQLite.
mod sql {
    mod clock_jumps;
    mod expiry_and_cleanup;
    mod faults;
    mod lost_commits;
    mod redis_in_front;
    mod replaced_sqlite_file;
    mod service;
    mod store;
    mod transaction_edge_cases;
    mod transactions;
    mod unusable_databases;
}

/// Stores inside the process.
mod stores {
    mod memory_limit;
}

/// Tokens: binding, redeem, release and secrets.
mod tokens {
    mod bad_input;
    mod binding;
    mod effect_of_response;
    mod hidden_form_field;
    mod optional;
    pub(crate) mod races;
    pub(crate) mod remembered;
    mod remembered_concurrent;
    mod revoked;
    mod secret_rotation;
    mod shared_secret;
}

/// Path of the `peer` binary: the shop as a separate process.
const PEER: &str = env!("CARGO_BIN_EXE_peer");
