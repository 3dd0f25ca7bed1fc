//! The test bed: real servers, an independent ledger, a proxy that loses answers, and the flawed implementations that
//! each guarantee is held against.

pub mod client;
pub mod consumer;
pub mod flawed;
pub mod gateway;
pub mod keyed;
pub mod ledger;
pub mod metrics;
pub mod mishap;
pub mod pages;
pub mod peer;
pub mod proxy;
pub mod redis_server;
pub mod remembered;
pub mod service;
pub mod shop;
pub mod spaced;
pub mod wait;
