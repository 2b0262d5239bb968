//! What can happen to a world while it runs: to its links, to the clocks of its machines, to these
//! themselves.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use sennit_engine::{HubConfig, LinkUpdate, SocketId};
use sennit_netem::{Bitrate, Config, Nat, NatConfig};

use crate::{
    Clock, World,
    setup::{edge_seed, hub_config, new_edge, new_hub, site_name},
    turns::Turns,
};

/// Why the hub has nothing to do with a site.
pub(crate) const REVOKED: &str = "the site is revoked";

impl World {
    /// Changes both directions of a link while it runs.
    pub fn change(&mut self, link: usize, change: impl Fn(&mut Config)) {
        let now = self.now;
        let cable = &mut self.cables[link];
        for way in [&mut cable.up, &mut cable.down] {
            way.change(&change, now);
        }
    }

    /// Silently swallows everything on a link, or no longer.
    pub fn blackhole(&mut self, link: usize, on: bool) {
        self.change(link, |config| config.outage = on);
    }

    /// Swallows only what the edge sends (`up`) or receives on a link.
    pub fn blackhole_one_way(&mut self, link: usize, up: bool, on: bool) {
        let now = self.now;
        let cable = &mut self.cables[link];
        let way = if up { &mut cable.up } else { &mut cable.down };
        way.change(|config| config.outage = on, now);
    }

    /// Busy machines: the edge and the hub act so far apart, half as much more or less, on all that
    /// has come by then.
    pub fn set_turns(&mut self, edge: Duration, hub: Duration) {
        (self.edge_turns.every, self.hub_turns.every) = (edge, hub);
    }

    /// The edge or the hub stands still for so long, and then finds all that has come meanwhile.
    pub fn stall(&mut self, hub: bool, span: Duration) {
        let until = self.now + span;
        self.turns(hub).hold(until);
    }

    /// The edge or the hub is suspended for so long: it stands still, and so does its clock.
    pub fn suspend(&mut self, hub: bool, span: Duration) {
        let now = self.now;
        self.turns(hub).suspend(span, now);
    }

    /// Of the hub, or of the edge.
    pub(crate) fn turns(&mut self, hub: bool) -> &mut Turns {
        match hub {
            true => &mut self.hub_turns,
            false => &mut self.edge_turns,
        }
    }

    /// What the calendar of all edges or of the hub says from now on, compared with the true one.
    /// Only TLS looks at it.
    pub fn set_calendar(&mut self, hub: bool, ahead_seconds: i64) {
        self.authority.calendars[usize::from(hub)].set(ahead_seconds);
    }

    /// By which clock both machines go that act in turns.
    pub fn set_clock(&mut self, clock: Clock) {
        (self.edge_turns.clock, self.hub_turns.clock) = (clock, clock);
    }

    /// What arrives at the edge within `span` seems to it to have arrived too early by `early`.
    pub fn misstamp(&mut self, early: Duration, span: Duration) {
        let now = self.now;
        self.edge_turns.misstamp(early, span, now);
    }

    /// What the kernel would say of a link.
    pub fn set_link(&mut self, link: usize, up: bool) {
        self.set_families(link, up, false);
    }

    /// The kernel has addresses of IPv4 or IPv6 on a link, or of neither.
    pub fn set_families(&mut self, link: usize, v4: bool, v6: bool) {
        let update = LinkUpdate {
            socket: SocketId(link as u32),
            label: self.labels[link].clone(),
            v4,
            v6,
            moves: self.cables[link].moves,
            mtu: None,
            paused: false,
        };
        let now = self.edge_turns.clock_at(self.now);
        self.edge.handle_link(update, now);
        self.settle();
    }

    /// The edge's config says nothing of a link any more.
    pub(crate) fn remove_link(&mut self, link: usize) {
        let now = self.edge_turns.clock_at(self.now);
        self.edge.remove_link(SocketId(link as u32), now);
        self.settle();
    }

    /// IP packets of more than `mtu` bytes get lost on a link from now on; whether their senders
    /// are told.
    pub fn set_path_mtu(&mut self, link: usize, mtu: usize, told: bool) {
        self.change(link, |config| (config.mtu, config.tells_mtu) = (mtu, told));
    }

    /// Puts a NAT box between the edge and a link, in place of any other: connections through it
    /// break.
    pub fn set_nat(&mut self, link: usize, config: NatConfig) {
        self.cables[link].nat = Some(Nat::new(config));
    }

    /// The NAT box of a link, if it has one.
    pub fn nat(&mut self, link: usize) -> Option<&mut Nat> {
        self.cables[link].nat.as_mut()
    }

    /// The edge's socket on a link has another port from now on, as after binding it anew. Behind a
    /// NAT box that means another mapping; without one the hub sees it.
    pub fn new_port(&mut self, link: usize) {
        self.rebind(link);
    }

    /// The link's NAT has a mapping for the present port that leads nowhere, and keeps it as long
    /// as it is used.
    pub fn wedge(&mut self, link: usize) {
        let cable = &mut self.cables[link];
        cable.wedged = Some(cable.address.port());
    }

    /// The next packets that the edge puts on a link are lost, so many of them.
    pub fn lose_next(&mut self, link: usize, packets: u32) {
        self.cables[link].up.loses = packets;
    }

    /// Of what the edge puts on a link, one of so many packets that can be marked is from now on,
    /// as by a queue that stands; with 0 none is.
    pub fn mark_each(&mut self, link: usize, packets: u32) {
        self.cables[link].up.marks_each = packets;
    }

    /// The types of service, code point and ECN field, of what edge and hub put on a link since the
    /// last call.
    pub fn take_services(&mut self, link: usize) -> [BTreeSet<u8>; 2] {
        let cable = &mut self.cables[link];
        [&mut cable.up, &mut cable.down].map(|way| std::mem::take(&mut way.services))
    }

    /// Bytes of all IP packets that both ends put on a link so far.
    pub fn bytes_on(&self, link: usize) -> u64 {
        let cable = &self.cables[link];
        cable.up.offered + cable.down.offered
    }

    /// Bytes of all IP packets that the hub put on a link so far.
    pub fn bytes_down(&self, link: usize) -> u64 {
        self.cables[link].down.offered
    }

    /// The link's address changes, as behind a provider's NAT that uses another of its own.
    pub fn move_to(&mut self, link: usize, address: IpAddr) {
        self.cables[link].address.set_ip(address);
    }

    /// The edge itself has another address on a link, and knows it.
    pub fn readdress(&mut self, link: usize, address: IpAddr) {
        self.move_to(link, address);
        self.cables[link].moves += 1;
        self.set_link(link, true);
    }

    /// The hub goes on with another config, by which a site gets so much.
    pub fn bound_sites(&mut self, site_limit: Option<Bitrate>) {
        let config = HubConfig {
            site_limit,
            ..hub_config()
        };
        self.hub.change(config, self.hub_turns.clock_at(self.now));
    }

    /// The hub ends all tunnels of the site, and grants it none any more.
    pub(crate) fn revoke(&mut self) {
        self.revoked = Some(self.site);
        let now = self.hub_turns.clock_at(self.now);
        self.hub.expel(&site_name(self.site), REVOKED, now);
        self.settle();
    }

    /// The site that is revoked may have tunnels again.
    pub(crate) fn invite(&mut self) {
        self.revoked = None;
    }

    /// Replaces the hub by a fresh one with the same identity, as a restart does.
    pub fn restart_hub(&mut self) {
        self.seed += 1;
        let now = self.hub_turns.clock_at(self.now);
        self.hub = new_hub(&self.authority, self.rekey, self.seed, now);
    }

    /// Replaces the edge by a fresh one with the same identity, as a restart does. The hub does not
    /// hear of it before the new one is there.
    pub fn restart_edge(&mut self) {
        self.seed += 1;
        self.edge = new_edge(
            &self.config,
            &self.authority,
            self.rekey,
            edge_seed(self.seed, self.site),
            self.edge_turns.clock_at(self.now),
        );
        for link in 0..self.cables.len() {
            self.rebind(link);
            self.set_link(link, true);
        }
    }
}
