//! The parts of a guard that all its operations share: store, secrets, clock, renewals, waiters and counters.

use std::sync::Arc;
use std::time::Duration;

use onceward_api::Outcome;
use tokio::sync::watch;

use crate::audit;
use crate::clock::Clock;
use crate::language::Languages;
use crate::metrics::{self, Metrics};
use crate::mode::{Mode, RolloutCounts};
use crate::open_claims::OpenClaims;
use crate::record::Record;
use crate::renewal::RenewalQueue;
use crate::shared_secret::SharedSecrets;
use crate::shutdown::Shutdown;
use crate::store::{Admission, OriginThread, StoreError, WatchedStore};
use crate::ticket::Ticket;
use crate::token::mint::Mint;
use crate::waiters::Waiters;
use crate::warning_limit::WarningLimit;

/// The shared state of one guard. Every pass and every claim holds a reference, so the background tasks run until the last one is settled.
pub(crate) struct Engine {
    pub(crate) store: Arc<WatchedStore>,
    pub(crate) secrets: Arc<SharedSecrets>,
    pub(crate) clock: Clock,
    pub(crate) shutdown: Shutdown,
    pub(crate) renewals: RenewalQueue,
    pub(crate) waiters: Waiters,
    pub(crate) open_claims: OpenClaims,
    pub(crate) overdue_warnings: WarningLimit,
    pub(crate) metrics: Metrics,
    pub(crate) rollout: RolloutCounts,
    /// Rate limit for warnings about transactions that the database rejected.
    #[cfg(feature = "sql")]
    pub(crate) transactions: WarningLimit,
    pub(crate) mode: Mode,
    pub(crate) token_ttl: Duration,
    pub(crate) last_call: Duration,
    pub(crate) drain_limit: Duration,
    pub(crate) problem_base: String,
    pub(crate) languages: Languages,
    /// The thread that built the store, if the store is in memory.
    pub(crate) origin_thread: Option<Arc<OriginThread>>,
    /// Dropped with the engine, which stops the background tasks.
    pub(crate) _alive: watch::Sender<()>,
}

impl Engine {
    /// Admits new work on this ticket. While most store commands time out, one request at a time probes the store with a read, and the
    /// others are rejected at once.
    pub(crate) async fn admit(&self, ticket: &Ticket) -> Result<(), StoreError> {
        match self.store.admission(ticket) {
            Admission::Accept => Ok(()),
            // Boxed to keep the future of the common path small.
            Admission::Probe => match Box::pin(self.store.look(ticket)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.certainly_not_executed()),
            },
            Admission::Reject => Err(StoreError::not_executed("most store commands time out, so new work is rejected")),
        }
    }

    /// Counts and logs a request that failed because of the store.
    pub(crate) fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        result.inspect_err(|error| self.store.request_failed(error))
    }

    /// Returns the record of a ticket.
    pub(crate) async fn record(&self, ticket: &Ticket) -> Result<Option<Record>, StoreError> {
        let found = self.store.look(ticket).await?;
        found.as_ref().map(Record::decode_shared).transpose().map_err(StoreError::not_executed)
    }

    pub(crate) async fn mint(&self) -> Result<Arc<Mint>, StoreError> {
        self.secrets.mint(&self.store).await
    }

    /// Returns the mint, with every secret that the store currently has.
    pub(crate) async fn current_mint(&self) -> Result<Arc<Mint>, StoreError> {
        self.secrets.share(&self.store).await.map_err(StoreError::certainly_not_executed)
    }

    /// Counts and logs a request that ran in observe mode, by the outcome that it would have had under enforcement.
    pub(crate) fn observe(&self, outcome: Outcome, action: &str) {
        self.count_observed(outcome.as_str(), action);
    }

    pub(crate) fn count_observed(&self, outcome: &'static str, action: &str) {
        self.rollout.observe(outcome);
        metrics::would_have(outcome);
        audit::observed(action, outcome);
    }

    /// Counts and logs a submission that runs although the store could not be reached.
    pub(crate) fn note_unprotected(&self, action: &str, error: &StoreError) {
        self.rollout.count_unprotected();
        self.metrics.unprotected();
        audit::let_through(action, error);
    }
}
