//! The guard: issues tokens, and decides whether a submission runs.

mod builder;
mod check;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::Code;
use tokio::sync::watch;
use uuid::Uuid;

pub use self::builder::GuardBuilder;
use self::check::verify;
use crate::clock::Clock;
use crate::intent::{Binding, Intent};
use crate::metrics::Metrics;
use crate::mint::Mint;
use crate::mode::{Mode, ObservedCounts};
use crate::no_reply::NoReply;
use crate::pass::Pass;
use crate::policy::{Policy, TokenRules};
use crate::random;
use crate::record::{ClaimRecord, DoneRecord, Record};
use crate::rejection::Rejection;
use crate::renewal::RenewalQueue;
use crate::reply::Reply;
use crate::run_id::RunId;
#[cfg(feature = "actix")]
use crate::secret::Secret;
use crate::shared_secret::SharedSecrets;
#[cfg(any(feature = "actix", feature = "sql"))]
use crate::shutdown::InFlight;
use crate::shutdown::Shutdown;
#[cfg(feature = "actix")]
use crate::store::OriginThread;
use crate::store::{Epoch, Store, StoreError};
use crate::ticket::Ticket;
use crate::token::{GRACE, Token, TokenFields};
use crate::waiting::Waiters;

/// Decides whether a submission runs. Cheap to clone; all clones are one guard.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    sharing: Arc<SharedSecrets>,
    clock: Clock,
    drain: Shutdown,
    upkeep: RenewalQueue,
    waiting: Waiters,
    meter: Arc<Metrics>,
    mode: Mode,
    observed: ObservedCounts,
    token_ttl: Duration,
    last_call: Duration,
    drain_limit: Duration,
    problem_base: String,
    #[cfg(feature = "actix")]
    home: Option<Arc<OriginThread>>,
    _alive: watch::Sender<()>,
}

/// What is to be done with a submission. A duplicate is a verdict, never an error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// Run it, and settle the pass.
    Run(Pass),
    /// Do not run it: this is what the first run answered.
    Replay(Reply),
    /// Do not run it, for this reason.
    Reject(Rejection),
}

/// What became of giving a token back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// The token works again, now or from before.
    Back,
    /// It does not, for this reason.
    Rejected(Rejection),
}

/// What is recorded of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// The token was issued and has not been used.
    Issued,
    /// Nothing is recorded: the token was used, the key is free.
    Absent,
    /// It runs, since this time, in milliseconds since 1970.
    Running(u64),
    /// This run has ended, and nobody can tell how.
    Unknown(RunId),
    /// It is done, and this is the reply, or why none was stored. Of a token: an attempt has used it, and may still ask again or
    /// release it.
    Done(Result<Reply, NoReply>),
    /// The token was revoked before it was used.
    Revoked,
    /// It would not be looked up at all.
    Rejected(Rejection),
}

impl Seen {
    /// The reply, or what to tell whoever wants to see it.
    ///
    /// # Errors
    /// Unless there is a reply.
    pub fn into_reply(self) -> Result<Reply, Rejection> {
        Err(match self {
            Self::Done(Ok(reply)) => return Ok(reply),
            Self::Done(Err(reason)) => reason.into(),
            Self::Revoked => Code::TokenRevoked.into(),
            Self::Running(_) => Code::InProgress.into(),
            Self::Unknown(_) => Code::OutcomeUnknown.into(),
            Self::Absent | Self::Issued => Code::NotFound.into(),
            Self::Rejected(rejection) => rejection,
        })
    }
}

impl Guard {
    /// How long a token may live at all.
    pub const TOKEN_TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);

    /// A guard with default settings on this store.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// A guard on this store, with settings of your own.
    pub fn builder(store: impl Store) -> GuardBuilder {
        GuardBuilder::on(store)
    }

    /// Issues a token that lives for `ttl`.
    ///
    /// # Errors
    /// If the store did not take it, or if that cannot be told. A token that is not stored is never given out.
    pub async fn issue(&self, ttl: Duration, bound: Binding<'_>) -> Result<Token, StoreError> {
        let id = random::id();
        let ticket = Ticket::of_token(id);
        self.admit(&ticket).await?;
        let epoch = match self.0.store.epoch(&ticket) {
            Some(epoch) => epoch,
            None => self.0.store.ask_epoch(&ticket).await.map_err(StoreError::certainly_not_executed)?,
        };
        let token = self.sign(&*self.mint().await?, id, ttl, epoch, &bound);
        let life = ttl.saturating_add(GRACE);
        match self.0.store.insert(&ticket, &Record::ISSUED, life).await? {
            None => {
                self.0.meter.issued();
                Ok(token)
            }
            Some(_) => Err(StoreError::not_executed("a token with this id is there already")),
        }
    }

    /// A token that is stored nowhere, for pages of an application whose guard does not enforce: they need one to go on. Nobody
    /// knows what it is signed with, so a guard that enforces asks for another, and does not take it for a used one.
    #[cfg(feature = "actix")]
    pub(crate) fn blank(&self, ttl: Duration, bound: &Binding<'_>) -> Token {
        self.sign(&Mint::new([Secret::random()]), random::id(), ttl, Epoch::default(), bound)
    }

    fn sign(&self, mint: &Mint, id: Uuid, ttl: Duration, epoch: Epoch, bound: &Binding<'_>) -> Token {
        let ttl_millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let expires_at = self.0.clock.wall().saturating_add(ttl_millis);
        mint.sign(id, expires_at, epoch, bound)
    }

    /// Decides whether a submission runs, whatever the guard's [`mode`](Self::mode): that is for whoever acts on the verdict.
    /// Nothing is asked of the store for a token that is not good here.
    ///
    /// Once this has been called, poll it to its end: a token that is used up by a future that was dropped is gone.
    ///
    /// # Errors
    /// If the store could not be asked; [`Rejection::after`] says what to tell the caller. Nothing may run.
    pub async fn check(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        let verdict = self.decide(policy, intent).await;
        self.0.meter.verdict(policy, &verdict, intent);
        verdict
    }

    /// The same, for whoever counts what became of it.
    pub(crate) async fn decide(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Verdict, StoreError> {
        let decided = match policy {
            Policy::Token(rules) => self.check_token(rules, intent).await,
            // Apart, so that a token does not carry room for a claim with it.
            Policy::Key(rules) => Box::pin(self.check_key(rules, intent)).await,
            Policy::Interval(rules) => Box::pin(self.check_interval(rules, intent)).await,
        };
        match (decided, intent.within) {
            (Ok(Verdict::Reject(rejection)), Some(run)) => {
                Ok(Verdict::Reject(Box::pin(self.unless_within(run, rejection, policy, intent)).await))
            }
            (decided, _) => decided,
        }
    }

    /// Tells what is recorded, and changes nothing. What it says may be over a moment later: it is for people and for
    /// reconciliation, never to decide whether to run.
    ///
    /// # Errors
    /// If the store could not be asked.
    pub async fn look(&self, policy: &Policy, intent: &Intent<'_>) -> Result<Seen, StoreError> {
        match policy {
            Policy::Token(rules) => match verify(&*self.mint().await?, rules.bound, intent) {
                Ok(token) => self.look_at_token(rules, intent, &token).await,
                Err(rejection) => Ok(Seen::Rejected(rejection)),
            },
            Policy::Interval(_) => Ok(Seen::Rejected(Code::NotFound.into())),
            Policy::Key(_) => match intent.key {
                Some(key) => self.look_up(&Ticket::of_key(&intent.subject, &intent.action, key)).await,
                None => Ok(Seen::Rejected(Code::KeyMissing.into())),
            },
        }
    }

    async fn look_at_token(
        &self,
        rules: &TokenRules,
        intent: &Intent<'_>,
        token: &TokenFields,
    ) -> Result<Seen, StoreError> {
        let ticket = Ticket::of_token(token.id);
        let late = self.late(token, &ticket).await?;
        // What became of it is remembered for longer than it is good.
        if let (Some(late), None) = (&late, &rules.remember) {
            return Ok(Seen::Rejected(late.clone()));
        }
        let record = self.record(&ticket).await?;
        // Somebody else's answer is for somebody else.
        if let Some(
            found @ (Record::Claimed(ClaimRecord { asker: Some(asker), .. })
            | Record::Done(DoneRecord { asker: Some(asker), .. })),
        ) = &record
            && *asker != intent.asker(token.id)
        {
            return Ok(Seen::Rejected(found.used().into()));
        }
        let seen = record.map_or(Seen::Absent, |record| self.seen(record));
        Ok(match late {
            Some(late) if matches!(seen, Seen::Issued | Seen::Absent) => Seen::Rejected(late),
            _ => seen,
        })
    }

    /// Asks the store whether it answers, and takes what is written.
    ///
    /// # Errors
    /// If it does not. A Redis that has reached `maxmemory` and evicts nothing refuses what is new:
    /// [`StoreError::is_full`] tells that from one that cannot be reached.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.0.store.ping().await
    }

    /// Lets nothing new begin, and waits until everything that runs under this guard has ended, however long that takes.
    ///
    /// Await this before the server is stopped, since a server waits for its connections only, and drops a run whose
    /// client has gone. [`begin_draining`](Self::begin_draining) a moment earlier spares callers a rejection.
    pub async fn drain(&self) {
        self.0.drain.wait().await;
    }

    /// The life of a token for which somebody has asked for one, or not: from a second to `longest`.
    ///
    /// # Errors
    /// What to tell whoever asked for a life that is not allowed.
    pub fn ttl(&self, asked: Option<Duration>, longest: Duration) -> Result<Duration, Rejection> {
        match asked {
            None => Ok(self.0.token_ttl),
            Some(ttl) if (*Self::TOKEN_TTL.start()..=longest).contains(&ttl) => Ok(ttl),
            Some(_) => {
                let longest = onceward_api::duration::text(longest);
                Err(Rejection::new(Code::BadRequest).detail(format!("`ttl` has to be from 1s to {longest}.")))
            }
        }
    }

    /// How long callers get to notice that the process is about to stop.
    pub fn last_call(&self) -> Duration {
        self.0.last_call
    }

    /// How long a run may take to end once the process is told to stop.
    pub fn drain_limit(&self) -> Duration {
        self.0.drain_limit
    }

    /// How long a token lives where nobody says otherwise.
    pub fn token_ttl(&self) -> Duration {
        self.0.token_ttl
    }

    /// Says that the end is near: from now on answers close their connections, so that those in use go elsewhere.
    pub fn begin_draining(&self) {
        self.0.drain.begin_draining();
    }

    /// Whether the end is near.
    pub fn is_draining(&self) -> bool {
        self.0.drain.is_draining()
    }

    /// Counts something that runs, unless nothing new may begin.
    #[cfg(any(feature = "actix", feature = "sql"))]
    pub(crate) fn begin(&self) -> Option<InFlight> {
        self.0.drain.begin()
    }

    /// How much runs.
    pub(crate) fn running(&self) -> usize {
        self.0.drain.count()
    }

    pub(crate) fn meter(&self) -> &Arc<Metrics> {
        &self.0.meter
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// The home of its store, if that is in memory.
    #[cfg(feature = "actix")]
    pub(crate) fn home(&self) -> Option<&Arc<OriginThread>> {
        self.0.home.as_ref()
    }

    pub(crate) fn waiting(&self) -> &Waiters {
        &self.0.waiting
    }

    /// How much it does.
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    pub(crate) fn observed(&self) -> &ObservedCounts {
        &self.0.observed
    }

    pub(crate) fn upkeep(&self) -> &RenewalQueue {
        &self.0.upkeep
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Where the pages stand that explain a problem's code.
    pub fn problem_base(&self) -> &str {
        &self.0.problem_base
    }

    /// Whether the intent presents a token of ours that is good for it and has not expired. The store is not asked, so
    /// whether it was used is not known, and nothing is used up: for routing and for early answers, never to decide.
    pub fn recognises(&self, policy: &Policy, intent: &Intent<'_>) -> bool {
        self.0.sharing.known().is_some_and(|mint| self.present(&mint, policy, intent).is_ok())
    }

    /// The token that is presented, if it is ours and good for what it is presented for, however old it is.
    pub(crate) async fn presented(&self, intent: &Intent<'_>) -> Result<Result<TokenFields, Rejection>, StoreError> {
        Ok(verify(&*self.mint().await?, false, intent))
    }

    pub(crate) async fn look_up(&self, ticket: &Ticket) -> Result<Seen, StoreError> {
        Ok(self.record(ticket).await?.map_or(Seen::Absent, |record| self.seen(record)))
    }

    async fn record(&self, ticket: &Ticket) -> Result<Option<Record>, StoreError> {
        let found = self.0.store.look(ticket).await?;
        found.as_deref().map(Record::decode).transpose().map_err(StoreError::not_executed)
    }

    /// What a record says at this moment.
    pub(crate) fn seen(&self, record: Record) -> Seen {
        match record {
            Record::Issued => Seen::Issued,
            Record::Attempted(_) => Seen::Done(Err(NoReply::Unrecorded)),
            Record::Claimed(claimed) if claimed.is_running(self.0.clock.wall()) => Seen::Running(claimed.started_at),
            Record::Claimed(claimed) => Seen::Unknown(claimed.run),
            Record::Done(done) if done.is_revocation() => Seen::Revoked,
            Record::Done(done) => Seen::Done(done.reply),
        }
    }

    /// Has the signing secret fetched, unless it is known: before something is claimed that is to be
    /// [written down](Pass::into_signed), so that nothing stays claimed for which no pass can be signed.
    ///
    /// # Errors
    /// If the store could not be asked.
    pub async fn fetch_secret(&self) -> Result<(), StoreError> {
        self.mint().await.map(drop)
    }

    pub(crate) async fn mint(&self) -> Result<Arc<Mint>, StoreError> {
        self.0.sharing.mint(&*self.0.store).await
    }

    /// The mint, with every secret that the store has at this moment.
    pub(crate) async fn mint_of_now(&self) -> Result<Arc<Mint>, StoreError> {
        self.0.sharing.share(&*self.0.store).await.map_err(StoreError::certainly_not_executed)
    }

    /// Everything that can be said of a token without the store, in the contract's order.
    fn present(&self, mint: &Mint, policy: &Policy, intent: &Intent<'_>) -> Result<TokenFields, Rejection> {
        let Policy::Token(rules) = policy else { return Err(Code::TokenMissing.into()) };
        let token = verify(mint, rules.bound, intent)?;
        if self.is_expired(&token) {
            return Err(Code::TokenExpired.into());
        }
        match self.0.store.epoch(&Ticket::of_token(token.id)) {
            Some(epoch) if epoch != token.epoch => Err(Code::TokenStale.into()),
            _ => Ok(token),
        }
    }

    fn is_expired(&self, token: &TokenFields) -> bool {
        token.expires_at <= self.0.clock.wall()
    }

    /// Why it is too late for a token, if it has expired or is of an earlier life of the store. That such a life is over is
    /// not believed before the store has been asked: the token may be of a newer one.
    pub(crate) async fn late(&self, token: &TokenFields, ticket: &Ticket) -> Result<Option<Rejection>, StoreError> {
        if self.is_expired(token) {
            return Ok(Some(Code::TokenExpired.into()));
        }
        if self.0.store.epoch(ticket) == Some(token.epoch) {
            return Ok(None);
        }
        let asked = self.0.store.ask_epoch(ticket).await.map_err(StoreError::certainly_not_executed)?;
        Ok((asked != token.epoch).then(|| Code::TokenStale.into()))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("token_ttl", &self.0.token_ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::intent::Subject;
    use crate::pass::Settled;
    use crate::store::Memory;

    const TTL: Duration = Duration::from_secs(60);

    /// A store that the test keeps a hand on.
    fn guard() -> (Guard, Arc<Memory>, ManualClock) {
        let manual = ManualClock::new();
        let store = Arc::new(Memory::with_clock((&manual).into()));
        (Guard::builder(Arc::clone(&store)).clock((&manual).into()).build(), store, manual)
    }

    fn presenting(token: &Token) -> Intent<'_> {
        Intent::new("a", Subject::anonymous()).credential(token.as_str())
    }

    async fn check(guard: &Guard, token: &Token) -> Result<Verdict, StoreError> {
        guard.check(&Policy::token(), &presenting(token)).await
    }

    #[tokio::test]
    async fn only_an_issued_record_redeems_a_token() {
        let (guard, store, _clock) = guard();
        let token = guard.issue(TTL, Binding::none()).await.unwrap();
        let ticket = Ticket::of_token(TokenFields::open(token.as_str()).unwrap().0.id);
        for strange in [&b"\x01i"[..], b"\x03i", b"", b"\x02z", b"anything"] {
            store.take(&ticket).await.unwrap();
            store.insert(&ticket, strange, TTL).await.unwrap();
            let error = check(&guard, &token).await.unwrap_err();
            assert_eq!(Rejection::after(&error, &Policy::token(), &presenting(&token)).code(), Code::StoreUnavailable);
            assert_eq!(store.look(&ticket).await.unwrap().as_deref(), Some(strange), "it is left for whoever knows it");
            assert!(guard.look(&Policy::token(), &presenting(&token)).await.is_err());
        }
    }

    #[tokio::test]
    async fn a_token_is_put_back_for_the_rest_of_its_life_if_that_is_a_second() {
        let (guard, _store, clock) = guard();
        let token = guard.issue(TTL, Binding::none()).await.unwrap();
        for _ in 0..2 {
            let Ok(Verdict::Run(pass)) = check(&guard, &token).await else { panic!("it is good") };
            clock.advance(Duration::from_millis(29_500));
            assert_eq!(pass.release().await.unwrap(), Settled::Back);
        }
        let Ok(Verdict::Run(pass)) = check(&guard, &token).await else { panic!("a second is left") };
        clock.advance(Duration::from_millis(1));
        assert_eq!(pass.release().await.unwrap(), Settled::Final, "999 milliseconds are not worth it");
        let Ok(Verdict::Reject(rejection)) = check(&guard, &token).await else { panic!("it is gone") };
        assert_eq!(rejection.code(), Code::TokenUsed);
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused_without_a_store() {
        struct Down;
        #[crate::store::async_trait]
        impl Store for Down {
            async fn insert(
                &self,
                _: &Ticket,
                _: &[u8],
                _: Duration,
            ) -> Result<Option<crate::store::Bytes>, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn take(&self, _: &Ticket) -> Result<Option<crate::store::Bytes>, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn swap(
                &self,
                _: &Ticket,
                _: &[u8],
                _: &[u8],
                _: Duration,
            ) -> Result<crate::store::Compared, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn remove(&self, _: &Ticket, _: &[u8]) -> Result<crate::store::Compared, StoreError> {
                Err(StoreError::unknown("down"))
            }
            async fn look(&self, _: &Ticket) -> Result<Option<crate::store::Bytes>, StoreError> {
                Err(StoreError::unknown("down"))
            }
        }
        let guard = Guard::new(Down);
        let policy = Policy::token();
        let nothing = Intent::new("a", Subject::anonymous());
        for (intent, code) in [(nothing.clone(), Code::TokenMissing), (nothing.credential("x"), Code::TokenMalformed)] {
            let Ok(Verdict::Reject(rejection)) = guard.check(&policy, &intent).await else { panic!("it is none") };
            assert_eq!(rejection.code(), code);
        }
        let (other, ..) = self::guard();
        let token = other.issue(TTL, Binding::none()).await.unwrap();
        let error = check(&guard, &token).await.unwrap_err();
        let told = Rejection::after(&error, &policy, &presenting(&token)).code();
        assert_eq!(told, Code::StoreUnavailable, "nothing was done to the token, whatever became of the secret");
    }
}
