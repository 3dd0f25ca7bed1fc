//! Values that the guards of one store share through it: the signing secrets, if the settings name none, and the salt of intervals.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::store::{Bytes, Compared, Room, StoreError, WatchedStore};
use crate::ticket::Ticket;
use crate::token::mint::Mint;
use crate::token::salt::Salt;
use crate::token::secret::Secret;

/// TTL of the shared values. A guard writes them again when they are missing.
const RETAIN: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// Maximum number of shared secrets accepted at once; the oldest is dropped.
const ACCEPTED: usize = 4;
/// Maximum pause before a failed refresh is retried.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of compare-and-swap attempts if other guards change the record of secrets.
const TRIES: usize = 4;

/// The mint and the salt, as far as this guard knows them.
#[derive(Debug)]
pub(crate) struct SharedSecrets {
    /// The secret from the settings, which signs; without one, the shared secret signs.
    secret: Option<Secret>,
    /// Another secret from the settings that is accepted.
    previous: Option<Secret>,
    /// Proposed if the store has no shared secret; `None` if shared secrets are not accepted.
    own: Option<Secret>,
    /// The shared secrets in the mint; the first one signs, unless the settings name a secret.
    shared: Mutex<Vec<Secret>>,
    /// Every request reads it, so reading it writes to no memory that other threads use.
    mint: ArcSwapOption<Mint>,
    salt: ArcSwapOption<Salt>,
}

impl SharedSecrets {
    /// Creates the secrets of a guard. With a secret from the settings, the mint is known at once, unless a shared secret is accepted too:
    /// the guards have to agree on that one first.
    pub(crate) fn new(secret: Option<Secret>, previous: Option<Secret>, accepts_shared: bool) -> Self {
        let own = (secret.is_none() || accepts_shared).then(Secret::random);
        let (shared, mint, salt) = Default::default();
        let sharing = Self { secret, previous, own, shared, mint, salt };
        if sharing.own.is_none() {
            sharing.accept(Vec::new());
        }
        sharing
    }

    /// Returns the mint, if it is known yet.
    pub(crate) fn known(&self) -> impl Deref<Target = Option<Arc<Mint>>> {
        self.mint.load()
    }

    /// Returns the mint. Queries the store only if the mint is not known yet. On an error, no token has changed.
    pub(crate) async fn mint(&self, store: &WatchedStore) -> Result<Arc<Mint>, StoreError> {
        match self.mint.load_full() {
            Some(mint) => Ok(mint),
            None => self.share(store).await.map_err(StoreError::certainly_not_executed),
        }
    }

    /// Reads the shared secrets, and adds those that this guard has known before. From then on all guards sign with the first of them, and
    /// accept them all. A store that has lost the secrets receives them again.
    pub(crate) async fn share(&self, store: &WatchedStore) -> Result<Arc<Mint>, StoreError> {
        let (known, mint) = {
            let shared = self.shared();
            (shared.clone(), self.mint.load_full())
        };
        match (&self.own, mint) {
            (None, mint) => mint.ok_or_else(|| StoreError::not_executed("there is no signing secret")),
            (Some(own), mint) => match (agree(store, own, &known).await?, mint) {
                (agreed, Some(mint)) if agreed == known => Ok(mint),
                (agreed, _) => Ok(self.accept(agreed)),
            },
        }
    }

    /// Accepts these shared secrets, and as many earlier ones as fit. Secrets from the settings are never dropped.
    fn accept(&self, agreed: Vec<Secret>) -> Arc<Mint> {
        let mut shared = self.shared();
        *shared = united(&agreed, &shared);
        let mut secrets: Vec<Secret> = Vec::new();
        for secret in self.secret.iter().chain(&*shared).chain(&self.previous) {
            if !secrets.contains(secret) {
                secrets.push(secret.clone());
            }
        }
        let mint = Arc::new(Mint::new(secrets));
        // Stored under the lock, so that the mint always has the secrets of the list.
        self.mint.store(Some(Arc::clone(&mint)));
        mint
    }

    fn shared(&self) -> MutexGuard<'_, Vec<Secret>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the salt of intervals. Queries the store only if the salt is not known yet. On an error, nothing was claimed.
    pub(crate) async fn salt(&self, store: &WatchedStore) -> Result<Arc<Salt>, StoreError> {
        match self.salt.load_full() {
            Some(salt) => Ok(salt),
            None => self.share_salt(store, Salt::random()).await.map_err(StoreError::certainly_not_executed),
        }
    }

    /// Inserts the salt into the store. If the store has a salt already, this guard uses that one.
    async fn share_salt(&self, store: &WatchedStore, own: Salt) -> Result<Arc<Salt>, StoreError> {
        let agreed = match put(store, &Ticket::of_salt(), own.as_bytes()).await? {
            Some(bytes) => {
                Salt::new(&bytes).ok_or_else(|| StoreError::not_executed("the salt in the store is invalid"))?
            }
            None => own,
        };
        let salt = Arc::new(agreed);
        self.salt.store(Some(Arc::clone(&salt)));
        Ok(salt)
    }

    /// Reads all shared values that are in use, and restores those that the store has lost.
    async fn refresh(&self, store: &WatchedStore) -> Result<(), StoreError> {
        if self.own.is_some() {
            self.share(store).await?;
        }
        if let Some(salt) = self.salt.load_full() {
            self.share_salt(store, (*salt).clone()).await?;
        }
        Ok(())
    }
}

/// Returns the secrets that the guards of this store share, including those in `known`. If the store has none, inserts `known`, or `own` if
/// none is known.
async fn agree(store: &WatchedStore, own: &Secret, known: &[Secret]) -> Result<Vec<Secret>, StoreError> {
    let ticket = Ticket::of_secret();
    let offered = if known.is_empty() { std::slice::from_ref(own) } else { known };
    for _ in 0..TRIES {
        let Some(bytes) = put(store, &ticket, &written(offered)).await? else { return Ok(offered.to_vec()) };
        let theirs = read(&bytes)?;
        let all = united(&theirs, known);
        if all == theirs {
            return Ok(theirs);
        }
        match store.swap(&ticket, &bytes, &written(&all), RETAIN, Room::Free, None).await {
            Ok(Compared::Done) => return Ok(all),
            // Another guard has changed the record concurrently.
            Ok(Compared::Found(_) | Compared::Gone | Compared::Stale) => {}
            // A full store allows reads and rejects writes. The next refresh retries.
            Err(StoreError::NotExecuted(_)) => return Ok(theirs),
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::not_executed("gave up after 4 compare-and-swap conflicts on the shared secrets"))
}

/// Inserts `value` if there is no record, and returns the record otherwise. Reads first, because a full store still allows reads; the
/// insert decides.
async fn put(store: &WatchedStore, ticket: &Ticket, value: &[u8]) -> Result<Option<Bytes>, StoreError> {
    match store.look(ticket).await? {
        None => store.insert(ticket, value, RETAIN, Room::Free).await,
        found => Ok(found),
    }
}

/// Returns `these`, followed by as many of `others` as fit.
fn united(these: &[Secret], others: &[Secret]) -> Vec<Secret> {
    let mut all = these.to_vec();
    for secret in others {
        if all.len() < ACCEPTED && !all.contains(secret) {
            all.push(secret.clone());
        }
    }
    all
}

/// Concatenates the secrets, which all have the same length.
fn written(secrets: &[Secret]) -> Vec<u8> {
    secrets.iter().flat_map(|secret| secret.as_bytes()).copied().collect()
}

fn read(bytes: &[u8]) -> Result<Vec<Secret>, StoreError> {
    let (each, rest) = bytes.as_chunks::<{ Secret::SHARED }>();
    let each: Vec<&[u8]> = if rest.is_empty() { each.iter().map(|secret| &secret[..]).collect() } else { vec![bytes] };
    let secrets: Result<Vec<_>, _> = each.into_iter().map(Secret::new).collect();
    let secrets = secrets.map_err(StoreError::not_executed)?;
    if secrets.is_empty() {
        Err(StoreError::not_executed("the shared secret in the store is empty"))
    } else {
        Ok(secrets)
    }
}

/// Refreshes the shared values after each reconnect and at the interval `every`, until the guard is `gone`.
pub(crate) async fn keep_sharing(
    sharing: Arc<SharedSecrets>,
    store: Arc<WatchedStore>,
    every: Duration,
    mut gone: watch::Receiver<()>,
) {
    loop {
        // Registered before the refresh, so that no reconnect in between is missed.
        let mut reconnected = std::pin::pin!(store.reconnected());
        let shared = tokio::select! {
            biased;
            () = &mut reconnected => continue,
            _ = gone.changed() => return,
            shared = sharing.refresh(&store) => shared,
        };
        let pause = match shared {
            Ok(_) => every,
            Err(error) => {
                let pause = every.min(AGAIN);
                store.step_failed(&error);
                tracing::debug!(%error, ?pause, "could not share the signing secret through the store; retrying");
                pause
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut reconnected => {}
            _ = gone.changed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Binding;
    use crate::store::Memory;
    use crate::subject::Subject;
    use crate::token::Credential;

    fn shared() -> SharedSecrets {
        SharedSecrets::new(None, None, false)
    }

    fn issue(mint: &Mint) -> String {
        mint.sign(uuid::Uuid::new_v4(), 1, [0; 8], &Binding::none()).as_str().to_owned()
    }

    fn accepts(sharing: &SharedSecrets, token: &str) -> bool {
        sharing.known().as_deref().unwrap().verify(&Credential::of(token), "", &Subject::anonymous()).is_ok()
    }

    async fn has_any(store: &WatchedStore) -> bool {
        let (secret, salt) = (store.look(&Ticket::of_secret()).await, store.look(&Ticket::of_salt()).await);
        secret.unwrap().is_some() || salt.unwrap().is_some()
    }

    /// Removes the shared records, as FLUSHALL does.
    async fn flush(store: &WatchedStore) {
        for ticket in [Ticket::of_secret(), Ticket::of_salt()] {
            if let Some(there) = store.look(&ticket).await.unwrap() {
                store.remove(&ticket, &there, None).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn guards_of_one_store_agree_on_the_first_secret() {
        let store = WatchedStore::of(Memory::new());
        let (first, second) = (shared(), shared());
        let token = issue(&first.mint(&store).await.unwrap());
        let answer = issue(&second.mint(&store).await.unwrap());
        assert!(accepts(&second, &token) && accepts(&first, &answer));
        assert_eq!(
            store.look(&Ticket::of_secret()).await.unwrap().unwrap().len(),
            Secret::SHARED,
            "exactly one secret"
        );
    }

    #[tokio::test]
    async fn secret_is_restored_in_a_store_that_lost_it() {
        let store = WatchedStore::of(Memory::new());
        let (first, second) = (shared(), shared());
        let token = issue(&first.mint(&store).await.unwrap());
        second.mint(&store).await.unwrap();
        flush(&store).await;
        second.share(&store).await.unwrap();
        let third = shared();
        third.mint(&store).await.unwrap();
        assert!(accepts(&third, &token), "the second guard passes the first one's secret on, not its own");
    }

    #[tokio::test]
    async fn diverged_guards_agree_again_and_accept_both_secrets() {
        let store = WatchedStore::of(Memory::new());
        let (first, third) = (shared(), shared());
        let before = issue(&first.mint(&store).await.unwrap());
        flush(&store).await;
        let after = issue(&third.mint(&store).await.unwrap());
        assert!(!accepts(&first, &after), "until it has shared again");
        first.share(&store).await.unwrap();
        assert!(accepts(&first, &after) && accepts(&first, &before));
        assert!(accepts(&third, &issue(first.known().as_deref().unwrap())));
        assert!(!accepts(&third, &before), "until it has looked again");
        third.share(&store).await.unwrap();
        assert!(accepts(&third, &before));
        let fourth = shared();
        fourth.mint(&store).await.unwrap();
        assert!(accepts(&fourth, &before) && accepts(&fourth, &after));
    }

    /// However often the store loses the secrets, the record does not grow, and the guards do not keep rewriting it.
    #[tokio::test]
    async fn repeatedly_lost_secrets_are_kept_up_to_a_limit() {
        let store = WatchedStore::of(Memory::new());
        let mut all = vec![shared()];
        all[0].mint(&store).await.unwrap();
        for _ in 0..2 * ACCEPTED {
            flush(&store).await;
            let newcomer = shared();
            newcomer.mint(&store).await.unwrap();
            all.push(newcomer);
            for _ in 0..2 {
                for sharing in &all {
                    sharing.share(&store).await.unwrap();
                }
            }
        }
        let settled = store.look(&Ticket::of_secret()).await.unwrap().unwrap();
        assert_eq!(settled.len(), ACCEPTED * Secret::SHARED);
        for sharing in &all {
            sharing.share(&store).await.unwrap();
            assert_eq!(store.look(&Ticket::of_secret()).await.unwrap().unwrap(), settled);
            let token = issue(sharing.known().as_deref().unwrap());
            assert!(all.iter().all(|other| accepts(other, &token)));
        }
    }

    #[tokio::test]
    async fn configured_previous_secret_outlasts_shared_ones() {
        let store = WatchedStore::of(Memory::new());
        let previous = Secret::random();
        let token = issue(&Mint::new([previous.clone()]));
        let sharing = SharedSecrets::new(None, Some(previous), false);
        for _ in 0..10 {
            sharing.share(&store).await.unwrap();
            assert!(accepts(&sharing, &token));
            flush(&store).await;
            shared().mint(&store).await.unwrap();
        }
    }

    #[tokio::test]
    async fn configured_secret_is_never_stored() {
        let store = WatchedStore::of(Memory::new());
        let sharing = SharedSecrets::new(Some(Secret::random()), Some(Secret::random()), false);
        assert!(sharing.known().is_some(), "it is known at once");
        sharing.refresh(&store).await.unwrap();
        assert!(!has_any(&store).await);
        let secret = Secret::random();
        let sharing = SharedSecrets::new(Some(secret.clone()), None, true);
        assert!(sharing.known().is_none(), "until the shared one is known too");
        sharing.share(&store).await.unwrap();
        assert_ne!(store.look(&Ticket::of_secret()).await.unwrap().unwrap(), secret.as_bytes());
    }

    #[tokio::test]
    async fn configured_secret_accepts_the_shared_one_only_on_request() {
        let store = WatchedStore::of(Memory::new());
        let (secret, plain) = (Secret::random(), shared());
        let [told, untold] = [true, false].map(|is| SharedSecrets::new(Some(secret.clone()), None, is));
        let ours = issue(&told.mint(&store).await.unwrap());
        assert!(accepts(&untold, &ours), "it signs with its own secret");
        let theirs = issue(&plain.mint(&store).await.unwrap());
        assert!(accepts(&told, &theirs) && !accepts(&untold, &theirs));
        untold.refresh(&store).await.unwrap();
        assert!(!accepts(&untold, &theirs));
    }

    #[tokio::test]
    async fn salt_is_shared_on_first_use_and_restored_when_lost() {
        let store = WatchedStore::of(Memory::new());
        let guards = [shared(), SharedSecrets::new(Some(Secret::random()), None, false)];
        guards[1].refresh(&store).await.unwrap();
        assert!(!has_any(&store).await, "no request needed it");
        let name = |salt: &Salt| salt.interval("a", &Subject::anonymous(), b"");
        let [one, two] = [guards[0].salt(&store).await.unwrap(), guards[1].salt(&store).await.unwrap()];
        assert_eq!(name(&one), name(&two));
        flush(&store).await;
        guards[1].refresh(&store).await.unwrap();
        assert_eq!(name(&shared().salt(&store).await.unwrap()), name(&one));
        flush(&store).await;
        let newcomer = shared().salt(&store).await.unwrap();
        guards[0].refresh(&store).await.unwrap();
        assert_eq!(name(&guards[0].salt(&store).await.unwrap()), name(&newcomer), "the salt in the store counts");
    }
}
