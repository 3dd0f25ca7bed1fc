//! The contract shop on the library: one table of routes for every web framework.

use std::time::Duration;

use onceward::http::protect::{KeyPolicy, TokenPolicy};
use onceward::http::{Protect, SubjectSource};
use onceward::{Guard, KeyRules};

use super::contract_handler::{TIMEOUT, order};
use crate::handler::Handler;
use crate::routes::{Layer, Route, Routes};
use crate::shop::{USER, text_of};
use crate::web_framework::WebFramework;

/// The settings of a shop.
#[derive(Debug, Clone, Copy)]
pub struct ShopSettings {
    /// The lease of a claim; the library's default if absent.
    pub lease: Option<Duration>,
    /// The time for which a duplicate waits.
    pub wait: Duration,
    /// False runs the shop without the library.
    pub is_protected: bool,
}

impl ShopSettings {
    fn leased(self, rules: KeyRules) -> KeyRules {
        match self.lease {
            Some(lease) => rules.lease(lease).expect("a lease of 100 ms or more"),
            None => rules,
        }
    }
}

/// The routes, each protected by the library unless the settings say otherwise.
pub fn routes<F: WebFramework>(guard: &Guard, settings: ShopSettings) -> Routes<F> {
    if !settings.is_protected {
        return open_routes();
    }
    let key = |rules| Protect::<F, KeyPolicy>::key(guard, user::<F>(), settings.leased(rules)).wait(settings.wait);
    let remembered = Protect::<F, TokenPolicy>::token(guard, SubjectSource::anonymous())
        .remember_by(settings.leased(KeyRules::retryable()))
        .wait(settings.wait);
    Routes::new()
        .route(at("/orders").wrap(key(KeyRules::at_most_once())))
        .route(at("/retryable").wrap(key(KeyRules::retryable())))
        .route(at("/forms").wrap(remembered))
        .route(at("/open"))
        .tokens(guard, SubjectSource::anonymous())
}

/// The same routes, without protection and without tokens.
pub fn open_routes<F: WebFramework>() -> Routes<F> {
    ["/orders", "/retryable", "/forms", "/open"].into_iter().fold(Routes::new(), |routes, path| routes.route(at(path)))
}

/// The handler at a path, below the timeout of the shop.
fn at<F: WebFramework>(path: &str) -> Route<F> {
    let timeout = Layer::Timeout(|call| call.number(TIMEOUT).map(Duration::from_millis));
    Route::any(path, Handler::of_body(order).marked()).wrap(timeout)
}

/// Reads the subject from the header [`USER`], if there is one.
fn user<F: WebFramework>() -> SubjectSource<F::Request> {
    SubjectSource::resolver(|request| Some(text_of::<F>(request, USER).unwrap_or("anonymous").to_owned()))
}
