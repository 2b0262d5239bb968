//! To which class a packet belongs.

use std::time::Instant;

use sennit_core::ClassId;
use sennit_packet::{FlowKey, IpPacket, gso::VirtioNetHdr};

use super::Edge;
use crate::inner;

impl Edge {
    /// The class of a packet by the rules: from the `device` of a class by those that come before
    /// it, and else by all. The first packet of a flow decides for all of it. What has no ports is
    /// sorted packet by packet: it may be a tunnel of others, which is no single flow.
    pub(super) fn sort(
        &mut self,
        header: &VirtioNetHdr,
        packet: &IpPacket<'_>,
        device: Option<ClassId>,
        now: Instant,
    ) -> ClassId {
        let Self { config, flows, .. } = self;
        let classifier = &config.classifier;
        if !classifier.sorts(device) {
            return device.unwrap_or(classifier.fallback());
        }
        let size = inner::size_on_wire(header, packet);
        self.fragments.class(packet, now, || {
            let decide = || classifier.classify(device, packet, size);
            if packet.ports().is_none() {
                return decide();
            }
            let flow = FlowKey::of_datagram(packet);
            let known = flows.recall(flow, now);
            let known = known.filter(|class| classifier.may_be(device, *class));
            known.unwrap_or_else(|| {
                let class = decide();
                flows.learn(flow, class, now);
                class
            })
        })
    }
}
