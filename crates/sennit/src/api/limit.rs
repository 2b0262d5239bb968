//! How often somebody may ask.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Peers that are remembered; more of them share what is left.
const MOST_PEERS: usize = 1024;

/// A bucket of tokens for each peer.
#[derive(Debug)]
pub(super) struct Limit {
    /// Tokens a second.
    rate: f64,
    /// Tokens that a bucket holds.
    burst: f64,
    buckets: Mutex<BTreeMap<Option<IpAddr>, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limit {
    pub(super) fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            buckets: Mutex::default(),
        }
    }

    /// Takes a token, or says after how many seconds there is one.
    pub(super) fn take(&self, peer: Option<IpAddr>, now: Instant) -> Result<(), u64> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = self.fill(&mut buckets, peer, now);
        if bucket.tokens < 1.0 {
            let wait = (1.0 - bucket.tokens) / self.rate;
            return Err(wait.ceil().max(1.0) as u64);
        }
        bucket.tokens -= 1.0;
        Ok(())
    }

    /// Whether there is a token, and if not, after how many seconds.
    pub(super) fn look(&self, peer: Option<IpAddr>, now: Instant) -> Result<(), u64> {
        let taken = self.take(peer, now);
        if taken.is_ok() {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            self.fill(&mut buckets, peer, now).tokens += 1.0;
        }
        taken
    }

    fn fill<'a>(
        &self,
        buckets: &'a mut BTreeMap<Option<IpAddr>, Bucket>,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> &'a mut Bucket {
        let full = Bucket {
            tokens: self.burst,
            at: now,
        };
        let filled = |bucket: &Bucket| {
            let seconds = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.tokens + seconds * self.rate).min(self.burst)
        };
        if buckets.len() >= MOST_PEERS && !buckets.contains_key(&peer) {
            buckets.retain(|_, bucket| filled(bucket) < self.burst);
        }
        let peer = if buckets.len() >= MOST_PEERS && !buckets.contains_key(&peer) {
            None
        } else {
            peer
        };
        let bucket = buckets.entry(peer).or_insert(full);
        *bucket = Bucket {
            tokens: filled(bucket),
            at: now,
        };
        bucket
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(number: u32) -> Option<IpAddr> {
        Some(IpAddr::V4(number.into()))
    }

    #[test]
    fn a_peer_has_a_burst_and_then_its_rate_and_takes_nothing_from_others() {
        let (limit, start) = (Limit::new(2.0, 3.0), Instant::now());
        let taken = |peer, after| {
            let now = start + Duration::from_millis(after);
            limit.take(peer, now)
        };

        assert_eq!([0; 3].map(|at| taken(peer(1), at)), [Ok(()); 3]);
        assert_eq!(taken(peer(1), 0), Err(1));
        assert_eq!(taken(peer(2), 0), Ok(()));
        assert_eq!(taken(peer(1), 400), Err(1));
        assert_eq!(taken(peer(1), 500), Ok(()));
    }

    #[test]
    fn to_look_takes_nothing() {
        let (limit, now) = (Limit::new(1.0, 1.0), Instant::now());

        for _ in 0..5 {
            assert_eq!(limit.look(None, now), Ok(()));
        }
        limit.take(None, now).unwrap();
        assert_eq!(limit.look(None, now), Err(1));
    }

    #[test]
    fn a_flood_of_peers_takes_no_more_memory_than_there_is() {
        let (limit, now) = (Limit::new(1.0, 2.0), Instant::now());

        let taken = (0..3000).filter(|&number| limit.take(peer(number), now).is_ok());

        assert!(taken.count() <= MOST_PEERS + 2);
        assert!(limit.buckets.lock().unwrap().len() <= MOST_PEERS + 1);
        let later = now + Duration::from_secs(60);
        assert_eq!(limit.take(peer(9999), later), Ok(()), "those are forgotten");
    }
}
