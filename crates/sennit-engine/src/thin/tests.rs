use std::time::{Duration, Instant};

use bytes::Bytes;
use sennit_core::frame::{Header, Offer, ThinHeader};
use sennit_packet::checksum::{Progress, Sum};

use super::{Outgoing, Receiving, Restored, Sending};

const MS: Duration = Duration::from_millis(1);
/// When the last packet of a flow leaves that has no template yet.
const BEFORE: u32 = 8;

/// Both ends of a tunnel that loses and delays what the test says.
struct Ends {
    sending: Sending,
    receiving: Receiving,
    start: Instant,
    now: Instant,
}

/// A datagram of a UDP flow, which is told by its source port.
fn datagram(flow: u16, number: u32, ttl: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 48, 0, 0, 0x40, 0, ttl, 17, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = Sum::of(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(flow.to_be_bytes());
    packet.extend([0, 7, 0, 28, 0, 0]);
    packet.extend(number.to_be_bytes().repeat(5));
    packet
}

impl Ends {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            sending: Sending::default(),
            receiving: Receiving::default(),
            start: now,
            now,
        }
    }

    fn header(&self, seq: u32) -> Header {
        Header {
            flow: 5,
            ordered: false,
            early: Duration::ZERO,
            seq: Header::FIRST.wrapping_add(seq),
            sent_micros: (self.now - self.start).as_micros() as u32,
        }
    }

    /// Sends a packet; what leaves if it is thin.
    fn send(&mut self, packet: &[u8], seq: u32) -> Option<Bytes> {
        let header = self.header(seq);
        let out = Outgoing {
            packet,
            checksum: Progress::Whole,
            header: &header,
            inner: u32::from(packet[21]),
        };
        self.now += MS;
        match self.sending.shrink(&out, self.now) {
            Some((head, thin)) => {
                let rest = &packet[thin.replaces..];
                Some([&head[..], thin.bytes(), rest].concat().into())
            }
            None => {
                self.receiving.handle_whole(&header, self.now);
                None
            }
        }
    }

    /// What leaves of an offer that is due.
    fn offer(&mut self) -> Option<Vec<u8>> {
        self.sending.poll_offer(self.now).map(<[u8]>::to_vec)
    }

    fn hand_over(&mut self, offer: &[u8]) {
        let offer = Offer::decode(offer).expect("what was encoded");
        self.receiving.handle_offer(offer, self.now);
    }

    fn acknowledge(&mut self) {
        for (flow, edition) in self.receiving.poll_known() {
            self.sending.handle_known(flow, edition, self.now);
        }
    }

    fn restore(&mut self, thin: &Bytes) -> Restored {
        self.receiving.restore(thin, self.now)
    }

    /// A flow that both ends have a template of; the next number.
    fn settled(flow: u16, ttl: u8) -> (Self, u32) {
        let mut ends = Self::new();
        ends.settle(flow, ttl, 0, BEFORE);
        (ends, BEFORE)
    }

    fn settle(&mut self, flow: u16, ttl: u8, from: u32, packets: u32) {
        for seq in from..from + packets {
            assert!(self.send(&datagram(flow, seq, ttl), seq).is_none());
        }
        let offer = self.offer().expect("an offer");
        self.hand_over(&offer);
        self.acknowledge();
    }
}

fn restored(restored: Restored) -> Vec<u8> {
    match restored {
        Restored::Packet(_, packet) => packet.bytes.to_vec(),
        Restored::Unknown | Restored::Malformed => panic!("a packet"),
    }
}

#[test]
fn a_template_is_used_once_it_is_acknowledged() {
    let mut ends = Ends::new();
    for seq in 0..BEFORE {
        assert!(ends.offer().is_none());
        assert!(ends.send(&datagram(1, seq, 64), seq).is_none());
    }
    let offer = ends.offer().expect("an offer");
    assert!(ends.send(&datagram(1, 8, 64), 8).is_none());
    ends.hand_over(&offer);
    assert!(ends.send(&datagram(1, 9, 64), 9).is_none());
    ends.acknowledge();
    let packet = datagram(1, 10, 64);
    let thin = ends.send(&packet, 10).expect("a thin packet");
    assert_eq!(thin.len(), ThinHeader::LEN + 1 + 2 + 20);
    assert_eq!(restored(ends.restore(&thin)), packet);
    assert!(!ends.receiving.owes(), "it is used");
}

#[test]
fn an_offer_that_is_lost_is_repeated_and_then_given_up() {
    let mut ends = Ends::new();
    let mut offers = Vec::new();
    for seq in 0..30_000 {
        assert!(ends.send(&datagram(1, seq, 64), seq).is_none());
        offers.extend(ends.offer());
    }
    assert_eq!(offers.len(), 5);
    assert!(offers.iter().all(|offer| *offer == offers[0]));
    for seq in 30_000..120_000 {
        ends.send(&datagram(1, seq, 64), seq);
        offers.extend(ends.offer());
    }
    assert_ne!(offers[5], offers[0], "a minute later there is another");
}

#[test]
fn a_flow_that_changes_gets_another_template_and_late_packets_are_restored() {
    let (mut ends, seq) = Ends::settled(1, 64);
    let old = datagram(1, seq, 64);
    let late = ends.send(&old, seq).expect("thin");
    ends.now += 2000 * MS;
    ends.settle(1, 63, seq + 1, 32);
    let new = datagram(1, 100, 63);
    let thin = ends.send(&new, 100).expect("thin");
    assert_eq!(restored(ends.restore(&thin)), new);
    assert_eq!(restored(ends.restore(&late)), old);
    // The third edition takes the place of the first, and what was made with that is dropped.
    ends.now += 2000 * MS;
    ends.settle(1, 62, 101, 32);
    assert!(matches!(ends.restore(&late), Restored::Unknown));
}

/// The edition after the refused one took the place of the one in use before the other end had it:
/// packets came out with the headers of another flow, and checksums that were right.
#[test]
fn an_edition_stays_in_use_after_an_offer_was_refused_until_another_is_acknowledged() {
    let (mut ends, mut seq) = Ends::settled(1, 64);
    let mut send = |ends: &mut Ends, flow, ttl| {
        seq += 1;
        let packet = datagram(flow, seq, ttl);
        let Some(thin) = ends.send(&packet, seq) else {
            return false;
        };
        let Restored::Packet(header, restored) = ends.restore(&thin) else {
            panic!("{seq} is not known");
        };
        assert_eq!(header.seq, ends.header(seq).seq);
        assert_eq!(restored.bytes, packet);
        true
    };
    let mut lost = 0;
    while lost < 5 {
        send(&mut ends, 1, 63);
        lost += u32::from(ends.offer().is_some());
    }
    // It is refused for a minute.
    for _ in 0..76 {
        ends.now += 1000 * MS;
        send(&mut ends, 1, 63);
        assert!(ends.offer().is_none());
    }
    assert!(send(&mut ends, 1, 64), "the first edition is still known");
    ends.now += 3000 * MS;
    let offer = loop {
        send(&mut ends, 2, 64);
        if let Some(offer) = ends.offer() {
            break offer;
        }
    };
    assert!(!send(&mut ends, 2, 64), "the other end has nothing of it");
    assert!(send(&mut ends, 1, 64), "it is in use until the other is");
    ends.hand_over(&offer);
    assert!(send(&mut ends, 1, 64));
    ends.acknowledge();
    assert!(send(&mut ends, 2, 64));
    assert!(!send(&mut ends, 1, 64));
}

#[test]
fn an_old_offer_that_comes_late_takes_no_newer_ones_place() {
    let mut ends = Ends::new();
    for seq in 0..BEFORE {
        ends.send(&datagram(1, seq, 64), seq);
    }
    let first = ends.offer().expect("an offer");
    ends.hand_over(&first);
    ends.acknowledge();
    for ttl in [63, 62] {
        ends.now += 2000 * MS;
        ends.settle(1, ttl, 100 * u32::from(ttl), 32);
    }
    ends.hand_over(&first);
    let packet = datagram(1, 9999, 62);
    let thin = ends.send(&packet, 9999).expect("thin");
    assert_eq!(restored(ends.restore(&thin)), packet);
}

#[test]
fn two_flows_of_one_queue_do_not_take_the_template_from_each_other() {
    let (mut ends, _) = Ends::settled(1, 64);
    for round in 0..1000 {
        let seq = 100 + 2 * round;
        assert!(ends.send(&datagram(1, seq, 64), seq).is_some());
        assert!(ends.send(&datagram(2, seq, 64), seq + 1).is_none());
        assert!(ends.offer().is_none());
    }
    // Once the first is silent the second gets it.
    ends.now += 3000 * MS;
    ends.settle(2, 64, 5000, 32);
    assert!(ends.send(&datagram(2, 6000, 64), 6000).is_some());
    assert!(ends.send(&datagram(1, 6001, 64), 6001).is_none());
}

#[test]
fn a_thin_packet_without_a_template_is_unknown_and_nonsense_is_malformed() {
    let (mut ends, seq) = Ends::settled(1, 64);
    let thin = ends.send(&datagram(1, seq, 64), seq).expect("thin");
    let mut stranger = Receiving::default();
    assert!(matches!(
        stranger.restore(&thin, ends.now),
        Restored::Unknown
    ));
    for (at, value) in [(1, 6), (2, 0x80)] {
        let mut other = thin.to_vec();
        other[at] ^= value;
        assert!(matches!(ends.restore(&other.into()), Restored::Unknown));
    }
    let mut other = thin.to_vec();
    other[ThinHeader::LEN] |= 0xf;
    assert!(matches!(ends.restore(&other.into()), Restored::Malformed));
    assert!(matches!(
        ends.restore(&thin.slice(..3)),
        Restored::Malformed
    ));
}

#[test]
fn what_is_sent_again_is_thin_as_long_as_it_can_be_restored() {
    let (mut ends, seq) = Ends::settled(1, 64);
    let packet = datagram(1, seq, 64);
    let thin = ends.send(&packet, seq).expect("thin");
    let first_sent = ends.now;
    let header = ends.header(seq);
    let whole = ends.sending.whole(&thin, header.sent_micros, first_sent);
    let (checksum, whole) = whole.expect("its whole form");
    let (back, inner) = Header::decode(&whole).expect("a header");
    assert_eq!(
        (checksum, back.seq, inner),
        (Progress::Whole, header.seq, &packet[..])
    );
    for ttl in [63, 62] {
        assert!(ends.sending.is_known(&thin, first_sent));
        ends.now += 2000 * MS;
        ends.settle(1, ttl, 100 * u32::from(ttl), 32);
    }
    assert!(!ends.sending.is_known(&thin, first_sent));
    let (_, number) = ends.sending.whole(&thin, 0, first_sent).expect("a number");
    let (back, inner) = Header::decode(&number).expect("a header");
    assert_eq!((back.seq, inner), (header.seq, &[][..]), "nobody waits");
}

/// Its template was dropped for another, and only its number was sent again.
#[test]
fn under_reliable_delivery_a_template_stays_until_all_that_was_made_with_it_has_arrived() {
    let (mut ends, seq) = Ends::settled(1, 64);
    let packet = datagram(1, seq, 64);
    let thin = ends.send(&packet, seq).expect("thin");
    let first_sent = ends.now;
    ends.sending.settle(Some(first_sent));
    ends.now += 2000 * MS;
    ends.settle(1, 63, 100, 32);
    ends.now += 2000 * MS;
    for seq in 200..300 {
        ends.send(&datagram(1, seq, 62), seq);
        assert!(ends.offer().is_none());
    }
    let (_, whole) = ends.sending.whole(&thin, 0, first_sent).expect("a packet");
    assert_eq!(whole[Header::LEN..], packet);

    ends.sending.settle(Some(ends.now));
    ends.send(&datagram(1, 300, 62), 300);
    ends.send(&datagram(1, 301, 62), 301);
    ends.settle(1, 62, 302, 30);
    assert!(!ends.sending.is_known(&thin, first_sent));
}

/// Halves, and packets that repairs protect, have the whole number.
#[test]
fn a_flow_that_was_not_thin_for_millions_of_packets_is_restored_again() {
    let (mut ends, mut seq) = Ends::settled(1, 64);
    for _ in 0..9 {
        seq += 1 << 20;
        assert!(ends.send(&datagram(1, seq, 64), seq).is_some());
        let header = ends.header(seq);
        ends.receiving.handle_number(&header);
    }
    let packet = datagram(1, seq + 1, 64);
    let thin = ends.send(&packet, seq + 1).expect("thin");
    let Restored::Packet(header, restored) = ends.restore(&thin) else {
        panic!("a packet");
    };
    assert_eq!(header.seq, ends.header(seq + 1).seq);
    assert_eq!(restored.bytes, packet);
}
