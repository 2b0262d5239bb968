//! What links have carried since it was written down last, from counters that may begin anew.

use std::collections::BTreeMap;

use sennit_engine::{LinkId, facts::LinkFacts};

use crate::usage::Carried;

/// A counter: of a worker, a link of its engine, and the name that the link has there.
///
/// A sum of counters could fall although only one of them begins anew, and the others would be
/// counted twice.
type Counter = (usize, LinkId, String);

/// The counters when they were read last, and what is not written yet.
#[derive(Default)]
pub(super) struct Tally {
    before: BTreeMap<Counter, Carried>,
    owed: BTreeMap<String, Carried>,
}

impl Tally {
    /// Takes in what the counters of all workers say.
    pub(super) fn note(&mut self, workers: impl Iterator<Item = Vec<LinkFacts>>) {
        let mut now = BTreeMap::new();
        for (worker, links) in workers.enumerate() {
            for link in links {
                let carried = Carried {
                    sent_bytes: link.sent_bytes,
                    received_bytes: link.received_bytes,
                };
                let counter = (worker, link.id, link.name.clone());
                let before = self.before.get(&counter).copied().unwrap_or_default();
                let owed = self.owed.entry(link.name).or_default();
                owed.add(carried.since(before));
                now.insert(counter, carried);
            }
        }
        self.before = now;
        self.owed.retain(|_, carried| carried.total() > 0);
    }

    /// What links have carried that nobody has written down.
    pub(super) fn take(&mut self) -> BTreeMap<String, Carried> {
        std::mem::take(&mut self.owed)
    }

    /// It could not be written: it is owed still.
    pub(super) fn put_back(&mut self, carried: BTreeMap<String, Carried>) {
        for (link, carried) in carried {
            self.owed.entry(link).or_default().add(carried);
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_packet::Bitrate;

    use super::*;

    fn link(id: u32, name: &str, sent_bytes: u64) -> LinkFacts {
        LinkFacts {
            id: LinkId(id),
            name: name.into(),
            site: None,
            classes: Vec::new(),
            delivers: Bitrate::ZERO,
            sent_bytes,
            received_bytes: 0,
        }
    }

    fn sent(carried: &BTreeMap<String, Carried>, link: &str) -> u64 {
        carried.get(link).map_or(0, |carried| carried.sent_bytes)
    }

    #[test]
    fn a_worker_that_begins_anew_leaves_the_others_as_they_were_counted() {
        let mut tally = Tally::default();
        let of_each = |first, second| [first, second].map(|bytes| vec![link(1, "lte", bytes)]);
        tally.note(of_each(5_000, 7_000).into_iter());
        assert_eq!(sent(&tally.take(), "lte"), 12_000);

        tally.note(of_each(10, 7_100).into_iter());

        assert_eq!(sent(&tally.take(), "lte"), 110);
    }

    #[test]
    fn a_link_that_leaves_one_of_its_places_is_not_counted_again_for_the_other() {
        let mut tally = Tally::default();
        let both = vec![link(1, "lte", 9_000), link(2, "lte", 50)];
        tally.note([both].into_iter());
        tally.take();

        tally.note([vec![link(1, "dsl", 3), link(2, "lte", 60)]].into_iter());

        let carried = tally.take();
        assert_eq!((sent(&carried, "lte"), sent(&carried, "dsl")), (10, 3));
    }

    #[test]
    fn what_could_not_be_written_is_written_later_once() {
        let mut tally = Tally::default();
        tally.note([vec![link(1, "lte", 500)]].into_iter());
        let unwritten = tally.take();
        tally.put_back(unwritten);
        tally.note([vec![link(1, "lte", 600)]].into_iter());

        assert_eq!(sent(&tally.take(), "lte"), 600);
        assert_eq!(sent(&tally.take(), "lte"), 0);
    }
}
