//! Routes of the shop with remembered tokens.

use std::time::Duration;

use onceward::http::protect::TokenPolicy;
use onceward::http::{Protect, SubjectSource};
use onceward::{Guard, KeyRules};

use crate::handler::Handler;
use crate::key_routes::{BRIEF, LEASE};
use crate::routes::Routes;
use crate::shop_handlers::{panics, purchase};
use crate::web_framework::WebFramework;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The shop's routes with remembered tokens.
pub fn routes<F: WebFramework>(guard: &Guard) -> Routes<F> {
    let leased = |lease| KeyRules::retryable().lease(lease).expect("a lease of 100 ms or more");
    let token = || Protect::<F, TokenPolicy>::token(guard, SubjectSource::anonymous());
    // A duplicate does not wait: it receives the current state.
    let remember = |rules| token().remember_by(rules).wait(Duration::ZERO);
    let purchase = || Handler::of_body(purchase);
    let waiting = token().remember_by(leased(LEASE)).wait(Duration::from_secs(20));
    Routes::new()
        .post("/remembered/orders", remember(leased(LEASE)), purchase())
        .post("/remembered/brief", remember(leased(BRIEF)), purchase())
        .post("/remembered/default", token().remember(HOUR), purchase())
        .post("/remembered/waiting", waiting, purchase())
        .post("/remembered/panic", remember(leased(BRIEF)), Handler::of_head(panics))
}
