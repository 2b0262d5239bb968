//! A packet that waits, and one that leaves.

use std::time::Instant;

use bytes::BytesMut;
use sennit_packet::checksum::Progress;

use crate::frame::HEADROOM;

/// A packet counts for so many bytes at least, because its place (56), the headroom and the
/// allocator take about as many beside its own.
pub(super) const LEAST_COST: usize = 256;

/// An inner packet with [`HEADROOM`] free bytes in front of it.
#[derive(Debug)]
pub struct Queued {
    /// Headroom, then the IP packet.
    pub buffer: BytesMut,
    /// Hash of the inner flow; in the queue its last eight bits become the number of the flow's
    /// queue.
    pub flow: u32,
    /// Its transport delivers in order (TCP), so nobody can use it before the packets ahead of it.
    pub in_order: bool,
    /// How much of its checksum is done.
    pub checksum: Progress,
    /// It had left, and has to leave again: CoDel lets it be.
    pub returned: bool,
}

impl Queued {
    /// Length of the IP packet.
    pub fn packet_len(&self) -> usize {
        self.buffer.len() - HEADROOM
    }

    /// That, if it has to leave again.
    pub(super) fn returned_len(&self) -> usize {
        if self.returned { self.packet_len() } else { 0 }
    }

    /// By how much more than its length it counts for the limit.
    pub(super) fn surcharge(&self) -> usize {
        if self.returned {
            0
        } else {
            LEAST_COST.saturating_sub(self.packet_len())
        }
    }
}

/// A packet that leaves.
#[derive(Debug)]
pub struct Popped {
    /// The packet; an empty one stands for one that was dropped after a later one had left, so
    /// that nobody waits for it.
    pub packet: Queued,
    /// Its number in its flow; wraps.
    pub seq: u32,
    /// When it joined the queue.
    pub since: Instant,
    /// Bytes that leave before it, though it leaves now; zero in its turn.
    pub ahead: usize,
    /// Bytes that would leave before the last packet of its flow.
    pub backlog: usize,
}

impl Popped {
    /// A packet in its turn.
    pub(super) fn new(packet: Queued, seq: u32, since: Instant) -> Self {
        Self {
            packet,
            seq,
            since,
            ahead: 0,
            backlog: 0,
        }
    }
}
