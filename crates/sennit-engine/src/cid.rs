//! Connection IDs that say which hub and which worker owns the connection.
//!
//! A multipath connection arrives from several addresses at once, so nothing that picks a socket, a
//! core or a host by address can keep it together; its connection IDs can. The layout is the
//! plaintext form of QUIC-LB (draft-ietf-quic-load-balancers-21 §5.1), with the worker appended to
//! the server ID:
//!
//! | octets | content |
//! | --- | --- |
//! | 0 | 3 bits configuration rotation (0), 5 random bits |
//! | 1, 2 | hub |
//! | 3 | worker |
//! | 4 to 7 | nonce |
//!
//! A connection begins with an ID that its client made up. An edge puts the same octet into the
//! worker's place of all of them, so that all its tunnels come to one worker.

use aws_lc_rs::hmac;
use noq_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Length of every connection ID that this node issues.
pub(crate) const LEN: usize = 8;
/// The octet of a connection ID that says which worker it is for.
pub const WORKER_OCTET: usize = 3;
/// Random bits of the first octet.
const RANDOM: u8 = 0x1f;
/// Unpredictable but for one octet, and RFC 9000 §7.2 wants eight at least.
const FIRST_LEN: usize = 12;

/// The [`WORKER_OCTET`] of the ID that a packet is addressed to (RFC 8999 §5); `None` if the packet
/// is too short to have one.
pub fn steering_octet(packet: &[u8]) -> Option<u8> {
    let long_header = packet.first()? & 0x80 != 0;
    // First octet, version and length stand before the ID in a long header.
    let id = if long_header { 6 } else { 1 };
    packet.get(id + WORKER_OCTET).copied()
}

/// Whether an ID looks like one that `issuer` makes.
pub(crate) fn may_be_of(issuer: Issuer, id: &[u8]) -> bool {
    may_be_of_hub(issuer.hub, id) && id.get(WORKER_OCTET) == Some(&issuer.worker)
}

/// Whether an ID looks like one that any worker of a hub makes.
fn may_be_of_hub(hub: u16, id: &[u8]) -> bool {
    let [first, high, low, ..] = *id else {
        return false;
    };
    id.len() == LEN && first & !RANDOM == 0 && [high, low] == hub.to_be_bytes()
}

/// Who issues connection IDs: one worker of one hub, or an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Issuer {
    /// Number of the hub within its fleet.
    pub hub: u16,
    /// Number of the worker thread within the hub.
    pub worker: u8,
}

/// Makes connection IDs for one [`Issuer`].
#[derive(Debug)]
pub(crate) struct Generator {
    issuer: Issuer,
    rng: StdRng,
}

impl Generator {
    pub(crate) fn new(issuer: Issuer, seed: [u8; 32]) -> Self {
        Self {
            issuer,
            rng: StdRng::from_seed(seed),
        }
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut octets = [0; LEN];
        self.rng.fill_bytes(&mut octets);
        octets[0] &= RANDOM;
        octets[1..3].copy_from_slice(&self.issuer.hub.to_be_bytes());
        octets[WORKER_OCTET] = self.issuer.worker;
        ConnectionId::new(&octets)
    }

    /// Nobody else is told that there is no connection of this ID. The hub may have had more
    /// workers before it was started anew.
    fn validate(&self, id: ConnectionId) -> Result<(), InvalidCid> {
        match may_be_of_hub(self.issuer.hub, &id) {
            true => Ok(()),
            false => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Makes the IDs that an edge addresses the first packets of its connections to.
#[derive(Debug)]
pub(crate) struct FirstIds {
    steering: u8,
    rng: StdRng,
}

impl FirstIds {
    pub(crate) fn new(steering: u8, seed: &[u8; 32]) -> Self {
        // Not the stream of random numbers that others get from the same seed.
        let key = hmac::Key::new(hmac::HMAC_SHA256, seed);
        let tag = hmac::sign(&key, b"sennit first connection ids");
        let seed = tag.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Self {
            steering,
            rng: StdRng::from_seed(seed),
        }
    }

    pub(crate) fn next(&mut self) -> ConnectionId {
        let mut octets = [0; FIRST_LEN];
        self.rng.fill_bytes(&mut octets);
        octets[WORKER_OCTET] = self.steering;
        ConnectionId::new(&octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_steered_by_the_same_octet_of_either_header() {
        let id = [10, 11, 12, 13, 14, 15, 16, 17];
        let short = [&[0x40], &id[..]].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 8], &id[..]].concat();
        assert_eq!(steering_octet(&short), Some(13));
        assert_eq!(steering_octet(&long), Some(13));
        for packet in [&[][..], &short[..4], &long[..9]] {
            assert_eq!(steering_octet(packet), None, "{packet:?}");
        }
    }

    #[test]
    fn first_ids_differ_in_all_but_where_they_go() {
        let mut ids = FirstIds::new(42, &[7; 32]);
        let ids: std::collections::BTreeSet<Vec<u8>> =
            (0..100).map(|_| ids.next().to_vec()).collect();
        assert_eq!(ids.len(), 100);
        for octet in 0..FIRST_LEN {
            let values: std::collections::BTreeSet<u8> = ids.iter().map(|id| id[octet]).collect();
            assert_eq!(values.len() == 1, octet == WORKER_OCTET, "octet {octet}");
        }
        assert!(ids.iter().all(|id| id[WORKER_OCTET] == 42));
    }

    #[test]
    fn ids_of_all_workers_of_a_hub_may_be_its_own_and_no_others() {
        let [of_hub, of_another] =
            [7, 8].map(|hub| Generator::new(Issuer { hub, worker: 0 }, [7; 32]));
        let id = Generator::new(Issuer { hub: 7, worker: 5 }, [9; 32]).generate_cid();
        assert!(of_hub.validate(id).is_ok());
        assert!(of_another.validate(id).is_err());
        assert!(of_hub.validate(ConnectionId::new(&[0xff; LEN])).is_err());
    }

    #[test]
    fn an_id_names_its_hub_and_worker_and_never_repeats() {
        let mut generator = Generator::new(
            Issuer {
                hub: 0x1234,
                worker: 5,
            },
            [7; 32],
        );
        let ids: std::collections::BTreeSet<Vec<u8>> = (0..1000)
            .map(|_| generator.generate_cid().to_vec())
            .collect();
        assert_eq!(ids.len(), 1000);
        assert!(
            ids.iter()
                .all(|id| id[0] >> 5 == 0 && id[1..4] == [0x12, 0x34, 5])
        );
    }
}
