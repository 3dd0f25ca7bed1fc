//! A rate limit: a token bucket that refills over time.

use std::time::Duration;

/// The size of a bucket, and its refill rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimit {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// The level of a bucket at a time since the start of the shop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Duration,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn full(limit: RateLimit, now: Duration) -> Self {
        Self { left: limit.burst, at: now }
    }

    /// Admits a request, or returns the time to wait.
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
    fn bucket_allows_its_burst_and_refills_over_time() {
        let limit = RateLimit { burst: 2.0, per_second: 4.0 };
        let mut bucket = Bucket::full(limit, Duration::ZERO);
        assert!(bucket.take(limit, Duration::ZERO).is_ok() && bucket.take(limit, Duration::ZERO).is_ok());
        assert_eq!(bucket.take(limit, Duration::ZERO), Err(Duration::from_millis(250)));
        assert!(bucket.take(limit, Duration::from_millis(250)).is_ok());
        assert!(bucket.take(limit, Duration::from_millis(251)).is_err());
        for _ in 0..2 {
            assert!(bucket.take(limit, Duration::from_secs(60)).is_ok());
        }
        assert!(bucket.take(limit, Duration::from_secs(60)).is_err(), "a bucket holds no more than its burst");
    }
}
