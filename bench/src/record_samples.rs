//! The records that a guard writes, byte by byte, to fill a store without a request for each.

use std::sync::Arc;
use std::time::Duration;

use onceward::store::{Bytes, Memory, Store};
use onceward::{Binding, Fingerprint, Guard, Intent, Key, KeyRules, Pass, Policy, Reply, Subject, Ticket, Verdict};

use crate::Failure;
use crate::wrk::BODY;

/// One record of each kind.
pub(crate) struct RecordSamples {
    /// A token that was not used yet.
    pub(crate) issued: Bytes,
    /// A key whose handler runs.
    pub(crate) claim: Bytes,
    /// A key with a stored response: that of the order route.
    pub(crate) reply: Bytes,
}

impl RecordSamples {
    /// How long a guard keeps a token and a stored response by default.
    pub(crate) const TOKEN_TTL: Duration = Duration::from_secs(30 * 60);
    pub(crate) const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

    /// Takes the records from a memory store, after a guard has written them.
    pub(crate) async fn taken() -> Result<Self, Failure> {
        let store = Arc::new(Memory::new());
        let guard = Guard::new(Arc::clone(&store));
        let issued = issued(&guard, &store).await?;
        let (key, policy) = (Key::new("11111111-2222-3333-4444-555555555555")?, Policy::key(KeyRules::retryable()));
        let fingerprint = Fingerprint::of_bytes(BODY.as_bytes());
        let intent = Intent::new("POST /keyed", Subject::anonymous()).key(&key).fingerprint(fingerprint);
        let pass = run(&guard, &policy, &intent).await?;
        let ticket = pass.ticket();
        let claim = record(&store, &ticket).await?;
        let reply =
            Reply::new(201, format!(r#"{{"bytes":{}}}"#, BODY.len())).header("content-type", "application/json");
        pass.complete(Some(reply)).await?;
        Ok(Self { issued, claim, reply: record(&store, &ticket).await? })
    }
}

/// Returns the record of a token. Its ticket is known once it is redeemed, so it is released again.
async fn issued(guard: &Guard, store: &Memory) -> Result<Bytes, Failure> {
    let token = guard.issue(guard.token_ttl(), Binding::none()).await?;
    let intent = Intent::new("POST /orders", Subject::anonymous()).credential(token.as_str());
    let pass = run(guard, &Policy::token(), &intent).await?;
    let ticket = pass.ticket();
    pass.release().await?;
    record(store, &ticket).await
}

async fn run(guard: &Guard, policy: &Policy, intent: &Intent<'_>) -> Result<Pass, Failure> {
    match guard.check(policy, intent).await? {
        Verdict::Run(pass) => Ok(pass),
        other => Err(format!("a first request was not run: {other:?}").into()),
    }
}

async fn record(store: &Memory, ticket: &Ticket) -> Result<Bytes, Failure> {
    store.look(ticket).await?.ok_or_else(|| format!("the guard wrote no record for {ticket}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn samples_are_the_records_of_a_token_a_claim_and_a_reply() {
        let samples = RecordSamples::taken().await.unwrap();
        let kinds = [&samples.issued, &samples.claim, &samples.reply].map(|record| record[1]);
        assert_eq!(kinds, [b'i', b'c', b'd']);
        assert_eq!(Guard::new(Memory::new()).token_ttl(), RecordSamples::TOKEN_TTL);
        let body = format!(r#"{{"bytes":{}}}"#, BODY.len());
        assert!(samples.reply.ends_with(body.as_bytes()), "{:?}", samples.reply);
    }
}
