//! What must hold whatever happens.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use sennit_core::{Delivery, PathState};
use sennit_engine::facts::TunnelStatus;

use super::{Pair, STEP, faults::Faults, load::Load};
use crate::{Arrival, World};

/// The number of ICMP.
const ICMP: u8 = 1;
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
/// Connections at an end: those in use, those in a race, and those that are being closed.
const CONNECTIONS: usize = 64;
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
        // An end may say that there is no route yet.
        if arrival.packet.get(9) == Some(&ICMP) {
            return Ok(());
        }
        let number = crate::number(&arrival.packet).unwrap_or(u32::MAX);
        if arrival.packet != wanted(number) {
            return Err(format!("a packet came out that nobody sent: {number}"));
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

pub(super) struct Rules {
    links: usize,
    delivery: Delivery,
    up: Way,
    down: Way,
    sent: u32,
    /// Packets of [`Load`] that arrived, of both directions.
    pub(super) load: u64,
    /// Since when there is a way and no tunnel that carries, if so.
    away: Option<Instant>,
    /// How long each lasted.
    pub(super) back: Vec<Duration>,
}

impl Rules {
    pub(super) fn new(links: usize, delivery: Delivery, now: Instant) -> Self {
        Self {
            links,
            delivery,
            up: Way::new(now),
            down: Way::new(now),
            sent: 0,
            load: 0,
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
        Pair::new(number)
    }

    /// Packets sent and arrived, of both directions.
    pub(super) fn counts(&self) -> (u64, u64) {
        (2 * u64::from(self.sent), self.up.count + self.down.count)
    }

    pub(super) fn check(&mut self, world: &mut World, faults: &Faults) -> Result<(), String> {
        let [edge, hub] = faults.restarted();
        let is_reliable = self.delivery == Delivery::Reliable;
        let aged = (!is_reliable).then(|| faults.run_since());
        for arrival in std::mem::take(&mut world.at_hub) {
            if Load::has(&arrival) {
                self.load += 1;
                continue;
            }
            self.up
                .note_arrival(&arrival, |number| Pair::new(number).up, hub, aged)?;
        }
        for arrival in std::mem::take(&mut world.at_edge) {
            if Load::has(&arrival) {
                self.load += 1;
                continue;
            }
            self.down
                .note_arrival(&arrival, |number| Pair::new(number).down, edge, aged)?;
        }
        let ends = [("edge", world.edge.status()), ("hub", world.hub.status())];
        for (end, status) in &ends {
            for tunnel in status {
                self.check_tunnel(tunnel, faults)
                    .map_err(|what| format!("{end}: {what}"))?;
            }
        }
        for (end, count) in [("edge", world.edge.tunnels()), ("hub", world.hub.tunnels())] {
            if count > CONNECTIONS {
                return Err(format!("{end}: {count} connections"));
            }
        }
        let [(_, edge), _] = &ends;
        self.check_back(&edge[0], faults, world.now())
    }

    fn check_tunnel(&self, tunnel: &TunnelStatus, faults: &Faults) -> Result<(), String> {
        if tunnel.backlog > BACKLOG {
            return Err(format!("{} bytes wait", tunnel.backlog));
        }
        for path in &tunnel.paths {
            let Some(link) = (0..self.links).find(|&it| crate::label(it, 1).name == path.link.name)
            else {
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
        now: Instant,
    ) -> Result<(), String> {
        let Some(since) = faults.usable_since() else {
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
