//! Streams by id.

use crate::StreamId;
use crate::error::{Code, ConnectionError};
use std::collections::BTreeMap;

/// The live streams of one kind. It also knows which of the peer's ids have been used, so that
/// what comes late for a finished stream does not begin a new one.
#[derive(Debug)]
pub(super) struct Streams<T> {
    live: BTreeMap<StreamId, T>,
    next: StreamId,
    limit: usize,
}

/// Ids of one kind are four apart (RFC 9000 §2.1).
const STEP: u64 = 4;

impl<T> Streams<T> {
    pub(super) const fn new(first: StreamId, limit: usize) -> Self {
        Self {
            live: BTreeMap::new(),
            next: first,
            limit,
        }
    }

    /// A stream that the peer opens or has opened; `None` once it is finished. Opening one opens
    /// all below it (RFC 9000 §3.2).
    pub(super) fn open(
        &mut self,
        id: StreamId,
        make: impl Fn(StreamId) -> T,
    ) -> Result<Option<&mut T>, ConnectionError> {
        if id >= self.next {
            let new = (id.0 - self.next.0) / STEP + 1;
            if new > self.limit.saturating_sub(self.live.len()) as u64 {
                return Err(ConnectionError::new(
                    Code::H3_EXCESSIVE_LOAD,
                    "too many streams",
                ));
            }
            for index in 0..new {
                let id = StreamId(self.next.0 + index * STEP);
                self.live.insert(id, make(id));
            }
            self.next = StreamId(id.0 + STEP);
        }
        Ok(self.live.get_mut(&id))
    }

    /// The first id that the peer has not used.
    pub(super) const fn next(&self) -> StreamId {
        self.next
    }

    pub(super) fn insert(&mut self, id: StreamId, stream: T) {
        self.live.insert(id, stream);
    }

    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut T> {
        self.live.get_mut(&id)
    }

    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.live.contains_key(&id)
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<T> {
        self.live.remove(&id)
    }

    /// Live streams from `id` on.
    pub(super) fn from(&self, id: StreamId) -> Vec<StreamId> {
        self.live.range(id..).map(|(&id, _)| id).collect()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.live.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> Streams<u8> {
        Streams::new(StreamId(3), 4)
    }

    #[test]
    fn opening_a_stream_opens_all_below_it() {
        let mut streams = streams();
        assert_eq!(streams.open(StreamId(11), |_| 0), Ok(Some(&mut 0)));
        assert_eq!(
            streams.from(StreamId(0)),
            [StreamId(3), StreamId(7), StreamId(11)]
        );
    }

    #[test]
    fn a_finished_stream_does_not_open_again() {
        let mut streams = streams();
        streams.open(StreamId(7), |_| 0).expect("within the limit");
        streams.remove(StreamId(7));
        assert_eq!(streams.open(StreamId(7), |_| 0), Ok(None));
        assert_eq!(streams.open(StreamId(3), |_| 1), Ok(Some(&mut 0)));
    }

    #[test]
    fn more_streams_than_the_limit_are_an_excessive_load() {
        let mut streams = streams();
        assert!(streams.open(StreamId(15), |_| 0).is_ok());
        for id in [19, (1 << 62) - 1] {
            let error = streams
                .open(StreamId(id), |_| 0)
                .expect_err("over the limit");
            assert_eq!(error.code, Code::H3_EXCESSIVE_LOAD);
        }
        streams.remove(StreamId(3));
        assert!(streams.open(StreamId(19), |_| 0).is_ok());
    }
}
