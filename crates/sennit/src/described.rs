//! A packet as people describe it: `udp 192.168.8.7 10.9.0.2 5060`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A packet of which `sennit why --packet` says where it would go.
///
/// First the protocol, the source, the destination and, if it has ports, the destination port; then
/// in any order `sport 40000`, `dscp 46` and `size 200`.
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
}

/// Why a text describes no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write it like `udp 192.168.8.7 10.9.0.2 5060`, and perhaps sport, dscp or size")]
pub struct NoPacket(String);

/// What a host takes for the source port if it may choose (RFC 6335 §6).
const SOURCE_PORT: u16 = 49152;
/// Room for the headers of IPv6 and TCP.
const LEAST_SIZE: u16 = 60;

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
        let mut packet = Self {
            text: text.into(),
            protocol,
            source,
            destination,
            source_port: SOURCE_PORT,
            destination_port: 0,
            dscp: 0,
            size: 100,
        };
        if let Some(port) = words.next_if(|word| word.parse::<u16>().is_ok()) {
            packet.destination_port = number(port, "port", 1..=65535)?;
        }
        while let Some(word) = words.next() {
            let value = words.next().unwrap_or_default();
            match word {
                "sport" => packet.source_port = number(value, "port", 1..=65535)?,
                "dscp" => packet.dscp = number(value, "code point", 0..=63)? as u8,
                "size" => packet.size = number(value, "size", LEAST_SIZE..=65535)?,
                _ => return Err(NoPacket(format!("`{word}` says nothing about a packet"))),
            }
        }
        Ok(packet)
    }
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

fn number(word: &str, what: &str, range: std::ops::RangeInclusive<u16>) -> Result<u16, NoPacket> {
    let known = word.parse().ok().filter(|number| range.contains(number));
    known.ok_or_else(|| NoPacket(format!("`{word}` is no {what}")))
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
        ] {
            assert!(text.parse::<DescribedPacket>().is_err(), "{text}");
        }
    }
}
