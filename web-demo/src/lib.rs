//! The demo shop: the same order form twice, guarded and unguarded.
//!
//! [`Shop`] is the shared state of the process; [`mount`] adds the page and its routes to an application. The guarded routes, one for each
//! policy, use the same [`Guard`](onceward::Guard) as the rest of the service. The demo is safe to expose: visitors, orders and requests in
//! flight are limited, bodies are small, and a visitor's input is shown to that visitor only.

mod assets;
mod handler_mode;
mod language;
mod order;
mod order_middleware;
mod protection;
mod rate_limit;
mod routes;
mod shop;
mod visitor;
mod visitor_accounts;

pub use self::language::{chosen_language, has_choice};
pub use self::routes::mount;
pub use self::shop::Shop;
