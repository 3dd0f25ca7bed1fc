//! The contract suite: every stack offers the same small shop, and one table of cases drives it over HTTP.
//! `docs/contract-suite.md` describes the shop.

pub mod contract_handler;
pub mod library_shop;
pub mod naive_shop;
pub mod network;
pub mod shop_process;
pub mod stack;
pub mod stage;
