//! How many tokens may be fetched: by one client, and by all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{NotUntil, RateLimiter};
use onceward::Refusal;
use onceward_api::Code;

use crate::config::Rate;

/// How many clients are counted one by one. Beyond that, new ones share a quota until old ones are forgotten.
const CLIENTS: usize = 50_000;

type PerClient = RateLimiter<IpAddr, DashMapStateStore<IpAddr>, DefaultClock, StateInformationMiddleware>;
type InAll = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// Counts tokens.
#[derive(Debug)]
pub struct Quota {
    per_client: Option<(PerClient, Policy)>,
    in_all: Option<InAll>,
    clock: DefaultClock,
}

/// What a client is told of its quota.
#[derive(Debug, Clone, Copy)]
struct Policy {
    burst: NonZeroU32,
    /// In how long the whole of it comes back.
    window: Duration,
}

/// What is left to a client: the values of the two `RateLimit` fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
}

/// More than was left.
#[derive(Debug)]
pub struct OverQuota {
    /// What the client is told.
    pub refusal: Refusal,
    /// What is left to it, if it is counted.
    pub fields: Option<Fields>,
}

impl Quota {
    /// Allows this rate and burst to each client, and this rate to all.
    pub fn new(rate: Option<Rate>, burst: NonZeroU32, total: Option<Rate>) -> Self {
        let per_client = rate.map(|rate| {
            let window = rate.per * burst.get() / rate.count.get();
            (RateLimiter::keyed(quota(rate, burst)).with_middleware(), Policy { burst, window })
        });
        let in_all = total.map(|rate| RateLimiter::direct(quota(rate, rate.count)));
        Self { per_client, in_all, clock: DefaultClock::default() }
    }

    /// Takes `count` tokens out of a client's quota, and out of that of all.
    ///
    /// # Errors
    /// If there are not so many left.
    pub fn take(&self, client: IpAddr, count: NonZeroU32) -> Result<Option<Fields>, OverQuota> {
        let fields = match &self.per_client {
            Some((limiter, policy)) => Some(self.take_from(limiter, policy, client, count)?),
            None => None,
        };
        let in_all = self.in_all.as_ref().map(|limiter| limiter.check_n(count));
        match in_all {
            None | Some(Ok(Ok(()))) => Ok(fields),
            Some(Ok(Err(until))) => Err(over(until.wait_time_from(self.clock.now()), "All clients together", fields)),
            Some(Err(_)) => Err(over(Duration::from_secs(1), "All clients together", fields)),
        }
    }

    fn take_from(
        &self,
        limiter: &PerClient,
        policy: &Policy,
        client: IpAddr,
        count: NonZeroU32,
    ) -> Result<Fields, OverQuota> {
        let key = self.counted_as(limiter, client);
        match limiter.check_key_n(&key, count) {
            Ok(Ok(state)) => Ok(policy.fields(state.remaining_burst_capacity())),
            Ok(Err(until)) => Err(over(self.wait(&until), "This client", Some(policy.fields(0)))),
            Err(_) => Err(over(policy.window, "This client", Some(policy.fields(0)))),
        }
    }

    fn wait(&self, until: &NotUntil<<DefaultClock as governor::clock::Clock>::Instant>) -> Duration {
        until.wait_time_from(self.clock.now())
    }

    /// The key of a client: its address, and for IPv6 its network, since everybody there has more addresses than anybody
    /// can count. When too many are counted already, a newcomer shares one key with all others.
    fn counted_as(&self, limiter: &PerClient, client: IpAddr) -> IpAddr {
        if limiter.len() >= CLIENTS {
            limiter.retain_recent();
            if limiter.len() >= CLIENTS {
                return IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            }
        }
        match client {
            IpAddr::V4(_) => client,
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }
}

impl Policy {
    fn fields(&self, left: u32) -> Fields {
        let window = self.window.as_secs().max(1);
        Fields {
            policy: format!("\"client\";q={};w={window}", self.burst),
            left: format!("\"client\";r={left};t={window}"),
        }
    }
}

fn quota(rate: Rate, burst: NonZeroU32) -> governor::Quota {
    let every = (rate.per / rate.count.get()).max(Duration::from_nanos(1));
    governor::Quota::with_period(every).unwrap_or(governor::Quota::per_second(rate.count)).allow_burst(burst)
}

fn over(wait: Duration, who: &str, fields: Option<Fields>) -> OverQuota {
    let detail = format!("{who} asked for more tokens than are given out at once. Wait and ask again.");
    OverQuota { refusal: Refusal::new(Code::RateLimited).detail(detail).wait(wait), fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn some(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn rate(count: u32) -> Option<Rate> {
        Some(Rate { count: some(count), per: Duration::from_secs(3600) })
    }

    fn taken(quota: &Quota, client: &str) -> usize {
        let client = client.parse().unwrap();
        (0..100).take_while(|_| quota.take(client, ONE).is_ok()).count()
    }

    #[test]
    fn each_client_has_a_quota_of_its_own() {
        let quota = Quota::new(rate(10), some(5), None);
        assert_eq!((taken(&quota, "10.0.0.1"), taken(&quota, "10.0.0.1")), (5, 0));
        assert_eq!(taken(&quota, "10.0.0.2"), 5);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let quota = Quota::new(rate(10), some(5), None);
        assert_eq!((taken(&quota, "2001:db8::1"), taken(&quota, "2001:db8::2")), (5, 0));
        assert_eq!(taken(&quota, "2001:db8:0:1::1"), 5);
    }

    #[test]
    fn all_clients_together_have_one_too() {
        let quota = Quota::new(rate(10), some(5), rate(7));
        assert_eq!((taken(&quota, "10.0.0.1"), taken(&quota, "10.0.0.2")), (5, 2));
        assert_eq!(taken(&Quota::new(None, some(5), None), "10.0.0.1"), 100);
    }

    #[test]
    fn a_client_is_told_what_is_left_and_when_to_come_back() {
        let quota = Quota::new(Some(Rate { count: some(10), per: Duration::from_secs(1) }), some(20), None);
        let client = "10.0.0.1".parse().unwrap();
        let fields = quota.take(client, some(15)).unwrap().unwrap();
        assert_eq!((fields.policy.as_str(), fields.left.as_str()), ("\"client\";q=20;w=2", "\"client\";r=5;t=2"));
        let over = quota.take(client, some(15)).unwrap_err();
        let wait = over.refusal.retry_after().unwrap();
        assert!(wait > Duration::from_millis(500) && wait <= Duration::from_secs(1), "{wait:?}");
        assert!(quota.take(client, some(21)).is_err(), "more than there ever is");
    }

    #[test]
    fn clients_beyond_count_share_a_quota_and_take_no_memory() {
        let quota = Quota::new(rate(1000), some(5), None);
        for number in 0..CLIENTS as u32 {
            assert!(quota.take(IpAddr::V4(Ipv4Addr::from(number + 1)), ONE).is_ok());
        }
        assert_eq!(taken(&quota, "99.0.0.1") + taken(&quota, "99.0.0.2"), 5);
        assert!(quota.per_client.as_ref().unwrap().0.len() <= CLIENTS + 1);
    }
}
