//! Datagrams that overtake the hub's answer.
//!
//! A hub sends inner packets right behind its answer, and where that is lost they come first. noq
//! has acknowledged them, so nobody would send them again: they wait here until the answer says
//! what they look like (RFC 9297 §2.1 lets an end buffer them).

use std::time::Instant;

use bytes::Bytes;
use sennit_masque::StreamId;

/// Bytes that wait at most: what 100 Mbit/s bring in 300 ms, the first probe timeout of an answer.
const MOST: usize = 4 << 20;

/// What one takes beside its bytes, which may be none.
const ROOM: usize = size_of::<Datagram>();

/// A datagram: its stream, context and payload, the path that it came by, and when.
pub(super) type Datagram = ((StreamId, u64, Bytes), u32, Instant);

/// Those of one connection.
#[derive(Debug)]
pub(super) struct Early {
    waiting: Vec<Datagram>,
    bytes: usize,
    /// The answer was there, so none is waited for.
    over: bool,
}

impl Early {
    /// Only who asked waits for an answer: a hub keeps nothing for strangers ([`Self::wait`]).
    pub(super) fn new(asks: bool) -> Self {
        Self {
            waiting: Vec::new(),
            bytes: 0,
            over: !asks,
        }
    }

    /// Who asked for the tunnel is granted it, once its handshake is complete.
    pub(super) fn wait(&mut self) {
        self.over = false;
    }

    /// Keeps a datagram; false if there is nothing to wait for, or no room.
    pub(super) fn keep(&mut self, datagram: Datagram) -> bool {
        let bytes = self.bytes + datagram.0.2.len() + ROOM;
        if self.over || bytes > MOST {
            return false;
        }
        self.bytes = bytes;
        self.waiting.push(datagram);
        true
    }

    /// The answer is there.
    pub(super) fn take(&mut self) -> Vec<Datagram> {
        self.over = true;
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(bytes: usize) -> Datagram {
        let payload = Bytes::from(vec![0; bytes]);
        ((StreamId(0), 0, payload), 0, Instant::now())
    }

    #[test]
    fn what_waits_is_bounded_and_nothing_waits_after_the_answer() {
        let mut early = Early::new(true);
        assert!(early.keep(datagram(MOST / 2 - ROOM)));
        assert!(early.keep(datagram(MOST / 2 - ROOM)));
        assert!(!early.keep(datagram(1)));

        assert_eq!(early.take().len(), 2);
        assert!(!early.keep(datagram(1)));
        assert!(early.take().is_empty());
    }

    #[test]
    fn datagrams_without_content_take_room_as_well() {
        let mut early = Early::new(true);
        let kept = (0..MOST).take_while(|_| early.keep(datagram(0))).count();
        assert_eq!(kept, MOST / ROOM);
    }
}
