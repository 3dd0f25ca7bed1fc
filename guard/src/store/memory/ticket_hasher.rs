//! The hash of a ticket, which decides its shard and its place in the index of the shard.

use crate::random::random;
use crate::ticket::Ticket;

/// Hashes tickets by a secret of one store.
///
/// A digest is uniformly distributed, but a client that chooses its keys can search for digests that begin with the same bits, and would
/// then fill one shard, or one run of buckets, with its records. So the first eight bytes `x` of the digest are hashed by `(a * x + b) >>
/// 64` in 128 bits, with a secret `a` and `b`. This family (multiply-shift by Dietzfelbinger) is strongly universal: whatever digests a
/// client chose, any `n` bits of two hashes are equal with the probability of `2^-n`, unless all eight bytes are equal. Two digests with
/// eight equal bytes take about `2^32` attempts to find, three `2^43`, and four `2^48`. No reply contains a hash.
///
/// This takes two multiplications. SipHash of the same bytes takes about a hundred instructions.
pub(super) struct TicketHasher {
    multiplier: u128,
    addend: u128,
}

/// The hash of a ticket. Shard and index use different bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TicketHash(u64);

impl TicketHasher {
    /// Creates a hasher with a random secret.
    pub(super) fn new() -> Self {
        Self { multiplier: u128::from_ne_bytes(random()), addend: u128::from_ne_bytes(random()) }
    }

    /// Creates a hasher whose hashes are all equal.
    #[cfg(test)]
    pub(super) fn colliding() -> Self {
        Self { multiplier: 0, addend: 0 }
    }

    pub(super) fn hash(&self, ticket: &Ticket) -> TicketHash {
        let [a, b, c, d, e, f, g, h, ..] = *ticket.digest();
        let part = u128::from(u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        TicketHash((self.multiplier.wrapping_mul(part).wrapping_add(self.addend) >> 64) as u64)
    }
}

impl TicketHash {
    /// Returns the number of the shard, of `shards`.
    pub(super) fn shard(self, shards: usize) -> usize {
        (self.0 as u32 as usize) % shards
    }

    /// Returns the bits for the index of the shard.
    pub(super) fn in_shard(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Kind;

    const SHARDS: usize = 64;

    /// Returns tickets whose digests begin with the same seven bytes, as if a client had searched for them.
    fn chosen() -> Vec<Ticket> {
        let digest = |last| [7, 7, 7, 7, 7, 7, 7, last].into_iter().chain([last; 24]);
        let digests = (0..=255).map(|last| digest(last).collect::<Vec<_>>().try_into().unwrap());
        digests.map(|digest| Ticket::from_digest(Kind::Key, digest)).collect()
    }

    #[test]
    fn hash_depends_on_ticket_and_secret() {
        let (hasher, other) = (TicketHasher::new(), TicketHasher::new());
        let (one, two) = (Ticket::of(Kind::Key, b"1"), Ticket::of(Kind::Key, b"2"));
        assert_eq!(hasher.hash(&one), hasher.hash(&one));
        assert_ne!(hasher.hash(&one), hasher.hash(&two));
        assert_ne!(hasher.hash(&one), other.hash(&one));
    }

    /// Returns the largest number of these tickets in one shard, and in one part of the index.
    fn crowding(tickets: &[Ticket]) -> usize {
        let hasher = TicketHasher::new();
        let hashes: Vec<_> = tickets.iter().map(|ticket| hasher.hash(ticket)).collect();
        let count = |value: &dyn Fn(&TicketHash) -> usize| {
            let mut counts = [0; SHARDS];
            hashes.iter().for_each(|hash| counts[value(hash)] += 1);
            counts.into_iter().max().unwrap_or_default()
        };
        count(&|hash| hash.shard(SHARDS)).max(count(&|hash| hash.in_shard() as usize % SHARDS))
    }

    #[test]
    fn chosen_digests_spread_over_shards_and_index() {
        // Four of 256 are expected in each place. The digests are pairwise independent only: one secret in about 200 puts 64 into one
        // place, and so four secrets in a row practically never do.
        let least = (0..4).map(|_| crowding(&chosen())).min();
        assert!(least < Some(64), "{least:?}");
    }
}
