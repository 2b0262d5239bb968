//! Datagrams that leave together.

use std::{iter::zip, sync::Arc, time::Instant};

use bytes::Bytes;

use super::fitting::Load;
use crate::gate::{Payload, Twins, Whole};

/// UDP GSO takes at most 64 segments and 64 KB (Linux `UDP_MAX_SEGMENTS`); 40 packets of 1500 fit.
pub(super) const BATCH: usize = 40;

/// When a datagram was first sent, how often again, its twins in the batch, and what it is half of.
type History = (Instant, u8, Option<Twins>, Option<Arc<Whole>>);

/// Datagrams that leave together, as noq takes them, and the history of each.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) datagrams: Vec<Bytes>,
    histories: Vec<History>,
    load: Load,
}

impl Batch {
    pub(super) fn push(&mut self, payload: Payload) {
        let Payload {
            bytes,
            first_sent,
            repeats,
            twins,
            half_of,
        } = payload;
        self.load.add(bytes.len());
        self.datagrams.push(bytes);
        self.histories.push((first_sent, repeats, twins, half_of));
    }

    pub(super) fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// What of them matters to a path that is small.
    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    pub(super) fn clear(&mut self) {
        self.datagrams.clear();
        self.histories.clear();
        self.load = Load::default();
    }

    /// Drops what is longer than `most`.
    pub(super) fn limit(&mut self, most: usize) {
        let all = zip(self.datagrams.drain(..), self.histories.drain(..));
        let (datagrams, histories) = all.filter(|(it, _)| it.len() <= most).unzip();
        (self.datagrams, self.histories) = (datagrams, histories);
    }

    pub(super) fn copies(&self) -> impl Iterator<Item = Payload> {
        zip(
            self.datagrams.iter().cloned(),
            self.histories.iter().cloned(),
        )
        .map(payload)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Payload> {
        zip(self.datagrams.drain(..), self.histories.drain(..)).map(payload)
    }
}

fn payload((bytes, (first_sent, repeats, twins, half_of)): (Bytes, History)) -> Payload {
    Payload {
        bytes,
        first_sent,
        repeats,
        twins,
        half_of,
    }
}
