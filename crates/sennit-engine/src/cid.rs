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

use noq_proto::{ConnectionId, ConnectionIdGenerator};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Length of every connection ID that this node issues.
pub(crate) const LEN: usize = 8;

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
        octets[0] &= 0x1f;
        octets[1..3].copy_from_slice(&self.issuer.hub.to_be_bytes());
        octets[3] = self.issuer.worker;
        ConnectionId::new(&octets)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
