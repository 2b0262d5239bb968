//! Streams and datagrams of connections without a tunnel.

use bytes::Bytes;
use noq_proto::{Dir, ReadError, SendDatagramError, VarInt, WriteError};

use super::{Bare, Conn, Stream};
use crate::ids::ConnId;

impl Bare {
    /// Opens a stream, on which the peer may answer if it goes both ways; `None` if the connection
    /// has as many as the peer allows.
    pub fn open(&mut self, id: ConnId, both_ways: bool) -> Option<Stream> {
        let dir = if both_ways { Dir::Bi } else { Dir::Uni };
        self.get(id)?.streams().open(dir).map(Stream)
    }

    /// Hands over as much of `data` as the stream takes: how many bytes. Zero means that it is
    /// full, and [`BareEvent::Writable`] will follow; `None` that it is over.
    pub fn write(&mut self, id: ConnId, stream: Stream, data: &Bytes) -> Option<usize> {
        let mut chunks = [data.clone()];
        match self
            .get(id)?
            .send_stream(stream.0)
            .write_chunks(&mut &mut chunks[..])
        {
            Ok(written) => Some(written),
            Err(WriteError::Blocked) => Some(0),
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => None,
        }
    }

    /// No more will be written.
    pub fn finish(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            // A stream that the peer stopped, or that is finished, is over as it should be.
            let _ = conn.send_stream(stream.0).finish();
        }
    }

    /// No more will be read: the peer is told.
    pub fn stop(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.recv_stream(stream.0).stop(VarInt::from_u32(0));
        }
    }

    /// Of the streams that have something to send, those of the highest number send first; at first
    /// each has 0.
    pub fn set_priority(&mut self, id: ConnId, stream: Stream, priority: i32) {
        if let Some(conn) = self.get(id) {
            // A stream that is over has nothing to send.
            let _ = conn.send_stream(stream.0).set_priority(priority);
        }
    }

    /// Gives up what was written and is not delivered yet.
    pub fn reset(&mut self, id: ConnId, stream: Stream) {
        if let Some(conn) = self.get(id) {
            let _ = conn.send_stream(stream.0).reset(VarInt::from_u32(0));
        }
    }

    /// Hands what has arrived on a stream to `sink`, in order; whether the stream is over.
    pub fn read(&mut self, id: ConnId, stream: Stream, sink: impl FnMut(&[u8])) -> bool {
        self.take(id, stream, true, sink)
    }

    /// How many bytes have arrived on a stream since the last call, each counted once, in whatever
    /// order. A stream is read in order or so: noq ends a connection of which a stream that is read
    /// in order has more than 1024 gaps, and a large window that overflows a queue has as many.
    pub fn count(&mut self, id: ConnId, stream: Stream) -> usize {
        let mut bytes = 0;
        self.drain(id, stream, |data| bytes += data.len());
        bytes
    }

    /// Hands what has arrived on a stream to `sink` in whatever order, as [`Self::count`] counts;
    /// whether the stream is over. What was read in order before may be read so from then on.
    pub fn drain(&mut self, id: ConnId, stream: Stream, sink: impl FnMut(&[u8])) -> bool {
        self.take(id, stream, false, sink)
    }

    fn take(
        &mut self,
        id: ConnId,
        stream: Stream,
        ordered: bool,
        mut sink: impl FnMut(&[u8]),
    ) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        let mut receiving = conn.recv_stream(stream.0);
        let Ok(mut chunks) = receiving.read(ordered) else {
            return true;
        };
        let over = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => sink(&chunk.bytes),
                Ok(None) | Err(ReadError::Reset(_)) => break true,
                Err(ReadError::Blocked) => break false,
            }
        };
        // Whether there is a frame to send, the next drain finds out.
        let _ = chunks.finalize();
        over
    }

    /// Hands a datagram over, to be sent once or never; `false` if there is no room for it, and
    /// [`BareEvent::DatagramRoom`] will follow.
    pub fn send_datagram(&mut self, id: ConnId, data: Bytes) -> bool {
        let Some(conn) = self.get(id) else {
            return true;
        };
        // What the peer or the path does not take is lost, as a packet that is too large is.
        !matches!(
            conn.datagrams().send(data, false),
            Err(SendDatagramError::Blocked(_))
        )
    }

    /// Hands a datagram over, to be sent once or never, unless as much waits as leaves
    /// [soon](BareConfig::soon). `false` if it was not taken; where there is no room
    /// [`BareEvent::DatagramRoom`] will follow.
    pub fn send_datagram_soon(&mut self, id: ConnId, data: Bytes) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else {
            return false;
        };
        conn.wants_room = !conn.has_room();
        self.roster.touch(id);
        !conn.wants_room && conn.quic.datagrams().send(data, false).is_ok()
    }

    /// How many datagrams of `bytes` each were taken and have not left.
    pub fn datagrams_waiting(&mut self, id: ConnId, bytes: usize) -> usize {
        let waiting = self.conns.get_mut(&id).map_or(0, Conn::waiting);
        waiting.div_ceil(bytes.max(1))
    }

    /// Whether a connection whose handshake is not complete may send already (0-RTT).
    #[must_use]
    pub fn may_send_early(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.quic.has_0rtt())
    }

    /// Whether the server took what was sent before the handshake was complete.
    #[must_use]
    pub fn was_early_taken(&self, id: ConnId) -> bool {
        self.conns
            .get(&id)
            .is_some_and(|conn| conn.quic.accepted_0rtt())
    }

    /// The largest datagram that a connection takes now; `None` if it takes none.
    pub fn max_datagram(&mut self, id: ConnId) -> Option<usize> {
        self.conns.get_mut(&id)?.quic.datagrams().max_size()
    }
}
