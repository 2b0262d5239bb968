//! Super-packets: the segmentation offload of TUN devices, receiving side.
//!
//! A [`Coalescer`] looks at a batch of stand-alone packets and joins neighbours of one TCP or UDP
//! flow into super-packets that the kernel takes in one write. It follows the rules of the kernel's
//! own GRO (`net/ipv4/tcp_offload.c`, `udp_offload.c`): what it joins can be cut apart into the
//! same packets again by [`crate::gso::Segments`], or by the kernel. There are two liberties:
//!
//! - identifications of IPv4 packets with DF set mean nothing (RFC 6864 §4.1) and may differ;
//! - PSH does not end a super-packet but moves to its end. It marks no record, and senders should
//!   collapse it themselves (RFC 9293 §3.9.1.2, SHLD-27); all of the batch is handed over at once
//!   anyway. Linux sets it on each burst, and those of slow connections have two segments.
//!
//! Order within a flow is kept. A packet that cannot be joined passes as it is and closes its
//! flow's super-packet, and a fragment, whose flow cannot be told, closes them all. Payloads are
//! not copied: a [`Write`] is a small header and the payload slices of the batch, for `writev`.
//!
//! Checksums are verified before joining, since the super-packet gets a fresh one. A corrupt packet
//! passes as it is, for the kernel to drop and count. Partial ones ([`Progress`]) have nothing to
//! verify, and the kernel is told so.

mod part;
mod train;
mod write;

pub use write::{Payloads, Write, Writes};

use crate::checksum::Progress;
use crate::flow::FlowKey;
use crate::gso::Tier;
use part::{Kind, Part};
use train::Train;

/// Segments per super-packet: what the kernel's UDP GRO allows, and more than a 64 KB super-packet
/// of Internet-sized TCP segments has. Together with two headers it stays far below `IOV_MAX`.
pub const MAX_SEGMENTS: usize = 64;

/// Flows whose super-packet may still grow. More than this many interleaved in one batch is rare,
/// and then the one that started first stops growing.
pub const MAX_FLOWS: usize = 32;

/// Marks the last packet of a train in the links.
const END: u32 = u32::MAX;

/// Joins batches of packets; keeps its memory from batch to batch.
#[derive(Debug, Default)]
pub struct Coalescer {
    tier: Tier,
    groups: Vec<Group>,
    /// For each packet of the batch the next one of its train.
    links: Vec<u32>,
    /// The trains that may still grow, in the order they started; one per flow.
    open: Vec<Open>,
}

/// What leaves in one write.
#[derive(Clone, Copy, Debug)]
enum Group {
    AsIs(u32, Progress),
    Train(Train),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    flow: FlowKey,
    group: usize,
}

impl Coalescer {
    /// A coalescer for a device that takes super-packets of `tier`.
    pub fn new(tier: Tier) -> Self {
        Self {
            tier,
            ..Self::default()
        }
    }

    /// Joins a batch of packets, given in the order they arrived in.
    ///
    /// Every packet of the batch is in exactly one of the writes, which come in the order of their
    /// first packets.
    pub fn coalesce<'a, B: AsRef<[u8]>>(&'a mut self, batch: &'a [B]) -> Writes<'a, B> {
        self.coalesce_by(batch, |_| Progress::Whole)
    }

    /// Joins a batch like [`Self::coalesce`], of packets of which some may have partial checksums,
    /// as `progress` says.
    pub fn coalesce_by<'a, B: AsRef<[u8]>>(
        &'a mut self,
        batch: &'a [B],
        progress: impl Fn(&B) -> Progress,
    ) -> Writes<'a, B> {
        self.groups.clear();
        self.links.clear();
        self.open.clear();
        for (index, packet) in (0..END).zip(batch) {
            self.links.push(END);
            self.handle_packet(index, packet.as_ref(), progress(packet), batch);
        }
        Writes::new(&self.groups, &self.links, batch)
    }

    fn handle_packet<B: AsRef<[u8]>>(
        &mut self,
        index: u32,
        packet: &[u8],
        progress: Progress,
        batch: &[B],
    ) {
        match Kind::of(packet, progress, self.tier) {
            Kind::Other => {}
            Kind::Fragment => self.open.clear(),
            Kind::Barrier(flow) => self.open.retain(|open| open.flow != flow),
            Kind::Part(part) => {
                if !self.join(index, packet, &part, batch) {
                    self.start(index, part);
                }
                return;
            }
        }
        self.groups.push(Group::AsIs(index, progress));
    }

    /// Couples the packet to its flow's open train. A train that it does not fit is closed, as is
    /// one that it ends.
    fn join<B: AsRef<[u8]>>(
        &mut self,
        index: u32,
        packet: &[u8],
        part: &Part,
        batch: &[B],
    ) -> bool {
        let Some(slot) = self.open.iter().rposition(|open| open.flow == part.flow) else {
            return false;
        };
        let Group::Train(train) = &mut self.groups[self.open[slot].group] else {
            return false;
        };
        let first = batch[position(train.first)].as_ref();
        let fits = train.accepts(first, part, packet);
        if fits {
            self.links[position(train.last)] = index;
            train.couple(index, part);
        }
        if !fits || train.is_complete() {
            self.open.remove(slot);
        }
        fits
    }

    fn start(&mut self, index: u32, part: Part) {
        let train = Train::new(index, part);
        if !train.is_complete() {
            if self.open.len() == MAX_FLOWS {
                self.open.remove(0);
            }
            self.open.push(Open {
                flow: part.flow,
                group: self.groups.len(),
            });
        }
        self.groups.push(Group::Train(train));
    }
}

/// The place in the batch of a packet that is known to be there.
fn position(index: u32) -> usize {
    usize::try_from(index).expect("the batch that the index came from fits in memory")
}
