//! What fits a path: a packet as it is, or in two halves.
//!
//! noq believes that all paths carry packets of the tunnel's full size, and fills them with as many
//! DATAGRAM frames as it is given. So what a small path is given must not fill them too far: either
//! all of it together fits into one packet of the path, or each piece is so long that noq puts no
//! two into one.

use std::sync::Arc;

use bytes::Bytes;
use sennit_core::PathSet;

use super::Tunnel;
use crate::{
    gate::{Payload, Whole},
    path::Path,
    pipe::Pipe,
    recovery::NEVER,
};

/// Bytes that QUIC adds to a datagram, at most: short header, packet number, tag, frame header.
pub(super) const FRAMING: u64 = 1 + 8 + 4 + 16 + 3;
/// What a packet has beside frames, at least: first octet, connection ID, packet number, tag.
const LEAST_AROUND: usize = 1 + 8 + 1 + 16;
/// What a DATAGRAM frame has beside its datagram: type and length.
pub(super) const FRAME: usize = 3;

/// What may leave together on paths that do not carry packets of full size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// The longest datagram that fits into a packet of the path.
    most: usize,
    /// noq puts no two datagrams into one packet that have at least this length.
    alone: usize,
}

/// The datagrams that are to leave together, as far as it matters to [`Fit`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    frames: usize,
    shortest: Option<usize>,
}

impl Load {
    pub(super) fn add(&mut self, len: usize) {
        self.frames += len + FRAME;
        self.shortest = Some(self.shortest.map_or(len, |shortest| shortest.min(len)));
    }
}

impl Fit {
    fn new(carries: u64, full: u64) -> Self {
        Self {
            most: carries.saturating_sub(FRAMING) as usize,
            alone: (full as usize - LEAST_AROUND) / 2 - FRAME + 1,
        }
    }

    /// Whether a datagram must be halved.
    pub(super) fn halves(&self, len: usize) -> bool {
        len > self.most
    }

    /// Whether another datagram may leave together with those.
    pub(super) fn takes(&self, load: &Load, len: usize) -> bool {
        let Some(shortest) = load.shortest else {
            return true;
        };
        let each_alone = shortest >= self.alone && len >= self.alone;
        each_alone || load.frames + len + FRAME <= self.most + FRAME
    }
}

impl Tunnel {
    /// What may leave on these paths together; `None` if all of them carry packets of full size.
    pub(super) fn fit(&self, paths: PathSet) -> Option<Fit> {
        if !self.takes_halves() {
            return None;
        }
        let carries = paths.iter().map(|path| self.paths[path].gate.carries());
        let carries = carries.min().map_or(u64::MAX, u64::from);
        (carries < self.packet_size).then(|| Fit::new(carries, self.packet_size))
    }

    /// Puts a datagram into the batch, in two halves if it must be.
    pub(super) fn push(
        &mut self,
        pipe: &mut Pipe,
        payload: Payload,
        paths: PathSet,
        fit: Option<Fit>,
    ) {
        pipe.stats.bytes_sent += (payload.bytes.len() * paths.iter().count()) as u64;
        let Some(halves) = self.halves(&payload.bytes, fit) else {
            self.charge(payload.bytes.len(), paths);
            self.round.batch.push(payload);
            return;
        };
        let is_reliable = pipe.recovery.is_reliable();
        let half_of = is_reliable.then(|| Arc::new(Whole::new(payload.bytes)));
        for bytes in halves {
            self.charge(bytes.len(), paths);
            self.round.batch.push(Payload {
                bytes,
                twins: None,
                half_of: half_of.clone(),
                ..payload
            });
        }
    }

    /// Puts a datagram that is not worth repeating into the batch.
    pub(super) fn put_aside(&mut self, bytes: Bytes, paths: PathSet) {
        self.charge(bytes.len(), paths);
        self.round.batch.push(Payload {
            bytes,
            first_sent: self.round.polled,
            repeats: NEVER,
            twins: None,
            half_of: None,
        });
    }

    /// The two halves of a datagram that must be halved.
    fn halves(&mut self, datagram: &[u8], fit: Option<Fit>) -> Option<[Bytes; 2]> {
        let fit = fit.filter(|fit| fit.halves(datagram.len()))?;
        let codec = self.codec.as_ref()?;
        codec.halve(datagram, fit.alone, &mut self.chunk)
    }

    /// How long datagrams become that are longer than a path carries.
    pub(super) fn is_taken(&self, len: usize, fit: Option<Fit>, load: &Load) -> bool {
        fit.is_none_or(|fit| fit.takes(load, if fit.halves(len) { fit.alone } else { len }))
    }

    /// The longest inner packet that the path carries, of those that fit into a packet of full
    /// size.
    pub(super) fn inner_of(&self, path: &Path) -> usize {
        let Some(codec) = self.codec() else { return 0 };
        let datagram = |bytes: u16| u64::from(bytes).saturating_sub(FRAMING) as usize;
        let carries = path.gate.carries();
        if u64::from(carries) >= self.packet_size {
            return usize::MAX;
        }
        if self.takes_halves() {
            return codec.most_in_halves(datagram(carries));
        }
        // Packets of the peer's size are the probes, where there are no others.
        let tried = path.gate.probing().map_or(carries, |it| it.max(carries));
        if u64::from(tried) >= self.packet_size {
            return usize::MAX;
        }
        datagram(tried).saturating_sub(codec.overhead())
    }
}

#[cfg(test)]
mod tests {
    use sennit_core::frame::{Half, Header};

    use super::*;

    /// Of a tunnel for inner packets of 1400 bytes.
    const FULL: u64 = 1450;

    #[test]
    fn what_leaves_on_a_small_path_fills_no_packet_too_far() {
        let fit = Fit::new(1252, FULL);
        for first in 20..=fit.most {
            let mut load = Load::default();
            load.add(first);
            for second in 20..=fit.most {
                let together = LEAST_AROUND + first + second + 2 * FRAME;
                // noq puts both into one packet if it may.
                let joined = together as u64 <= FULL;
                assert!(!fit.takes(&load, second) || !joined || together <= 1252);
            }
        }
    }

    #[test]
    fn halves_of_full_packets_leave_in_one_batch() {
        let fit = Fit::new(1200, FULL);
        let half = 700 + 2 + Header::LEN + Half::LEN;
        assert!(half >= fit.alone && half <= fit.most);
        let mut load = Load::default();
        load.add(half);
        assert!(fit.takes(&load, half) && !fit.takes(&load, 600));
    }
}
