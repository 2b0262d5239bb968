//! Links as packets see them: what a frame adds, and what a rate counts.

use clap::ValueEnum;
use serde::Serialize;

/// Before a frame: preamble and start of frame (IEEE 802.3 §3.1.1).
const PREAMBLE: usize = 8;
/// Two addresses and a type.
const ETHERNET: usize = 14;
/// An IEEE 802.1Q tag.
const TAG: usize = 4;
/// The PPPoE header and PPP's protocol (RFC 2516).
const PPPOE: usize = 8;
/// Frame check sequence.
const CHECK: usize = 4;
/// Between two frames: 96 bit times.
const GAP: usize = 12;
/// A frame has at least so many bytes before its check sequence on the wire. What counts frames
/// counts them as they are handed over, before the port pads them.
const FRAME_LEAST: usize = 60;
const PADDING: &str = "padding of a short frame";
/// What Ethernet carries.
pub(crate) const ETHERNET_MTU: usize = 1500;

/// Bytes of one kind in a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What they are.
    pub what: &'static str,
    /// How many.
    pub bytes: usize,
}

/// A packet by its parts, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Packet {
    /// Those of size zero are left out.
    pub parts: Vec<Part>,
}

impl Packet {
    /// Of these parts.
    pub(crate) fn new(parts: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        let mut packet = Self::default();
        for (what, bytes) in parts {
            packet.push(what, bytes);
        }
        packet
    }

    pub(crate) fn push(&mut self, what: &'static str, bytes: usize) {
        if bytes > 0 {
            self.parts.push(Part { what, bytes });
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Whether its frame is so short that a port pads it.
    pub fn is_padded(&self) -> bool {
        self.parts.iter().any(|part| part.what == PADDING)
    }
}

/// The IP below a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// The largest packet, in bytes.
    pub mtu: usize,
}

impl Ip {
    pub(crate) fn header(self) -> (&'static str, usize) {
        match self.v6 {
            false => ("IPv4 header", 20),
            true => ("IPv6 header", 40),
        }
    }

    /// Bytes beside the header that a fragment has of its own.
    pub(crate) fn fragment(self) -> (&'static str, usize) {
        ("IPv6 fragment header", if self.v6 { 8 } else { 0 })
    }
}

/// What the rate of a link counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Counts {
    /// All bit times of Ethernet, with preamble and gap: a port's speed
    #[default]
    Wire,
    /// Ethernet frames without their check sequence, as interface counters and emulators do
    Frames,
    /// IP packets, as many contracts and policers do
    Packets,
}

impl Counts {
    /// The bytes of a packet that it counts.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Wire => "on the wire, with preamble, padding and gap",
            Self::Frames => "of Ethernet frames without their check sequence",
            Self::Packets => "of IP packets",
        }
    }
}

/// What carries IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    /// What the rate counts.
    pub counts: Counts,
    /// IEEE 802.1Q tags of a frame.
    pub vlan: usize,
    /// PPP over Ethernet.
    pub pppoe: bool,
    /// The IP on it.
    pub ip: Ip,
    /// Both directions share one rate.
    pub half_duplex: bool,
}

impl Default for Medium {
    fn default() -> Self {
        let (v6, mtu) = (false, ETHERNET_MTU);
        Self {
            counts: Counts::Wire,
            vlan: 0,
            pppoe: false,
            ip: Ip { v6, mtu },
            half_duplex: false,
        }
    }
}

impl Medium {
    /// The largest IP packet of Ethernet with or without PPPoE.
    pub fn usual_mtu(pppoe: bool) -> usize {
        ETHERNET_MTU - if pppoe { PPPOE } else { 0 }
    }

    /// An IP packet as the rate counts it.
    pub fn framed(&self, packet: Packet) -> Packet {
        let len = packet.bytes();
        let wire = match self.counts {
            Counts::Wire => true,
            Counts::Frames => false,
            Counts::Packets => return packet,
        };
        let on_wire = |bytes| if wire { bytes } else { 0 };
        let header = ETHERNET + TAG * self.vlan + if self.pppoe { PPPOE } else { 0 };
        let mut framed = Packet::new([
            ("preamble, start of frame", on_wire(PREAMBLE)),
            ("Ethernet header", ETHERNET),
            ("VLAN tags", TAG * self.vlan),
            ("PPPoE and PPP headers", if self.pppoe { PPPOE } else { 0 }),
        ]);
        framed.parts.extend(packet.parts);
        framed.push(PADDING, on_wire(FRAME_LEAST.saturating_sub(header + len)));
        framed.push("frame check sequence", on_wire(CHECK));
        framed.push("gap between frames", on_wire(GAP));
        framed
    }

    /// Bytes that a frame adds to a packet that needs no padding.
    pub fn frame_bytes(&self) -> usize {
        let packet = Packet::new([("packet", self.ip.mtu)]);
        self.framed(packet).bytes() - self.ip.mtu
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        let ip = if self.ip.v6 { "IPv6" } else { "IPv4" };
        let pppoe = if self.pppoe { " over PPPoE" } else { "" };
        let vlan = match self.vlan {
            0 => String::new(),
            1 => " with a VLAN tag".into(),
            tags => format!(" with {tags} VLAN tags"),
        };
        let counts = match self.counts {
            Counts::Wire => "over Ethernet",
            Counts::Frames => "in Ethernet frames",
            Counts::Packets => "by its packets alone",
        };
        let duplex = if self.half_duplex {
            ", half duplex"
        } else {
            ""
        };
        format!("{ip}{pppoe} {counts}{vlan}{duplex}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_frame_is_padded_on_the_wire_alone() {
        let framed = |counts, bytes| {
            let medium = Medium {
                counts,
                ..Medium::default()
            };
            let framed = medium.framed(Packet::new([("packet", bytes)]));
            (framed.bytes(), framed.is_padded())
        };
        assert_eq!(
            framed(Counts::Wire, 29),
            (84, true),
            "the least of Ethernet"
        );
        assert_eq!(framed(Counts::Wire, 46), (84, false));
        assert_eq!(framed(Counts::Frames, 29), (43, false));
        assert_eq!(framed(Counts::Packets, 29), (29, false));
    }
}
