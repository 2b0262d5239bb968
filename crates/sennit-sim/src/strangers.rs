//! What strangers send to a hub that never hears of them again.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustls::ClientConfig;
use sennit_core::Congestion;
use sennit_engine::{Bare, BareConfig, BareReceived};

use crate::{Authority, HUB_NAME, World, hub_address};

/// A client paces its first packets by as much.
const PACED: Duration = Duration::from_millis(10);

/// `seed` makes connection IDs that other clients do not have.
fn clients(most: usize, seed: u64) -> Bare {
    let mut bytes = [3; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Bare::client(BareConfig {
        congestion: Congestion::Cubic,
        idle: Duration::from_secs(10),
        seed: bytes,
        reset_key: [4; 32],
        most,
        most_per_address: most,
    })
}

/// Begins a handshake.
fn connect(clients: &mut Bare, tls: &Arc<ClientConfig>, now: Instant) {
    let connected = clients.connect(tls.clone(), hub_address(), HUB_NAME, now);
    connected.expect("it may connect");
}

/// All packets that wait to be sent.
fn packets(clients: &mut Bare, now: Instant) -> Vec<BytesMut> {
    let (mut packets, mut buffer) = (Vec::new(), Vec::new());
    while let Some(transmit) = clients.poll_transmit(&mut buffer, now) {
        let size = transmit.segment.unwrap_or(transmit.size).max(1);
        packets.extend(buffer.chunks(size).map(BytesMut::from));
        buffer.clear();
    }
    packets
}

/// First packets of so many clients: whoever gets one can decrypt it, and it begins a handshake.
///
/// # Panics
/// If a client does not begin.
#[must_use]
pub fn first_packets(count: usize, now: Instant) -> Vec<BytesMut> {
    let tls = Authority::new().client();
    let mut clients = clients(count, 0);
    let mut first_packet = || {
        connect(&mut clients, &tls, now);
        packets(&mut clients, now).swap_remove(0)
    };
    (0..count).map(|_| first_packet()).collect()
}

/// Somebody who begins one handshake after the other from one address, shows that the address is
/// its own if it is asked to, and goes on with none.
pub struct Persistent {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    begun: u64,
}

impl Persistent {
    /// At an address that is on no link.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: Authority::new().client(),
            begun: 0,
        }
    }

    /// Begins another handshake; how many packets it sent.
    pub fn knock(&mut self, world: &mut World) -> usize {
        self.begun += 1;
        let mut client = clients(1, self.begun);
        world.to_strangers = Some(Vec::new());
        connect(&mut client, &self.tls, world.now());
        let first = self.send(&mut client, world);
        let heard = world.to_strangers.take().unwrap_or_default();
        for retry in heard.into_iter().filter(|it| is_retry(it)) {
            let from = BareReceived {
                local: None,
                remote: hub_address(),
                ecn: 0,
                segment: retry.len(),
                arrived: world.now(),
            };
            client.handle_datagrams(from, retry, world.now());
            while client.poll_event().is_some() {}
        }
        first + self.send(&mut client, world)
    }

    /// Its clock runs ahead, as its pacer lets one packet through at a time.
    fn send(&self, client: &mut Bare, world: &mut World) -> usize {
        let mut sent = 0;
        for turn in 0..3 {
            let now = world.now() + PACED * turn;
            client.handle_timeout(now);
            for packet in packets(client, now) {
                world.replay(self.address, &packet);
                sent += 1;
            }
        }
        sent
    }
}

/// A Retry packet of version 1 (RFC 9000 §17.2.5).
fn is_retry(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first & 0xf0 == 0xf0)
}
