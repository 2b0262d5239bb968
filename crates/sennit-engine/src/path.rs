//! One path of a tunnel, as the driver sees it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{Connection, FourTuple, PathId, PathStats, PathStatus, coding::Encodable};
use sennit_core::{
    Health, Pacer, PathState, PathView, Worth,
    frame::{Away, Fare},
    health::{Copies, Reason},
    recent::Recent,
};
use sennit_masque::varint;
use sennit_packet::Bitrate;

use crate::{
    acks::Owed,
    facts::{self, LinkLabel},
    gate::{Gate, GateState, OPENING},
    ids::{LinkId, SocketId},
    protection::Symbols,
    remotes::plain,
    sharing::RoundTrips,
};

/// Before a path has a sample of its own.
const ASSUMED_RTT: Duration = Duration::from_millis(100);
/// What noq refuses to carry for so long it will never carry: it validates a new address of the
/// peer for three probe timeouts, at most once (RFC 9000 §8.2.4), and sends no data until it has.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// How often it is tried whether noq still refuses, while nothing else is to be sent.
const TRIAL_EVERY: Duration = Duration::from_millis(100);

/// A crowded path has a round trip of at least this many times its least one (docs/decisions/0006).
const CROWDED: u32 = 3;
/// A crowded path has a round trip that is longer than its least one by this too, since jitter
/// alone may triple a short one.
const CROWDED_BY: Duration = Duration::from_millis(10);
/// Times its own pace that a path may leave at, while its link is what paces it.
const GUIDED: u64 = 2;
/// What crowds a path comes back as soon as it may; it is kept away for so long at a time.
const CROWDED_FOR: Duration = Duration::from_secs(5);

/// A path that brings next to nothing is tried again now and then, for this many round trips.
const TRY_ROUNDS: u32 = 8;
/// What half a packet has around it, and no whole one.
const AROUND_HALF: u64 = 64;
/// A trial of such a path lasts at least this long, in which a controller finds out that it carries
/// more.
const TRY_FOR: Duration = Duration::from_millis(500);
/// The time between two trials is this many times as long as a trial.
const TRY_PAUSES: u32 = 4;
/// Round trips after which a path that was given transfers has shown what it carries, whatever its
/// first packets seemed to tell: startup doubles the rate each round, and what it missed takes a
/// dozen to grow.
const LED_ROUNDS: u32 = 20;

/// The round trip of a path swings if four mean deviations are longer than it, which jitter of half
/// the delay does not reach, and by this more, which hosts that are late may add.
const SWINGS_BY: Duration = Duration::from_millis(10);

/// State of one validated path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    /// Since when it is validated here.
    pub(crate) began: Instant,
    pub(crate) network: FourTuple,
    /// The edge's socket; a hub learns the link by name instead.
    pub(crate) socket: SocketId,
    /// Name, tier and weight, once known. An edge knows them from the start.
    pub(crate) link: LinkLabel,
    /// The link itself, while the tunnel is plugged into a pipe.
    pub(crate) on: Option<LinkId>,
    pub(crate) gate: Arc<GateState>,
    pub(crate) pacer: Pacer,
    pub(crate) health: Health,
    /// Why this end of it is out of use, at an edge.
    pub(crate) away: Option<Away>,
    /// Whether it carries packets and acknowledgements while others could.
    trusted: bool,
    /// When the ways were last told of it, and what.
    informed: Option<(Instant, PathState)>,
    /// Bytes of inner packets that left on it of late.
    pub(crate) carried: Recent,
    /// When a report last left on it.
    pub(crate) reported: Option<Instant>,
    /// A packet of this size is to be sent along with the last probe.
    pub(crate) probes_size: Option<u16>,
    /// The peer says that it carries less than before in its direction.
    pub(crate) peer_shrunk: bool,
    /// It carries less than before in this direction, and the peer was told.
    pub(crate) shrunk: bool,
    /// Room below which nothing is sent, in bytes: that of what a packet becomes.
    pub(crate) least: u64,
    /// What has arrived here and is to be acknowledged.
    pub(crate) owed: Owed,
    /// When its round trip was last too long for a path that only carries what it should.
    crowded: Option<Instant>,
    /// What it is good for, at the last look.
    pub(crate) worth: Worth,
    /// While it is slight: since when, or when it was last tried again.
    tried: Option<Instant>,
    /// Transfers go here first.
    pub(crate) leads: bool,
    /// When they first did.
    pub(crate) led: Option<Instant>,
    /// Protected packets and repairs that it carried.
    pub(crate) symbols: Symbols,
    /// Packets were sent to see what it carries.
    pub(crate) opened: bool,
    /// Packets that had been sent here when the edge last found it to be up.
    pub(crate) sent_up: u64,
    /// When noq first and last sent nothing of what it was given for this path, if it sent nothing
    /// since.
    refused: Option<(Instant, Instant)>,
    /// It carries less than it could, as other classes had their turn on its link.
    pub(crate) held: bool,
    /// What its link gives out is found there, and paces the classes.
    pub(crate) guided: bool,
    /// How the class fares on it in the direction that the hub sends, and when it said so.
    pub(crate) fare: Option<(Fare, Instant)>,
}

/// What of `budget` can be used: noq sends nothing unless a packet of full size would fit.
pub(crate) fn whole(budget: u64, packet: u64) -> u64 {
    if budget < packet { 0 } else { budget }
}

/// Bytes that must have room for both halves of a packet to leave at once: noq sends the second
/// only if one of full size would fit. It is less than the least window of two packets, or a path
/// would carry nothing while a probe is under way.
fn room_of_halves(packet: u64) -> u64 {
    packet + packet.div_ceil(2) + AROUND_HALF
}

/// The number of a path on the wire (RFC 10069 §2: at most 2^32 - 1).
///
/// noq gives it away only in encoded form.
pub(crate) fn number(id: PathId) -> u32 {
    let mut wire = [0; 8];
    id.encode(&mut &mut wire[..]);
    varint::decode(&wire).map_or(0, |(number, _)| number as u32)
}

impl Path {
    /// Takes over a path that noq validated; `None` if it vanished meanwhile.
    pub(crate) fn adopt(
        conn: &Connection,
        id: PathId,
        socket: SocketId,
        link: LinkLabel,
        now: Instant,
    ) -> Option<Self> {
        let gate = Gate::state_of(conn.congestion_state(id)?)?;
        Some(Self {
            id,
            began: now,
            network: conn.network_path(id).ok()?,
            socket,
            link,
            on: None,
            gate,
            pacer: Pacer::new(now),
            health: Health::new(now),
            away: None,
            trusted: true,
            informed: None,
            carried: Recent::new(now),
            reported: None,
            probes_size: None,
            peer_shrunk: false,
            shrunk: false,
            least: 0,
            owed: Owed::default(),
            crowded: None,
            worth: Worth::Unknown,
            symbols: Symbols::default(),
            tried: None,
            leads: false,
            led: None,
            opened: false,
            sent_up: 0,
            refused: None,
            held: false,
            guided: false,
            fare: None,
        })
    }

    /// A packet of `bytes` leaves here.
    pub(crate) fn note_carried(&mut self, bytes: u64, now: Instant) {
        self.carried.count(bytes, now);
        if self.leads {
            self.led.get_or_insert(now);
        }
    }

    /// noq had a batch to send on this path, and perhaps `kept` all of it.
    pub(crate) fn handle_batch(&mut self, kept: bool, now: Instant) {
        self.refused = kept.then(|| (self.refused.map_or(now, |(first, _)| first), now));
    }

    /// Whether much more stood here of late than fits: acknowledgements and other small things go
    /// elsewhere.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        self.crowded
            .is_some_and(|at| now.saturating_duration_since(at) < CROWDED_FOR)
    }

    /// Whether noq sends no data here: to a new address of the peer not until it is validated.
    pub(crate) fn refuses(&self) -> bool {
        self.refused.is_some()
    }

    /// When it is to be tried whether it still does not.
    pub(crate) fn trial_at(&self) -> Option<Instant> {
        self.refused.map(|(_, last)| last + TRIAL_EVERY)
    }

    /// Whether it never will.
    pub(crate) fn is_stuck(&self) -> bool {
        self.refused
            .is_some_and(|(first, last)| last.saturating_duration_since(first) >= REFUSED_FOR)
    }

    /// How it is doing and why, for people.
    pub(crate) fn state(&self) -> (PathState, Reason) {
        if self.refuses() {
            return (PathState::Suspect, Reason::NotValidated);
        }
        self.health.state()
    }

    /// Follows a path that a NAT moved to another address, which noq does without an event. True if
    /// noq measures the path anew since (RFC 9000 §9.4): then the gate of before is dead.
    pub(crate) fn follow(&mut self, conn: &Connection) -> bool {
        let Ok(network) = conn.network_path(self.id) else {
            return false;
        };
        if network == self.network {
            return false;
        }
        self.network = network;
        // It is asked to prove the new address from now on.
        self.refused = None;
        let gate = conn.congestion_state(self.id).and_then(Gate::state_of);
        let Some(gate) = gate.filter(|gate| !Arc::ptr_eq(gate, &self.gate)) else {
            return false;
        };
        gate.inherit(&self.gate);
        self.gate = gate;
        true
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        plain(self.network.remote())
    }

    pub(crate) fn srtt(&self) -> Duration {
        self.gate.srtt().unwrap_or(ASSUMED_RTT)
    }

    /// The least round trip, and by how much the least of those since the last call was longer.
    pub(crate) fn take_round_trips(&self) -> RoundTrips {
        let least = self.gate.min_rtt().unwrap_or(ASSUMED_RTT);
        let longest = self.gate.take_round_trip();
        RoundTrips {
            least,
            delay: longest.map(|rtt| rtt.saturating_sub(least)),
            back: self.gate.acks_late(),
        }
    }

    fn rtt_ahead(&self) -> Duration {
        self.gate.rtt_ahead().unwrap_or(ASSUMED_RTT)
    }

    fn look_whether_crowded(&mut self, srtt: Duration, now: Instant) {
        if let Some(least) = self.gate.min_rtt()
            && srtt > CROWDED * least + CROWDED_BY
        {
            self.crowded = Some(now);
        }
    }

    /// Bytes that must have room at once, of a packet of this size that may leave in halves.
    fn least_room(&self, packet: u64, halves: bool) -> u64 {
        let is_full = u64::from(self.gate.carries()) >= packet;
        if is_full && !halves {
            packet
        } else {
            room_of_halves(packet)
        }
    }

    /// What the scheduler should know. `packet` is the size of a full packet in bytes.
    /// Packets may leave in `halves` although the path carries whole ones.
    pub(crate) fn view(
        &mut self,
        packet: u64,
        halves: bool,
        all_suspect: bool,
        now: Instant,
    ) -> PathView {
        let srtt = self.rtt_ahead();
        self.look_whether_crowded(srtt, now);
        self.least = self.least_room(packet, halves);
        let rate = self.gate.pacing_rate(srtt);
        let credit = self.pacer.credit(self.pace(srtt), packet, now);
        let (state, _) = self.health.state();
        let (delivers, unproven) = (self.gate.rate(srtt), self.gate.is_in_slow_start());
        let opening = self.gate.opening_rate();
        let is_guessed = !self.gate.is_known() && opening == 0;
        let was_tried = !unproven
            && self
                .led
                .is_some_and(|at| now.saturating_duration_since(at) >= LED_ROUNDS * srtt);
        // Of one that may yet carry more, what its first packets told counts as well.
        let expected = |may_grow| match (is_guessed, may_grow) {
            (true, _) => 0,
            (false, true) => delivers.max(opening),
            (false, false) => delivers,
        };
        PathView {
            usable: self.trusted || all_suspect && state != PathState::Down,
            alive: self.health.is_proven(),
            tier: self.link.tier,
            weight: self.link.weight,
            srtt,
            least: self.gate.min_rtt().unwrap_or(srtt),
            held_up: self.gate.held_up(),
            crowded: self.is_crowded(now),
            late: Duration::ZERO,
            rate,
            delivers,
            unproven,
            carries: expected(unproven),
            promises: expected(!was_tried),
            leads: self.leads,
            worth: if self.gate.is_known() {
                Worth::Full
            } else {
                Worth::Unknown
            },
            budget: whole(self.gate.room().min(credit), self.least),
            room: whole(self.gate.room(), self.least),
            copies: if all_suspect {
                Copies::None
            } else {
                self.health.copies(now)
            },
        }
    }

    /// Whether it was never seen what it carries, and it has room to find out. A round trip must be
    /// known.
    pub(crate) fn may_open(&self, view: &PathView, packet: u64) -> bool {
        let is_new = !self.opened && view.unproven && self.gate.opening_rate() == 0;
        let is_ready = view.usable && self.gate.min_rtt().is_some();
        is_new && is_ready && view.room >= packet * OPENING as u64
    }

    /// Whether it is taken for one that nobody knows: a slight path may have become better since it
    /// was used.
    pub(crate) fn is_tried_again(&mut self, now: Instant) -> bool {
        if self.worth != Worth::Slight {
            self.tried = None;
            return false;
        }
        let span = TRY_FOR.max(TRY_ROUNDS * self.srtt());
        let tried = self.tried.get_or_insert(now);
        let since = now.saturating_duration_since(*tried);
        if since >= (TRY_PAUSES + 1) * span {
            *tried = now;
        }
        since >= TRY_PAUSES * span
    }

    /// How much later than its round trip says packets are in order that fill this path. `repair`
    /// is how long a packet takes to be sent again once it is missed.
    ///
    /// Jitter does not count: on a path that is hardly used, what varies is how late it is
    /// acknowledged. Losses that come so often that one repair meets the next make everything as
    /// late as a repair.
    pub(crate) fn lateness(&self, packet: u64, repair: Duration, now: Instant) -> Duration {
        let rate = self.gate.rate(self.rtt_ahead());
        let ledger = self.gate.ledger();
        let stall = (ledger.jitter() + repair).as_secs_f64();
        let losses = rate as f64 / packet as f64 * ledger.loss(now);
        let stalled = (losses * stall).min(1.0);
        Duration::from_secs_f64(stall * stalled)
    }

    /// Bytes per second at which packets may leave. Where classes share a link of which it is found
    /// what it carries, that is what paces them, and the path's own pace would hide that it carries
    /// more.
    fn pace(&self, srtt: Duration) -> u64 {
        let rate = self.gate.pacing_rate(srtt);
        if self.guided {
            rate.saturating_mul(GUIDED)
        } else {
            rate
        }
    }

    /// When the pacer will let another packet go, if the window allows one.
    pub(crate) fn ready_at(&self, packet: u64) -> Option<Instant> {
        let rate = self.pace(self.rtt_ahead());
        (self.gate.room() >= self.least).then(|| self.pacer.ready_at(rate, packet))
    }

    /// Whether round trips differ by so much that nobody can say when a packet arrives.
    pub(crate) fn swings(&self) -> bool {
        self.gate.ledger().jitter() > self.srtt() + SWINGS_BY
    }

    /// Whether it carries packets and acknowledgements while others could.
    pub(crate) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Trusts it or no longer; true if that is a change.
    pub(crate) fn set_trusted(&mut self, trusted: bool) -> bool {
        self.gate.set_frozen(!trusted);
        std::mem::replace(&mut self.trusted, trusted) != trusted
    }

    /// The status noq should schedule by: what is not trusted carries neither data nor
    /// acknowledgements while another path can.
    pub(crate) fn status(&self) -> PathStatus {
        if self.trusted {
            PathStatus::Available
        } else {
            PathStatus::Backup
        }
    }

    /// Whether others should be told of it, for which there is no hurry unless its state changed.
    pub(crate) fn is_news(&mut self, every: Duration, now: Instant) -> bool {
        let (state, _) = self.health.state();
        let told = self
            .informed
            .is_some_and(|(at, told)| told == state && now.saturating_duration_since(at) < every);
        if !told {
            self.informed = Some((now, state));
        }
        !told
    }

    /// Facts about it, `conn` being its connection; nothing if noq has let go of it. The peer joins
    /// `halves` of packets or not.
    pub(crate) fn describe(
        &self,
        halves: bool,
        conn: &mut Connection,
    ) -> Option<facts::PathStatus> {
        let stats: PathStats = conn.path_stats(self.id)?;
        let observed = conn.path_observed_address(self.id).ok().flatten();
        let (state, reason) = self.state();
        Some(facts::PathStatus {
            id: number(self.id),
            link: self.link.clone(),
            socket: self.socket,
            remote: self.remote(),
            observed: observed.map(plain),
            state,
            reason,
            falls: self.health.falls(),
            heard: self.health.heard(),
            since: self.health.since(),
            one_way: self.is_trusted() && state != PathState::Up,
            carried: self.carried,
            rtt: self.gate.srtt(),
            rtt_min: self.gate.min_rtt(),
            sent_packets: stats.sent_packets,
            lost_packets: stats.lost_packets,
            losses: self.gate.ledger().losses(),
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            rate: Bitrate::bytes_per_second(self.gate.rate(self.srtt())),
            cwnd: self.gate.window(),
            congestion: self.gate.choice(),
            too_small: self.gate.is_small() && !halves,
            worth: self.worth,
            symbols: self.symbols,
            in_flight: self.gate.in_flight(),
            mtu: self.gate.carries(),
            mtu_source: self.gate.size_source(),
            small: self.gate.is_small(),
            shared: None,
            shared_down: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_window_has_room_for_a_packet_in_halves_beside_a_probe() {
        for packet in [1232, 1450, 1472, 8972] {
            assert!(room_of_halves(packet) + 200 <= 2 * packet, "{packet}");
        }
    }
}
