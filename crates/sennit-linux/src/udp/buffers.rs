//! Receive buffers that leave with what they hold.
//!
//! A run of datagrams that fills much of its buffer is handed out as it is, and another buffer
//! takes its place; once all of the run has been dropped, its buffer is used again. A short run is
//! copied, so that it does not hold a whole buffer for as long as somebody keeps it.

use std::{
    collections::VecDeque,
    io::{self, IoSliceMut},
    time::Instant,
};

use bytes::BytesMut;
use noq_udp::{BATCH_SIZE, RecvMeta};

use super::{UDP_BUFFER, arrivals::Arrivals};
use crate::sys::LendingBuffer;

/// Runs of this length leave with their buffer: what is kept is no more than four times what is
/// used.
const LEND_FROM: usize = UDP_BUFFER / 4;
/// Where runs are long, so many of them are received at a time: a megabyte.
const LONG_RUNS: usize = 16;
/// Buffers that may be out at the same time: 8 MB. Beyond that everything is copied.
const MOST_LENT: usize = 128;

/// Datagrams of one size (the last may be shorter), from one sender.
#[derive(Debug)]
pub struct Run {
    /// What the kernel says of them.
    pub meta: RecvMeta,
    /// The datagrams, one behind the other.
    pub data: BytesMut,
    /// When the kernel got the last of them, as far as that is known: never earlier than it was,
    /// and never later than the call that received them.
    pub arrived: Instant,
    /// When that call had received them.
    pub read: Instant,
}

/// The buffers of a worker.
#[derive(Debug)]
pub struct ReceiveBuffers {
    ready: Vec<LendingBuffer>,
    /// In the order in which they left, which is nearly that in which they come back.
    lent: VecDeque<LendingBuffer>,
    metas: [RecvMeta; BATCH_SIZE],
    arrivals: Arrivals,
    /// The last call received long runs.
    long: bool,
    /// The last call received as much as it could.
    full: bool,
}

impl Default for ReceiveBuffers {
    fn default() -> Self {
        Self {
            ready: (0..BATCH_SIZE).map(|_| new_buffer()).collect(),
            lent: VecDeque::new(),
            metas: [RecvMeta::default(); BATCH_SIZE],
            arrivals: Arrivals::new(Instant::now()),
            long: false,
            full: false,
        }
    }
}

impl ReceiveBuffers {
    /// Takes out run number `index` of those that
    /// [`LinkSocket::recv_runs`](super::LinkSocket::recv_runs) has received last.
    pub fn take(&mut self, index: usize) -> Run {
        let meta = self.metas[index];
        Run {
            meta,
            data: self.take_data(index, &meta),
            arrived: self.arrivals.at(meta.timestamp),
            read: self.arrivals.looked(),
        }
    }

    fn take_data(&mut self, index: usize, meta: &RecvMeta) -> BytesMut {
        if meta.len >= LEND_FROM
            && let Some(spare) = self.spare()
        {
            let mut full = std::mem::replace(&mut self.ready[index], spare);
            let run = full.lend(meta.len);
            self.lent.push_back(full);
            return run;
        }
        BytesMut::from(&self.ready[index].bytes()[..meta.len])
    }

    /// Whether more may wait in the socket. If not, what comes next comes singly, and is better
    /// waited for.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// A buffer that nobody uses.
    fn spare(&mut self) -> Option<LendingBuffer> {
        if self.lent.front_mut().is_some_and(LendingBuffer::reclaim) {
            return self.lent.pop_front();
        }
        (self.lent.len() < MOST_LENT).then(new_buffer)
    }

    /// Has `receive` fill the buffers; it says how many of them it has filled.
    pub(super) fn fill(
        &mut self,
        receive: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut ready = self.ready.iter_mut();
        let mut slices: [_; BATCH_SIZE] = std::array::from_fn(|_| {
            let buffer = ready.next().expect("a call fills no more than are ready");
            IoSliceMut::new(buffer.bytes())
        });
        let most = if self.long { LONG_RUNS } else { BATCH_SIZE };
        let runs = receive(&mut slices[..most], &mut self.metas)?;
        if runs > 0 {
            self.arrivals.look();
        }
        self.full = runs == most;
        self.long = self.metas[..runs].iter().any(|run| run.len >= LEND_FROM);
        Ok(runs)
    }
}

fn new_buffer() -> LendingBuffer {
    LendingBuffer::new(UDP_BUFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(buffers: &mut ReceiveBuffers, len: usize) -> BytesMut {
        buffers.metas[0].len = len;
        buffers.ready[0].bytes()[..len].fill(7);
        let run = buffers.take(0).data;
        assert_eq!(run, vec![7; len]);
        run
    }

    #[test]
    fn a_long_run_leaves_with_its_buffer_and_gives_it_back() {
        let mut buffers = ReceiveBuffers::default();
        let first = received(&mut buffers, 60_000);
        let place = first.as_ptr();
        let second = received(&mut buffers, UDP_BUFFER);
        assert_ne!(place, second.as_ptr());
        assert_eq!(buffers.lent.len(), 2);

        drop(first);

        received(&mut buffers, 60_000);
        assert_eq!(buffers.ready[0].bytes().as_ptr(), place);
        assert_eq!(buffers.ready[0].bytes().len(), UDP_BUFFER);
    }

    #[test]
    fn a_part_of_a_run_keeps_its_buffer_out() {
        let mut buffers = ReceiveBuffers::default();
        let mut run = received(&mut buffers, 60_000);
        let part = run.split_to(100);
        drop(run);
        received(&mut buffers, 60_000);
        assert_eq!(buffers.lent.len(), 2);

        drop(part);

        received(&mut buffers, 60_000);
        assert_eq!(buffers.lent.len(), 2);
    }

    #[test]
    fn short_runs_are_copied() {
        let mut buffers = ReceiveBuffers::default();
        let _runs: Vec<_> = [1, 1400, LEND_FROM - 1]
            .map(|len| received(&mut buffers, len))
            .into();
        assert!(buffers.lent.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut buffers = ReceiveBuffers::default();
        let runs: Vec<_> = (0..MOST_LENT + 10)
            .map(|_| received(&mut buffers, LEND_FROM))
            .collect();
        assert_eq!(buffers.lent.len(), MOST_LENT);
        drop(runs);
    }
}
