//! The rate limit on issued tokens: per client, and for all clients together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::Rejection;
use onceward_api::Code;
use tokio::time::Instant;

use crate::config::Rate;

/// How many clients are counted one by one. Beyond that, newcomers share a bucket until old ones are forgotten.
const CLIENTS: usize = 50_000;
/// How often, at most, clients are forgotten who have their whole quota again.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// Counts tokens.
#[derive(Debug)]
pub struct RateLimiter {
    per_client: Option<Allowance>,
    in_all: Option<Allowance>,
    begun: Instant,
    counts: Mutex<Counts>,
}

/// How much there is at once, and how fast it comes back.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    burst: f64,
    per_second: f64,
}

/// What is left in each bucket.
#[derive(Debug)]
struct Counts {
    clients: HashMap<IpAddr, Bucket>,
    newcomers: Bucket,
    all: Bucket,
    forgotten: Duration,
}

/// What was left at some moment.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Duration,
}

/// What is left to a client: the values of the two `RateLimit` fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
}

/// More than was left.
#[derive(Debug)]
pub struct LimitError {
    /// What the client is told.
    pub rejection: Rejection,
    /// Whether it was the quota of all clients together.
    pub is_of_all: bool,
    /// What is left to it, if it is counted.
    pub fields: Option<RateLimitHeaders>,
}

impl RateLimiter {
    /// Allows this rate and burst to each client, and this rate to all.
    pub fn new(rate: Option<Rate>, burst: NonZeroU32, total: Option<Rate>) -> Self {
        let full = Bucket { left: f64::INFINITY, at: Duration::ZERO };
        let counts = Counts { clients: HashMap::new(), newcomers: full, all: full, forgotten: Duration::ZERO };
        Self {
            per_client: rate.map(|rate| Allowance::new(rate, burst.get())),
            in_all: total.map(|rate| Allowance::new(rate, rate.count.get())),
            begun: Instant::now(),
            counts: Mutex::new(counts),
        }
    }

    /// Takes `count` tokens out of a client's quota and out of that of all, or out of neither.
    ///
    /// # Errors
    /// If there are not so many left.
    pub fn take(&self, client: IpAddr, count: NonZeroU32) -> Result<Option<RateLimitHeaders>, LimitError> {
        self.take_at(self.begun.elapsed(), client, count)
    }

    fn take_at(
        &self,
        now: Duration,
        client: IpAddr,
        count: NonZeroU32,
    ) -> Result<Option<RateLimitHeaders>, LimitError> {
        let count = f64::from(count.get());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut *counts;
        let mut fields = None;
        let mut all = counts.all;
        if let Some(allowance) = &self.in_all {
            all = all.after(now, allowance);
        }
        if let Some(allowance) = &self.per_client {
            let bucket = counts.bucket(network(client), now, allowance);
            *bucket = bucket.after(now, allowance);
            if bucket.left < count {
                return Err(allowance.over(false, count, bucket, Some(allowance.fields(bucket))));
            }
            fields = Some((allowance, bucket));
        }
        if let Some(allowance) = self.in_all.as_ref().filter(|_| all.left < count) {
            let fields = fields.map(|(own, bucket)| own.fields(bucket));
            return Err(allowance.over(true, count, &all, fields));
        }
        let fields = fields.map(|(allowance, bucket)| {
            bucket.left -= count;
            allowance.fields(bucket)
        });
        all.left -= count;
        counts.all = all;
        Ok(fields)
    }
}

impl Counts {
    /// The bucket of a client. When too many are counted already, one who is new shares a bucket with all others who are.
    fn bucket(&mut self, client: IpAddr, now: Duration, allowance: &Allowance) -> &mut Bucket {
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            if now - self.forgotten >= FORGET_EVERY {
                self.forgotten = now;
                self.clients.retain(|_, bucket| bucket.after(now, allowance).left < allowance.burst);
            }
            if self.clients.len() >= CLIENTS {
                return &mut self.newcomers;
            }
        }
        self.clients.entry(client).or_insert(Bucket { left: allowance.burst, at: now })
    }
}

impl Bucket {
    /// What is left now.
    fn after(self, now: Duration, allowance: &Allowance) -> Self {
        let back = now.saturating_sub(self.at).as_secs_f64() * allowance.per_second;
        Self { left: (self.left + back).min(allowance.burst), at: now }
    }
}

impl Allowance {
    fn new(rate: Rate, burst: u32) -> Self {
        Self { burst: f64::from(burst), per_second: f64::from(rate.count.get()) / rate.per.as_secs_f64() }
    }

    /// In how long so many come back.
    fn wait(&self, count: f64) -> Duration {
        Duration::try_from_secs_f64(count.max(0.0) / self.per_second).unwrap_or(Duration::MAX)
    }

    fn fields(&self, bucket: &Bucket) -> RateLimitHeaders {
        let (window, whole) = (self.wait(self.burst), self.wait(self.burst - bucket.left));
        RateLimitHeaders {
            policy: format!("\"client\";q={};w={}", self.burst, window.as_secs().max(1)),
            left: format!("\"client\";r={};t={}", bucket.left.max(0.0).floor(), whole.as_secs_f64().ceil()),
        }
    }

    fn over(&self, is_of_all: bool, count: f64, bucket: &Bucket, fields: Option<RateLimitHeaders>) -> LimitError {
        let rejection = if count > self.burst {
            let most = self.burst;
            Rejection::new(Code::BadRequest)
                .detail(format!("`count` is more than the {most} tokens that can be had at once."))
        } else {
            let who = if is_of_all { "All clients together" } else { "This client" };
            let detail = format!("{who} asked for more tokens than are given out at once. Wait and ask again.");
            Rejection::new(Code::RateLimited).detail(detail).wait(self.wait(count - bucket.left))
        };
        LimitError { rejection, is_of_all, fields }
    }
}

/// What counts as one client: an address, and for IPv6 its network, since everybody there has more addresses than anybody
/// can count.
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

    fn taken(quota: &RateLimiter, client: &str) -> usize {
        let client = client.parse().unwrap();
        (0..1000).take_while(|_| quota.take_at(Duration::ZERO, client, ONE).is_ok()).count()
    }

    #[test]
    fn each_client_has_a_quota_of_its_own() {
        let quota = RateLimiter::new(rate(10), some(5), None);
        assert_eq!((taken(&quota, "10.0.0.1"), taken(&quota, "10.0.0.1")), (5, 0));
        assert_eq!(taken(&quota, "10.0.0.2"), 5);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let quota = RateLimiter::new(rate(10), some(5), None);
        assert_eq!((taken(&quota, "2001:db8::1"), taken(&quota, "2001:db8::2")), (5, 0));
        assert_eq!(taken(&quota, "2001:db8:0:1::1"), 5);
    }

    #[test]
    fn all_clients_together_have_one_too_and_its_refusal_costs_a_client_nothing() {
        let quota = RateLimiter::new(rate(3600), some(70), rate(100));
        assert_eq!((taken(&quota, "10.0.0.1"), taken(&quota, "10.0.0.2")), (70, 30));
        let over = quota.take_at(Duration::ZERO, "10.0.0.2".parse().unwrap(), ONE).unwrap_err();
        assert_eq!(over.fields.unwrap().left, "\"client\";r=40;t=30");
        assert_eq!(taken(&RateLimiter::new(None, some(5), None), "10.0.0.1"), 1000);
    }

    #[test]
    fn a_client_is_told_what_is_left_and_when_to_come_back() {
        let quota = RateLimiter::new(Some(Rate { count: some(10), per: Duration::from_secs(1) }), some(20), None);
        let client = "10.0.0.1".parse().unwrap();
        let fields = quota.take_at(Duration::ZERO, client, some(15)).unwrap().unwrap();
        assert_eq!((fields.policy.as_str(), fields.left.as_str()), ("\"client\";q=20;w=2", "\"client\";r=5;t=2"));
        let over = quota.take_at(Duration::ZERO, client, some(15)).unwrap_err();
        assert_eq!(over.rejection.retry_after(), Some(Duration::from_secs(1)));
        assert_eq!(over.fields.unwrap().left, "\"client\";r=5;t=2", "a rejection takes nothing");
        assert!(quota.take_at(Duration::from_secs(1), client, some(15)).is_ok(), "as it was told");
    }

    #[test]
    fn what_can_never_be_had_is_not_to_be_waited_for() {
        let quota = RateLimiter::new(rate(10), some(20), None);
        let over = quota.take_at(Duration::ZERO, "10.0.0.1".parse().unwrap(), some(21)).unwrap_err();
        assert_eq!((over.rejection.code(), over.rejection.retry_after()), (Code::BadRequest, None));
    }

    #[test]
    fn a_slow_rate_with_a_large_burst_is_no_trouble() {
        let quota = RateLimiter::new(rate(1), NonZeroU32::MAX, rate(1));
        assert_eq!(taken(&quota, "10.0.0.1"), 1);
    }

    #[test]
    fn clients_beyond_count_share_a_quota_and_leave_known_ones_theirs() {
        let quota = RateLimiter::new(rate(1000), some(5), None);
        let known = IpAddr::V4(Ipv4Addr::from(1));
        for number in 0..CLIENTS as u32 {
            assert!(quota.take_at(Duration::ZERO, IpAddr::V4(Ipv4Addr::from(number + 1)), ONE).is_ok());
        }
        let later = Duration::from_secs(1);
        let newcomers = (0..20)
            .filter(|number| quota.take_at(later, IpAddr::V4(Ipv4Addr::from(0x6300_0000 + number)), ONE).is_ok());
        assert_eq!(newcomers.count(), 5);
        assert!(quota.take_at(later, known, some(4)).is_ok(), "one who is known keeps what is left to it");
        assert_eq!(quota.counts.lock().unwrap().clients.len(), CLIENTS);
        let much_later = Duration::from_secs(100);
        assert!(quota.take_at(much_later, "99.0.0.1".parse().unwrap(), some(5)).is_ok(), "room was made");
        assert!(quota.counts.lock().unwrap().clients.len() < 10);
    }
}
