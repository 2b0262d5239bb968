use std::collections::BTreeMap;

use proptest::prelude::*;
use sennit_packet::coalesce::{Coalescer, MAX_SEGMENTS, Write};
use sennit_packet::gso::{Segments, Tier, VirtioNetHdr};
use sennit_packet::{FlowKey, IpPacket, Version};
use sennit_packet::{checksum::Progress, verify_header};

use crate::build::{Packet, Transport, any_packet};
use crate::seeded;
use crate::segmenting::written;

pub(crate) fn bytes_of(write: &Write<'_, Vec<u8>>) -> Vec<u8> {
    let mut bytes = vec![0; write.total_len()];
    assert_eq!(write.copy_to(&mut bytes), Some(bytes.len()));
    bytes
}

/// The packets that the kernel makes of a write.
fn cut(write: &Write<'_, Vec<u8>>) -> Vec<Vec<u8>> {
    let bytes = bytes_of(write);
    let packets = written(&Segments::new(write.header(), &bytes).unwrap());
    assert_eq!(packets.len(), write.packets());
    packets
}

fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<FlowKey, Vec<Vec<u8>>> {
    let mut flows = BTreeMap::<_, Vec<_>>::new();
    for packet in packets {
        let key = FlowKey::of(&IpPacket::parse(packet).unwrap());
        flows.entry(key).or_default().push(meaning(packet));
    }
    flows
}

/// The packet without the identification that means nothing with DF set (RFC 6864 §4.1), and the
/// checksum that covers it.
fn meaning(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let parsed = IpPacket::parse(&packet).unwrap();
    if parsed.version() == Version::V4 && parsed.dont_fragment() {
        assert!(verify_header(&packet));
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
    packet
}

/// What happens to one packet of a flow on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Corrupt,
    Lost,
    Twice,
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Arrives),
        1 => Just(Fate::Corrupt),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
    ]
}

/// The packets of one flow as they arrive.
fn any_arrivals() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let fates = prop::collection::vec(any_fate(), 40);
    (any_packet(3000), 50_usize..500, fates).prop_map(|(packet, size, fates)| {
        let parts = packet.split(size).into_iter().zip(fates);
        parts
            .flat_map(|(part, fate)| arrivals(&part, fate))
            .collect()
    })
}

fn arrivals(packet: &Packet, fate: Fate) -> Vec<Vec<u8>> {
    let mut bytes = packet.build();
    match fate {
        Fate::Arrives => vec![bytes],
        Fate::Lost => vec![],
        Fate::Twice => vec![bytes.clone(), bytes],
        Fate::Corrupt => {
            *bytes.last_mut().unwrap() ^= 1;
            vec![bytes]
        }
    }
}

/// Some flows' packets, woven into each other.
fn any_batch() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let flows = prop::collection::vec(any_arrivals(), 1..6);
    let turns = prop::collection::vec(any::<prop::sample::Index>(), 240);
    (flows, turns).prop_map(|(mut flows, turns)| {
        let mut batch = Vec::new();
        for turn in turns {
            flows.retain(|flow| !flow.is_empty());
            if !flows.is_empty() {
                let flow = turn.index(flows.len());
                batch.push(flows[flow].remove(0));
            }
        }
        batch
    })
}

proptest! {
    #![proptest_config(seeded(256))]

    #[test]
    fn the_segments_of_a_super_packet_coalesce_into_it(
        mut packet in any_packet(20_000),
        size in 400_u16..3000,
    ) {
        if let Transport::Tcp(header) = &mut packet.transport {
            header.cwr = false;
        }
        let (_, bytes) = packet.build_super(size);
        let segments: Vec<_> = packet.split(size.into()).iter().map(Packet::build).collect();
        prop_assume!((2..=MAX_SEGMENTS).contains(&segments.len()));
        let mut coalescer = Coalescer::new(Tier::TsoUso);

        let writes: Vec<_> = coalescer.coalesce(&segments).collect();

        prop_assert_eq!(writes.len(), 1);
        prop_assert_eq!(writes[0].header().gso_size, size);
        prop_assert_eq!(writes[0].total_len(), bytes.len());
        prop_assert_eq!(cut(&writes[0]), segments);
    }

    #[test]
    fn partial_checksums_are_completed_to_the_same_packets(
        packet in any_packet(20_000),
        size in 400_u16..3000,
        tier in prop::sample::select(&[Tier::None, Tier::TsoUso][..]),
    ) {
        let (header, bytes) = packet.build_super(size);
        let mut segments = Segments::new(&header, &bytes).unwrap();
        let whole = written(&segments);
        prop_assert_eq!(segments.leave_checksums(), Progress::Partial);
        let partial = written(&segments);
        // TCP that comes in the wrong order is not joined.
        let backwards: Vec<_> = partial.iter().rev().cloned().collect();
        let mut coalescer = Coalescer::new(tier);

        for (batch, expected) in [
            (partial, whole.clone()),
            (backwards, whole.into_iter().rev().collect()),
        ] {
            let writes = coalescer.coalesce_by(&batch, |_| Progress::Partial);
            let left: Vec<_> = writes.flat_map(|write| cut(&write)).collect();
            prop_assert_eq!(left.len(), expected.len());
            prop_assert_eq!(by_flow(&left), by_flow(&expected));
        }
    }

    #[test]
    fn a_checksum_that_is_whole_is_not_left_partial(
        packet in any_packet(20_000),
        size in 400_u16..3000,
    ) {
        let (header, bytes) = packet.build_super(size);
        let header = VirtioNetHdr { flags: VirtioNetHdr::DATA_VALID, ..header };
        let mut segments = Segments::new(&header, &bytes).unwrap();
        let whole = written(&segments);

        prop_assert_eq!(segments.leave_checksums(), Progress::Whole);
        prop_assert_eq!(written(&segments), whole);
    }

    #[test]
    fn every_flow_leaves_with_the_same_packets_in_the_same_order(batch in any_batch()) {
        let mut coalescer = Coalescer::new(Tier::TsoUso);

        let left: Vec<_> = coalescer.coalesce(&batch).flat_map(|write| cut(&write)).collect();

        prop_assert_eq!(left.len(), batch.len());
        prop_assert_eq!(by_flow(&left), by_flow(&batch));
    }
}
