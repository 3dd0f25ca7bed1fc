//! The network between a shop and what its middleware asks: the service for an SDK, Redis for the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::faulty_http_proxy::{FaultyHttpProxy, HttpFault, smooth};
use crate::faulty_tcp_proxy::{Proxy, TcpFault};
use crate::random_faults::between_application_and_service;
use crate::redis_server::CompareCommands;

/// A call of the middleware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Claims a key or a token.
    Claim,
    /// Renews the lease of a claim.
    Renew,
    /// Stores the response.
    Complete,
    /// Frees the key or the token.
    Release,
}

/// The part of a call that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The request does not arrive.
    Request,
    /// The request is executed, and its response does not arrive.
    Response,
}

/// The network, which loses messages on demand.
pub enum Network {
    /// HTTP to the service, and the number of lost messages.
    Http(FaultyHttpProxy, Arc<AtomicUsize>),
    /// TCP to a Redis with these commands.
    Tcp(Proxy, CompareCommands),
}

impl Network {
    /// A network to the service at this URL.
    pub async fn http(url: &str) -> Self {
        Self::Http(FaultyHttpProxy::to(url, smooth).await, Arc::default())
    }

    /// A network to the Redis on this port.
    pub async fn tcp(port: u16, commands: CompareCommands) -> Self {
        Self::Tcp(Proxy::before(port).await, commands)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match self {
            Self::Http(proxy, _) => proxy.url.clone(),
            Self::Tcp(proxy, _) => proxy.url(),
        }
    }

    /// Loses a part of the next call of this kind under a key. Later ones pass.
    pub fn lose(&self, step: Step, lost: Lost) {
        self.lose_next(step, lost, word_of);
    }

    /// Like [`lose`](Self::lose), under a token. Without a service, the next change of any issued token is lost.
    pub fn lose_under_token(&self, step: Step, lost: Lost) {
        // The library inserts the record of a token when it issues it. Each step compares that record, and changes it.
        self.lose_next(step, lost, |_, commands| commands.swap_word());
    }

    fn lose_next(&self, step: Step, lost: Lost, word_of: fn(Step, CompareCommands) -> &'static str) {
        match self {
            Self::Http(proxy, struck) => {
                let (is_armed, struck) = (AtomicBool::new(true), Arc::clone(struck));
                proxy.plan(move |seen| {
                    if !seen.line.ends_with(path_of(step)) || !is_armed.swap(false, Ordering::SeqCst) {
                        return HttpFault::None;
                    }
                    struck.fetch_add(1, Ordering::SeqCst);
                    if lost == Lost::Request { HttpFault::CutBefore } else { HttpFault::CutAnswer(0) }
                });
            }
            Self::Tcp(proxy, commands) => {
                let fault = if lost == Lost::Request { TcpFault::LoseRequest } else { TcpFault::LoseAnswer };
                proxy.next(word_of(step, *commands), fault);
            }
        }
    }

    /// Loses a message of one call in three from now on, until [`relent`](Self::relent).
    pub fn lose_often(&self) {
        match self {
            Self::Http(proxy, _) => proxy.plan(between_application_and_service),
            Self::Tcp(proxy, _) => proxy.often("onceward:", TcpFault::LoseAnswer, 3),
        }
    }

    /// Loses no message any more.
    pub fn relent(&self) {
        match self {
            Self::Http(proxy, _) => proxy.plan(smooth),
            Self::Tcp(proxy, _) => proxy.relent(),
        }
    }

    /// Number of messages that were lost.
    pub fn lost(&self) -> usize {
        match self {
            Self::Http(_, struck) => struck.load(Ordering::SeqCst),
            Self::Tcp(proxy, _) => proxy.struck(),
        }
    }
}

/// The path of a step at the service.
fn path_of(step: Step) -> &'static str {
    match step {
        Step::Claim => "POST /claim",
        Step::Renew => "POST /claim/renew",
        Step::Complete => "POST /claim/complete",
        Step::Release => "POST /claim/release",
    }
}

/// A word that occurs in the Redis command of a step.
fn word_of(step: Step, commands: CompareCommands) -> &'static str {
    match step {
        Step::Claim => "NX\r\n",
        Step::Renew | Step::Complete => commands.swap_word(),
        Step::Release => commands.remove,
    }
}
