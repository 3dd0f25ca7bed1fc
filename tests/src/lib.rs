//! The test bed: real servers, an independent ledger, a proxy that loses answers, and the flawed implementations that
//! each guarantee is held against.

pub mod bank;
pub mod charging;
pub mod client;
pub mod consumer;
pub mod database;
pub mod flawed;
pub mod flood;
pub mod gateway;
pub mod keyed;
pub mod ledger;
pub mod metrics;
pub mod mishap;
pub mod pages;
pub mod peer;
pub mod piggy_bank;
pub mod postgres;
pub mod proxy;
pub mod raw;
pub mod redis_cluster;
pub mod redis_server;
pub mod remembered;
pub mod sentinels;
pub mod service;
pub mod shop;
pub mod spaced;
pub mod tally;
pub mod tls_redis;
pub mod tour;
pub mod turnstile;
pub mod wait;
pub mod wall_clock;
