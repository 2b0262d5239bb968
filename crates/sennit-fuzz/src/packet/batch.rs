//! Batches of packets: each is spelled out, or made from the one before.

use sennit_packet::{IpPacket, Protocol, Version};

use super::mend::{mend, put};
use crate::input::Input;

/// A worker's batches are smaller.
const MAX_PACKETS: usize = 200;
/// The low bits of a TCP header's flags that a successor may have: FIN and PSH.
const LAST_FLAGS: u8 = 0x09;

/// Script of each packet: kind (1), then
/// - 0: a block, as it is;
/// - 1: a block, mended;
/// - 2: payload length (2), fill and TCP flags (1): what follows the last packet in its flow;
/// - 3: nothing: the packet before the last one again, with which flows interleave.
pub(super) fn read(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut batch: Vec<Vec<u8>> = Vec::new();
    while !input.is_empty() && batch.len() < MAX_PACKETS {
        let packet = match input.byte() % 4 {
            0 => Some(input.block().to_vec()),
            1 => Some(mended(input.block())),
            2 => {
                let (len, fill) = (usize::from(input.u16() % 2000), input.byte());
                batch.last().and_then(|last| successor(last, len, fill))
            }
            _ => batch.iter().nth_back(1).cloned(),
        };
        batch.extend(packet);
    }
    batch
}

fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut packet = bytes.to_vec();
    mend(&mut packet);
    packet
}

/// The next packet of a TCP or UDP flow, `len` bytes of payload behind the same headers.
fn successor(last: &[u8], len: usize, fill: u8) -> Option<Vec<u8>> {
    let parsed = IpPacket::parse(last).ok()?;
    let (at, protocol) = (parsed.transport_offset(), parsed.protocol());
    let header = match protocol {
        Protocol::TCP => at + usize::from(*last.get(at + 12)? >> 4) * 4,
        Protocol::UDP => at + 8,
        _ => return None,
    };
    let is_v4 = parsed.version() == Version::V4;
    let mut next = last.get(..header)?.to_vec();
    next.resize(header + len, fill);
    if is_v4 {
        let id = u16::from_be_bytes([next[4], next[5]]);
        put(&mut next, 4, id.wrapping_add(1));
    }
    if protocol == Protocol::TCP && header >= at + 20 {
        let sequence = next[at + 4..].first_chunk_mut::<4>()?;
        let sent = u32::try_from(last.len() - header).ok()?;
        *sequence = u32::from_be_bytes(*sequence)
            .wrapping_add(sent)
            .to_be_bytes();
        next[at + 13] = next[at + 13] & !LAST_FLAGS | fill & LAST_FLAGS;
    }
    mend(&mut next);
    Some(next)
}
