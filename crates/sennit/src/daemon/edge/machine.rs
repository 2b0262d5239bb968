//! One worker's engine with its events turned into deeds.

mod engines;
mod host;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use sennit_core::{ClassId, PathState, health};
use sennit_engine::{Edge, EdgeEvent, NotOurClass, Origin, Packet, Received, SocketId, Transmit};
use sennit_masque::capsule::NextAuthority;
use sennit_packet::{Prefix, gso::VirtioNetHdr};

use super::{
    HANDOFF, LETTERS, MONITOR, Portion, QUESTIONS, answer::Answer, far_side, lead::Lead,
    letter::Letter, links::Links, running::Running, way::Resolved,
};
use crate::{
    control::Request,
    daemon::{
        facts::{self, Seen},
        handoff::Handoff,
        mailbox::{Mailbox, Question, Slot},
        worker::{Io, Machine},
    },
    journal::{Event, Journal},
    site::SiteName,
};

/// A packet, perhaps a super-packet, that was read at the wrong worker.
#[derive(Debug)]
pub(super) struct Handed {
    class: ClassId,
    header: VirtioNetHdr,
    packet: Bytes,
}

pub(super) struct EdgeMachine {
    pub(super) edge: Edge,
    /// Which classes it has.
    pub(super) portion: Portion,
    pub(super) site: SiteName,
    pub(super) links: Links,
    /// For each TUN device the class it belongs to, if any.
    pub(super) devices: Vec<Option<ClassId>>,
    pub(super) questions: Mailbox<Question<Answer>>,
    pub(super) letters: Mailbox<Letter>,
    /// Of all workers.
    pub(super) letter_slots: Arc<[Slot<Letter>]>,
    pub(super) handoff: Handoff<Handed>,
    /// The hub's addresses that were looked up.
    pub(super) resolved: Arc<Resolved>,
    /// At the first worker.
    pub(super) lead: Option<Lead>,
    /// Why a class has no tunnel, as the journal was told last, and whether the hub says the same
    /// until its operator changes that.
    pub(super) told: BTreeMap<String, (String, bool)>,
    /// The config that the worker went over to last.
    pub(super) running: Arc<Running>,
    /// How many of its tunnels are up.
    pub(super) up: usize,
    pub(super) journal: Journal,
    /// To who asks for certificates.
    pub(super) moves: Sender<NextAuthority>,
}

/// What to do about a hub that does not want this edge.
pub(super) const TURNED_AWAY_HELP: &str = "the hub says so until its operator changes it: have it \
                                           invite this site again, then `sennit join TOKEN --force` \
                                           here; meanwhile it is asked every few minutes";

impl EdgeMachine {
    /// The same reason again is told to nobody who did not ask for it.
    fn tell_refused(&mut self, class: &str, reason: &str, lasting: bool) {
        if self.told.get(class).is_some_and(|(told, _)| told == reason) {
            return tracing::debug!(class, reason, "still not connected");
        }
        let told = (reason.to_owned(), lasting);
        self.told.insert(class.to_owned(), told);
        let help = lasting.then_some(TURNED_AWAY_HELP);
        tracing::warn!(class, reason, help, "not connected");
        self.journal.note(Event::Refused {
            class: class.to_owned(),
            reason: reason.to_owned(),
        });
    }

    fn handle_event(&mut self, event: EdgeEvent, io: &mut Io, now: Instant) {
        match event {
            EdgeEvent::Enrolled(answer) => {
                let lead = self.lead.as_mut();
                if lead.is_some_and(|lead| lead.handle_enrolled(&answer, now)) {
                    self.start_over(io, now);
                }
            }
            EdgeEvent::Addresses(addresses) => match &mut self.lead {
                Some(lead) => lead.handle_addresses(addresses, now),
                None => self.letter_slots[0].post(Letter::Addresses(addresses)),
            },
            EdgeEvent::LanRefused(refused) => match &mut self.lead {
                Some(lead) => lead.handle_lan_refused(refused),
                None => self.letter_slots[0].post(Letter::LanRefused(refused)),
            },
            EdgeEvent::HubInside(addresses) => match &mut self.lead {
                Some(lead) => lead.handle_hub_inside(addresses, now),
                None => self.letter_slots[0].post(Letter::HubInside(addresses)),
            },
            EdgeEvent::Authority(next) => {
                // Without a certificate there is nobody to tell.
                let _ = self.moves.send(next);
            }
            EdgeEvent::TunnelUp {
                class,
                link,
                multipath,
            } => self.note_tunnel_up(&class, &link, multipath, now),
            EdgeEvent::TunnelMoved { class, from, to } => self.note_tunnel_moved(class, from, to),
            EdgeEvent::TunnelDown { class, reason } => self.note_tunnel_down(class, reason, now),
            EdgeEvent::Refused {
                class,
                reason,
                lasting,
            } => self.tell_refused(&class, &reason, lasting),
            EdgeEvent::Path {
                class,
                link,
                state,
                before,
                reason,
                heard,
            } => {
                let silent = now.saturating_duration_since(heard);
                self.note_path((class, link), [before, state], reason, silent);
            }
            EdgeEvent::NewPort { socket, link } => {
                tracing::info!(link, "nothing passes: trying from another port");
                self.links.renew(socket, io);
            }
            EdgeEvent::PathClosed {
                class,
                link,
                reason,
            } => {
                tracing::info!(class, link, reason, "path closed");
            }
        }
    }

    fn note_tunnel_up(&mut self, class: &str, link: &str, multipath: bool, now: Instant) {
        tracing::info!(class, first_link = link, multipath, "tunnel is up");
        self.told.remove(class);
        self.set_up(self.up + 1, now);
        self.journal.note(Event::TunnelUp {
            site: None,
            class: class.to_owned(),
        });
        if !multipath {
            tracing::warn!(
                class,
                "the hub does not speak multipath: one link at a time"
            );
        }
    }

    fn note_tunnel_moved(&mut self, class: String, from: SocketAddr, to: SocketAddr) {
        tracing::info!(class, %from, %to, "the tunnel runs to another address of the hub");
        self.told.remove(&class);
        self.journal.note(Event::TunnelMoved { class, from, to });
    }

    fn note_tunnel_down(&mut self, class: String, reason: String, now: Instant) {
        tracing::warn!(class, reason, "tunnel is down");
        self.told.remove(&class);
        self.set_up(self.up.saturating_sub(1), now);
        self.journal.note(Event::TunnelDown {
            site: None,
            class,
            reason,
        });
    }

    /// Tells the journal of a path that is used from now on, or no longer, and of a failover.
    fn note_path(
        &mut self,
        (class, link): (String, String),
        [before, state]: [PathState; 2],
        reason: health::Reason,
        silent: Duration,
    ) {
        // What happens to a path that is not to be used anyway is of no interest to most.
        if (before == PathState::Up) == (state == PathState::Up) {
            return tracing::debug!(class, link, %state, %reason, "path changed");
        }
        tracing::info!(class, link, %state, %reason, "path changed");
        if state == PathState::Up {
            let site = None;
            return self.journal.note(Event::PathUp { site, class, link });
        }
        let tunnels = self.edge.status();
        let paths = tunnels.iter().filter(|tunnel| tunnel.class == class);
        let paths = paths.flat_map(|tunnel| &tunnel.paths);
        let up = paths.filter(|path| path.state == PathState::Up && path.link.name != link);
        let to: Vec<String> = up.map(|path| path.link.name.clone()).collect();
        // Of what is paused nothing is lost: what was sent there before still arrives.
        let paused = self.links.off(&link);
        let paused = paused.filter(|_| reason == health::Reason::LinkDown);
        let silent_seconds = match paused {
            Some(_) => 0.0,
            None => silent.as_secs_f64(),
        };
        let in_words = paused.map_or_else(|| reason.to_string(), str::to_owned);
        self.journal.note(Event::PathDown {
            site: None,
            class: class.clone(),
            link: link.clone(),
            cause: facts::cause(reason),
            reason: in_words,
            silent_seconds,
        });
        if !to.is_empty() {
            self.journal.note(Event::Failover {
                class,
                from: link,
                to,
                gap_seconds: silent_seconds,
            });
        }
    }

    /// So many of the tunnels of this worker are up: the first has to know of all.
    pub(super) fn set_up(&mut self, up: usize, now: Instant) {
        self.up = up;
        let worker = self.portion.number;
        match &mut self.lead {
            Some(lead) => lead.outlook.handle_tunnels(worker, up, now),
            None => self.letter_slots[0].post(Letter::Tunnels(worker, up)),
        }
    }

    /// Goes on with another config.
    fn change(&mut self, running: &Arc<Running>, io: &mut Io, now: Instant) {
        self.running = Arc::clone(running);
        self.follow_running(now);
        let deeds = (&mut self.edge, &mut *io);
        self.links.change(&running.links, deeds, now);
        if let Some(lead) = &mut self.lead {
            lead.change(running, now);
        }
        self.look(io, now);
    }

    /// Has the engine do what the config says, unless it does.
    pub(super) fn follow_running(&mut self, now: Instant) {
        let portion = self.portion;
        let change = far_side::change(&self.running, |class| portion.has(class));
        self.edge.handle_change(change, now);
    }

    fn tell_resolved(&mut self, now: Instant) {
        for (&socket, hubs) in self.resolved.iter() {
            self.edge.handle_resolved(socket, hubs.clone(), now);
        }
    }

    fn handle_letter(&mut self, letter: Letter, io: &mut Io, now: Instant) {
        match letter {
            Letter::Links(found) => self.links.follow(&found, &mut self.edge, io, now),
            Letter::Look => self.look(io, now),
            Letter::Engine(engine, site) => self.replace((*engine, site), io, now),
            Letter::Identity(identity, done) => {
                let _ = done.send(self.take_up(*identity, io, now));
            }
            Letter::Renewed(identity) => self.renew(*identity),
            Letter::NotRenewed(why) => {
                if let Some(lead) = &mut self.lead {
                    lead.not_renewed = why;
                }
            }
            Letter::Proofs(proofs) => self.prove_by(proofs),
            Letter::Over(over) => self.links.set_over(&over, &mut self.edge, now),
            Letter::Helpers(helpers) => self.links.set_helpers(&helpers, &mut self.edge, now),
            Letter::Change(running, done) => {
                self.change(&running, io, now);
                let _ = done.send(());
            }
            Letter::Addresses(addresses) => {
                if let Some(lead) = &mut self.lead {
                    lead.handle_addresses(addresses, now);
                }
            }
            Letter::Resolved(resolved) => {
                self.resolved = resolved;
                self.tell_resolved(now);
            }
            Letter::Probed(verdicts) => {
                if let Some(lead) = &mut self.lead {
                    lead.outlook.handle_verdicts(verdicts, now);
                }
            }
            Letter::LanRefused(refused) => {
                if let Some(lead) = &mut self.lead {
                    lead.handle_lan_refused(refused);
                }
            }
            Letter::HubInside(addresses) => {
                if let Some(lead) = &mut self.lead {
                    lead.handle_hub_inside(addresses, now);
                }
            }
            Letter::Tunnels(worker, up) => {
                if let Some(lead) = &mut self.lead {
                    lead.outlook.handle_tunnels(worker, up, now);
                }
            }
        }
    }

    fn handle_handed(&mut self, handed: &Handed, now: Instant) {
        let Handed {
            class,
            header,
            packet,
        } = handed;
        let origin = Origin::Sorted(*class);
        let taken = self.edge.handle_packet(header, packet, origin, now);
        self.handoff.counters.unowned += u64::from(taken.is_err());
    }

    /// What an operator should know beside the state of links and tunnels.
    fn notes(&self) -> Vec<String> {
        let Some(lead) = &self.lead else {
            return Vec::new();
        };
        let alone = "the hub does not know how classes share links: shares and limits hold for what \
                     this edge sends, and not for what it receives";
        let alone = self.edge.shares_alone().then(|| alone.to_owned());
        let caps = self.links.notes();
        lead.notes().into_iter().chain(alone).chain(caps).collect()
    }

    /// With what the hub turns this edge away.
    fn refusal(&self) -> Option<&str> {
        let mut lasting = self.told.values().filter(|(_, lasting)| *lasting);
        lasting.next().map(|(reason, _)| reason.as_str())
    }

    fn answer(&mut self, request: &Request, io: &mut Io, now: Instant) -> Answer {
        if let Request::Link { link, order } = request
            && let Some(index) = self.links.position(link)
        {
            let deeds = (&mut self.edge, &mut *io);
            self.links.handle_order(index, *order, deeds, now);
        }
        let io = &*io;
        let wanted = facts::wanted_flows(request);
        let local = |socket: SocketId, remote: IpAddr| io.socket_address(socket, remote);
        let tunnels = self.edge.status_with_flows(&wanted, now);
        let seen = Seen::new(tunnels, self.edge.links(), local, now);
        let lead = self.lead.as_ref();
        let mut links = lead.map_or_else(Vec::new, |_| self.links.status(now));
        if let Some(lead) = lead {
            lead.outlook.describe(&mut links, now);
        }
        Answer {
            site: self.site.clone(),
            notes: self.notes(),
            verdict: lead.and_then(|lead| lead.outlook.verdict(&links, &self.resolved, now)),
            refusal: self.refusal().map(str::to_owned),
            certificate: lead.and_then(Lead::certificate),
            hub_inside: lead.map_or_else(Vec::new, |lead| lead.hub_inside.clone()),
            addresses: lead.map_or_else(Vec::new, |lead| {
                lead.addresses.iter().map(Prefix::first).collect()
            }),
            refused: self.edge.refused_lan().to_vec(),
            links: links.into_iter().map(|(_, link)| link).collect(),
            refusals: self.links.refusals(now),
            standings: self.links.standings(),
            worker: self.handoff.counters.status(seen.len(), self.edge.woken()),
            seen,
        }
    }
}

impl Machine for EdgeMachine {
    /// The first keeps the certificate that the hub signs.
    const WRITES: bool = true;

    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        self.edge.handle_datagrams(from, data, now);
    }

    fn handle_packet(&mut self, tun: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        // What another worker read of the same flow was there first.
        for handed in self.handoff.take_early() {
            self.handle_handed(&handed, now);
        }
        let device = self.devices.get(tun).copied().flatten();
        let origin = device.map_or(Origin::Main, Origin::Device);
        let Err(NotOurClass(class)) = self.edge.handle_packet(header, packet, origin, now) else {
            return;
        };
        // Of ours there are none while there is no certificate.
        if !self.portion.has(class) {
            let handed = Handed {
                class,
                header: *header,
                packet: Bytes::copy_from_slice(packet),
            };
            self.handoff.hand(self.portion.owner(class), handed);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.edge.handle_timeout(now);
    }

    fn handle_ready(&mut self, token: u64, io: &mut Io, now: Instant) {
        match token {
            QUESTIONS => {
                self.questions.acknowledge();
                while let Some(question) = self.questions.next() {
                    let report = self.answer(&question.request, io, now);
                    question.answer(report);
                }
            }
            LETTERS => {
                self.letters.acknowledge();
                while let Some(letter) = self.letters.next() {
                    self.handle_letter(letter, io, now);
                }
            }
            HANDOFF => {
                for handed in self.handoff.take() {
                    self.handle_handed(&handed, now);
                }
            }
            MONITOR => self.handle_kernel(io, now),
            _ => {}
        }
    }

    fn digest(&mut self, io: &mut Io, now: Instant) {
        while let Some(event) = self.edge.poll_event(now) {
            self.handle_event(event, io, now);
        }
        for (socket, error) in io.take_refusals() {
            self.links.handle_refusal(socket.0 as usize, &error, now);
        }
        self.links.handle_timeout(&mut self.edge, io, now);
        self.look_after_host(io, now);
        if let Some(lead) = &mut self.lead {
            if lead.outlook.is_to_follow(now) {
                lead.outlook.follow(&self.edge.unanswered_links(), now);
            }
            lead.outlook
                .look(&self.resolved, &self.letter_slots[0], &lead.host, now);
        }
        let lead = self.lead.as_ref();
        if lead.is_some_and(|lead| lead.is_due(now)) {
            self.start_over(io, now);
        }
        self.handoff.wake_others();
    }

    fn poll_packet(&mut self, _: Instant) -> Option<(usize, Packet)> {
        let (class, packet) = self.edge.poll_packet()?;
        let own = |device: &Option<ClassId>| *device == Some(class);
        Some((self.devices.iter().position(own).unwrap_or(0), packet))
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.edge.poll_transmit(buffer, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let lead = self.lead.as_ref().and_then(Lead::poll_timeout);
        let own = self.edge.poll_timeout().map(|due| due.at);
        own.into_iter()
            .chain(lead)
            .chain(self.links.poll_timeout())
            .min()
    }

    fn tunnels(&self) -> usize {
        self.edge.tunnels()
    }

    fn close(&mut self, now: Instant) {
        self.edge.close(now);
    }
}
