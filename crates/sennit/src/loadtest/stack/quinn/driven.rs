//! quinn as an endpoint of a test.

use super::*;

impl Stack for Quinn {
    fn name(&self) -> StackName {
        StackName::Quinn
    }

    fn connect(
        &mut self,
        tls: Arc<rustls::ClientConfig>,
        remote: SocketAddr,
        server_name: &str,
        now: Instant,
    ) -> Result<ConnId, String> {
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| error.to_string())?;
        let congestion = Wanted::new(self.config.congestion);
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(self.transport(&congestion));
        let connecting = self.endpoint.connect(now, config, remote, server_name);
        let connecting = connecting.map_err(|error| error.to_string())?;
        Ok(self.add(connecting, congestion, remote, true))
    }

    fn close(&mut self, id: ConnId, code: u32, reason: &str, now: Instant) {
        if let Some(conn) = self.get(id) {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            conn.close(now, VarInt::from_u32(code), reason);
        }
    }

    fn set_urgent(&mut self, id: ConnId) {
        self.roster.set_urgent(id);
    }

    fn open(&mut self, id: ConnId, both_ways: bool) -> Option<Stream> {
        let dir = if both_ways { Dir::Bi } else { Dir::Uni };
        self.get(id)?.streams().open(dir).map(ours)
    }

    fn write(&mut self, id: ConnId, stream: Stream, data: &Bytes) -> Option<usize> {
        let mut sending = self.get(id)?.send_stream(theirs(stream));
        match sending.write_chunks(&mut [data.clone()]) {
            Ok(written) => Some(written.bytes),
            Err(WriteError::Blocked) => Some(0),
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => None,
        }
    }

    fn finish(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            // A stream that the peer stopped, or that is finished, is over as it should be.
            let _ = conn.send_stream(theirs(stream)).finish();
        }
    }

    fn reset(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.send_stream(theirs(stream)).reset(VarInt::from_u32(0));
        }
    }

    fn stop(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.recv_stream(theirs(stream)).stop(VarInt::from_u32(0));
        }
    }

    fn set_priority(&mut self, id: ConnId, stream: Stream, priority: i32) {
        if let Some(conn) = self.get(id) {
            // A stream that is over has nothing to send.
            let _ = conn.send_stream(theirs(stream)).set_priority(priority);
        }
    }

    fn read(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool {
        self.take(id, stream, true, sink)
    }

    fn drain(&mut self, id: ConnId, stream: Stream, sink: &mut dyn FnMut(&[u8])) -> bool {
        self.take(id, stream, false, sink)
    }

    fn send_datagram(&mut self, id: ConnId, data: Bytes) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        // What the peer or the path does not take is lost, as a packet that is too large is.
        !matches!(
            conn.datagrams().send(data, false),
            Err(SendDatagramError::Blocked(_))
        )
    }

    fn send_datagram_soon(&mut self, id: ConnId, data: Bytes) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else {
            return false;
        };
        conn.wants_room = !conn.has_room();
        self.roster.touch(id);
        !conn.wants_room && conn.quic.datagrams().send(data, false).is_ok()
    }

    fn datagrams_waiting(&mut self, id: ConnId, bytes: usize) -> usize {
        let waiting = self.conns.get_mut(&id).map_or(0, Conn::waiting);
        waiting.div_ceil(bytes + size_of::<Datagram>())
    }

    fn may_send_early(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.quic.has_0rtt())
    }

    fn was_early_taken(&self, id: ConnId) -> bool {
        let conn = self.conns.get(&id);
        conn.is_some_and(|conn| conn.quic.accepted_0rtt())
    }

    fn protocol(&self, id: ConnId) -> Option<Vec<u8>> {
        let session = self.conns.get(&id)?.quic.crypto_session();
        let data: Box<HandshakeData> = session.handshake_data()?.downcast().ok()?;
        data.protocol
    }

    fn is_post_quantum(&self, _: ConnId) -> Option<bool> {
        None
    }

    fn set_congestion(&mut self, id: ConnId, word: Congestion) {
        if let Some(conn) = self.conns.get(&id) {
            conn.congestion.set(word);
        }
    }

    fn controller(&self, id: ConnId) -> Option<String> {
        Some(self.conns.get(&id)?.congestion.name().to_owned())
    }

    fn stats(&mut self, id: ConnId) -> Option<BareStats> {
        let stats = self.conns.get(&id)?.quic.stats();
        Some(BareStats {
            sent_bytes: stats.udp_tx.bytes,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            received_bytes: stats.udp_rx.bytes,
            window: stats.path.cwnd,
            mtu: stats.path.current_mtu,
        })
    }

    fn outlook(&mut self, _: ConnId, _: u64, _: Instant) -> Option<FecOutlook> {
        None
    }

    fn handle_datagrams(&mut self, from: BareReceived, mut data: BytesMut, now: Instant) {
        let segment = from.segment.max(1);
        while !data.is_empty() {
            let packet = data.split_to(segment.min(data.len()));
            self.handle_datagram(from, packet, now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(id) = self.roster.pop_due(now) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.quic.handle_timeout(now);
            }
        }
    }

    fn poll_event(&mut self) -> Option<BareEvent> {
        if self.events.is_empty() {
            for id in self.roster.touched() {
                self.digest(id);
            }
        }
        let event = self.events.pop_front();
        if event.is_none() {
            self.forget_drained();
        }
        event
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<BareTransmit> {
        if let Some((transmit, bytes)) = self.stateless.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(id) = self.roster.take_turn() {
            let mut wake = None;
            if let Some(conn) = self.conns.get_mut(&id) {
                let most = BareConfig::SEGMENTS.get();
                if let Some(transmit) = conn.quic.poll_transmit(now, most, buffer) {
                    return Some(outgoing(&transmit));
                }
                wake = conn.quic.poll_timeout();
                if conn.wants_room && conn.has_room() {
                    wake = Some(now);
                }
            }
            self.roster.rest(id, wake);
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.roster.poll_timeout()
    }
}
