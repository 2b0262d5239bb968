//! A sender like those of QUIC over inner UDP.
//!
//! What matters to a tunnel is here and nothing else: a packet is lost once three later ones have
//! arrived or 9/8 round trips have passed (RFC 9002 §6.1), which never adapts to disorder; each
//! loss reduces a CUBIC window at most once per round trip; every second packet is acknowledged,
//! and every one that is out of order (RFC 9000 §13.2). There is always more to send, and no
//! pacing.
//!
//! A data packet has a number and says which chunk of data it carries; a chunk that was lost goes
//! out again under a new number. An acknowledgement has ranges of numbers.

mod ack;
mod cubic;
mod loss;
mod sink;
mod source;

use std::{ops::RangeInclusive, time::Duration};

pub(crate) use sink::Sink;
pub(crate) use source::Source;

/// IP packets with data; a QUIC packet of the initial size that all stacks send (RFC 9000 §14) is
/// a little smaller.
const LEN: usize = 1280;
/// IP and UDP headers.
const HEADERS: usize = 28;
/// UDP, as the IP header says.
const UDP: u8 = 17;
/// What counts as goodput.
const PAYLOAD: usize = LEN - HEADERS;
/// RFC 9000 §18.2.
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// More than common stacks remember.
const MAX_RANGES: usize = 64;

type Range = RangeInclusive<u32>;

/// The number at word `index` of the payload, unless it is a packet of TCP: a load before this one
/// may have left some on their way.
fn word(packet: &[u8], index: usize) -> Option<u32> {
    if packet.get(9) != Some(&UDP) {
        return None;
    }
    let at = HEADERS + 4 * index;
    let bytes = packet.get(at..at + 4)?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

/// Writes the number at word `index` of the payload.
fn set_word(packet: &mut [u8], index: usize, value: u32) {
    let at = HEADERS + 4 * index;
    packet[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
