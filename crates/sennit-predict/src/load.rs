//! What is sent: TCP, UDP, QUIC, and our tunnel around any of them.

use sennit_engine::headers::{self, ACK_EVERY, Form, TAG, Transport};
use sennit_engine::{Code, Fec};

use crate::PredictError;
use crate::medium::{Ip, Packet};

const TCP: usize = 20;
const UDP: usize = 8;
/// The timestamps option with the two bytes that align it (RFC 7323 appendix A).
const TIMESTAMPS: usize = 12;
/// The largest IP packet has 65,535 bytes.
const UDP_MOST: usize = 65_507;
/// What each path of QUIC has to carry in a UDP datagram (RFC 9000 §14).
const QUIC_LEAST: usize = 1200;
/// Fragments begin at multiples of this (RFC 791).
const FRAGMENT: usize = 8;
/// A STREAM frame in the middle of a stream of up to 1 GiB: type, stream, offset of four bytes; the
/// last frame of a packet has no length (RFC 9000 §19.8).
const STREAM_FRAME: usize = 1 + 1 + 4;
/// Packet numbers of two bytes are enough for 32,767 packets in flight.
pub const PACKET_NUMBER: usize = 2;
/// An ACK frame without gaps: type, largest number of four bytes, delay of two, count, first range.
const ACK_FRAME: usize = 1 + 4 + 2 + 1 + 1;

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// One or more TCP connections with much to send.
    Tcp {
        /// Bytes of options in each segment.
        options: usize,
        /// Segments for one acknowledgement.
        ack_every: usize,
    },
    /// UDP datagrams one way.
    Udp {
        /// Bytes of payload; absent: as many as fit without fragmentation.
        payload: Option<usize>,
    },
    /// A stream of a QUIC connection.
    Quic {
        /// Bytes of the receiver's connection IDs.
        connection_id: usize,
        /// Bytes of packet numbers.
        packet_number: usize,
        /// The largest UDP payload that it looks for.
        datagram: usize,
        /// Packets for one acknowledgement.
        ack_every: usize,
    },
    /// Any of these inside our tunnel.
    Tunnel(Box<Tunnel>),
}

/// A tunnel and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What is inside.
    pub inner: Load,
    /// The IP inside.
    pub ip: Ip,
    /// Packets travel without numbers, as with peers that are no Sennit.
    pub bare: bool,
    /// Packets of flows that go on travel without what both ends know (`headers = "thin"`).
    pub thin: bool,
    /// Bytes of packet numbers.
    pub packet_number: usize,
    /// Repairs are sent in addition, and what they protect travels whole.
    pub fec: Fec,
}

/// The least that repeats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Bytes for which all of this is done.
    pub payload: usize,
    /// IP packets that carry them.
    pub packets: Vec<Packet>,
    /// What is sent in addition, so that what is lost can be computed.
    pub repairs: Vec<Answer>,
    /// What comes back.
    pub answers: Vec<Answer>,
    /// What is lost is sent again; otherwise all packets of a cell must arrive.
    pub repaired: bool,
    /// The code of the repairs.
    pub code: Option<Code>,
}

/// A packet that is sent, or comes back, once in several cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The packet.
    pub packet: Packet,
    /// Once in so many cells.
    pub every: f64,
}

impl Load {
    /// TCP as Linux sends it.
    pub fn tcp() -> Self {
        let (options, ack_every) = (TIMESTAMPS, 2);
        Self::Tcp { options, ack_every }
    }

    /// UDP in packets that just fit.
    pub fn udp() -> Self {
        Self::Udp { payload: None }
    }

    /// QUIC as quinn and most others send it: eight bytes of connection ID, at most 1452 in a UDP
    /// datagram, every second packet acknowledged.
    pub fn quic() -> Self {
        Self::Quic {
            connection_id: 8,
            packet_number: PACKET_NUMBER,
            datagram: 1452,
            ack_every: 2,
        }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Tcp { .. } => "TCP".into(),
            Self::Udp { .. } => "UDP".into(),
            Self::Quic { .. } => "QUIC".into(),
            Self::Tunnel(tunnel) => {
                let ip = if tunnel.ip.v6 { "IPv6" } else { "IPv4" };
                let context = match (tunnel.bare, tunnel.is_thin()) {
                    (true, _) => "context 0",
                    (false, true) => "context 20",
                    (false, false) => "context 2",
                };
                let inner = tunnel.inner.name();
                format!("{inner} over {ip} in the tunnel ({context}) over UDP")
            }
        }
    }

    /// Its cell in packets of `ip`.
    pub fn cell(&self, ip: Ip) -> Result<Cell, PredictError> {
        match self {
            Self::Tcp { options, ack_every } => tcp(ip, *options, *ack_every),
            Self::Udp { payload } => udp(ip, *payload),
            Self::Quic {
                connection_id,
                packet_number,
                datagram,
                ack_every,
            } => {
                let header = headers::SHORT_HEADER + connection_id + packet_number;
                quic(ip, header, *datagram, *ack_every)
            }
            Self::Tunnel(tunnel) => tunnel.cell(ip),
        }
    }
}

/// What is left of an MTU for payload.
fn room(mtu: usize, headers: usize) -> Result<usize, PredictError> {
    let room = mtu.checked_sub(headers).filter(|room| *room > 0);
    room.ok_or(PredictError::NoRoom { mtu, headers })
}

fn tcp(ip: Ip, options: usize, ack_every: usize) -> Result<Cell, PredictError> {
    let headers = [ip.header(), ("TCP header", TCP), ("TCP options", options)];
    let mut packet = Packet::new(headers);
    let ack = packet.clone();
    let payload = room(ip.mtu, packet.bytes())?;
    packet.push("payload", payload);
    Ok(Cell {
        payload,
        packets: vec![packet],
        answers: vec![Answer {
            packet: ack,
            every: ack_every as f64,
        }],
        repaired: true,
        ..Cell::default()
    })
}

fn udp(ip: Ip, payload: Option<usize>) -> Result<Cell, PredictError> {
    let fits = room(ip.mtu, ip.header().1 + UDP)?;
    let payload = payload.unwrap_or(fits);
    if payload > UDP_MOST {
        return Err(PredictError::TooLarge(payload));
    }
    Ok(Cell {
        payload,
        packets: datagram(ip, ("UDP header", UDP), payload)?,
        ..Cell::default()
    })
}

/// A datagram as one packet, or as fragments if it does not fit.
pub(crate) fn datagram(
    ip: Ip,
    header: (&'static str, usize),
    payload: usize,
) -> Result<Vec<Packet>, PredictError> {
    if ip.header().1 + header.1 + payload <= ip.mtu {
        let parts = [ip.header(), header, ("payload", payload)];
        return Ok(vec![Packet::new(parts)]);
    }
    let most = room(ip.mtu, ip.header().1 + ip.fragment().1)? / FRAGMENT * FRAGMENT;
    let (mut left, mut header) = (header.1 + payload, header);
    let mut packets = Vec::new();
    if most <= header.1 {
        return Err(PredictError::NoRoom {
            mtu: ip.mtu,
            headers: ip.header().1 + ip.fragment().1 + header.1,
        });
    }
    while left > 0 {
        let bytes = left.min(most);
        let parts = [
            ip.header(),
            ip.fragment(),
            header,
            ("payload", bytes - header.1),
        ];
        packets.push(Packet::new(parts));
        left -= bytes;
        header.1 = 0;
    }
    Ok(packets)
}

/// Whether QUIC's handshake passes at all.
fn carries_quic(ip: Ip) -> Result<(), PredictError> {
    let needed = ip.header().1 + UDP + QUIC_LEAST;
    match ip.mtu < needed {
        true => Err(PredictError::NoQuic {
            mtu: ip.mtu,
            needed,
        }),
        false => Ok(()),
    }
}

fn quic(ip: Ip, header: usize, datagram: usize, ack_every: usize) -> Result<Cell, PredictError> {
    carries_quic(ip)?;
    let (name, ip_header) = ip.header();
    let mtu = ip.mtu.min(datagram + ip_header + UDP);
    let headers = [
        (name, ip_header),
        ("UDP header", UDP),
        ("QUIC short header", header),
    ];
    let mut packet = Packet::new(headers);
    let mut ack = packet.clone();
    packet.push("STREAM frame", STREAM_FRAME);
    let payload = room(mtu, packet.bytes() + TAG)?;
    packet.push("payload", payload);
    packet.push("AEAD tag", TAG);
    ack.push("ACK frame", ACK_FRAME);
    ack.push("AEAD tag", TAG);
    Ok(Cell {
        payload,
        packets: vec![packet],
        answers: vec![Answer {
            packet: ack,
            every: ack_every as f64,
        }],
        repaired: true,
        ..Cell::default()
    })
}

impl Tunnel {
    fn cell(&self, ip: Ip) -> Result<Cell, PredictError> {
        carries_quic(ip)?;
        let inner = self.inner.cell(self.ip)?;
        let code = self.code()?;
        let mut packets = Vec::new();
        let mut repairs = Vec::new();
        for packet in &inner.packets {
            packets.extend(self.wrapped(ip, packet)?);
            repairs.extend(self.repair(ip, packet, code, 1.0));
        }
        let mut answers = Vec::new();
        for answer in &inner.answers {
            let wrapped = self.wrapped(ip, &answer.packet)?.into_iter();
            answers.extend(wrapped.map(|packet| Answer { packet, ..*answer }));
            answers.extend(self.repair(ip, &answer.packet, code, answer.every));
        }
        answers.push(Answer {
            packet: self.acknowledgement(ip),
            every: ACK_EVERY as f64 / packets.len() as f64,
        });
        Ok(Cell {
            payload: inner.payload,
            packets,
            repairs,
            answers,
            repaired: !self.bare || inner.repaired,
            code,
        })
    }

    /// The code, if there is one that does not depend on losses.
    fn code(&self) -> Result<Option<Code>, PredictError> {
        match self.fec {
            Fec::Off => Ok(None),
            Fec::Auto => Err(PredictError::AutoFec),
            Fec::Fixed(_) if self.bare => Err(PredictError::BareFec),
            Fec::Fixed(code) => Ok(Some(code)),
        }
    }

    /// What protects a packet that is sent once in `every` cells.
    fn repair(&self, ip: Ip, inner: &Packet, code: Option<Code>, every: f64) -> Option<Answer> {
        let every = every / code?.overhead();
        let symbol = Packet::new([("sum of inner packets", inner.bytes())]);
        let packet = self.outer(ip, Form::Repair, symbol);
        Some(Answer { packet, every })
    }

    /// The packet or, if it does not fit, the two that carry an inner packet.
    fn wrapped(&self, ip: Ip, inner: &Packet) -> Result<Vec<Packet>, PredictError> {
        let form = if self.bare {
            Form::Bare
        } else {
            Form::Numbered
        };
        let whole = self.outer(ip, form, inner.clone());
        if whole.bytes() <= ip.mtu {
            let thin = self.thin(inner).filter(|_| self.may_be_thin());
            return Ok(vec![
                thin.map_or(whole, |thin| self.outer(ip, Form::Thin, thin)),
            ]);
        }
        let bytes = inner.bytes();
        if self.bare {
            let (mtu, headers) = (ip.mtu, whole.bytes() - bytes);
            return Err(PredictError::NoRoom { mtu, headers });
        }
        let half = Packet::new([("half of an inner packet", bytes.div_ceil(2))]);
        let half = self.outer(ip, Form::Half, half);
        if half.bytes() > ip.mtu {
            return Err(PredictError::HalfTooLarge {
                inner: bytes,
                needed: half.bytes(),
                mtu: ip.mtu,
            });
        }
        Ok(vec![half.clone(), half])
    }

    fn may_be_thin(&self) -> bool {
        self.thin && !self.bare && self.fec == Fec::Off
    }

    /// Whether packets that fit travel without what their flow's template tells.
    fn is_thin(&self) -> bool {
        let cell = self.inner.cell(self.ip);
        let thin = |cell: Cell| cell.packets.iter().all(|it| self.thin(it).is_some());
        self.may_be_thin() && cell.is_ok_and(thin)
    }

    /// The inner packet without what its flow's template tells; `None` for what travels whole.
    fn thin(&self, inner: &Packet) -> Option<Packet> {
        let named = |name: &str| inner.parts.iter().find(|part| part.what == name);
        if named("IPv6 fragment header").is_some() {
            return None;
        }
        let transport = match (named("TCP header"), named("UDP header")) {
            (Some(_), _) => Transport::Tcp {
                options: named("TCP options").map_or(0, |part| part.bytes),
            },
            (None, Some(_)) => Transport::Udp,
            (None, None) => return None,
        };
        let (mut gone, left) = headers::thinned(self.ip.v6, transport, inner.bytes())?;
        let mut thin = Packet::new([("mask and changed fields", left)]);
        for part in &inner.parts {
            let here = part.bytes.min(gone);
            gone -= here;
            thin.push(part.what, part.bytes - here);
        }
        Some(thin)
    }

    fn outer(&self, ip: Ip, form: Form, inner: Packet) -> Packet {
        let before = headers::before(form, inner.bytes(), self.packet_number);
        let mut packet = Packet::new([ip.header(), ("UDP header", UDP)]);
        for part in before {
            packet.push(part.what, part.bytes);
        }
        packet.parts.extend(inner.parts.into_iter().map(|mut part| {
            part.what = inside(part.what);
            part
        }));
        packet.push("AEAD tag", TAG);
        packet
    }

    fn acknowledgement(&self, ip: Ip) -> Packet {
        let header = headers::before(Form::Bare, 0, self.packet_number);
        let quic = header.iter().take(3).map(|part| (part.what, part.bytes));
        let mut packet = Packet::new([ip.header(), ("UDP header", UDP)].into_iter().chain(quic));
        // A path's number stands before the rest (RFC 10069).
        packet.push("PATH_ACK frame", ACK_FRAME + 2);
        packet.push("AEAD tag", TAG);
        packet
    }
}

/// What headers are called inside a tunnel.
fn inside(what: &'static str) -> &'static str {
    match what {
        "IPv4 header" => "inner IPv4 header",
        "IPv6 header" => "inner IPv6 header",
        "TCP header" => "inner TCP header",
        "TCP options" => "inner TCP options",
        "UDP header" => "inner UDP header",
        "QUIC short header" => "inner QUIC short header",
        "AEAD tag" => "inner AEAD tag",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: Ip = Ip {
        v6: false,
        mtu: 1500,
    };

    fn tunnel(mtu: usize) -> Tunnel {
        Tunnel {
            inner: Load::udp(),
            ip: Ip { v6: false, mtu },
            bare: false,
            thin: false,
            packet_number: 1,
            fec: Fec::Off,
        }
    }

    #[test]
    fn a_thin_packet_carries_as_much_in_fewer_bytes() {
        let bytes = |thin, inner: Load| {
            let ip = Ip {
                v6: false,
                mtu: 1400,
            };
            let tunnel = Tunnel {
                thin,
                inner,
                ip,
                ..tunnel(1400)
            };
            let cell = tunnel.cell(IP).expect("it fits");
            (cell.payload, cell.packets[0].bytes())
        };
        let [whole, thin] = [false, true].map(|thin| bytes(thin, Load::tcp()));
        assert_eq!((whole.0, whole.1 - thin.1), (thin.0, 40));
        let [whole, thin] = [false, true].map(|thin| bytes(thin, Load::udp()));
        assert_eq!((whole.0, whole.1 - thin.1), (thin.0, 27));
    }

    #[test]
    fn a_tunnel_is_named_after_the_context_of_its_packets() {
        let name = |thin, bare, inner| {
            let tunnel = Tunnel {
                thin,
                bare,
                inner,
                ..tunnel(1400)
            };
            Load::Tunnel(Box::new(tunnel)).name()
        };
        let fragments = Load::Udp {
            payload: Some(3000),
        };
        for (name, context) in [
            (name(true, false, Load::tcp()), "(context 20)"),
            (name(false, false, Load::tcp()), "(context 2)"),
            (name(true, false, fragments), "(context 2)"),
            (name(true, true, Load::tcp()), "(context 0)"),
        ] {
            assert!(name.contains(context), "{name}");
        }
    }

    #[test]
    fn a_datagram_that_does_not_fit_goes_in_fragments_of_whole_eights() {
        let packets = udp(IP, Some(3000)).expect("it fits into three").packets;
        let sizes: Vec<_> = packets.iter().map(Packet::bytes).collect();
        assert_eq!(sizes, [1500, 1500, 20 + 8 + 3000 - 2 * 1480]);
        let six = Ip {
            v6: true,
            mtu: 1500,
        };
        let packets = udp(six, Some(1453)).expect("it fits into two").packets;
        let sizes: Vec<_> = packets.iter().map(Packet::bytes).collect();
        assert_eq!(sizes, [48 + 1448, 48 + 13]);
    }

    #[test]
    fn an_inner_packet_that_does_not_fit_goes_in_two_halves() {
        let small = Ip { mtu: 1300, ..IP };
        let cell = tunnel(1400).cell(small).expect("halves fit");
        assert_eq!((cell.packets.len(), cell.payload), (2, 1372));
        let error = tunnel(4000).cell(small).expect_err("not even halves fit");
        assert!(
            matches!(error, PredictError::HalfTooLarge { .. }),
            "{error}"
        );
    }

    #[test]
    fn what_carries_no_handshake_of_quic_carries_no_tunnel_either() {
        let ip = |v6, mtu| Ip { v6, mtu };
        for (too_small, needed) in [(ip(false, 1227), 1228), (ip(true, 1247), 1248)] {
            let expected = Err(PredictError::NoQuic {
                mtu: too_small.mtu,
                needed,
            });
            assert_eq!(Load::quic().cell(too_small), expected);
            assert_eq!(tunnel(1280).cell(too_small), expected);
            let enough = Ip {
                mtu: needed,
                ..too_small
            };
            assert!(Load::quic().cell(enough).is_ok() && tunnel(1280).cell(enough).is_ok());
        }
    }

    #[test]
    fn headers_without_room_for_payload_are_an_error() {
        let tiny = Ip { mtu: 40, ..IP };
        let expected = PredictError::NoRoom {
            mtu: 40,
            headers: 52,
        };
        assert_eq!(Load::tcp().cell(tiny), Err(expected));
        assert_eq!(
            udp(IP, Some(65_508)).map(|cell| cell.payload),
            Err(PredictError::TooLarge(65_508))
        );
    }
}
