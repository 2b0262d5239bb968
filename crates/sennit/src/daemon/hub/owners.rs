//! Which worker a UDP packet is for.
//!
//! The kernel steers by the first packet of a run, and so a packet comes to the wrong worker when
//! it was joined to one with another connection ID, which happens only to a client that has
//! connections to several workers.

use bytes::BytesMut;
use sennit_engine::steering_octet;

/// Which of `workers` UDP packets are for. What does not say is for `here`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) here: usize,
    pub(super) workers: usize,
}

impl Owners {
    fn of(self, packet: &[u8]) -> usize {
        steering_octet(packet).map_or(self.here, |octet| usize::from(octet) % self.workers)
    }

    /// Whether all packets of a batch are for us.
    pub(super) fn all_here(self, batch: &[u8], segment: usize) -> bool {
        self.workers == 1
            || batch
                .chunks(segment.max(1))
                .all(|packet| self.of(packet) == self.here)
    }

    /// Cuts a batch into runs of packets with one owner each.
    pub(super) fn runs(
        self,
        mut batch: BytesMut,
        segment: usize,
    ) -> impl Iterator<Item = (usize, BytesMut)> {
        let segment = segment.max(1);
        std::iter::from_fn(move || {
            let owner = self.of(batch.chunks(segment).next()?);
            let packets = batch.chunks(segment);
            let count = packets
                .take_while(|packet| self.of(packet) == owner)
                .count();
            let len = batch.len().min(count * segment);
            Some((owner, batch.split_to(len)))
        })
    }
}

#[cfg(test)]
mod tests {
    use sennit_engine::WORKER_OCTET;

    use super::*;

    const LEN: usize = 20;

    /// A short-header packet for the worker with this number.
    fn packet(worker: u8, fill: u8) -> [u8; LEN] {
        let mut packet = [fill; LEN];
        packet[0] = 0x40;
        packet[1 + WORKER_OCTET] = worker;
        packet
    }

    #[test]
    fn a_batch_is_cut_where_the_owner_changes_and_nothing_is_lost() {
        let owners = Owners {
            here: 1,
            workers: 3,
        };
        let mut batch = [
            packet(1, 0xa0),
            packet(4, 0xa1),
            packet(2, 0xa2),
            packet(1, 0xa3),
        ]
        .concat();
        batch.extend([0x40, 0]);

        let runs: Vec<(usize, BytesMut)> = owners.runs(BytesMut::from(&batch[..]), LEN).collect();

        let shape: Vec<(usize, usize)> = runs.iter().map(|(to, run)| (*to, run.len())).collect();
        assert_eq!(shape, [(1, 2 * LEN), (2, LEN), (1, LEN + 2)]);
        let joined: Vec<u8> = runs.iter().flat_map(|(_, run)| run.to_vec()).collect();
        assert_eq!(joined, batch);
        assert!(!owners.all_here(&batch, LEN));
        assert!(owners.all_here(&batch[..2 * LEN], LEN));
    }

    #[test]
    fn one_worker_owns_everything() {
        let alone = Owners {
            here: 0,
            workers: 1,
        };
        assert!(alone.all_here(&[packet(7, 0), packet(250, 0)].concat(), LEN));
    }
}
