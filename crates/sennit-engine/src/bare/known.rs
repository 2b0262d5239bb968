//! What is known of a connection without a tunnel.

use std::{net::SocketAddr, time::Instant};

use noq_proto::{PathId, crypto::rustls::HandshakeData};
use sennit_core::Congestion;

use super::{Bare, BareStats};
use crate::{
    congestion::Choice,
    gate::Alone,
    ids::ConnId,
    protection::{Outlook, is_crowded},
    remotes::plain,
};

impl Bare {
    /// The application protocol that both ends agreed on (ALPN, RFC 7301), once they have.
    #[must_use]
    pub fn protocol(&self, id: ConnId) -> Option<Vec<u8>> {
        self.handshake(id)?.protocol
    }

    /// Whether the keys come from X25519MLKEM768.
    #[must_use]
    pub fn is_post_quantum(&self, id: ConnId) -> bool {
        let handshake = self.handshake(id);
        let group = handshake.and_then(|data| data.negotiated_key_exchange_group);
        group == Some(rustls::NamedGroup::X25519MLKEM768)
    }

    fn handshake(&self, id: ConnId) -> Option<Box<HandshakeData>> {
        let quic = &self.conns.get(&id)?.quic;
        quic.crypto_session().handshake_data()?.downcast().ok()
    }

    /// Where the other end sees the packets of a connection come from, once it has said so; a hub
    /// does.
    #[must_use]
    pub fn observed(&self, id: ConnId) -> Option<SocketAddr> {
        let quic = &self.conns.get(&id)?.quic;
        quic.path_observed_address(PathId::ZERO).ok()?.map(plain)
    }

    /// Another congestion controller for what this end sends.
    pub fn set_congestion(&mut self, id: ConnId, word: Congestion) {
        let conn = self.conns.get(&id);
        let controller = conn.and_then(|conn| conn.quic.congestion_state(PathId::ZERO));
        if let Some(state) = controller.and_then(Alone::state_of) {
            state.set_congestion(word);
        }
    }

    /// The congestion controller that runs, and why.
    #[must_use]
    pub fn choice(&self, id: ConnId) -> Option<Choice> {
        let controller = self.conns.get(&id)?.quic.congestion_state(PathId::ZERO)?;
        Alone::state_of(controller)?.choice()
    }

    /// What `auto` error correction goes by for datagrams that are sent once or never, of which so
    /// many have been sent on this connection; `None` before the first acknowledgement.
    pub fn outlook(&mut self, id: ConnId, sent: u64, now: Instant) -> Option<Outlook> {
        let conn = self.conns.get_mut(&id)?;
        let losses = Alone::state_of(conn.quic.congestion_state(PathId::ZERO)?)?.losses(now);
        let round_trip = conn.quic.path_stats(PathId::ZERO)?.rtt;
        let crowded = is_crowded(round_trip, losses.least_rtt?);
        let own = |part: f64| if crowded { 0.0 } else { part };
        let loss = own(losses.part);
        Some(Outlook {
            loss,
            loss_at_first: own(losses.part_at_first),
            burst: if loss > 0.0 { losses.burst } else { 1.0 },
            loss_counted: own(losses.part_counted),
            sent,
            waits: conn.waiting() > 0,
            round_trip,
            repairs: false,
            copies: false,
            taken: true,
        })
    }

    /// What a connection did so far.
    pub fn stats(&mut self, id: ConnId) -> Option<BareStats> {
        let conn = &mut self.conns.get_mut(&id)?.quic;
        let path = conn.path_stats(PathId::ZERO)?;
        Some(BareStats {
            sent_bytes: path.udp_tx.bytes,
            sent_packets: path.sent_packets,
            lost_packets: path.lost_packets,
            received_bytes: path.udp_rx.bytes,
            window: path.cwnd,
            mtu: path.current_mtu,
        })
    }
}
