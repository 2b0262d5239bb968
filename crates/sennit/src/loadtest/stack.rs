//! The QUIC under a test: that of our engine, or another one as a second opinion.
//!
//! Everything above speaks to a [`Stack`], and all stacks send over the same sockets or emulated
//! link, so that two runs differ in their state machines, loss recovery, pacing and congestion
//! control, and in nothing else.

mod quinn;

use std::{
    fmt::{self, Display},
    net::SocketAddr,
    str::FromStr,
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use rustls::{ClientConfig, ServerConfig};
use sennit_core::Congestion;
use sennit_engine::{
    Bare, BareConfig, BareEvent, BareReceived, BareStats, BareTransmit, ConnId, FecOutlook, Stream,
};
use serde::{Deserialize, Serialize};

use self::quinn::Quinn;

/// Which QUIC an end of a test runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StackName {
    /// Our engine, on noq, with the congestion controllers of a tunnel.
    #[default]
    Sennit,
    /// quinn, with its own.
    Quinn,
}

impl StackName {
    const ALL: [Self; 2] = [Self::Sennit, Self::Quinn];

    fn name(self) -> &'static str {
        match self {
            Self::Sennit => "sennit",
            Self::Quinn => "quinn",
        }
    }

    /// Whether it has a congestion controller of this word.
    #[must_use]
    pub fn has(self, word: Congestion) -> bool {
        match (self, word) {
            (Self::Sennit, _)
            | (Self::Quinn, Congestion::Auto | Congestion::Cubic | Congestion::Bbr) => true,
            (Self::Quinn, Congestion::Bbr3 | Congestion::Follow) => false,
        }
    }

    /// Whether it tells what it loses, by which `auto` error correction chooses a code.
    #[must_use]
    pub fn tells_losses(self) -> bool {
        match self {
            Self::Sennit => true,
            Self::Quinn => false,
        }
    }

    /// An endpoint that only connects.
    pub(super) fn client(self, config: BareConfig) -> Box<dyn Stack> {
        match self {
            Self::Sennit => Box::new(Bare::client(config)),
            Self::Quinn => Box::new(Quinn::client(config)),
        }
    }

    /// An endpoint that is connected to.
    pub(super) fn server(
        self,
        config: BareConfig,
        tls: Arc<ServerConfig>,
    ) -> Result<Box<dyn Stack>, String> {
        match self {
            Self::Sennit => {
                let server = Bare::server(config, tls).map_err(|error| error.to_string())?;
                Ok(Box::new(server))
            }
            Self::Quinn => Ok(Box::new(Quinn::server(config, tls)?)),
        }
    }
}

impl Display for StackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StackName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|stack| stack.name() == text);
        known.ok_or_else(|| "write sennit or quinn".into())
    }
}

/// An endpoint of connections: what [`Bare`] documents, whoever does it.
pub(super) trait Stack {
    /// Which one this is.
    fn name(&self) -> StackName;

    fn connect(
        &mut self,
        tls: Arc<ClientConfig>,
        remote: SocketAddr,
        server_name: &str,
        now: Instant,
    ) -> Result<ConnId, String>;
    fn close(&mut self, id: ConnId, code: u32, reason: &str, now: Instant);
    fn set_urgent(&mut self, id: ConnId);

    fn open(&mut self, id: ConnId, both_ways: bool) -> Option<Stream>;
    fn write(&mut self, id: ConnId, stream: Stream, data: &Bytes) -> Option<usize>;
    fn finish(&mut self, id: ConnId, stream: Stream);
    fn reset(&mut self, id: ConnId, stream: Stream);
    fn stop(&mut self, id: ConnId, stream: Stream);
    fn set_priority(&mut self, id: ConnId, stream: Stream, priority: i32);
    fn read(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool;
    fn drain(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool;
    fn send_datagram(&mut self, id: ConnId, data: Bytes) -> bool;
    fn send_datagram_soon(&mut self, id: ConnId, data: Bytes) -> bool;
    fn datagrams_waiting(&mut self, id: ConnId, bytes: usize) -> usize;

    /// How many bytes have arrived on a stream since the last call, in whatever order.
    fn count(&mut self, id: ConnId, stream: Stream) -> usize {
        let mut bytes = 0;
        self.drain(id, stream, &mut |data| bytes += data.len());
        bytes
    }

    fn may_send_early(&self, id: ConnId) -> bool;
    fn was_early_taken(&self, id: ConnId) -> bool;
    fn protocol(&self, id: ConnId) -> Option<Vec<u8>>;
    /// Whether the keys come from X25519MLKEM768; `None` if this stack does not tell.
    fn is_post_quantum(&self, id: ConnId) -> Option<bool>;
    fn set_congestion(&mut self, id: ConnId, word: Congestion);
    /// The word of the congestion controller that runs.
    fn controller(&self, id: ConnId) -> Option<String>;
    fn stats(&mut self, id: ConnId) -> Option<BareStats>;
    /// What `auto` error correction goes by where so many datagrams have been sent; `None` if
    /// nothing is known yet, and of a stack that does not [tell](StackName::tells_losses).
    fn outlook(&mut self, id: ConnId, sent: u64, now: Instant) -> Option<FecOutlook>;

    fn handle_datagrams(&mut self, from: BareReceived, data: BytesMut, now: Instant);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_event(&mut self) -> Option<BareEvent>;
    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<BareTransmit>;
    fn poll_timeout(&self) -> Option<Instant>;
}

impl Stack for Bare {
    fn name(&self) -> StackName {
        StackName::Sennit
    }

    fn connect(
        &mut self,
        tls: Arc<ClientConfig>,
        remote: SocketAddr,
        server_name: &str,
        now: Instant,
    ) -> Result<ConnId, String> {
        Self::connect(self, tls, remote, server_name, now)
    }

    fn close(&mut self, id: ConnId, code: u32, reason: &str, now: Instant) {
        Self::close(self, id, code, reason, now);
    }

    fn set_urgent(&mut self, id: ConnId) {
        Self::set_urgent(self, id);
    }

    fn open(&mut self, id: ConnId, both_ways: bool) -> Option<Stream> {
        Self::open(self, id, both_ways)
    }

    fn write(&mut self, id: ConnId, stream: Stream, data: &Bytes) -> Option<usize> {
        Self::write(self, id, stream, data)
    }

    fn finish(&mut self, id: ConnId, stream: Stream) {
        Self::finish(self, id, stream);
    }

    fn reset(&mut self, id: ConnId, stream: Stream) {
        Self::reset(self, id, stream);
    }

    fn stop(&mut self, id: ConnId, stream: Stream) {
        Self::stop(self, id, stream);
    }

    fn set_priority(&mut self, id: ConnId, stream: Stream, priority: i32) {
        Self::set_priority(self, id, stream, priority);
    }

    fn read(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool {
        Self::read(self, id, stream, sink)
    }

    fn drain(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool {
        Self::drain(self, id, stream, sink)
    }

    fn send_datagram(&mut self, id: ConnId, data: Bytes) -> bool {
        Self::send_datagram(self, id, data)
    }

    fn send_datagram_soon(&mut self, id: ConnId, data: Bytes) -> bool {
        Self::send_datagram_soon(self, id, data)
    }

    fn datagrams_waiting(&mut self, id: ConnId, bytes: usize) -> usize {
        Self::datagrams_waiting(self, id, bytes)
    }

    fn may_send_early(&self, id: ConnId) -> bool {
        Self::may_send_early(self, id)
    }

    fn was_early_taken(&self, id: ConnId) -> bool {
        Self::was_early_taken(self, id)
    }

    fn protocol(&self, id: ConnId) -> Option<Vec<u8>> {
        Self::protocol(self, id)
    }

    fn is_post_quantum(&self, id: ConnId) -> Option<bool> {
        Some(Self::is_post_quantum(self, id))
    }

    fn set_congestion(&mut self, id: ConnId, word: Congestion) {
        Self::set_congestion(self, id, word);
    }

    fn controller(&self, id: ConnId) -> Option<String> {
        Some(self.choice(id)?.controller.to_string())
    }

    fn stats(&mut self, id: ConnId) -> Option<BareStats> {
        Self::stats(self, id)
    }

    fn outlook(&mut self, id: ConnId, sent: u64, now: Instant) -> Option<FecOutlook> {
        Self::outlook(self, id, sent, now)
    }

    fn handle_datagrams(&mut self, from: BareReceived, data: BytesMut, now: Instant) {
        Self::handle_datagrams(self, from, data, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_event(&mut self) -> Option<BareEvent> {
        Self::poll_event(self)
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<BareTransmit> {
        Self::poll_transmit(self, buffer, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }
}
