//! How the classes of a site fare in the direction that the sender of a [`Report`](super::Report)
//! sends: on the links that they share, and in their queues.
//!
//! ```text
//! 2: path (32), flags (8), cause (8), link's queue (32), link (32), guaranteed (32), rate (32),
//!    lost (32), count (8), { class (8), rate (32) } ...
//! 3: waiting (32), stood (32), dropped (64), marked (64), overflowed (64)
//! ```
//!
//! Rates are in kbit/s, times in microseconds, losses in millionths. What no link could be like is
//! taken for the nearest that it could.

use std::time::Duration;

use sennit_packet::Bitrate;

/// Rates are told in steps of so many bits per second.
const STEP: u64 = 1000;
/// More than this no link carries: 1 Tbit/s.
const MOST: u64 = 1_000_000_000;
/// What is not known, as a number of microseconds.
const UNKNOWN: u32 = u32::MAX;
/// No queue is longer than this, in microseconds: nobody waits for its end.
const LONGEST: u32 = 60_000_000;
const WHOLE: u32 = 1_000_000;

/// How a class fares on a link, as who sends it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fare {
    /// The QUIC path id.
    pub path: u32,
    /// The config says what the link carries.
    pub configured: bool,
    /// The class had to wait for others of late.
    pub held: bool,
    /// Why the link carries what it carries, as a number.
    pub cause: u8,
    /// How long a packet stands in the link's own queue, if that is known.
    pub link_queue: Option<Duration>,
    /// What is given out of the link; zero while that is not known.
    pub link_rate: Bitrate,
    /// What is guaranteed to the class.
    pub guaranteed: Bitrate,
    /// What it sent of late.
    pub rate: Bitrate,
    /// What was lost of all that left on the path, in millionths.
    pub lost: u32,
    /// Numbers of other classes, and what they sent of late.
    pub others: Vec<(u8, Bitrate)>,
}

impl Fare {
    pub(super) const ITEM: u8 = 2;
    /// More of other classes than this are not told.
    pub const MOST_OTHERS: usize = 8;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.path.to_be_bytes().to_vec();
        out.extend([
            u8::from(self.configured) | u8::from(self.held) << 1,
            self.cause,
        ]);
        let queue = self.link_queue.map_or(UNKNOWN, micros);
        let rates = [self.link_rate, self.guaranteed, self.rate].map(steps);
        for number in [&[queue][..], &rates, &[self.lost]].concat() {
            out.extend(number.to_be_bytes());
        }
        let others = &self.others[..self.others.len().min(Self::MOST_OTHERS)];
        out.push(others.len() as u8);
        for &(class, rate) in others {
            out.push(class);
            out.extend(steps(rate).to_be_bytes());
        }
        out
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (&path, value) = value.split_first_chunk()?;
        let (&[flags, cause], value) = value.split_first_chunk()?;
        let (head, value) = value.split_first_chunk::<20>()?;
        let (&count, value) = value.split_first()?;
        let (numbers, _) = head.as_chunks();
        let number = |n: usize| u32::from_be_bytes(numbers[n]);
        let (others, _) = value.as_chunks();
        let others = others.get(..count.into())?.iter().take(Self::MOST_OTHERS);
        Some(Self {
            path: u32::from_be_bytes(path),
            configured: flags & 1 != 0,
            held: flags & 2 != 0,
            cause,
            link_queue: (number(0) != UNKNOWN).then(|| time(number(0))),
            link_rate: rate(number(1)),
            guaranteed: rate(number(2)),
            rate: rate(number(3)),
            lost: number(4).min(WHOLE),
            others: others
                .map(|&[class, a, b, c, d]| (class, rate(u32::from_be_bytes([a, b, c, d]))))
                .collect(),
        })
    }
}

/// The queue of a class, as who sends from it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Bytes of packets waiting.
    pub waiting: u32,
    /// How long packets that left stood there, smoothed.
    pub stood: Duration,
    /// Packets CoDel dropped.
    pub dropped: u64,
    /// Packets CoDel marked instead.
    pub marked: u64,
    /// Packets dropped because the limit of bytes was reached.
    pub overflowed: u64,
}

impl Queue {
    pub(super) const ITEM: u8 = 3;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.waiting.to_be_bytes().to_vec();
        out.extend(micros(self.stood).to_be_bytes());
        for number in [self.dropped, self.marked, self.overflowed] {
            out.extend(number.to_be_bytes());
        }
        out
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (&waiting, value) = value.split_first_chunk()?;
        let (&stood, value) = value.split_first_chunk()?;
        let (numbers, _) = value.as_chunks();
        let number = |n: usize| Some(u64::from_be_bytes(*numbers.get(n)?));
        Some(Self {
            waiting: u32::from_be_bytes(waiting),
            stood: time(u32::from_be_bytes(stood)),
            dropped: number(0)?,
            marked: number(1)?,
            overflowed: number(2)?,
        })
    }
}

fn steps(rate: Bitrate) -> u32 {
    rate.as_bps().div_ceil(STEP).min(MOST) as u32
}

fn rate(steps: u32) -> Bitrate {
    Bitrate::bps(u64::from(steps).min(MOST) * STEP)
}

fn micros(time: Duration) -> u32 {
    time.as_micros().min(LONGEST.into()) as u32
}

fn time(micros: u32) -> Duration {
    Duration::from_micros(micros.min(LONGEST).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fare() -> Fare {
        Fare {
            path: 7,
            configured: false,
            held: true,
            cause: 2,
            link_queue: Some(Duration::from_micros(1500)),
            link_rate: Bitrate::mbit(50),
            guaranteed: Bitrate::mbit(10),
            rate: Bitrate::mbit(32),
            lost: 1200,
            others: vec![(0, Bitrate::mbit(1)), (9, Bitrate::mbit(15))],
        }
    }

    #[test]
    fn a_fare_survives_the_wire_and_what_later_ends_add_to_it() {
        let wire = fare().encode();
        assert_eq!(wire.len(), 37);
        assert_eq!(Fare::decode(&wire), Some(fare()));
        let longer = [&wire[..], &[1, 2, 3, 4, 5, 6]].concat();
        assert_eq!(Fare::decode(&longer), Some(fare()));
        for cut in 0..wire.len() {
            assert_eq!(Fare::decode(&wire[..cut]), None);
        }
        let unknown = Fare::default();
        assert_eq!(Fare::decode(&unknown.encode()), Some(unknown));
    }

    #[test]
    fn what_cannot_be_is_taken_for_the_nearest_that_can() {
        let mut lies = vec![0xff; 26];
        lies.extend([50]);
        lies.extend([0xff; 250]);
        lies[6..10].copy_from_slice(&0xffff_fff0_u32.to_be_bytes());
        let most = Bitrate::bps(MOST * STEP);
        let told = Fare::decode(&lies).unwrap();
        assert_eq!(told.link_queue, Some(Duration::from_secs(60)));
        assert_eq!((told.link_rate, told.guaranteed), (most, most));
        assert_eq!((told.rate, told.lost), (most, WHOLE));
        assert_eq!(told.others, vec![(0xff, most); Fare::MOST_OTHERS]);
        assert_eq!(Fare::decode(&told.encode()), Some(told));
    }

    #[test]
    fn a_queue_survives_the_wire() {
        let queue = Queue {
            waiting: 70_000,
            stood: Duration::from_micros(12_345),
            dropped: 3,
            marked: u64::MAX,
            overflowed: 1,
        };
        let wire = queue.encode();
        assert_eq!(Queue::decode(&wire), Some(queue));
        assert_eq!(Queue::decode(&[&wire[..], &[1]].concat()), Some(queue));
        assert_eq!(Queue::decode(&wire[..wire.len() - 1]), None);
    }
}
