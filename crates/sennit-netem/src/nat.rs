//! A NAT box before a link, in the words of RFC 4787.
//!
//! A [`Nat`] gives each inside address a port of its own outside for as long as packets leave
//! through it. Its two choices are on what a mapping and a filter depend; its faults are those that
//! tunnels meet: a mapping is forgotten ([`Nat::forget`]), or stays and lets nothing pass while
//! anybody keeps it alive ([`Nat::wedge`]). It decides on addresses and leaves the packets to its
//! owner.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Ports given to mappings, in turn: never those that hosts choose for themselves on Linux.
const PORTS: RangeInclusive<u16> = 10_000..=32_000;

/// Bounds the memory of a mapping under filters: far more peers than a site has hubs.
const PEERS_MAX: usize = 256;

/// On what of the far end a mapping or a filter depends (RFC 4787 §4.1 and §5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dependence {
    /// Nothing: one mapping for all far ends, and anybody may answer.
    Endpoint,
    /// Its address.
    Address,
    /// Its address and port: a "symmetric" NAT.
    #[default]
    AddressAndPort,
}

impl Dependence {
    /// What matters of a far end.
    fn of(self, far: SocketAddr) -> Option<(IpAddr, Option<u16>)> {
        match self {
            Self::Endpoint => None,
            Self::Address => Some((far.ip(), None)),
            Self::AddressAndPort => Some((far.ip(), Some(far.port()))),
        }
    }
}

/// How a box behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatConfig {
    /// When the same inside address has the same port outside.
    pub mapping: Dependence,
    /// Who may send to it there.
    pub filtering: Dependence,
    /// A mapping through which nothing has left for so long is gone. RFC 4787 asks for two minutes
    /// at least; 30 s are common for UDP.
    pub timeout: Duration,
    /// Whether what comes in keeps a mapping as well (RFC 4787 §4.3).
    pub inbound_refreshes: bool,
}

impl Default for NatConfig {
    fn default() -> Self {
        Self {
            mapping: Dependence::default(),
            filtering: Dependence::default(),
            timeout: Duration::from_secs(30),
            inbound_refreshes: false,
        }
    }
}

/// Who sends to whom: a protocol with ports (IANA's number), the host inside, and on what of the
/// far end it depends.
type Key = (u8, SocketAddr, Option<(IpAddr, Option<u16>)>);

/// A box with its mappings.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    mappings: BTreeMap<Key, Mapping>,
    /// The key of each port in use.
    ports: BTreeMap<(u8, u16), Key>,
    next_port: u16,
}

#[derive(Debug)]
struct Mapping {
    port: u16,
    used: Instant,
    /// Nothing passes either way.
    dead: bool,
    /// Far ends that were sent to, and when last.
    peers: BTreeMap<SocketAddr, Instant>,
}

impl Nat {
    /// A box without mappings.
    pub fn new(config: NatConfig) -> Self {
        Self {
            config,
            mappings: BTreeMap::new(),
            ports: BTreeMap::new(),
            next_port: *PORTS.start(),
        }
    }

    /// How it behaves.
    pub fn config(&self) -> NatConfig {
        self.config
    }

    /// A packet from `inside` to `far` leaves: from which port it does so, or `None` if it is
    /// swallowed.
    pub fn outbound(
        &mut self,
        protocol: u8,
        inside: SocketAddr,
        far: SocketAddr,
        now: Instant,
    ) -> Option<u16> {
        let key = (protocol, inside, self.config.mapping.of(far));
        if self
            .mappings
            .get(&key)
            .is_some_and(|mapping| self.is_over(mapping, now))
        {
            self.remove(&key);
        }
        if !self.mappings.contains_key(&key) {
            self.add(key, now)?;
        }
        let timeout = self.config.timeout;
        let mapping = self.mappings.get_mut(&key)?;
        mapping.used = now;
        if mapping.peers.len() >= PEERS_MAX {
            mapping.peers.retain(|_, used| *used + timeout > now);
        }
        if mapping.peers.len() < PEERS_MAX || mapping.peers.contains_key(&far) {
            mapping.peers.insert(far, now);
        }
        (!mapping.dead).then_some(mapping.port)
    }

    /// A packet from `far` arrives at a port outside: to whom inside it goes, or `None` if it is
    /// filtered.
    pub fn inbound(
        &mut self,
        protocol: u8,
        far: SocketAddr,
        port: u16,
        now: Instant,
    ) -> Option<SocketAddr> {
        let key = *self.ports.get(&(protocol, port))?;
        let NatConfig {
            filtering,
            timeout,
            inbound_refreshes,
            ..
        } = self.config;
        let mapping = self.mappings.get_mut(&key)?;
        let fresh = |used: &Instant| *used + timeout > now;
        let same = |peer: &SocketAddr| filtering.of(*peer) == filtering.of(far);
        let known = || {
            mapping
                .peers
                .iter()
                .any(|(peer, used)| same(peer) && fresh(used))
        };
        let expected = filtering == Dependence::Endpoint || known();
        if mapping.dead || !fresh(&mapping.used) || !expected {
            return None;
        }
        if inbound_refreshes {
            mapping.used = now;
            mapping.peers.entry(far).and_modify(|used| *used = now);
        }
        let (_, inside, _) = key;
        Some(inside)
    }

    /// Loses all mappings, as a box that restarts does: what leaves next does so from another port.
    pub fn forget(&mut self) {
        self.mappings.clear();
        self.ports.clear();
    }

    /// All present mappings let nothing pass any more. Each stays so until nothing has been sent
    /// through it for the timeout; who sends from another port has a new one, which works.
    pub fn wedge(&mut self) {
        self.mappings
            .values_mut()
            .for_each(|mapping| mapping.dead = true);
    }

    fn is_over(&self, mapping: &Mapping, now: Instant) -> bool {
        mapping.used + self.config.timeout <= now
    }

    fn remove(&mut self, key: &Key) {
        if let Some(mapping) = self.mappings.remove(key) {
            self.ports.remove(&(key.0, mapping.port));
        }
    }

    fn remove_old(&mut self, now: Instant) {
        let is_over = |mapping: &Mapping| self.is_over(mapping, now);
        let old = self.mappings.iter().filter(|(_, mapping)| is_over(mapping));
        let old: Vec<Key> = old.map(|(key, _)| *key).collect();
        old.iter().for_each(|key| self.remove(key));
    }

    fn free_port(&mut self, protocol: u8) -> Option<u16> {
        (0..PORTS.len()).find_map(|_| {
            let port = self.next_port;
            self.next_port = if port == *PORTS.end() {
                *PORTS.start()
            } else {
                port + 1
            };
            (!self.ports.contains_key(&(protocol, port))).then_some(port)
        })
    }

    /// `None` if all ports are in use.
    fn add(&mut self, key: Key, now: Instant) -> Option<()> {
        let mut port = self.free_port(key.0);
        if port.is_none() {
            self.remove_old(now);
            port = self.free_port(key.0);
        }
        let port = port?;
        self.ports.insert((key.0, port), key);
        let mapping = Mapping {
            port,
            used: now,
            dead: false,
            peers: BTreeMap::new(),
        };
        self.mappings.insert(key, mapping);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;
    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], port))
    }

    fn config(mapping: Dependence, filtering: Dependence) -> NatConfig {
        NatConfig {
            mapping,
            filtering,
            ..NatConfig::default()
        }
    }

    #[test]
    fn mappings_and_filters_depend_on_what_they_are_told() {
        use Dependence::{Address, AddressAndPort, Endpoint};
        // Whether it is the same port, and the answer of the third party is let in, for: another
        // port of the same host, and another host.
        for (dependence, same) in [
            (Endpoint, [true, true]),
            (Address, [true, false]),
            (AddressAndPort, [false, false]),
        ] {
            let now = Instant::now();
            let inside = address(1, 5000);
            let others = [address(9, 8), address(8, 7)];

            let mut nat = Nat::new(config(dependence, Endpoint));
            let port = nat.outbound(UDP, inside, address(9, 7), now);
            let mapped = others.map(|far| nat.outbound(UDP, inside, far, now) == port);
            assert_eq!(mapped, same, "mapping by {dependence:?}");

            let mut nat = Nat::new(config(Endpoint, dependence));
            let port = nat
                .outbound(UDP, inside, address(9, 7), now)
                .expect("it is new");
            assert_eq!(nat.inbound(UDP, address(9, 7), port, now), Some(inside));
            let let_in = others.map(|far| nat.inbound(UDP, far, port, now).is_some());
            assert_eq!(let_in, same, "filtering by {dependence:?}");
            assert_eq!(
                nat.inbound(6, address(9, 7), port, now),
                None,
                "that is TCP's"
            );
        }
    }

    #[test]
    fn a_mapping_lasts_while_packets_leave() {
        for inbound_refreshes in [false, true] {
            let start = Instant::now();
            let (inside, far) = (address(1, 5000), address(9, 7));
            let mut nat = Nat::new(NatConfig {
                inbound_refreshes,
                ..NatConfig::default()
            });
            let port = nat.outbound(UDP, inside, far, start).expect("it is new");
            assert_eq!(
                nat.outbound(UDP, inside, far, start + SECOND * 29),
                Some(port)
            );
            assert_eq!(
                nat.inbound(UDP, far, port, start + SECOND * 58),
                Some(inside)
            );

            let kept = nat.inbound(UDP, far, port, start + SECOND * 60).is_some();
            assert_eq!(kept, inbound_refreshes);
            let renewed = nat.outbound(UDP, inside, far, start + SECOND * 60);
            assert_eq!(renewed == Some(port), inbound_refreshes);
        }
    }

    #[test]
    fn what_is_forgotten_leaves_from_another_port() {
        let now = Instant::now();
        let (inside, far) = (address(1, 5000), address(9, 7));
        let mut nat = Nat::new(NatConfig::default());
        let before = nat.outbound(UDP, inside, far, now).expect("it is new");

        nat.forget();

        assert_eq!(nat.inbound(UDP, far, before, now), None);
        let after = nat
            .outbound(UDP, inside, far, now)
            .expect("it is new again");
        assert_ne!(before, after);
        assert_eq!(nat.inbound(UDP, far, after, now), Some(inside));
    }

    #[test]
    fn a_wedged_mapping_is_kept_dead_by_who_goes_on_sending() {
        let start = Instant::now();
        let (inside, far) = (address(1, 5000), address(9, 7));
        let mut nat = Nat::new(NatConfig::default());
        let dead = nat.outbound(UDP, inside, far, start).expect("it is new");

        nat.wedge();

        for seconds in (0..300).step_by(10) {
            let now = start + SECOND * seconds;
            assert_eq!(nat.outbound(UDP, inside, far, now), None);
            assert_eq!(nat.inbound(UDP, far, dead, now), None);
        }
        let later = start + SECOND * 290;
        assert!(
            nat.outbound(UDP, address(1, 5001), far, later).is_some(),
            "another port works"
        );
        let rested = nat.outbound(UDP, inside, far, later + SECOND * 30);
        assert!(
            rested.is_some_and(|port| port != dead),
            "and so does silence"
        );
    }

    #[test]
    fn a_box_that_has_given_all_its_ports_refuses_until_one_is_free() {
        let start = Instant::now();
        let mut nat = Nat::new(NatConfig::default());
        let host = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1));
        let far = address(9, 7);
        for n in 0..PORTS.len() {
            assert!(nat.outbound(UDP, host(n), far, start).is_some());
        }
        assert_eq!(nat.outbound(UDP, address(1, 1), far, start), None);
        assert!(
            nat.outbound(UDP, address(1, 1), far, start + SECOND * 30)
                .is_some()
        );
    }
}
