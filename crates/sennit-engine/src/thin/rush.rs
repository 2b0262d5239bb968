//! When thin headers cost more than they save.
//!
//! A full packet is a fiftieth shorter without its headers, and both ends together take a tenth
//! more of a processor for it. A link that carries packets by the hundred thousand a second is
//! seldom what holds a tunnel up; the processors are.

use std::time::{Duration, Instant};

/// Shorter packets, in bytes, are thin at any rate: they save more, and their links carry little.
const LARGE: usize = 512;
/// The rate is taken over at least this time.
const WINDOW: Duration = Duration::from_millis(10);
/// Packets within a window, 100,000 a second, from which large ones travel whole: 1.2 Gbit/s.
const MANY: u32 = 1_000;

/// Counts packets.
#[derive(Debug, Default)]
pub(super) struct Rush {
    start: Option<Instant>,
    packets: u32,
    is_on: bool,
}

impl Rush {
    /// Another packet of this many bytes leaves; true if it had better travel whole.
    pub(super) fn takes(&mut self, len: usize, now: Instant) -> bool {
        let start = *self.start.get_or_insert(now);
        let passed = now.saturating_duration_since(start);
        if passed >= WINDOW {
            let due = passed.as_nanos() * u128::from(MANY) / WINDOW.as_nanos();
            self.is_on = u128::from(self.packets) >= due;
            (self.start, self.packets) = (Some(now), 0);
        }
        self.packets += 1;
        self.is_on && len >= LARGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that went whole among 20,000 of this length and distance.
    fn whole(len: usize, micros: u32) -> usize {
        let (mut rush, mut now) = (Rush::default(), Instant::now());
        let takes = std::iter::repeat_with(|| {
            now += Duration::from_micros(1) * micros;
            rush.takes(len, now)
        });
        takes.take(20_000).filter(|&is_whole| is_whole).count()
    }

    #[test]
    fn large_packets_are_whole_where_they_are_many() {
        assert!(whole(1400, 5) > 17_000, "{}", whole(1400, 5));
        assert_eq!(whole(1400, 11), 0);
        assert_eq!(whole(160, 5), 0);
    }
}
