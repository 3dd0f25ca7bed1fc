//! The rate limit on issued tokens: per client, and for all clients together.
//!
//! These are token buckets. The crate `governor` has such buckets too, but cannot replace these. A request takes from the bucket of its
//! client and from the common one, or from neither; `governor` cannot give back what it took, so a client would pay for requests that
//! are rejected because of other clients. It has no bound on the number of clients either.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::{Language, Rejection};
use onceward_api::Code;
use tokio::time::Instant;

use super::bad_request;
use crate::config::Rate;

/// The number of clients with a bucket of their own. Further clients share one until full buckets are dropped.
const CLIENTS: usize = 50_000;
/// The shortest time between two searches for full buckets to drop.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Limits the number of tokens per client and in total.
#[derive(Debug)]
pub struct RateLimiter {
    per_client: Option<Allowance>,
    total: Option<Allowance>,
    started: Instant,
    buckets: Mutex<Buckets>,
}

/// The size and refill rate of a bucket.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    burst: f64,
    per_second: f64,
}

#[derive(Debug)]
struct Buckets {
    clients: HashMap<IpAddr, Bucket>,
    /// Shared by the clients beyond [`CLIENTS`].
    overflow: Bucket,
    total: Bucket,
    swept: Duration,
}

/// The number of tokens left at a point in time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Duration,
}

/// The values of the two `RateLimit` headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
}

/// The limit that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// The limit of one client.
    Client,
    /// The limit of all clients together.
    Total,
}

/// A request exceeds a limit.
#[derive(Debug)]
pub struct LimitError {
    /// The response.
    pub rejection: Box<Rejection>,
    /// The limit.
    pub scope: LimitScope,
    /// The rest of the client's quota, if clients are limited.
    pub headers: Option<RateLimitHeaders>,
}

/// A bucket with too few tokens for a request.
struct Shortage {
    scope: LimitScope,
    allowance: Allowance,
    bucket: Bucket,
}

impl RateLimiter {
    /// Allows each client this rate and burst, and all clients together the rate `total`.
    pub fn new(rate: Option<Rate>, burst: NonZeroU32, total: Option<Rate>) -> Self {
        let full = Bucket { left: f64::INFINITY, at: Duration::ZERO };
        let buckets = Buckets { clients: HashMap::new(), overflow: full, total: full, swept: Duration::ZERO };
        Self {
            per_client: rate.map(|rate| Allowance::new(rate, burst.get())),
            total: total.map(|rate| Allowance::new(rate, rate.count.get())),
            started: Instant::now(),
            buckets: Mutex::new(buckets),
        }
    }

    /// Takes `count` tokens from the client's bucket and from the common one, or from neither.
    ///
    /// # Errors
    /// If one of them has fewer left.
    pub fn take(&self, client: IpAddr, count: NonZeroU32) -> Result<Option<RateLimitHeaders>, LimitError> {
        self.take_at(self.started.elapsed(), client, count)
    }

    fn take_at(
        &self,
        now: Duration,
        client: IpAddr,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitHeaders>, LimitError> {
        let count = f64::from(count.get());
        // The lock is not held while headers are formatted.
        let (own, shortage) = self.withdraw(now, client, count);
        let headers = Option::zip(self.per_client, own).map(|(allowance, bucket)| allowance.headers(bucket));
        match shortage {
            None => Ok(headers),
            Some(shortage) => {
                Err(LimitError { rejection: shortage.rejection(count).into(), scope: shortage.scope, headers })
            }
        }
    }

    /// Takes `count` from both buckets, unless one of them has too few. Returns the client's bucket as it is then.
    fn withdraw(&self, now: Duration, client: IpAddr, count: f64) -> (Option<Bucket>, Option<Shortage>) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = &mut *buckets;
        let mut total = self.total.map_or(buckets.total, |allowance| buckets.total.refilled(now, &allowance));
        let own = self.per_client.map(|allowance| (allowance, buckets.of_client(network(client), now, &allowance)));
        let shortage = match (&own, self.total) {
            (Some((allowance, bucket)), _) if bucket.left < count => {
                Some(Shortage { scope: LimitScope::Client, allowance: *allowance, bucket: **bucket })
            }
            (_, Some(allowance)) if total.left < count => {
                Some(Shortage { scope: LimitScope::Total, allowance, bucket: total })
            }
            _ => None,
        };
        let taken = if shortage.is_none() { count } else { 0.0 };
        let own = own.map(|(_, bucket)| {
            bucket.left -= taken;
            *bucket
        });
        total.left -= taken;
        buckets.total = total;
        (own, shortage)
    }
}

impl Buckets {
    /// Returns the bucket of a client, refilled. A client beyond [`CLIENTS`] receives the shared one.
    fn of_client(&mut self, client: IpAddr, now: Duration, allowance: &Allowance) -> &mut Bucket {
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.sweep(now, allowance);
        }
        let bucket = if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            &mut self.overflow
        } else {
            self.clients.entry(client).or_insert(Bucket { left: allowance.burst, at: now })
        };
        *bucket = bucket.refilled(now, allowance);
        bucket
    }

    /// Drops the buckets that are full again.
    fn sweep(&mut self, now: Duration, allowance: &Allowance) {
        if now.saturating_sub(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            self.clients.retain(|_, bucket| bucket.refilled(now, allowance).left < allowance.burst);
        }
    }
}

impl Bucket {
    /// Returns the bucket with the tokens added since `at`. Threads read the clock before they take the lock, so `now` may be a little before `at`.
    fn refilled(self, now: Duration, allowance: &Allowance) -> Self {
        let added = now.saturating_sub(self.at).as_secs_f64() * allowance.per_second;
        Self { left: (self.left + added).min(allowance.burst), at: now.max(self.at) }
    }
}

impl Allowance {
    fn new(rate: Rate, burst: u32) -> Self {
        Self { burst: f64::from(burst), per_second: f64::from(rate.count.get()) / rate.per.as_secs_f64() }
    }

    /// Returns the time to refill this many tokens.
    fn refill_time(&self, count: f64) -> Duration {
        Duration::try_from_secs_f64(count.max(0.0) / self.per_second).unwrap_or(Duration::MAX)
    }

    fn headers(&self, bucket: Bucket) -> RateLimitHeaders {
        let (window, reset) = (self.refill_time(self.burst), self.refill_time(self.burst - bucket.left));
        // As integers, which are formatted much faster than floating-point numbers.
        let [burst, left, reset] =
            [self.burst, bucket.left.floor(), reset.as_secs_f64().ceil()].map(|value| value as u64);
        RateLimitHeaders {
            policy: format!("\"client\";q={burst};w={}", window.as_secs().max(1)),
            left: format!("\"client\";r={left};t={reset}"),
        }
    }
}

impl Shortage {
    fn rejection(&self, count: f64) -> Rejection {
        let Self { scope, allowance, bucket } = self;
        if count > allowance.burst {
            let most = allowance.burst;
            return bad_request(
                format!("`count` exceeds the burst limit of {most} tokens."),
                format!("`count` 超出突发上限（{most} 个令牌）。"),
            );
        }
        let (whose, chinese) = match scope {
            LimitScope::Client => ("this client", "该客户端"),
            LimitScope::Total => ("all clients together", "所有客户端合计"),
        };
        Rejection::new(Code::RateLimited)
            .detail(format!(
                "The rate limit for tokens of {whose} is exceeded. Send the same request again after Retry-After."
            ))
            .detail_in(
                Language::SIMPLIFIED_CHINESE,
                format!("{chinese}获取令牌的请求超出了速率限制。请在 Retry-After 之后重新发送同一请求。"),
            )
            .wait(allowance.refill_time(count - bucket.left))
    }
}

/// Returns the network that counts as one client: an IPv4 address, or an IPv6 /64, because one host may use all of its addresses.
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn some(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn rate(count: u32) -> Option<Rate> {
        Some(Rate { count: some(count), per: Duration::from_secs(3600) })
    }

    fn taken(limiter: &RateLimiter, client: &str) -> usize {
        let client = client.parse().unwrap();
        (0..1000).take_while(|_| limiter.take_at(Duration::ZERO, client, ONE).is_ok()).count()
    }

    #[test]
    fn each_client_has_its_own_limit() {
        let limiter = RateLimiter::new(rate(10), some(5), None);
        assert_eq!((taken(&limiter, "10.0.0.1"), taken(&limiter, "10.0.0.1")), (5, 0));
        assert_eq!(taken(&limiter, "10.0.0.2"), 5);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let limiter = RateLimiter::new(rate(10), some(5), None);
        assert_eq!((taken(&limiter, "2001:db8::1"), taken(&limiter, "2001:db8::2")), (5, 0));
        assert_eq!(taken(&limiter, "2001:db8:0:1::1"), 5);
    }

    #[test]
    fn total_limit_rejection_costs_the_client_no_quota() {
        let limiter = RateLimiter::new(rate(3600), some(70), rate(100));
        assert_eq!((taken(&limiter, "10.0.0.1"), taken(&limiter, "10.0.0.2")), (70, 30));
        let over = limiter.take_at(Duration::ZERO, "10.0.0.2".parse().unwrap(), ONE).unwrap_err();
        assert_eq!(over.headers.unwrap().left, "\"client\";r=40;t=30");
        assert_eq!(taken(&RateLimiter::new(None, some(5), None), "10.0.0.1"), 1000);
    }

    #[test]
    fn headers_state_remaining_quota_and_reset() {
        let limiter = RateLimiter::new(Some(Rate { count: some(10), per: Duration::from_secs(1) }), some(20), None);
        let client = "10.0.0.1".parse().unwrap();
        let headers = limiter.take_at(Duration::ZERO, client, some(15)).unwrap().unwrap();
        assert_eq!((headers.policy.as_str(), headers.left.as_str()), ("\"client\";q=20;w=2", "\"client\";r=5;t=2"));
        let over = limiter.take_at(Duration::ZERO, client, some(15)).unwrap_err();
        assert_eq!(over.rejection.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(over.headers.unwrap().left, "\"client\";r=5;t=2", "a rejection takes nothing");
        assert!(limiter.take_at(Duration::from_secs(1), client, some(15)).is_ok(), "after the time in Retry-After");
    }

    #[test]
    fn request_above_the_burst_has_no_retry_after() {
        let limiter = RateLimiter::new(rate(10), some(20), None);
        let over = limiter.take_at(Duration::ZERO, "10.0.0.1".parse().unwrap(), some(21)).unwrap_err();
        assert_eq!((over.rejection.code(), over.rejection.retry_after()), (Code::BadRequest, None));
    }

    #[test]
    fn earlier_clock_reading_refills_nothing() {
        let limiter = RateLimiter::new(Some(Rate { count: some(1), per: Duration::from_secs(1) }), some(10), None);
        let client = "10.0.0.1".parse().unwrap();
        let mut taken = 0;
        for second in [10, 9, 10, 9, 10] {
            taken += (0..20).take_while(|_| limiter.take_at(Duration::from_secs(second), client, ONE).is_ok()).count();
        }
        assert_eq!(taken, 10);
    }

    #[test]
    fn slow_rate_with_a_large_burst_does_not_overflow() {
        let limiter = RateLimiter::new(rate(1), NonZeroU32::MAX, rate(1));
        assert_eq!(taken(&limiter, "10.0.0.1"), 1);
    }

    #[test]
    fn clients_beyond_the_limit_share_one_bucket() {
        let limiter = RateLimiter::new(rate(1000), some(5), None);
        let known = IpAddr::V4(Ipv4Addr::from(1));
        for number in 0..CLIENTS as u32 {
            assert!(limiter.take_at(Duration::ZERO, IpAddr::V4(Ipv4Addr::from(number + 1)), ONE).is_ok());
        }
        let later = Duration::from_secs(1);
        let newcomers = (0..20)
            .filter(|number| limiter.take_at(later, IpAddr::V4(Ipv4Addr::from(0x6300_0000 + number)), ONE).is_ok());
        assert_eq!(newcomers.count(), 5);
        assert!(limiter.take_at(later, known, some(4)).is_ok(), "a known client keeps the rest of its quota");
        assert_eq!(limiter.buckets.lock().unwrap().clients.len(), CLIENTS);
        let late = limiter.take_at(Duration::from_millis(999), "99.0.0.1".parse().unwrap(), ONE);
        assert!(late.is_err(), "also if another thread read the clock later");
        let much_later = Duration::from_secs(100);
        assert!(limiter.take_at(much_later, "99.0.0.1".parse().unwrap(), some(5)).is_ok(), "room was made");
        assert!(limiter.buckets.lock().unwrap().clients.len() < 10);
    }
}
