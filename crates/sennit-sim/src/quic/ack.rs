//! Acknowledgements, as long as real ones: what they weigh counts where the way back is narrow.

use std::net::Ipv4Addr;

use sennit_masque::varint;

use super::{HEADERS, MAX_RANGES, Range, word};
use crate::udp;

/// A short header with a connection ID of 8 bytes and the seal, with the number of ranges in
/// between.
const AROUND: usize = 1 + 8 + 2 + 16;

/// An acknowledgement of `ranges`, newest first (RFC 9000 §19.3).
pub(super) fn encode(here: Ipv4Addr, there: Ipv4Addr, port: u16, ranges: &[Range]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut below = 0;
    for (n, range) in ranges.iter().enumerate() {
        let ahead = if n == 0 {
            *range.end()
        } else {
            below - range.end()
        };
        varint::put(&mut frame, ahead.into());
        varint::put(&mut frame, (range.end() - range.start()).into());
        below = *range.start();
    }
    let len = HEADERS + AROUND + frame.len();
    let mut packet = udp(here, there, port, ranges.len() as u32, len);
    packet[HEADERS + AROUND..].copy_from_slice(&frame);
    packet
}

/// The ranges in an acknowledgement.
pub(super) fn decode(packet: &[u8]) -> Option<Vec<Range>> {
    let count = word(packet, 0)? as usize;
    let mut frame = packet.get(HEADERS + AROUND..)?;
    let mut take = || varint::take(&mut frame).and_then(|value| u32::try_from(value).ok());
    let mut below = None;
    (0..count.min(MAX_RANGES))
        .map(|_| {
            let ahead = take()?;
            let end = below.map_or(Some(ahead), |below: u32| below.checked_sub(ahead))?;
            let start = end.checked_sub(take()?)?;
            below = Some(start);
            Some(start..=end)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EDGE, SERVER};

    #[test]
    fn what_is_written_is_read() {
        for ranges in [vec![], vec![0..=0], vec![700..=90_000, 690..=698, 3..=3]] {
            let packet = encode(EDGE, SERVER, 7, &ranges);
            assert_eq!(decode(&packet), Some(ranges));
        }
    }

    #[test]
    fn what_ends_too_early_is_nothing() {
        let packet = encode(EDGE, SERVER, 7, &[700..=90_000, 690..=698]);
        for len in 0..packet.len() {
            assert_eq!(decode(&packet[..len]), None);
        }
    }
}
