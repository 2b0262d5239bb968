//! What all connections of an endpoint have in common.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use aws_lc_rs::hmac;
use noq_proto::{AckFrequencyConfig, EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use sennit_core::Congestion;

use crate::{
    acks::{ACK_DELAY, ACK_PACKETS, INITIAL_RTT},
    gate::AloneFactory,
};

/// What all connections of an endpoint have in common.
#[derive(Clone)]
pub struct BareConfig {
    /// Controls what is sent, unless [`Bare::set_congestion`] says otherwise for a connection.
    pub congestion: Congestion,
    /// Without a sign of the peer for so long a connection is over.
    pub idle: Duration,
    /// Seed of all randomness.
    pub seed: [u8; 32],
    /// Key of stateless reset tokens.
    pub reset_key: [u8; 32],
    /// Connections that a server has at once, at most.
    pub most: usize,
    /// Connections that it has with one address at once, at most.
    pub most_per_address: usize,
}

impl BareConfig {
    /// A stream may have so much under way: 2.5 Gbit/s at 100 ms.
    pub const WINDOW: u32 = 32 << 20;
    /// Datagrams wait here until the driver drains them, within one batch of the socket.
    pub const DATAGRAM_BUFFER: usize = 4 << 20;
    /// Datagrams that are to leave soon wait for so long, by window and round trip. It is twice
    /// that where a controller keeps two round trips' worth in its window, as BBR does.
    const SOON: Duration = Duration::from_millis(10);
    /// A packet's worth may always wait, so that small datagrams share one. What a turn of the
    /// driver takes at 10 Gbit/s is the most.
    const SOON_BYTES: [usize; 2] = [1200, 256 << 10];
    /// A connection may have so many streams open that carry load.
    pub const STREAMS: u32 = 4096;
    /// A connection may have so many streams open on which both ends talk.
    pub const TALKS: u32 = 260;
    /// Packets of one send, as many as the kernel cuts.
    pub const SEGMENTS: NonZeroUsize = NonZeroUsize::new(32).expect("it is not zero");
    /// Stateless answers that wait; more are dropped, as the network may.
    pub const STATELESS_LIMIT: usize = 64;
    /// From this part of the places on, whoever comes must first show that the address is its own.
    pub const UNPROVEN: usize = 4;

    /// While fewer bytes of datagrams wait than that, another one leaves soon.
    #[must_use]
    pub fn soon(window: u64, rtt: Duration) -> usize {
        let share = Self::SOON.as_secs_f64() / rtt.as_secs_f64().max(1e-6);
        let [least, most] = Self::SOON_BYTES;
        ((window as f64 * share) as usize).clamp(least, most)
    }

    pub(super) fn endpoint(&self) -> EndpointConfig {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.reset_key);
        let mut config = EndpointConfig::new(Arc::new(key));
        config
            .supported_versions(vec![1])
            .rng_seed(Some(self.seed))
            .grease_quic_bit(true);
        config
    }

    pub(super) fn transport(&self) -> Arc<TransportConfig> {
        let mut ack_frequency = AckFrequencyConfig::default();
        ack_frequency
            .ack_eliciting_threshold(VarInt::from_u32(ACK_PACKETS - 1))
            .max_ack_delay(Some(ACK_DELAY));
        let idle = IdleTimeout::try_from(self.idle).unwrap_or_else(|_| VarInt::MAX.into());
        let mut config = TransportConfig::default();
        config
            .initial_rtt(INITIAL_RTT)
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(Some(self.idle / 3))
            .ack_frequency_config(Some(ack_frequency))
            .max_concurrent_bidi_streams(VarInt::from_u32(Self::TALKS))
            .max_concurrent_uni_streams(VarInt::from_u32(Self::STREAMS))
            .stream_receive_window(VarInt::from_u32(Self::WINDOW))
            .receive_window(VarInt::from_u32(2 * Self::WINDOW))
            .send_window(u64::from(Self::WINDOW))
            .datagram_receive_buffer_size(Some(Self::DATAGRAM_BUFFER))
            .datagram_send_buffer_size(Self::DATAGRAM_BUFFER)
            .allow_spin(false)
            .receive_observed_address_reports(true)
            .congestion_controller_factory(Arc::new(AloneFactory(self.congestion)));
        Arc::new(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_soon_is_ten_milliseconds_worth() {
        let ms = Duration::from_millis;
        assert_eq!(BareConfig::soon(100_000, ms(40)), 25_000);
        assert_eq!(BareConfig::soon(2_400, ms(500)), 1200, "a packet");
        assert_eq!(BareConfig::soon(1 << 30, Duration::ZERO), 256 << 10);
    }
}
