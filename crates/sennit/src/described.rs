//! A packet as people describe it: `udp 192.168.8.7 10.9.0.2 5060`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Kernel, Match, PortRange};

/// A packet of which `sennit why --packet` says where it would go.
///
/// First the protocol, the source, the destination and, if it has ports, the destination port; then
/// in any order and in the words of `match` what else is known: `sport 40000`, `dscp ef`, `size
/// 200`, `mark 0x10`, and either `in eth1.20` or `uid 1000`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct DescribedPacket {
    text: String,
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    source_port: u16,
    destination_port: u16,
    dscp: u8,
    size: u16,
    mark: Option<u32>,
    /// The interface that it came in by.
    incoming: Option<String>,
    /// The user of this host whose program sends it.
    uid: Option<u32>,
}

/// Why a text describes no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}: write it like `udp 192.168.8.7 10.9.0.2 5060`, and perhaps sport, dscp, size, mark, in or \
     uid"
)]
pub struct NoPacket(String);

/// What a host takes for the source port if it may choose (RFC 6335 §6).
const SOURCE_PORT: u16 = 49152;
/// Bytes of a packet of which nothing is said: a small one, as flows begin with.
const SIZE: u16 = 100;
/// By what the packets of this host's own programs come in, for the kernel.
const LOOPBACK: &str = "lo";

impl DescribedPacket {
    /// Bytes of the IP packet on the wire.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// Its first bytes: the IP header, and room for those of its transport with the ports.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = vec![0; 20];
                header[0] = 0x45;
                header[1] = self.dscp << 2;
                header[2..4].copy_from_slice(&(20 + 20_u16).to_be_bytes());
                (header[8], header[9]) = (64, self.protocol);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                header
            }
            (source, destination) => {
                let octets = |ip| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                let mut header = vec![0; 40];
                header[0] = 0x60 | self.dscp >> 2;
                header[1] = self.dscp << 6;
                header[4..6].copy_from_slice(&20_u16.to_be_bytes());
                (header[6], header[7]) = (self.protocol, 64);
                header[8..24].copy_from_slice(&octets(source));
                header[24..40].copy_from_slice(&octets(destination));
                header
            }
        };
        let mut transport = [0; 20];
        if self.destination_port > 0 {
            transport[..2].copy_from_slice(&self.source_port.to_be_bytes());
            transport[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
            // A UDP length and a TCP data offset that make sense.
            transport[4..6].copy_from_slice(&20_u16.to_be_bytes());
            transport[12] = 0x50;
        }
        bytes.extend(transport);
        bytes
    }

    /// Whether something is said that only the kernel knows.
    pub fn is_told_by_kernel(&self) -> bool {
        self.mark.is_some() || self.incoming.is_some() || self.uid.is_some()
    }

    /// What else would have to be so for the packet to meet these conditions, which the description
    /// leaves open; `None` if it cannot meet them.
    pub fn lacks(&self, kernel: &Kernel) -> Option<Vec<String>> {
        let mut lacking = Vec::new();
        if let Some((mark, mask)) = kernel.mark {
            match (self.mark, mask) {
                (Some(own), _) if own & mask != mark => return None,
                (Some(_), _) => {}
                (None, u32::MAX) => lacking.push(format!("its mark is {mark:#x}")),
                (None, _) => lacking.push(format!("its mark is {mark:#x}/{mask:#x}")),
            }
        }
        let local = self.uid.map(|_| LOOPBACK);
        let incoming = self.incoming.as_deref().or(local);
        if let Some(name) = &kernel.incoming {
            match incoming {
                Some(own) if own != name => return None,
                Some(_) => {}
                None => lacking.push(format!("it came in by {name}")),
            }
        }
        if let Some((first, last)) = kernel.uids {
            match self.uid {
                Some(uid) if !(first..=last).contains(&uid) => return None,
                Some(_) => {}
                None if incoming.is_some_and(|name| name != LOOPBACK) => return None,
                None if first == last => lacking.push(format!("user {first} sends it")),
                None => lacking.push(format!("a user from {first} to {last} sends it")),
            }
        }
        Some(lacking)
    }
}

impl FromStr for DescribedPacket {
    type Err = NoPacket;

    fn from_str(text: &str) -> Result<Self, NoPacket> {
        let mut words = text.split_whitespace().peekable();
        let mut next = |what: &str| {
            let missing = || NoPacket(format!("`{text}` names no {what}"));
            words.next().ok_or_else(missing)
        };
        let protocol = protocol(next("protocol")?)?;
        let source = address(next("source")?)?;
        let destination = address(next("destination")?)?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(NoPacket("no packet is IPv4 and IPv6 at once".into()));
        }
        let port = words.next_if(|word| word.parse::<u16>().is_ok());
        let tail: Vec<&str> = words.collect();
        let said = Match::describing(&tail.join(" ")).map_err(NoPacket)?;
        Self {
            text: text.into(),
            protocol,
            source,
            destination,
            source_port: SOURCE_PORT,
            destination_port: port.map_or(Ok(0), self::port)?,
            dscp: 0,
            size: SIZE,
            mark: None,
            incoming: None,
            uid: None,
        }
        .with(said)
    }
}

impl DescribedPacket {
    /// Adds what is said in the words of a rule.
    fn with(self, said: Match) -> Result<Self, NoPacket> {
        let Match {
            dscp,
            source_port,
            size,
            kernel,
            protocol: None,
            source: None,
            destination: None,
            port: None,
            destination_port: None,
        } = said
        else {
            let message = "after the port come sport, dscp, size, mark, in and uid alone";
            return Err(NoPacket(message.into()));
        };
        if kernel.incoming.is_some() && kernel.uids.is_some() {
            let message = "no packet comes in and is sent by a user of this host";
            return Err(NoPacket(message.into()));
        }
        let mark = match kernel.mark {
            Some((_, mask)) if mask != u32::MAX => {
                let message = "a packet has a whole mark, so leave the mask away";
                return Err(NoPacket(message.into()));
            }
            mark => mark.map(|(mark, _)| mark),
        };
        let one = |range: Option<PortRange>| range.map(|it| only(it.first, it.last)).transpose();
        let uid = kernel.uids.map(|(first, last)| only(first, last));
        Ok(Self {
            source_port: one(source_port)?.unwrap_or(self.source_port),
            dscp: dscp.unwrap_or(self.dscp),
            size: one(size)?.unwrap_or(self.size),
            mark,
            incoming: kernel.incoming,
            uid: uid.transpose()?,
            ..self
        })
    }
}

/// A packet has one number where a rule may have a range.
fn only<T: Copy + PartialEq + fmt::Display>(first: T, last: T) -> Result<T, NoPacket> {
    if first != last {
        return Err(NoPacket(format!("a packet has only one of {first}-{last}")));
    }
    Ok(first)
}

fn protocol(word: &str) -> Result<u8, NoPacket> {
    match word.to_ascii_lowercase().as_str() {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "icmpv6" => Ok(58),
        other => other
            .parse()
            .map_err(|_| NoPacket(format!("`{word}` is no protocol"))),
    }
}

fn address(word: &str) -> Result<IpAddr, NoPacket> {
    word.parse()
        .map_err(|_| NoPacket(format!("`{word}` is no address")))
}

fn port(word: &str) -> Result<u16, NoPacket> {
    let known = word.parse().ok().filter(|port| *port > 0);
    known.ok_or_else(|| NoPacket(format!("`{word}` is no port")))
}

impl TryFrom<String> for DescribedPacket {
    type Error = NoPacket;

    fn try_from(text: String) -> Result<Self, NoPacket> {
        text.parse()
    }
}

impl From<DescribedPacket> for String {
    fn from(packet: DescribedPacket) -> Self {
        packet.text
    }
}

impl fmt::Display for DescribedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use sennit_packet::{IpPacket, Protocol};

    use super::*;

    #[test]
    fn a_described_packet_is_one() {
        for text in [
            "udp 192.168.8.7 10.9.0.2 5060 sport 5062 dscp 46",
            "udp fd00::7 fd00:9::2 5060 sport 5062 dscp 46",
        ] {
            let described: DescribedPacket = text.parse().unwrap();
            let bytes = described.bytes();
            let packet = IpPacket::parse(&bytes).unwrap();
            assert_eq!(packet.protocol(), Protocol::UDP);
            assert_eq!(packet.ports(), Some((5062, 5060)));
            assert_eq!(packet.dscp(), 46);
            assert_eq!(packet.dst(), described.destination);
        }
        let icmp: DescribedPacket = "icmp 10.0.0.1 10.0.0.2".parse().unwrap();
        assert!(IpPacket::parse(&icmp.bytes()).is_ok());
    }

    #[test]
    fn what_the_kernel_knows_is_told_in_the_words_of_a_rule() {
        let lacks = |described: &str, mark, incoming: Option<&str>, uids| {
            let packet: DescribedPacket = format!("udp 10.0.0.1 10.0.0.2 9 size 40 {described}")
                .parse()
                .unwrap();
            let incoming = incoming.map(str::to_owned);
            packet.lacks(&Kernel {
                mark,
                incoming,
                uids,
            })
        };
        let met = Some(Vec::new());
        let open = |text: &str| Some(vec![text.to_owned()]);
        let mark = Some((0x10, 0xff));

        assert_eq!(lacks("mark 0x310", mark, None, None), met);
        assert_eq!(lacks("mark 16", mark, None, None), met);
        assert_eq!(lacks("mark 0x11", mark, None, None), None);
        assert_eq!(
            lacks("dscp ef", mark, None, None),
            open("its mark is 0x10/0xff")
        );
        assert_eq!(lacks("in eth1.20", None, Some("eth1.20"), None), met);
        assert_eq!(lacks("in eth1", None, Some("eth1.20"), None), None);
        assert_eq!(
            lacks("", None, Some("eth1"), None),
            open("it came in by eth1")
        );
        let users = Some((1000, 1999));
        assert_eq!(lacks("uid 1500", None, None, users), met);
        assert_eq!(lacks("uid 34", None, None, users), None);
        assert_eq!(lacks("in eth1", None, None, users), None);
        assert_eq!(lacks("uid 34", None, Some("eth1"), None), None);
        assert_eq!(lacks("uid 34", None, Some("lo"), None), met);
        assert_eq!(
            lacks("", None, None, users),
            open("a user from 1000 to 1999 sends it")
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "udp",
            "udp 10.0.0.1",
            "udp 10.0.0.1 x 5060",
            "udp 10.0.0.1 fd00::1 5060",
            "upd 10.0.0.1 10.0.0.2 5060",
            "udp 10.0.0.1 10.0.0.2 0",
            "udp 10.0.0.1 10.0.0.2 5060 dscp 64",
            "udp 10.0.0.1 10.0.0.2 5060 size 10",
            "udp 10.0.0.1 10.0.0.2 5060 colour red",
            "udp 10.0.0.1 10.0.0.2 5060 dport 1",
            "udp 10.0.0.1 10.0.0.2 5060 sport 1-2",
            "udp 10.0.0.1 10.0.0.2 5060 mark 0x10/0xff",
            "udp 10.0.0.1 10.0.0.2 5060 uid 1000-1999",
            "udp 10.0.0.1 10.0.0.2 5060 in eth1 uid 1000",
            "udp 10.0.0.1 10.0.0.2 5060 mark",
        ] {
            assert!(text.parse::<DescribedPacket>().is_err(), "{text}");
        }
    }
}
