//! How noq is set up: sizes, timers and limits that the rest of the engine relies on.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use aws_lc_rs::hmac;
use noq_proto::{AckFrequencyConfig, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use sennit_core::{Congestion, frame::Header};

use crate::{
    acks::{ACK_DELAY, ACK_PACKETS, INITIAL_RTT},
    cid::{self, Issuer},
    gate::GateFactory,
    headers::{DATAGRAM_MOST, PACKET_NUMBER_MOST, SHORT_HEADER, TAG},
    renewal::Rekey,
};

/// Bytes of a QUIC packet that are not inner packet, at most: those of QUIC, and our own prefix:
/// Quarter Stream ID of the first stream (1), context (1), header.
const OVERHEAD: u16 =
    (SHORT_HEADER + cid::LEN + PACKET_NUMBER_MOST + TAG + DATAGRAM_MOST + 1 + 1 + Header::LEN)
        as u16;
/// Without any sign of the peer for this long the tunnel is given up (RFC 9000 §10.1). An idle one
/// is probed every 75 s at least, and two probes may be lost; short enough that a vanished edge is
/// forgotten. That it is cut off both ends know much sooner (`sennit_core::health`).
pub(crate) const IDLE: Duration = Duration::from_secs(180);
/// Radio links deliver out of order, by many packets: only time tells what is lost (RFC 9002
/// §6.1.2, as RFC 8985 does for TCP). noq must not tell congestion control of losses that are none,
/// so it gets two round trips; the gate's ledger knows the path's jitter and repairs much sooner
/// (docs/decisions/0001).
const ANY_ORDER: u32 = 1 << 16;
const LOST_AFTER: f32 = 2.0;
/// Who knows nothing of a connection says so this often at most: after a restart five hundred sites
/// ask at once, and a word on any path but the first is of no use to them. It is shorter than the
/// packet that it answers.
const RESET_EVERY: Duration = Duration::from_millis(1);
/// Paths per tunnel: every link once, and as many again in the course of being replaced.
pub(crate) const MAX_PATHS: NonZeroU32 = NonZeroU32::new(16).expect("it is not zero");
const _: () = assert!(MAX_PATHS.get() as usize <= sennit_core::flows::PATHS);
/// Links of an edge: what is beyond would have no path.
pub const MOST_LINKS: usize = MAX_PATHS.get() as usize;
/// Paths that the edge may open beside those that there are. Each costs 155 bytes of connection
/// IDs.
pub(crate) const SPARE_PATHS: u32 = 4;
/// Bytes of streams that are on the way at most. noq puts all that it has to send, or to send
/// again, into one packet of a size that some paths do not carry, and where other packets arrive it
/// never tries a smaller one. So with the connection IDs of spare paths, and what a hub tells of an
/// address (23 bytes), it is less than any path carries.
const STREAMS_ON_THE_WAY: u64 = 512;
/// Received datagrams wait here only until the driver drains them, within one batch of the socket.
pub(crate) const DATAGRAM_BUFFER: usize = 8 << 20;
/// Streams carry requests and capsules only. noq closes a connection whose receive buffer has more
/// than 1024 gaps; a window this small cannot have as many.
const STREAM_WINDOW: u32 = 256 << 10;

/// What every endpoint needs to know.
#[derive(Clone)]
pub struct Settings {
    /// Largest inner packet, in bytes.
    pub inner_mtu: u16,
    /// Who issues the connection IDs.
    pub issuer: Issuer,
    /// Seed of all randomness in the engine; from the operating system, or fixed in a simulation.
    pub seed: [u8; 32],
    /// Key of stateless reset tokens (RFC 9000 §10.3.2). The same after a restart, so that a peer
    /// learns at once that its connection is gone.
    pub reset_key: [u8; 32],
    /// When keys of connections are renewed.
    pub rekey: Rekey,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("inner_mtu", &self.inner_mtu)
            .field("issuer", &self.issuer)
            .field("rekey", &self.rekey)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// UDP payload that a path must carry for the inner MTU to fit.
    pub fn outer_mtu(&self) -> u16 {
        (self.inner_mtu + OVERHEAD).max(1200)
    }

    /// Seed of the hashes of inner flows, which nobody else is to know: who does has flows meet in
    /// one queue.
    pub(crate) fn flow_seed(&self) -> u64 {
        // Not the stream of random numbers that others get from the same seed.
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.seed);
        let tag = hmac::sign(&key, b"sennit inner flows");
        let first = tag.as_ref().first_chunk();
        u64::from_be_bytes(*first.expect("SHA-256 has 32 bytes"))
    }

    pub(crate) fn endpoint(&self) -> EndpointConfig {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.reset_key);
        let mut config = EndpointConfig::new(Arc::new(key));
        let (issuer, seed) = (self.issuer, self.seed);
        config
            .cid_generator(Arc::new(move || {
                Box::new(cid::Generator::new(issuer, seed))
            }))
            .supported_versions(vec![1])
            .rng_seed(Some(self.seed))
            .min_reset_interval(RESET_EVERY)
            .grease_quic_bit(true);
        config
            .max_udp_payload_size(self.outer_mtu().max(1472))
            .expect("1200 or more is a valid payload size");
        config
    }

    pub(crate) fn transport(&self, congestion: Congestion) -> TransportConfig {
        let mut ack_frequency = AckFrequencyConfig::default();
        ack_frequency
            .ack_eliciting_threshold(VarInt::from_u32(ACK_PACKETS - 1))
            .max_ack_delay(Some(ACK_DELAY))
            .reordering_threshold(VarInt::from_u32(2));
        let mut config = TransportConfig::default();
        config
            // Every path must carry the same size; the gate finds out which does not.
            .initial_mtu(self.outer_mtu())
            .min_mtu(self.outer_mtu())
            .mtu_discovery_config(None)
            .initial_rtt(INITIAL_RTT)
            .packet_threshold(ANY_ORDER)
            .time_threshold(LOST_AFTER)
            .max_idle_timeout(Some(
                IdleTimeout::try_from(IDLE).expect("30 s is below the limit of a varint"),
            ))
            .ack_frequency_config(Some(ack_frequency))
            .max_concurrent_multipath_paths(MAX_PATHS.get())
            .max_concurrent_bidi_streams(VarInt::from_u32(4))
            .max_concurrent_uni_streams(VarInt::from_u32(8))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(2 * STREAM_WINDOW))
            .send_window(STREAMS_ON_THE_WAY)
            .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
            .datagram_send_buffer_size(DATAGRAM_BUFFER)
            .allow_spin(false)
            .congestion_controller_factory(Arc::new(GateFactory(congestion)));
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_inner_mtu_fits_an_ethernet_link_over_ipv6() {
        let settings = Settings {
            inner_mtu: 1400,
            issuer: Issuer::default(),
            seed: [0; 32],
            reset_key: [0; 32],
            rekey: Rekey::default(),
        };
        assert!(
            settings.outer_mtu() + 40 + 8 <= 1500,
            "{}",
            settings.outer_mtu()
        );
    }
}
