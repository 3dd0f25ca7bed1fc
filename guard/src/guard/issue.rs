//! Issues tokens.

use std::time::Duration;

use onceward_api::Code;
use uuid::Uuid;

use super::TOKEN_TTL;
use crate::binding::Binding;
use crate::engine::Engine;
use crate::epoch::Epoch;
use crate::language::Language;
use crate::policy::SettingError;
use crate::random;
use crate::record::Record;
use crate::rejection::Rejection;
use crate::store::{Room, StoreError};
use crate::ticket::Ticket;
use crate::token::mint::Mint;
use crate::token::secret::Secret;
use crate::token::{GRACE, Token};

/// The reason why no token was issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The time to live is outside of [`Guard::TOKEN_TTL`](crate::Guard::TOKEN_TTL).
    #[error(transparent)]
    Ttl(#[from] SettingError),
    /// The store did not write the token, or it is unknown whether it did.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the time to live if it is in the allowed range.
pub(super) fn valid(ttl: Duration) -> Result<Duration, SettingError> {
    if TOKEN_TTL.contains(&ttl) { Ok(ttl) } else { Err(SettingError::TokenTtl(ttl)) }
}

pub(super) async fn issue(engine: &Engine, ttl: Duration, bound: &Binding<'_>) -> Result<Token, IssueError> {
    let ttl = valid(ttl)?;
    Ok(write(engine, ttl, bound).await.inspect_err(|error| engine.store.request_failed(error))?)
}

async fn write(engine: &Engine, ttl: Duration, bound: &Binding<'_>) -> Result<Token, StoreError> {
    let id = random::id();
    let ticket = Ticket::of_token(id);
    engine.admit(&ticket).await?;
    let epoch = match engine.store.epoch(&ticket) {
        Some(epoch) => epoch,
        None => engine.store.ask_epoch(&ticket).await.map_err(StoreError::certainly_not_executed)?,
    };
    let token = sign(engine, &*engine.mint().await?, id, ttl, epoch, bound);
    match engine.store.insert(&ticket, &Record::ISSUED, ttl.saturating_add(GRACE), Room::Free).await? {
        None => {
            engine.metrics.issued();
            Ok(token)
        }
        Some(_) => Err(StoreError::not_executed("the store already has a token with this id")),
    }
}

/// Creates a token that is not stored, signed with a random secret that no guard has: a guard that enforces rejects it as `token_invalid`,
/// and not as used.
pub(super) fn blank(engine: &Engine, ttl: Duration, bound: &Binding<'_>) -> Token {
    sign(engine, &Mint::new([Secret::random()]), random::id(), ttl, Epoch::default(), bound)
}

fn sign(engine: &Engine, mint: &Mint, id: Uuid, ttl: Duration, epoch: Epoch, bound: &Binding<'_>) -> Token {
    let ttl_millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    mint.sign(id, engine.clock.wall().saturating_add(ttl_millis), epoch, bound)
}

/// Returns the time to live that a client requested, or the default if it requested none.
pub(super) fn ttl(engine: &Engine, asked: Option<Duration>, longest: Duration) -> Result<Duration, Rejection> {
    match asked {
        None => Ok(engine.token_ttl),
        Some(ttl) if (*TOKEN_TTL.start()..=longest).contains(&ttl) => Ok(ttl),
        Some(_) => {
            let longest = onceward_api::duration::text(longest);
            Err(Rejection::new(Code::BadRequest)
                .detail(format!("`ttl` must be from 1s to {longest}."))
                .detail_in(Language::SIMPLIFIED_CHINESE, format!("`ttl` 必须在 1s 到 {longest} 之间。")))
        }
    }
}
