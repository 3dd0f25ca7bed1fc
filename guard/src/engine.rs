//! What every part of one guard shares: its store, secrets, clock, renewals, waiters and counters.

use std::sync::Arc;
use std::time::Duration;

use onceward_api::Outcome;
use tokio::sync::watch;

use crate::audit;
use crate::clock::Clock;
use crate::metrics::{self, Metrics};
use crate::mode::{Mode, RolloutCounts};
use crate::record::Record;
use crate::renewal::RenewalQueue;
use crate::shared_secret::SharedSecrets;
use crate::shutdown::Shutdown;
use crate::store::{Admission, OriginThread, Store, StoreError};
use crate::ticket::Ticket;
use crate::token::mint::Mint;
use crate::waiters::Waiters;

/// The parts of one guard. Every pass and every claim holds a reference, so the background tasks go on until the last is settled.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) secrets: Arc<SharedSecrets>,
    pub(crate) clock: Clock,
    pub(crate) shutdown: Shutdown,
    pub(crate) renewals: RenewalQueue,
    pub(crate) waiters: Waiters,
    pub(crate) metrics: Metrics,
    pub(crate) rollout: RolloutCounts,
    pub(crate) mode: Mode,
    pub(crate) token_ttl: Duration,
    pub(crate) last_call: Duration,
    pub(crate) drain_limit: Duration,
    pub(crate) problem_base: String,
    /// The thread that has built the store, if that is in memory.
    pub(crate) origin_thread: Option<Arc<OriginThread>>,
    /// Dropped with the engine, which ends the background tasks.
    pub(crate) _alive: watch::Sender<()>,
}

impl Engine {
    /// Lets new work begin on this ticket. While the store does not answer in time, one caller at a time probes whether it does again, by a
    /// look that changes nothing; the others are rejected at once.
    pub(crate) async fn admit(&self, ticket: &Ticket) -> Result<(), StoreError> {
        match self.store.admission(ticket) {
            Admission::Accept => Ok(()),
            // Boxed, since every request pays for the size of what few need.
            Admission::Probe => match Box::pin(self.store.look(ticket)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.certainly_not_executed()),
            },
            Admission::Reject => Err(StoreError::not_executed("most commands time out, so new work is rejected")),
        }
    }

    /// The record of a ticket.
    pub(crate) async fn record(&self, ticket: &Ticket) -> Result<Option<Record>, StoreError> {
        let found = self.store.look(ticket).await?;
        found.as_deref().map(Record::decode).transpose().map_err(StoreError::not_executed)
    }

    pub(crate) async fn mint(&self) -> Result<Arc<Mint>, StoreError> {
        self.secrets.mint(&*self.store).await
    }

    /// The mint, with every secret that the store has at this moment.
    pub(crate) async fn current_mint(&self) -> Result<Arc<Mint>, StoreError> {
        self.secrets.share(&*self.store).await.map_err(StoreError::certainly_not_executed)
    }

    /// Counts and logs a request that ran although it would have had this outcome.
    pub(crate) fn observe(&self, outcome: Outcome, action: &str) {
        self.count_observed(outcome.as_str(), action);
    }

    pub(crate) fn count_observed(&self, outcome: &'static str, action: &str) {
        self.rollout.observe(outcome);
        metrics::would_have(outcome);
        audit::observed(action, outcome);
    }

    /// Counts and logs a submission that runs although the store could not be asked.
    pub(crate) fn note_unprotected(&self, action: &str, error: &StoreError) {
        self.rollout.count_unprotected();
        self.metrics.unprotected();
        audit::let_through(action, error);
    }
}
