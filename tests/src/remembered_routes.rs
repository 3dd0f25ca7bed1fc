//! Routes of the shop with remembered tokens.

use std::time::Duration;

use actix_web::web::{self, ServiceConfig};
use onceward::actix::{Protect, SubjectFrom};
use onceward::{Guard, KeyRules};

use crate::key_routes::{BRIEF, LEASE, purchase};
use crate::shop::panics;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The shop's routes with remembered tokens.
pub fn routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let guard = guard.clone();
    move |config| {
        let rules = || KeyRules::retryable().lease(LEASE).expect("a lease of 100 ms or more");
        let waiting = |rules| Protect::token(&guard, SubjectFrom::anonymous()).remember_by(rules);
        // A duplicate does not wait: it receives the current state.
        let remember = |rules| waiting(rules).wait(Duration::ZERO);
        let resource = |path: &str, protect| web::resource(format!("/remembered{path}")).wrap(protect);
        let protect = |path: &str, protect| resource(path, protect).route(web::post().to(purchase));
        config
            .service(protect("/orders", remember(rules())))
            .service(protect("/brief", remember(rules().lease(BRIEF).expect("a lease of 100 ms or more"))))
            .service(protect("/default", Protect::token(&guard, SubjectFrom::anonymous()).remember(HOUR)))
            .service(protect("/waiting", waiting(rules()).wait(Duration::from_secs(20))))
            .service(
                resource("/panic", remember(rules().lease(BRIEF).expect("a lease of 100 ms or more")))
                    .route(web::post().to(panics)),
            );
    }
}
