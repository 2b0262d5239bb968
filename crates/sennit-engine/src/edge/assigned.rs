//! What a hub says that an edge follows: the addresses that it assigns, its own, and another
//! authority.
//!
//! A hub may say something else in each packet, and each change costs routes, addresses and lines
//! of the log. So what it says is followed a few times in each [`WINDOW`], and then its last word.

use std::time::{Duration, Instant};

use sennit_masque::capsule::AssignedAddress;
use sennit_packet::Prefix;

use crate::inner;

/// Time after which a hub is followed again.
const WINDOW: Duration = Duration::from_secs(1);
/// Words that are followed in that time: an operator takes a grant back and gives another.
const FOLLOWED: u8 = 4;
/// Addresses that an edge takes: a hub of ours assigns one of each family.
const MOST: usize = 16;

/// The last word of a hub.
#[derive(Debug)]
pub(super) struct Said<T> {
    followed: T,
    /// What is not followed yet.
    latest: Option<T>,
    /// Since when `count` were followed.
    since: Instant,
    count: u8,
}

impl<T: PartialEq> Said<T> {
    pub(super) fn new(before: T, now: Instant) -> Self {
        Self {
            followed: before,
            latest: None,
            since: now,
            count: 0,
        }
    }

    /// What is followed.
    pub(super) fn followed(&self) -> &T {
        &self.followed
    }

    pub(super) fn hear(&mut self, word: T) {
        self.latest = Some(word);
    }

    /// What is to be followed from now on, if that is something else.
    pub(super) fn poll(&mut self, now: Instant) -> Option<&T> {
        if now >= self.since + WINDOW {
            (self.since, self.count) = (now, 0);
        }
        if self.count >= FOLLOWED {
            return None;
        }
        let latest = self.latest.take()?;
        if latest == self.followed {
            return None;
        }
        self.followed = latest;
        self.count += 1;
        Some(&self.followed)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.latest.as_ref().map(|_| self.since + WINDOW)
    }
}

/// Those that the host may have.
pub(super) fn usable(assigned: &[AssignedAddress]) -> Vec<Prefix> {
    assigned
        .iter()
        .filter(|address| !address.is_refusal())
        .filter_map(|it| Prefix::new(it.prefix.addr(), it.prefix.prefix_len()).ok())
        .filter(|prefix| inner::is_deliverable(prefix.first()))
        .take(MOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use sennit_masque::IpPrefix;

    use super::*;

    #[test]
    fn who_says_something_else_all_the_time_is_followed_a_few_times_and_to_the_last_word() {
        let start = Instant::now();
        let mut said = Said::new(0, start);
        let mut followed = 0;
        for word in 1..5000_u32 {
            let now = start + Duration::from_millis(word.into());
            said.hear(word);
            followed += u32::from(said.poll(now).is_some());
        }
        assert_eq!(followed, 5 * u32::from(FOLLOWED));
        let due = said.poll_timeout().expect("one is left");
        assert_eq!(said.poll(due), Some(&4999));
        assert_eq!((said.followed(), said.poll_timeout()), (&4999, None));
    }

    #[test]
    fn the_same_word_again_is_no_change() {
        let start = Instant::now();
        let mut said = Said::new(7, start);
        for millis in 0..100 {
            said.hear(7);
            assert_eq!(said.poll(start + Duration::from_millis(millis)), None);
        }
        said.hear(8);
        assert_eq!(said.poll(start), Some(&8));
    }

    #[test]
    fn of_absurd_addresses_none_and_of_thousands_a_few_are_taken() {
        let assigned = |text: &str| AssignedAddress {
            request_id: 0,
            prefix: text.parse::<IpPrefix>().expect("it is one"),
        };
        let absurd = [
            "0.0.0.0/0",
            "0.1.2.3",
            "127.0.0.1",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::/0",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ];
        assert!(usable(&absurd.map(assigned)).is_empty());
        assert_eq!(usable(&vec![assigned("10.200.0.2"); 4000]).len(), MOST);
    }
}
