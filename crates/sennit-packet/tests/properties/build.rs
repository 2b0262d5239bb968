//! Packets as `etherparse` builds them.

use etherparse::{IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, TcpHeader, UdpHeader};
use proptest::prelude::*;
use sennit_packet::gso::VirtioNetHdr;

pub(crate) const SERVER: u16 = 443;

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) ip: Ip,
    pub(crate) transport: Transport,
    pub(crate) payload: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ip {
    V4(Ipv4Header),
    V6(Ipv6Header),
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp(TcpHeader),
    Udp { source: u16, destination: u16 },
}

/// A TCP segment over IPv4 with 100 bytes of data, DF and a timestamp option.
pub(crate) fn tcp_v4() -> Packet {
    Packet {
        ip: Ip::V4(ipv4()),
        transport: Transport::Tcp(tcp()),
        payload: vec![1; 100],
    }
}

/// A TCP segment over IPv6 with 100 bytes of data and a timestamp option.
pub(crate) fn tcp_v6() -> Packet {
    Packet {
        ip: Ip::V6(ipv6()),
        ..tcp_v4()
    }
}

/// A UDP datagram over IPv4 with 100 bytes of data and DF.
pub(crate) fn udp_v4() -> Packet {
    let transport = Transport::Udp {
        source: 40_000,
        destination: SERVER,
    };
    Packet {
        transport,
        ..tcp_v4()
    }
}

/// A UDP datagram over IPv6 with 100 bytes of data.
pub(crate) fn udp_v6() -> Packet {
    Packet {
        ip: Ip::V6(ipv6()),
        ..udp_v4()
    }
}

fn ipv4() -> Ipv4Header {
    let (source, destination) = ([192, 0, 2, 1], [198, 51, 100, 2]);
    let mut header = Ipv4Header::new(0, 64, IpNumber::TCP, source, destination).unwrap();
    header.dont_fragment = true;
    header.identification = 7;
    header
}

fn ipv6() -> Ipv6Header {
    Ipv6Header {
        hop_limit: 64,
        flow_label: Ipv6FlowLabel::try_new(0xabcde).unwrap(),
        source: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        destination: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        ..Ipv6Header::default()
    }
}

fn tcp() -> TcpHeader {
    let mut header = TcpHeader::new(40_000, SERVER, 1_000_000, 500);
    header.ack = true;
    header.acknowledgment_number = 77;
    header
        .set_options_raw(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8])
        .unwrap();
    header
}

impl Packet {
    pub(crate) fn tcp(&mut self) -> &mut TcpHeader {
        match &mut self.transport {
            Transport::Tcp(header) => header,
            Transport::Udp { .. } => panic!("not TCP"),
        }
    }

    pub(crate) fn v4(&mut self) -> &mut Ipv4Header {
        match &mut self.ip {
            Ip::V4(header) => header,
            Ip::V6(_) => panic!("not IPv4"),
        }
    }

    pub(crate) fn v6(&mut self) -> &mut Ipv6Header {
        match &mut self.ip {
            Ip::V4(_) => panic!("not IPv6"),
            Ip::V6(header) => header,
        }
    }

    pub(crate) fn with_source_port(mut self, port: u16) -> Self {
        match &mut self.transport {
            Transport::Tcp(header) => header.source_port = port,
            Transport::Udp { source, .. } => *source = port,
        }
        self
    }

    /// The packet `bytes` further in the flow, `packets` later.
    pub(crate) fn later(&self, packets: u16, bytes: usize) -> Self {
        let mut later = self.clone();
        if let Ip::V4(header) = &mut later.ip {
            header.identification = header.identification.wrapping_add(packets);
        }
        if let Transport::Tcp(header) = &mut later.transport {
            let bytes = u32::try_from(bytes).unwrap();
            header.sequence_number = header.sequence_number.wrapping_add(bytes);
        }
        later
    }

    /// `count` packets that follow one another without a gap.
    pub(crate) fn train(&self, count: u16) -> Vec<Self> {
        (0..count)
            .map(|i| self.later(i, usize::from(i) * self.payload.len()))
            .collect()
    }

    /// What a sender without offload would have sent instead of this packet.
    pub(crate) fn split(&self, size: usize) -> Vec<Self> {
        let count = self.payload.chunks(size).count();
        let parts = self.payload.chunks(size).enumerate().map(|(i, payload)| {
            let mut part = self.later(u16::try_from(i).unwrap(), i * size);
            part.payload = payload.to_vec();
            if let Transport::Tcp(header) = &mut part.transport {
                header.cwr &= i == 0;
                header.psh &= i == count - 1;
                header.fin &= i == count - 1;
            }
            part
        });
        parts.collect()
    }

    /// The bytes, with all lengths and checksums right.
    pub(crate) fn build(&self) -> Vec<u8> {
        let segment = self.segment();
        let protocol = match self.transport {
            Transport::Tcp(_) => IpNumber::TCP,
            Transport::Udp { .. } => IpNumber::UDP,
        };
        let mut bytes = match self.ip.clone() {
            Ip::V4(mut header) => {
                header.protocol = protocol;
                header.set_payload_len(segment.len()).unwrap();
                header.header_checksum = header.calc_header_checksum();
                header.to_bytes().to_vec()
            }
            Ip::V6(mut header) => {
                header.next_header = protocol;
                header.set_payload_length(segment.len()).unwrap();
                header.to_bytes().to_vec()
            }
        };
        bytes.extend(segment);
        bytes
    }

    fn segment(&self) -> Vec<u8> {
        let payload = &self.payload;
        let mut bytes = match (&self.transport, &self.ip) {
            (Transport::Tcp(header), Ip::V4(ip)) => {
                let mut header = header.clone();
                header.checksum = header
                    .calc_checksum_ipv4_raw(ip.source, ip.destination, payload)
                    .unwrap();
                header.to_bytes().to_vec()
            }
            (Transport::Tcp(header), Ip::V6(ip)) => {
                let mut header = header.clone();
                header.checksum = header
                    .calc_checksum_ipv6_raw(ip.source, ip.destination, payload)
                    .unwrap();
                header.to_bytes().to_vec()
            }
            (
                &Transport::Udp {
                    source,
                    destination,
                },
                Ip::V4(ip),
            ) => UdpHeader::with_ipv4_checksum(source, destination, ip, payload)
                .unwrap()
                .to_bytes()
                .to_vec(),
            (
                &Transport::Udp {
                    source,
                    destination,
                },
                Ip::V6(ip),
            ) => UdpHeader::with_ipv6_checksum(source, destination, ip, payload)
                .unwrap()
                .to_bytes()
                .to_vec(),
        };
        bytes.extend(payload);
        bytes
    }

    fn ip_len(&self) -> usize {
        match &self.ip {
            Ip::V4(header) => header.header_len(),
            Ip::V6(header) => header.header_len(),
        }
    }

    fn checksum_offset(&self) -> usize {
        match self.transport {
            Transport::Tcp(_) => 16,
            Transport::Udp { .. } => 6,
        }
    }

    /// The packet as a kernel hands it over that leaves segmentation to others. The checksum field
    /// holds nonsense, which a segmenter must not trust.
    pub(crate) fn build_super(&self, size: u16) -> (VirtioNetHdr, Vec<u8>) {
        let mut bytes = self.build();
        let gso_type = match (&self.transport, &self.ip) {
            (Transport::Tcp(_), Ip::V4(_)) => VirtioNetHdr::GSO_TCPV4,
            (Transport::Tcp(_), Ip::V6(_)) => VirtioNetHdr::GSO_TCPV6,
            (Transport::Udp { .. }, _) => VirtioNetHdr::GSO_UDP_L4,
        };
        let field = self.ip_len() + self.checksum_offset();
        bytes[field..field + 2].copy_from_slice(&[0xde, 0xad]);
        let header = VirtioNetHdr {
            gso_type,
            gso_size: size,
            ..self.partial_header()
        };
        (header, bytes)
    }

    /// The packet as a kernel hands it over that leaves the checksum to others: the field holds
    /// the sum of the pseudo header.
    pub(crate) fn build_partial(&self) -> (VirtioNetHdr, Vec<u8>) {
        let mut bytes = self.build();
        let segment_len = u16::try_from(bytes.len() - self.ip_len()).unwrap();
        let (addresses, protocol) = match &self.ip {
            Ip::V4(_) => (bytes[12..20].to_vec(), bytes[9]),
            Ip::V6(_) => (bytes[8..40].to_vec(), bytes[6]),
        };
        let pseudo = etherparse::checksum::Sum16BitWords::new()
            .add_slice(&addresses)
            .add_2bytes([0, protocol])
            .add_2bytes(segment_len.to_be_bytes());
        let field = self.ip_len() + self.checksum_offset();
        let partial = !pseudo.ones_complement();
        bytes[field..field + 2].copy_from_slice(&partial.to_ne_bytes());
        (self.partial_header(), bytes)
    }

    fn partial_header(&self) -> VirtioNetHdr {
        VirtioNetHdr {
            flags: VirtioNetHdr::NEEDS_CSUM,
            csum_start: u16::try_from(self.ip_len()).unwrap(),
            csum_offset: u16::try_from(self.checksum_offset()).unwrap(),
            ..VirtioNetHdr::default()
        }
    }
}

/// Any TCP or UDP packet over IPv4 or IPv6 with up to `longest` bytes of payload.
pub(crate) fn any_packet(longest: usize) -> impl Strategy<Value = Packet> {
    let payload = prop::collection::vec(any::<u8>(), 1..=longest);
    (any_ip(), any_transport(), payload).prop_map(|(ip, transport, payload)| Packet {
        ip,
        transport,
        payload,
    })
}

/// Any TCP packet over IPv4 or IPv6 with up to `longest` bytes of payload.
pub(crate) fn any_tcp_packet(longest: usize) -> impl Strategy<Value = Packet> {
    let payload = prop::collection::vec(any::<u8>(), 1..=longest);
    (any_ip(), any_tcp(), payload).prop_map(|(ip, tcp, payload)| Packet {
        ip,
        transport: Transport::Tcp(tcp),
        payload,
    })
}

fn any_ip() -> impl Strategy<Value = Ip> {
    prop_oneof![any_v4().prop_map(Ip::V4), any_v6().prop_map(Ip::V6)]
}

fn any_v4() -> impl Strategy<Value = Ipv4Header> {
    let addresses = (any::<[u8; 4]>(), any::<[u8; 4]>());
    (addresses, any::<u8>(), any::<u16>(), any::<bool>()).prop_map(|((src, dst), ttl, id, df)| {
        let mut header = Ipv4Header::new(0, ttl, IpNumber::TCP, src, dst).unwrap();
        header.identification = id;
        header.dont_fragment = df;
        header
    })
}

fn any_v6() -> impl Strategy<Value = Ipv6Header> {
    let addresses = (any::<[u8; 16]>(), any::<[u8; 16]>());
    (addresses, any::<u8>(), any::<u8>(), 0_u32..1 << 20).prop_map(
        |((source, destination), traffic_class, hop_limit, label)| Ipv6Header {
            traffic_class,
            flow_label: Ipv6FlowLabel::try_new(label).unwrap(),
            hop_limit,
            source,
            destination,
            ..Ipv6Header::default()
        },
    )
}

fn any_transport() -> impl Strategy<Value = Transport> {
    let udp = any::<(u16, u16)>().prop_map(|(source, destination)| Transport::Udp {
        source,
        destination,
    });
    prop_oneof![any_tcp().prop_map(Transport::Tcp), udp]
}

fn any_tcp() -> impl Strategy<Value = TcpHeader> {
    let numbers = any::<(u16, u16, u32, u32, u16)>();
    let options = prop::collection::vec(any::<u8>(), 0..=10).prop_map(|words| words.repeat(4));
    (numbers, any::<[bool; 5]>(), options).prop_map(
        |((source, destination, sequence, acknowledged, window), flags, options)| {
            let mut header = TcpHeader::new(source, destination, sequence, window);
            header.acknowledgment_number = acknowledged;
            header.ack = true;
            [header.psh, header.fin, header.ece, header.cwr, header.ns] = flags;
            header.set_options_raw(&options).unwrap();
            header
        },
    )
}

/// Puts a routing header with `segments_left` before the transport header of an IPv6 packet.
pub(crate) fn with_routing(mut packet: Vec<u8>, segments_left: u8) -> Vec<u8> {
    const ROUTING: u8 = 43;
    let length = u16::from_be_bytes([packet[4], packet[5]]) + 8;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    let next = std::mem::replace(&mut packet[6], ROUTING);
    packet.splice(40..40, [next, 0, 4, segments_left, 0, 0, 0, 0]);
    packet
}
