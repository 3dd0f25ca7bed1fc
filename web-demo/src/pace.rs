//! How fast somebody may be: a bucket that is emptied by each request and filled by time.

use std::time::Duration;

/// How much there is at once, and how much comes back in a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// What was left at some moment, counted from the shop's opening.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    left: f64,
    at: Duration,
}

impl Bucket {
    /// A full one.
    pub(crate) fn full(pace: Pace, now: Duration) -> Self {
        Self { left: pace.burst, at: now }
    }

    /// Takes one out, or says how long it takes until there is one.
    pub(crate) fn take(&mut self, pace: Pace, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * pace.per_second).min(pace.burst);
        self.at = now;
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / pace.per_second));
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
        let pace = Pace { burst: 2.0, per_second: 4.0 };
        let mut bucket = Bucket::full(pace, Duration::ZERO);
        assert!(bucket.take(pace, Duration::ZERO).is_ok() && bucket.take(pace, Duration::ZERO).is_ok());
        assert_eq!(bucket.take(pace, Duration::ZERO), Err(Duration::from_millis(250)));
        assert!(bucket.take(pace, Duration::from_millis(250)).is_ok());
        assert!(bucket.take(pace, Duration::from_millis(251)).is_err());
        for _ in 0..2 {
            assert!(bucket.take(pace, Duration::from_secs(60)).is_ok());
        }
        assert!(bucket.take(pace, Duration::from_secs(60)).is_err(), "no more than the burst is saved up");
    }
}
