//! Where the mint's secrets come from: settings, or, with none set, one that all guards of a store agree on.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;

use crate::mint::Mint;
use crate::secret::Secret;
use crate::store::{Store, StoreError};
use crate::ticket::Ticket;

/// How long the shared secret stays in the store. It is put there again when it is gone.
const RETAIN: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// How many secrets are accepted at once; the oldest is dropped.
const ACCEPTED: usize = 4;
/// When to try again to share a secret that could not be.
const AGAIN: Duration = Duration::from_secs(1);

/// The mint, as far as it is known.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// Put forward for sharing; `None` where the settings name the secret.
    own: Option<Secret>,
    previous: Option<Secret>,
    mint: RwLock<Option<Arc<Mint>>>,
}

impl Sharing {
    /// With a secret from the settings, the mint is known at once. With none, it has to be shared first.
    pub(crate) fn new(secret: Option<Secret>, previous: Option<Secret>) -> Self {
        let own = if secret.is_none() { Some(Secret::random()) } else { None };
        let mint = secret.map(|secret| Arc::new(Mint::new([secret].into_iter().chain(previous.clone()))));
        Self { own, previous, mint: RwLock::new(mint) }
    }

    /// Whether the secret is shared through the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.own.is_some()
    }

    /// The mint, if it is known yet.
    pub(crate) fn known(&self) -> Option<Arc<Mint>> {
        self.mint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The mint; the store is asked only if it is not known yet. If that fails, nothing was done to any token.
    pub(crate) async fn mint(&self, store: &dyn Store) -> Result<Arc<Mint>, StoreError> {
        match self.known() {
            Some(mint) => Ok(mint),
            None => self.share(store).await.map_err(StoreError::certainly_not_executed),
        }
    }

    /// Puts the secret that signs into the store, unless one is there: then that one signs from now on, and what was
    /// signed with the former one is still accepted.
    pub(crate) async fn share(&self, store: &dyn Store) -> Result<Arc<Mint>, StoreError> {
        let known = self.known();
        let Some(own) = &self.own else {
            return known.ok_or_else(|| StoreError::not_executed("there is no secret to sign with"));
        };
        let signing = known.as_deref().and_then(|mint| mint.secrets().next()).unwrap_or(own);
        let agreed = agree(store, signing).await?;
        match known {
            Some(mint) if agreed == *signing => Ok(mint),
            _ => Ok(self.sign_with(agreed, own)),
        }
    }

    fn sign_with(&self, agreed: Secret, own: &Secret) -> Arc<Mint> {
        let mut current = self.mint.write().unwrap_or_else(PoisonError::into_inner);
        let former = current.iter().flat_map(|mint| mint.secrets());
        let mut secrets = vec![agreed];
        // What the settings name is never the one that is dropped.
        for secret in self.previous.iter().chain(former).chain([own]) {
            if secrets.len() < ACCEPTED && !secrets.contains(secret) {
                secrets.push(secret.clone());
            }
        }
        let mint = Arc::new(Mint::new(secrets));
        *current = Some(Arc::clone(&mint));
        mint
    }
}

/// Finds out which secret all guards of this store sign with, having put forward one's own.
async fn agree(store: &dyn Store, own: &Secret) -> Result<Secret, StoreError> {
    let ticket = Ticket::of_secret();
    // Looked for first because a store that is full still says what is there; the insert decides all the same.
    let found = match store.look(&ticket).await? {
        None => store.insert(&ticket, own.as_bytes(), RETAIN).await?,
        found => found,
    };
    match found {
        Some(bytes) => Secret::new(&bytes).map_err(StoreError::not_executed),
        None => Ok(own.clone()),
    }
}

/// Shares the secret again whenever the store was reached anew and every so often, until the guard is `gone`.
pub(crate) async fn keep_sharing(
    sharing: Arc<Sharing>,
    store: Arc<dyn Store>,
    every: Duration,
    mut gone: watch::Receiver<()>,
) {
    loop {
        // Listened for from before the secret is shared, so that no reconnect in between is missed.
        let mut anew = std::pin::pin!(store.reconnected());
        let shared = tokio::select! {
            biased;
            () = &mut anew => continue,
            _ = gone.changed() => return,
            shared = sharing.share(&*store) => shared,
        };
        let pause = match shared {
            Ok(_) => every,
            Err(error) => {
                tracing::warn!(%error, "the signing secret could not be shared through the store");
                every.min(AGAIN)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut anew => {}
            _ = gone.changed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::{Binding, Subject};
    use crate::store::Memory;

    fn shared() -> Sharing {
        Sharing::new(None, None)
    }

    fn issue(mint: &Mint) -> String {
        mint.sign(uuid::Uuid::new_v4(), 1, [0; 8], &Binding::none()).as_str().to_owned()
    }

    fn accepts(sharing: &Sharing, token: &str) -> bool {
        sharing.known().unwrap().verify(token, "", &Subject::anonymous()).is_ok()
    }

    #[tokio::test]
    async fn guards_of_one_store_agree_on_the_first_one_s_secret() {
        let store = Memory::new();
        let (first, second) = (shared(), shared());
        let token = issue(&first.mint(&store).await.unwrap());
        let answer = issue(&second.mint(&store).await.unwrap());
        assert!(accepts(&second, &token) && accepts(&first, &answer));
    }

    #[tokio::test]
    async fn a_store_that_forgot_the_secret_is_told_it_again() {
        let store = Memory::new();
        let (first, second) = (shared(), shared());
        let token = issue(&first.mint(&store).await.unwrap());
        second.mint(&store).await.unwrap();
        store.take(&Ticket::of_secret()).await.unwrap();
        second.share(&store).await.unwrap();
        let third = shared();
        third.mint(&store).await.unwrap();
        assert!(accepts(&third, &token), "the second guard passes the first one's secret on, not its own");
    }

    #[tokio::test]
    async fn two_sides_that_lost_each_other_agree_again_and_accept_what_both_have_signed() {
        let store = Memory::new();
        let (first, third) = (shared(), shared());
        let before = issue(&first.mint(&store).await.unwrap());
        store.take(&Ticket::of_secret()).await.unwrap();
        let after = issue(&third.mint(&store).await.unwrap());
        assert!(!accepts(&first, &after), "until it has shared again");
        first.share(&store).await.unwrap();
        assert!(accepts(&first, &after) && accepts(&first, &before));
        assert!(accepts(&third, &issue(&first.known().unwrap())));
    }

    #[tokio::test]
    async fn a_former_secret_of_the_settings_outlasts_all_that_were_shared() {
        let store = Memory::new();
        let previous = Secret::random();
        let token = issue(&Mint::new([previous.clone()]));
        let sharing = Sharing::new(None, Some(previous));
        for _ in 0..10 {
            sharing.share(&store).await.unwrap();
            assert!(accepts(&sharing, &token));
            store.take(&Ticket::of_secret()).await.unwrap();
            shared().mint(&store).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_secret_from_the_settings_never_goes_to_the_store() {
        let store = Memory::new();
        let sharing = Sharing::new(Some(Secret::random()), None);
        sharing.share(&store).await.unwrap();
        assert!(!sharing.is_shared() && store.is_empty());
    }
}
