//! What must hold whatever happens.

use std::{
    collections::VecDeque,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use sennit_core::{Delivery, PathState};
use sennit_engine::{
    LinkLabel,
    facts::{PathStatus, TunnelStatus},
};

use super::{
    STEP,
    drafts::{ROAMING, SiteConfig},
    faults::Faults,
    machines::Machine,
    reloads::Watch,
};
use crate::{Arrival, SERVER, World, setup::site_name, udp};

/// A tunnel is missing for so long at most while there is a way that loses nothing: three seconds,
/// seen at a step. Each packet of a handshake that is lost costs a probe timeout of a second, since
/// nothing is known of the round trip so far (RFC 9002 §6.2.2).
const BACK_WITHIN: Duration = Duration::from_millis(3100);
/// Once there has been any way for so long, the tunnel is there, also where its way changes.
pub(super) const THERE_AFTER: Duration = Duration::from_secs(6);
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
/// Port of the packets that are judged first.
const PORT: u16 = 7;

/// A packet of each direction.
pub(super) struct Pair {
    pub(super) up: Vec<u8>,
    pub(super) down: Vec<u8>,
}

/// Which packets of one direction of a flow were sent and arrived.
struct Way {
    arrived: VecDeque<bool>,
    /// The number of the first that is remembered.
    first: u32,
    count: u64,
    /// When the first packet was sent, and how much later each next one.
    started: Instant,
    every: Duration,
    last: Instant,
}

impl Way {
    fn new(every: Duration, now: Instant) -> Self {
        Self {
            arrived: VecDeque::new(),
            first: 0,
            count: 0,
            started: now,
            every,
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
        restarted: Option<Instant>,
        aged: Option<Instant>,
    ) -> Result<(), String> {
        let number = crate::number(&arrival.packet).unwrap_or(u32::MAX);
        let place = number.checked_sub(self.first).map(|place| place as usize);
        let Some(arrived) = place.and_then(|place| self.arrived.get_mut(place)) else {
            return Err(format!("packet {number} was not sent of late"));
        };
        let sent = self.started + self.every * number;
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

    /// The packets sent within this time that have not arrived.
    fn missing(&self, [since, until]: [Instant; 2]) -> Vec<u32> {
        let numbers = self.first..;
        let sent = |number: u32| self.started + self.every * number;
        let all = numbers.zip(&self.arrived);
        let within = all.filter(|&(number, _)| (since..until).contains(&sent(number)));
        within
            .filter(|(_, arrived)| !**arrived)
            .map(|(number, _)| number)
            .collect()
    }
}

/// Numbered packets of one port, of which each direction has one in so many steps.
struct Flow {
    port: u16,
    len: usize,
    steps: u32,
    sent: u32,
    up: Way,
    down: Way,
}

impl Flow {
    fn new(port: u16, len: usize, steps: u32, now: Instant) -> Self {
        Self {
            port,
            len,
            steps,
            sent: 0,
            up: Way::new(STEP * steps, now),
            down: Way::new(STEP * steps, now),
        }
    }

    fn pair(&self, edge: Ipv4Addr, number: u32) -> Pair {
        Pair {
            up: udp(edge, SERVER, self.port, number, self.len),
            down: udp(SERVER, edge, self.port, number, self.len),
        }
    }

    fn next(&mut self, edge: Ipv4Addr) -> Pair {
        self.up.note_sent();
        self.down.note_sent();
        let number = self.sent;
        self.sent += 1;
        self.pair(edge, number)
    }
}

/// Those of a site.
pub(super) struct Rules {
    /// The number of the site, and the inner address of its edge.
    site: usize,
    edge: Ipv4Addr,
    /// What is judged: packets of one class, and of one that goes to another class and back.
    flows: Vec<Flow>,
    /// Since when its packets may not be old, unless delivery is reliable.
    aged: Instant,
    /// Since when there is a tunnel that carries, if so.
    there: Option<Instant>,
    /// Since when there is a way and no tunnel that carries, if so.
    away: Option<Instant>,
    /// How long each lasted.
    pub(super) back: Vec<Duration>,
}

impl Rules {
    /// Of the site with this number and inner address; whether it has a flow that roams.
    pub(super) fn new(site: usize, edge: Ipv4Addr, roams: bool, now: Instant) -> Self {
        let judged = Flow::new(PORT, 300, 1, now);
        let roaming = roams.then(|| Flow::new(ROAMING, 100, 5, now));
        Self {
            site,
            edge,
            flows: [judged].into_iter().chain(roaming).collect(),
            aged: now,
            there: None,
            away: None,
            back: Vec::new(),
        }
    }

    /// What is sent at this step.
    pub(super) fn packets(&mut self, step: u64) -> Vec<Pair> {
        let is_due = |flow: &&mut Flow| step.is_multiple_of(flow.steps.into());
        let due = self.flows.iter_mut().filter(is_due);
        due.map(|flow| flow.next(self.edge)).collect()
    }

    /// Packets sent and arrived, of both directions.
    pub(super) fn counts(&self) -> (u64, u64) {
        let flows = self.flows.iter();
        let counts = flows.map(|it| (2 * u64::from(it.sent), it.up.count + it.down.count));
        counts.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// Delivery is no longer reliable: what waits since before may be old.
    pub(super) fn let_age(&mut self, now: Instant) {
        self.aged = now;
    }

    /// The hub delivers reliably until it hears otherwise, which takes a way.
    fn note_reliable(&mut self, class: &str, at_hub: &[TunnelStatus], now: Instant) {
        let site = Some(site_name(self.site));
        let mut own = at_hub
            .iter()
            .filter(|it| it.site == site && it.class == *class);
        if own.any(|it| it.treatment.delivery == Delivery::Reliable) {
            self.let_age(now);
        }
    }

    /// Since when a tunnel has carried without a break, if one does.
    pub(super) fn there_since(&self) -> Option<Instant> {
        self.there
    }

    /// Whether all judged packets that were sent within this time have arrived.
    pub(super) fn is_complete(&self, span: [Instant; 2]) -> bool {
        let judged = &self.flows[0];
        let mut ways = [&judged.up, &judged.down].into_iter();
        ways.all(|way| way.missing(span).is_empty())
    }

    /// Takes down what came out of the site's packets, `up` at the hub or else at the edge.
    pub(super) fn note_arrival(
        &mut self,
        arrival: &Arrival,
        (up, port): (bool, u16),
        (config, faults, hub): (&SiteConfig, &Faults, &Machine),
    ) -> Result<(), String> {
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.port == port) else {
            return Err(format!(
                "a packet came out of port {port}, which nobody has"
            ));
        };
        let number = crate::number(&arrival.packet).unwrap_or(u32::MAX);
        let Pair { up: sent, down } = flow.pair(self.edge, number);
        let (way, wanted, restarted) = match up {
            true => (&mut flow.up, sent, hub.restarted()),
            false => (&mut flow.down, down, faults.edge.restarted()),
        };
        if arrival.packet != wanted {
            return Err(format!(
                "a packet came out that no host here sent: {number}"
            ));
        }
        let run_since = faults.edge.run_since().max(hub.run_since());
        let is_reliable = config.treatment.delivery == Delivery::Reliable;
        let aged = (!is_reliable).then(|| run_since.max(self.aged));
        way.note_arrival(arrival, restarted, aged)
    }

    /// Whether everything that a reload may not lose is there once it has had its time.
    pub(super) fn check_reload(
        &self,
        watch: &Watch,
        world: &mut World,
        at_hub: &[TunnelStatus],
    ) -> Result<(), String> {
        for flow in self.flows.iter().take(watch.flows) {
            for (way, name) in [(&flow.up, "up"), (&flow.down, "down")] {
                let missing = way.missing(watch.judged);
                if !missing.is_empty() {
                    let port = flow.port;
                    return Err(format!("lost {name}, of port {port}: {missing:?}"));
                }
            }
        }
        let site = site_name(self.site);
        for tunnel in world.edge.status() {
            let class = &tunnel.class;
            let own = |it: &&TunnelStatus| it.site.as_ref() == Some(&site) && it.class == *class;
            match at_hub.iter().find(own) {
                Some(far) if tunnel.up && far.treatment == tunnel.treatment => {}
                Some(far) => {
                    let (near, far) = (tunnel.treatment, far.treatment);
                    return Err(format!("{class}: {}, {near:?} and {far:?}", tunnel.reason));
                }
                None => return Err(format!("{class}: no tunnel, {}", tunnel.reason)),
            }
        }
        Ok(())
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
                check_tunnel(tunnel, &world.labels, faults)
                    .map_err(|what| format!("{end}: {what}"))?;
            }
        }
        let count = world.edge.tunnels();
        if count > CONNECTIONS {
            return Err(format!("edge: {count} connections"));
        }
        self.note_reliable(&at_edge[0].class, at_hub, world.now());
        self.check_back(&at_edge[0], faults, hub, world.now())
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
            (self.away, self.there) = (None, None);
            return Ok(());
        };
        let carries = |path: &PathStatus| path.state == PathState::Up || path.one_way;
        let is_there = tunnel.up && tunnel.paths.iter().any(carries);
        self.note_whether(is_there, since, now);
        let usable = now.saturating_duration_since(since);
        let lossless = faults.lossless_since(hub);
        let missing = self
            .away
            .zip(lossless)
            .map(|(away, since)| now - away.max(since));
        let is_late = missing.is_some_and(|missing| missing > BACK_WITHIN);
        if is_late || (!is_there && usable > THERE_AFTER) {
            let paths: Vec<_> = tunnel
                .paths
                .iter()
                .map(|path| (&path.link.name, path.state, path.reason))
                .collect();
            return Err(format!(
                "no tunnel {usable:?} after there was a way, missed for {missing:?} with one that \
                 loses nothing: {}, {paths:?}, over {}",
                tunnel.reason,
                faults.links()
            ));
        }
        if usable <= THERE_AFTER {
            return Ok(());
        }
        let judged = &self.flows[0];
        for (end, way) in [("hub", &judged.up), ("edge", &judged.down)] {
            let silent = now.saturating_duration_since(way.last.max(since + THERE_AFTER));
            if silent > HEARD_WITHIN {
                return Err(format!("nothing came out at the {end} for {silent:?}"));
            }
        }
        Ok(())
    }

    /// Takes down how long a tunnel is away that has a way since then.
    fn note_whether(&mut self, is_there: bool, since: Instant, now: Instant) {
        self.there = is_there.then(|| self.there.unwrap_or(now));
        if !is_there {
            self.away.get_or_insert((now - STEP).max(since));
        } else if let Some(away) = self.away.take() {
            self.back
                .push(now.saturating_duration_since(away.max(since)));
        }
    }
}

/// Looks at a tunnel of either end, whose paths may be over these links of a site.
fn check_tunnel(tunnel: &TunnelStatus, links: &[LinkLabel], faults: &Faults) -> Result<(), String> {
    if tunnel.backlog > BACKLOG {
        return Err(format!("{} bytes wait", tunnel.backlog));
    }
    for path in &tunnel.paths {
        // Those of other sites have their own rules.
        let Some(link) = links.iter().position(|it| it.name == path.link.name) else {
            continue;
        };
        let least = faults.physical(link);
        if let Some(rtt) = path.rtt_min.filter(|&rtt| rtt < least) {
            return Err(format!("{rtt:?} on link {link}, which takes {least:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sennit_packet::checksum::Progress;

    use super::*;

    /// Those of a site of which a packet each way has been sent in each of so many steps.
    fn rules(steps: u64, start: Instant) -> Rules {
        let mut rules = Rules::new(0, crate::EDGE, true, start);
        for step in 0..steps {
            rules.packets(step);
        }
        rules
    }

    fn arrive(way: &mut Way, packet: Vec<u8>, at: Instant) -> Result<(), String> {
        let arrival = Arrival {
            at,
            packet: packet.into(),
            checksum: Progress::Whole,
        };
        way.note_arrival(&arrival, None, None)
    }

    #[test]
    fn what_is_missing_of_a_time_is_told_by_number() {
        let start = Instant::now();
        let mut rules = rules(40, start);
        let flow = &mut rules.flows[0];
        for number in (0..40).filter(|number| ![5, 15, 35].contains(number)) {
            let packet = flow.pair(crate::EDGE, number).up;
            assert_eq!(arrive(&mut flow.up, packet, start), Ok(()));
        }
        assert_eq!(
            flow.up.missing([start + STEP * 10, start + STEP * 30]),
            [15]
        );
        assert_eq!(flow.up.missing([start, start + STEP * 40]), [5, 15, 35]);
    }

    #[test]
    fn the_flow_that_roams_has_a_packet_in_five_steps_which_comes_out_once() {
        let start = Instant::now();
        let mut rules = rules(40, start);
        let [judged, roaming] = &mut rules.flows[..] else {
            panic!("it has two flows");
        };
        assert_eq!((judged.sent, roaming.sent), (40, 8));
        let packet = roaming.pair(crate::EDGE, 7).down;
        assert_eq!(arrive(&mut roaming.down, packet.clone(), start), Ok(()));
        assert!(arrive(&mut roaming.down, packet, start).is_err());
    }
}
