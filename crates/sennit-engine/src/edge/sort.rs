//! To which class a packet of the edge's own device belongs.

use std::time::Instant;

use sennit_core::{ClassId, FlowTable};
use sennit_packet::{FlowKey, IpPacket, gso::VirtioNetHdr};

use super::Edge;
use crate::inner;

impl Edge {
    /// The class of a packet by the rules. Where these look at sizes, that of the first packet of a
    /// flow decides for all of it.
    pub(super) fn sort(
        &mut self,
        header: &VirtioNetHdr,
        packet: &IpPacket<'_>,
        now: Instant,
    ) -> ClassId {
        let seed = self.node.flow_seed();
        let Self { config, sized, .. } = self;
        let classifier = &config.classifier;
        let size = inner::size_on_wire(header, packet);
        self.fragments.class(packet, now, || {
            if !classifier.goes_by_size() {
                return classifier.classify(packet, size);
            }
            let flow = FlowKey::of_datagram(packet);
            let sized = sized.get_or_insert_with(|| FlowTable::new(seed));
            sized.recall(flow, now).unwrap_or_else(|| {
                let class = classifier.classify(packet, size);
                sized.learn(flow, class, now);
                class
            })
        })
    }
}
