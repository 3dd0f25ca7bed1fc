//! A rate limit: each request takes from a bucket that fills with time.

use std::time::Duration;

/// The size of a bucket, and how much it gains per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimit {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// What was left in a bucket at some moment, counted from the shop's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Duration,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(limit: RateLimit, now: Duration) -> Self {
        Self { left: limit.burst, at: now }
    }

    /// Takes one out, or says how long it takes until there is one.
    pub(crate) fn take(&mut self, limit: RateLimit, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * limit.per_second).min(limit.burst);
        self.at = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / limit.per_second));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_the_rest_in_time() {
        let limit = RateLimit { burst: 2.0, per_second: 4.0 };
        let mut bucket = Bucket::full(limit, Duration::ZERO);
        assert!(bucket.take(limit, Duration::ZERO).is_ok() && bucket.take(limit, Duration::ZERO).is_ok());
        assert_eq!(bucket.take(limit, Duration::ZERO), Err(Duration::from_millis(250)));
        assert!(bucket.take(limit, Duration::from_millis(250)).is_ok());
        assert!(bucket.take(limit, Duration::from_millis(251)).is_err());
        for _ in 0..2 {
            assert!(bucket.take(limit, Duration::from_secs(60)).is_ok());
        }
        assert!(bucket.take(limit, Duration::from_secs(60)).is_err(), "no more than the burst is saved up");
    }
}
