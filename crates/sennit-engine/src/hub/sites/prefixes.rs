//! Longest-prefix match: a table for each length that occurs, the longest asked first.
//!
//! Sites announce a few prefixes of a few lengths, so that a packet costs a look-up in each of a
//! few tables, however many sites there are.

use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr};

use sennit_packet::Prefix;

use crate::ids::SiteId;

/// Which sites hold which prefixes.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// By length, the longest first; the sites that hold a prefix, the one that came first before
    /// others.
    by_bits: BTreeMap<Reverse<u8>, BTreeMap<IpAddr, Vec<SiteId>>>,
}

impl Prefixes {
    pub(super) fn insert(&mut self, prefix: &Prefix, holder: &SiteId) {
        let of_length = self.by_bits.entry(Reverse(prefix.bits())).or_default();
        of_length
            .entry(prefix.first())
            .or_default()
            .push(holder.clone());
    }

    /// Takes everything from a site.
    pub(super) fn remove(&mut self, holder: &SiteId) {
        self.by_bits.retain(|_, of_length| {
            of_length.retain(|_, holders| {
                holders.retain(|it| it != holder);
                !holders.is_empty()
            });
            !of_length.is_empty()
        });
    }

    /// The sites that hold an address, the one with the longest prefix first.
    pub(super) fn holders(&self, address: IpAddr) -> impl Iterator<Item = &SiteId> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let fitting = self.by_bits.range(Reverse(most)..);
        fitting.flat_map(move |(&Reverse(bits), of_length)| {
            let around = Prefix::around(address, bits).first();
            of_length.get(&around).into_iter().flatten()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(held: &[(&str, &str)]) -> Prefixes {
        let mut table = Prefixes::default();
        for (prefix, holder) in held {
            table.insert(&prefix.parse().unwrap(), &(*holder).into());
        }
        table
    }

    fn holders<'a>(table: &'a Prefixes, address: &str) -> Vec<&'a str> {
        let holders = table.holders(address.parse().unwrap());
        holders.map(SiteId::as_str).collect()
    }

    #[test]
    fn the_longest_prefix_comes_first_and_families_are_apart() {
        let table = table(&[
            ("10.0.0.0/8", "van"),
            ("10.9.0.0/16", "ship"),
            ("10.9.7.7/32", "depot"),
            ("::/8", "six"),
            ("a09::/16", "other"),
        ]);

        assert_eq!(holders(&table, "10.9.7.7"), ["depot", "ship", "van"]);
        assert_eq!(holders(&table, "10.8.0.1"), ["van"]);
        assert_eq!(holders(&table, "11.0.0.1"), [""; 0]);
        assert_eq!(holders(&table, "::a09:707"), ["six"]);
        assert_eq!(holders(&table, "a09::1"), ["other"]);
    }

    #[test]
    fn what_is_taken_from_one_site_stays_with_the_others() {
        let mut table = table(&[
            ("10.9.0.0/16", "van"),
            ("10.9.0.0/16", "ship"),
            ("fd08::/64", "van"),
        ]);
        assert_eq!(holders(&table, "10.9.0.1"), ["van", "ship"]);

        table.remove(&"van".into());

        assert_eq!(holders(&table, "10.9.0.1"), ["ship"]);
        assert_eq!(holders(&table, "fd08::1"), [""; 0]);
        table.remove(&"ship".into());
        assert!(table.by_bits.is_empty());
    }

    #[test]
    fn it_finds_what_a_look_at_every_prefix_finds() {
        // Prefixes and addresses from a narrow range, so that many are around each other.
        let mut state = 7_u32;
        let mut dice = move |sides: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % sides
        };
        let address = |dice: &mut dyn FnMut(u32) -> u32| {
            IpAddr::from(std::array::from_fn::<u8, 4, _>(|_| dice(3) as u8))
        };
        let all: Vec<Prefix> = (0..200)
            .map(|_| Prefix::around(address(&mut dice), dice(33) as u8))
            .collect();
        let mut table = Prefixes::default();
        for prefix in &all {
            table.insert(prefix, &prefix.to_string().as_str().into());
        }
        for _ in 0..500 {
            let address = address(&mut dice);
            let mut around: Vec<&Prefix> = all.iter().filter(|it| it.contains(address)).collect();
            around.sort_by_key(|prefix| Reverse(prefix.bits()));
            let around: Vec<String> = around.into_iter().map(ToString::to_string).collect();
            let found = table.holders(address).map(SiteId::as_str);
            assert_eq!(found.collect::<Vec<_>>(), around);
        }
    }
}
