//! What tells one running Sennit of a host from another.
//!
//! Everything that a daemon adds to a host carries numbers and names derived from the name of its
//! TUN device, so that the next start with the same device finds what a crash left behind, and
//! touches nothing of a daemon with another device:
//!
//! | what | number or name |
//! | --- | --- |
//! | instance number | `n` = FNV-1a of the device name, modulo 6991 |
//! | tunnel routing table | `0x53000000 + n * 256` |
//! | routing table and mark of link `i` | `0x53000000 + n * 256 + 1 + i` |
//! | routing table of class `c` | `0x53000000 + n * 256 + 223 + c` |
//! | routing table of packets from inner addresses of this end | `0x53000000 + n * 256 + 255` |
//! | rule priorities | 83 (marks), 84 on (classes), `10000 + 3 n` and the two after it (tunnel) |
//! | metric in the main table | `8300 + n` |
//! | metric of what is unreachable without a tunnel | `15300 + n` |
//! | nftables table | `inet sennit_DEVICE` |
//! | route protocol of routes, rules, addresses | 83 |
//!
//! While a daemon runs it holds its device name and its number, as abstract Unix sockets: these
//! belong to the network namespace, and the kernel lets go of them when the process dies.

use std::{
    io,
    ops::RangeInclusive,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{DeviceName, Error};

/// Links that one edge can have: the tables of an instance, less those of the tunnel, the classes
/// and the hub.
pub const MAX_LINKS: u8 = 222;

/// Classes that the kernel can sort packets into: each has a table.
pub const MAX_ROUTED_CLASSES: u8 = 32;

/// How many instance numbers there are: three rule priorities each fit below the main table's, and
/// as a prime it spreads names that differ in their last digits.
const INSTANCES: u32 = 6991;

/// The helper of a daemon that was killed ends as soon as it has done what it was asked last.
const ABOUT_TO_END: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);

const TABLES: u32 = 0x5300_0000;

/// Metric of our routes in the main table: whoever else has a route for the same prefix (DHCP 100
/// to 1000, connected networks 0 or 256) is closer to it.
const METRIC: u32 = 8300;

/// Metric of the routes that make unreachable what belongs into the tunnel: behind the tunnel's own
/// of all instances (8300 + 6991), so that each of them is better.
const BLOCK_METRIC: u32 = 15_300;

/// Only the kernel's local table comes before the rules that keep tunnel packets on their links.
const PRIORITY_LINK: u32 = 83;

/// What leads to a class comes after the tunnels' own packets, whose marks may look like others.
const PRIORITY_CLASS: u32 = 84;

/// After the rules of other VPNs and WAN failover scripts, before the main table at 32766.
const PRIORITY_TUNNEL: u32 = 10_000;

/// The numbers of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance(u32);

impl Instance {
    /// The instance that uses `device`.
    pub fn of(device: &DeviceName) -> Self {
        let fnv1a = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        Self(device.as_str().bytes().fold(0x811c_9dc5, fnv1a) % INSTANCES)
    }

    /// The mark on packets of link number `link`, and the table that they are routed by.
    ///
    /// Fails for more than [`MAX_LINKS`] links.
    pub fn link_mark(self, link: usize) -> Result<u32, Error> {
        if link < usize::from(MAX_LINKS) {
            Ok(self.tunnel_table() + 1 + link as u32)
        } else {
            Err(Error::TooManyLinks {
                link,
                most: MAX_LINKS,
            })
        }
    }

    /// The priority of the rule by which a default route into the tunnel is found.
    pub fn tunnel_priority(self) -> u32 {
        self.priorities().tunnel
    }

    pub(crate) fn tunnel_table(self) -> u32 {
        TABLES + (self.0 << 8)
    }

    /// The table of single hosts in the tunnel, the hub above all, for what is sent from our own
    /// address there: other daemons of this host may reach the same hub by tunnels of their own.
    pub(crate) fn hub_table(self) -> u32 {
        self.class_table(usize::from(MAX_ROUTED_CLASSES))
    }

    /// The table of what the kernel leads to class number `class`.
    pub(crate) fn class_table(self, class: usize) -> u32 {
        self.tunnel_table() + 1 + u32::from(MAX_LINKS) + class as u32
    }

    /// Of its own, because a route replaces another instance's with the same prefix and metric.
    pub(crate) fn metric(self) -> u32 {
        METRIC + self.0
    }

    /// Of its own too, so that one instance's stop does not open what another one blocks.
    pub(crate) fn block_metric(self) -> u32 {
        BLOCK_METRIC + self.0
    }

    pub(crate) fn tables(self) -> RangeInclusive<u32> {
        self.tunnel_table()..=self.hub_table()
    }

    /// The instance that a routing table belongs to.
    pub(crate) fn of_table(table: u32) -> Option<Self> {
        Self::numbered(table.checked_sub(TABLES)? >> 8)
    }

    /// The instance whose routes in the main table have this metric.
    pub(crate) fn of_metric(metric: u32) -> Option<Self> {
        let numbers = [METRIC, BLOCK_METRIC].map(|first| metric.checked_sub(first));
        numbers.into_iter().flatten().find_map(Self::numbered)
    }

    /// The instance whose rules have this priority.
    pub(crate) fn of_priority(priority: u32) -> Option<Self> {
        Self::numbered(priority.checked_sub(PRIORITY_TUNNEL)? / 3)
    }

    fn numbered(number: u32) -> Option<Self> {
        (number < INSTANCES).then_some(Self(number))
    }

    /// Keeps daemons of this number from running until it is dropped; nothing if one runs.
    pub(crate) fn hold(self) -> Option<UnixDatagram> {
        hold(&number_lock(self)).ok()
    }

    pub(crate) fn priorities(self) -> Priorities {
        let first = PRIORITY_TUNNEL + 3 * self.0;
        Priorities {
            link: PRIORITY_LINK,
            class: PRIORITY_CLASS,
            main: first,
            from_link: first + 1,
            tunnel: first + 2,
        }
    }
}

/// In which order a packet asks our routing rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priorities {
    /// A tunnel's own packet, by mark: the link's table.
    pub(crate) link: u32,
    /// What belongs to a class by a rule of the config, the first of these; the others follow.
    pub(crate) class: u32,
    /// Everything that the main table knows better than by a default route.
    pub(crate) main: u32,
    /// What is sent from a link's own address: the link's table.
    pub(crate) from_link: u32,
    /// The rest: the tunnel.
    pub(crate) tunnel: u32,
}

/// Holds a device name and its instance number against other daemons, until dropped.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _device: UnixDatagram,
    _number: UnixDatagram,
}

impl InstanceLock {
    pub(crate) fn acquire(device: &DeviceName) -> Result<Self, Error> {
        let lock = |name: String, taken: Error| {
            hold_soon(&name).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => taken,
                _ => Error::Os {
                    doing: format!("reserve the name of {device}"),
                    source: error,
                },
            })
        };
        Ok(Self {
            _device: lock(device_lock(device), Error::DeviceBusy(device.to_string()))?,
            _number: lock(
                number_lock(Instance::of(device)),
                Error::InstanceTaken(device.to_string()),
            )?,
        })
    }
}

/// Whether a daemon with `device` runs in this network namespace.
pub(crate) fn is_running(device: &DeviceName) -> bool {
    let connect = || {
        let name = SocketAddr::from_abstract_name(device_lock(device))?;
        UnixDatagram::unbound()?.connect_addr(&name)
    };
    connect().is_ok()
}

fn device_lock(device: &DeviceName) -> String {
    format!("sennit/device/{device}")
}

fn number_lock(Instance(number): Instance) -> String {
    format!("sennit/instance/{number}")
}

/// Holds a name that may still be that of a process which is about to end, as one that was killed.
fn hold_soon(name: &str) -> io::Result<UnixDatagram> {
    let deadline = Instant::now() + ABOUT_TO_END;
    loop {
        match hold(name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(LOOK);
            }
            held => return held,
        }
    }
}

fn hold(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn instance(device: &str) -> Instance {
        Instance::of(&device.parse().unwrap())
    }

    #[test]
    fn usual_device_names_have_numbers_of_their_own() {
        let numbered = |i: u32| ["sennit", "bulk", "hub", "edge"].map(|n| format!("{n}{i}"));
        let numbers: Vec<u32> = (0..50)
            .flat_map(numbered)
            .map(|name| instance(&name).0)
            .collect();

        let distinct: BTreeSet<_> = numbers.iter().collect();

        assert_eq!(distinct.len(), numbers.len());
    }

    #[test]
    fn the_numbers_of_a_device_never_change() {
        let sennit0 = instance("sennit0");

        assert_eq!(sennit0.tunnel_table(), TABLES + (sennit0.0 << 8));
        assert_eq!(sennit0.0, 3187);
    }

    #[test]
    fn tables_and_priorities_of_instances_do_not_overlap() {
        let [a, b] = [Instance(0), Instance(1)];

        assert!(a.tables().end() < b.tables().start());
        assert!(a.priorities().tunnel < b.priorities().main);
        assert!(Instance(INSTANCES - 1).priorities().tunnel < 32_766);
    }

    #[test]
    fn every_link_has_a_mark_in_the_instance_up_to_the_last() {
        let instance = instance("sennit0");

        let last = instance.link_mark(usize::from(MAX_LINKS) - 1).unwrap();

        assert_eq!(last + 1, instance.class_table(0));
        assert_eq!(*instance.tables().end(), instance.tunnel_table() + 255);
        assert!(instance.link_mark(usize::from(MAX_LINKS)).is_err());
    }
}
