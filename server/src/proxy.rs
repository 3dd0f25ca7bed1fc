//! The proxy: stored responses for any HTTP/1.1 backend, without a change to it.

pub(crate) mod app;
mod audience;
mod body;
mod claim_rules;
mod cors;
mod description;
mod forward;
mod identity;
mod in_flight;
mod inject;
pub mod normal_path;
pub(crate) mod own_routes;
pub mod pattern;
pub mod rejection_template;
mod request_head;
pub mod route;
pub mod route_table;
pub(crate) mod rule;
mod service;
pub mod settings;
mod tunnel;
mod upstream;
mod worker;
