//! The set-up of a case: shops of one stack, the requests of their middleware, a network in between, and a ledger.

use std::time::Duration;

use super::network::Network;
use super::shop_process::ShopProcess;
use super::stack::Stack;
use crate::ledger::Ledger;
use crate::polling::until;
use crate::redis_server::RedisServer;
use crate::service::OncewardServer;

/// The API key of the service.
pub const API_KEY: &str = "the-key-of-the-contract-suite";
/// An API key that the service does not know.
const WRONG_KEY: &str = "a-wrong-key-of-the-contract-suite";
/// A short lease, for cases in which one has to expire or to be renewed.
pub const LEASE: Duration = Duration::from_millis(1_500);
/// Maximum time for what happens at once on an idle machine.
pub const LONG: Duration = Duration::from_secs(30);

/// A stage that is not open yet.
#[must_use]
pub struct StageSettings {
    stack: Stack,
    shops: usize,
    lease: Option<Duration>,
    wait: Duration,
    has_wrong_key: bool,
    is_protected: bool,
}

/// The parts of a running case.
pub struct Stage {
    /// The ledger of all shops.
    pub ledger: Ledger,
    /// The shops.
    pub shops: Vec<ShopProcess>,
    /// The network between the shops and what they ask.
    pub network: Network,
    /// The service, where the middleware asks one.
    pub service: Option<OncewardServer>,
    /// The Redis of the service, or of the library.
    pub redis: RedisServer,
    settings: StageSettings,
}

impl StageSettings {
    /// Sets the number of shops.
    pub fn shops(self, shops: usize) -> Self {
        Self { shops, ..self }
    }

    /// Sets the lease of a claim.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Sets the time for which a duplicate waits.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Gives the shops credentials that are rejected.
    pub fn with_wrong_key(self) -> Self {
        Self { has_wrong_key: true, ..self }
    }

    /// Runs the shops without their middleware.
    pub fn without_protection(self) -> Self {
        Self { is_protected: false, ..self }
    }

    /// Starts everything.
    pub async fn open(self) -> Stage {
        let (redis, ledger) =
            (RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]), Ledger::new());
        let service = self.stack.asks_service().then(|| start_service(&redis));
        let network = match &service {
            Some(service) => Network::http(&service.url).await,
            None => Network::tcp(redis.port(), redis.compare_commands()).await,
        };
        let shops = (0..self.shops).map(|_| self.start_shop(&network.url(), &ledger)).collect();
        Stage { ledger, shops, network, service, redis, settings: self }
    }

    fn start_shop(&self, url: &str, ledger: &Ledger) -> ShopProcess {
        let mut command = self.stack.command();
        let key = if self.has_wrong_key { WRONG_KEY } else { API_KEY };
        let store =
            if self.has_wrong_key { url.replace("://", &format!("://shop:{WRONG_KEY}@")) } else { url.to_owned() };
        command.env("ONCEWARD_URL", url).env("ONCEWARD_API_KEY", key).env("STORE", store);
        command.env("LEDGER", ledger.path()).env("WAIT", self.wait.as_millis().to_string());
        if !self.is_protected {
            command.env("PROTECTION", "off");
        }
        if let Some(lease) = self.lease {
            command.env("LEASE", lease.as_millis().to_string());
        }
        ShopProcess::start(command)
    }
}

impl Stage {
    /// One shop of a stack, with the default lease.
    pub fn of(stack: Stack) -> StageSettings {
        StageSettings { stack, shops: 1, lease: None, wait: Duration::ZERO, has_wrong_key: false, is_protected: true }
    }

    /// The first shop.
    pub fn shop(&self) -> &ShopProcess {
        &self.shops[0]
    }

    /// Starts a shop again, at another URL, with the same settings.
    pub fn restart_shop(&mut self, at: usize) {
        self.shops[at] = self.settings.start_shop(&self.network.url(), &self.ledger);
    }

    /// Waits until this many lines of the ledger are this one.
    pub async fn recorded(&self, line: &str, count: usize) {
        until(line, LONG, || async { self.ledger.count(line) >= count }).await;
    }

    /// Kills what the middleware asks, as a crash would.
    pub fn stop_service(&mut self) {
        match &self.network {
            Network::Http(proxy, _) => {
                self.service = None;
                proxy.refuse();
            }
            Network::Tcp(proxy, _) => {
                self.redis.kill();
                proxy.reset();
            }
        }
    }

    /// Starts it again, with the same data.
    pub fn start_service(&mut self) {
        match &self.network {
            Network::Http(proxy, _) => {
                let service = start_service(&self.redis);
                proxy.lead_to(&service.url);
                proxy.accept();
                self.service = Some(service);
            }
            Network::Tcp(..) => self.redis.restart(),
        }
    }

    /// Pauses what the middleware asks; its connections stay open.
    pub fn freeze_service(&self) {
        self.service.as_ref().map_or_else(|| self.redis.freeze(), OncewardServer::freeze);
    }

    /// Resumes it.
    pub fn thaw_service(&self) {
        self.service.as_ref().map_or_else(|| self.redis.thaw(), OncewardServer::thaw);
    }
}

fn start_service(redis: &RedisServer) -> OncewardServer {
    let limits = ["--rate-limit", "off", "--rate-limit-total", "off", "--store-timeout", "1s"];
    OncewardServer::start(&[&["--store", &redis.url(), "--api-key", API_KEY][..], &limits].concat())
}
