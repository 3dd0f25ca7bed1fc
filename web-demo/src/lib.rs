//! The demo shop: the same order form twice, guarded and unguarded, so that anybody can click three times and see.
//!
//! [`Shop`] is what the process shares, [`mount`] puts its page and its routes into an application. The guarded routes
//! stand behind the same [`Guard`](onceward::Guard) as everything else of the service, one for each policy. Whoever plays with it can harm nobody: the
//! number of visitors, orders and requests at once are bounded, a body is small, and what somebody writes is shown to nobody
//! else.

mod assets;
mod handler_mode;
mod order;
mod order_middleware;
mod protection;
mod rate_limit;
mod routes;
mod shop;
mod visitor;
mod visitor_accounts;

pub use self::routes::mount;
pub use self::shop::Shop;
