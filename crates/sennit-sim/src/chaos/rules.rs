//! What must hold whatever happens.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    ops::Range,
    time::{Duration, Instant},
};

use sennit_core::{Delivery, PathState};
use sennit_engine::facts::TunnelStatus;

use super::{Pair, STEP, faults::Faults, machines::Machine};
use crate::{Arrival, World, setup::label};

/// A tunnel is back so long after there is a way again, at the latest. Three seconds is the aim,
/// and as long may noq validate addresses that changed while an end stood still: then the hub gives
/// the connection up, and the edge dials. Some seeds of a whole day break even this.
const BACK_WITHIN: Duration = Duration::from_secs(6);
/// Once it is back, some packet of each direction passes within this time, whatever is lost.
const HEARD_WITHIN: Duration = Duration::from_secs(15);
/// A packet is no older when it comes out, where delivery is not reliable and no machine stood
/// still: five seconds it may wait, and be sent again in.
const OLDEST: Duration = Duration::from_secs(10);
/// Bytes that may wait in a class's queue.
const BACKLOG: usize = 32 << 20;
/// Connections of a site at an end: those in use, those in a race, and those that are being closed.
pub(super) const CONNECTIONS: usize = 64;
/// Packets of which it is known whether they arrived: a quarter of an hour of them. What is under
/// way under reliable delivery, or at a machine that stands still, may be minutes old.
const REMEMBERED: usize = 9000;

/// Which packets of one direction were sent and arrived.
struct Way {
    arrived: VecDeque<bool>,
    /// The number of the first that is remembered.
    first: u32,
    count: u64,
    /// When the first packet was sent.
    started: Instant,
    last: Instant,
}

impl Way {
    fn new(now: Instant) -> Self {
        Self {
            arrived: VecDeque::new(),
            first: 0,
            count: 0,
            started: now,
            last: now,
        }
    }

    fn note_sent(&mut self) {
        self.arrived.push_back(false);
        if self.arrived.len() > REMEMBERED {
            self.arrived.pop_front();
            self.first += 1;
        }
    }

    /// Takes down what arrived at an end that last restarted then; what was sent since `aged` may
    /// not be old.
    fn note_arrival(
        &mut self,
        arrival: &Arrival,
        wanted: impl Fn(u32) -> Vec<u8>,
        restarted: Option<Instant>,
        aged: Option<Instant>,
    ) -> Result<(), String> {
        let number = crate::number(&arrival.packet).unwrap_or(u32::MAX);
        if arrival.packet != wanted(number) {
            return Err(format!(
                "a packet came out that no host here sent: {number}"
            ));
        }
        let place = number.checked_sub(self.first).map(|place| place as usize);
        let Some(arrived) = place.and_then(|place| self.arrived.get_mut(place)) else {
            return Err(format!("packet {number} was not sent of late"));
        };
        let sent = self.started + STEP * number;
        let age = arrival.at.saturating_duration_since(sent);
        if age > OLDEST && aged.is_some_and(|since| since <= sent) {
            return Err(format!("packet {number} came out after {age:?}"));
        }
        // Who has restarted does not know what it had.
        let forgot = restarted.is_some_and(|at| at >= sent);
        if std::mem::replace(arrived, true) && !forgot {
            return Err(format!("packet {number} came out twice"));
        }
        self.count += 1;
        self.last = self.last.max(arrival.at);
        Ok(())
    }
}

/// Those of a site.
pub(super) struct Rules {
    /// The inner address of its edge.
    edge: Ipv4Addr,
    /// The numbers of its links among those of all sites.
    links: Range<usize>,
    delivery: Delivery,
    up: Way,
    down: Way,
    sent: u32,
    /// Since when there is a way and no tunnel that carries, if so.
    away: Option<Instant>,
    /// How long each lasted.
    pub(super) back: Vec<Duration>,
}

impl Rules {
    pub(super) fn new(
        edge: Ipv4Addr,
        links: Range<usize>,
        delivery: Delivery,
        now: Instant,
    ) -> Self {
        Self {
            edge,
            links,
            delivery,
            up: Way::new(now),
            down: Way::new(now),
            sent: 0,
            away: None,
            back: Vec::new(),
        }
    }

    /// What is sent at this step.
    pub(super) fn packets(&mut self) -> Pair {
        self.up.note_sent();
        self.down.note_sent();
        let number = self.sent;
        self.sent += 1;
        Pair::new(self.edge, number)
    }

    /// Packets sent and arrived, of both directions.
    pub(super) fn counts(&self) -> (u64, u64) {
        (2 * u64::from(self.sent), self.up.count + self.down.count)
    }

    /// Since when packets may not be old, if that is asked at all.
    fn aged(&self, faults: &Faults, hub: &Machine) -> Option<Instant> {
        let is_reliable = self.delivery == Delivery::Reliable;
        (!is_reliable).then(|| faults.edge.run_since().max(hub.run_since()))
    }

    /// Takes down what came out at the hub from this site.
    pub(super) fn note_at_hub(
        &mut self,
        arrival: &Arrival,
        faults: &Faults,
        hub: &Machine,
    ) -> Result<(), String> {
        let (edge, aged) = (self.edge, self.aged(faults, hub));
        let wanted = |number| Pair::new(edge, number).up;
        self.up.note_arrival(arrival, wanted, hub.restarted(), aged)
    }

    /// Takes down what came out at the edge of this site.
    pub(super) fn note_at_edge(
        &mut self,
        arrival: &Arrival,
        faults: &Faults,
        hub: &Machine,
    ) -> Result<(), String> {
        let (edge, aged) = (self.edge, self.aged(faults, hub));
        let wanted = |number| Pair::new(edge, number).down;
        self.down
            .note_arrival(arrival, wanted, faults.edge.restarted(), aged)
    }

    /// Looks at the site's edge, and at the hub's tunnels.
    pub(super) fn check(
        &mut self,
        world: &mut World,
        at_hub: &[TunnelStatus],
        faults: &Faults,
        hub: &Machine,
    ) -> Result<(), String> {
        let at_edge = world.edge.status();
        for (end, status) in [("edge", at_edge.as_slice()), ("hub", at_hub)] {
            for tunnel in status {
                self.check_tunnel(tunnel, faults)
                    .map_err(|what| format!("{end}: {what}"))?;
            }
        }
        let count = world.edge.tunnels();
        if count > CONNECTIONS {
            return Err(format!("edge: {count} connections"));
        }
        self.check_back(&at_edge[0], faults, hub, world.now())
    }

    fn check_tunnel(&self, tunnel: &TunnelStatus, faults: &Faults) -> Result<(), String> {
        if tunnel.backlog > BACKLOG {
            return Err(format!("{} bytes wait", tunnel.backlog));
        }
        for path in &tunnel.paths {
            let name = &path.link.name;
            let mut links = self.links.clone();
            // Those of other sites have their own rules.
            let Some(link) = links.position(|it| label(it, 1).name == *name) else {
                continue;
            };
            let least = faults.physical(link);
            if let Some(rtt) = path.rtt_min.filter(|&rtt| rtt < least) {
                return Err(format!("{rtt:?} on link {link}, which takes {least:?}"));
            }
        }
        Ok(())
    }

    /// A tunnel comes back within a time, and what is sent then arrives.
    fn check_back(
        &mut self,
        tunnel: &TunnelStatus,
        faults: &Faults,
        hub: &Machine,
        now: Instant,
    ) -> Result<(), String> {
        let Some(since) = faults.usable_since(hub) else {
            self.away = None;
            return Ok(());
        };
        let carries =
            |path: &sennit_engine::facts::PathStatus| path.state == PathState::Up || path.one_way;
        let is_there = tunnel.up && tunnel.paths.iter().any(carries);
        self.note_whether(is_there, since, now);
        let usable = now.saturating_duration_since(since);
        if usable <= BACK_WITHIN {
            return Ok(());
        }
        if !is_there {
            let paths: Vec<_> = tunnel
                .paths
                .iter()
                .map(|path| (&path.link.name, path.state, path.reason))
                .collect();
            return Err(format!(
                "no tunnel {usable:?} after there was a way: {}, {paths:?}, over {}",
                tunnel.reason,
                faults.links()
            ));
        }
        for (end, way) in [("hub", &self.up), ("edge", &self.down)] {
            let silent = now.saturating_duration_since(way.last.max(since + BACK_WITHIN));
            if silent > HEARD_WITHIN {
                return Err(format!("nothing came out at the {end} for {silent:?}"));
            }
        }
        Ok(())
    }

    /// Takes down how long a tunnel is away that has a way since then.
    fn note_whether(&mut self, is_there: bool, since: Instant, now: Instant) {
        if !is_there {
            self.away.get_or_insert((now - STEP).max(since));
        } else if let Some(away) = self.away.take() {
            self.back
                .push(now.saturating_duration_since(away.max(since)));
        }
    }
}
