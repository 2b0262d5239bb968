//! One worker's engine with its events turned into deeds.

mod telling;

use std::{
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError},
    },
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use rustls::pki_types::CertificateDer;
use sennit_core::{ClassId, PathState, health};
use sennit_engine::{Hub, HubEvent, NoSuchSite, Packet, Received, RequestId, SiteId, Transmit};
use sennit_masque::connect_udp::Target;
use sennit_packet::gso::VirtioNetHdr;

use self::telling::Telling;
use super::{
    Announced, Answer, Directory, HANDOFF, QUESTIONS, RELAYED, VERDICTS,
    owners::Owners,
    registrar::{Asker, Query, Verdict, targets},
    relay::Window,
};
use crate::{
    daemon::{
        facts,
        handoff::Handoff,
        mailbox::{Mailbox, Question, Slot},
        worker::{Io, Machine},
    },
    journal::{Event, Journal},
};

/// A thing that was found at the wrong worker.
#[derive(Debug)]
pub(super) enum Handed {
    /// From the TUN device, perhaps a super-packet.
    Packet { header: VirtioNetHdr, packet: Bytes },
    /// From a socket.
    Datagrams { from: Received, data: BytesMut },
}

pub(super) struct HubMachine {
    pub(super) hub: Hub,
    /// Which worker it is.
    pub(super) number: usize,
    pub(super) directory: Arc<Directory>,
    pub(super) queries: SyncSender<Query>,
    pub(super) questions: Mailbox<Question<Answer>>,
    /// A question that is answered in several turns.
    pub(super) telling: Option<Telling>,
    pub(super) verdicts: Mailbox<Verdict>,
    /// Of all workers.
    pub(super) verdict_slots: Arc<[Slot<Verdict>]>,
    pub(super) handoff: Handoff<Handed>,
    pub(super) journal: Journal,
    /// Towards the sockets of proxied UDP, if any is.
    pub(super) window: Option<Window>,
}

impl HubMachine {
    fn handle_event(&mut self, event: HubEvent, now: Instant) {
        match event {
            HubEvent::Connect {
                request,
                certificates,
                bearer,
                moves,
            } => self.handle_connect(request, (certificates, bearer, moves), now),
            HubEvent::Enrol {
                request,
                certificates,
                body,
            } => self.handle_enrol(request, certificates, body, now),
            HubEvent::Udp {
                request,
                certificates,
                bearer,
                target,
            } => self.handle_udp(request, (certificates, bearer), target, now),
            HubEvent::UdpPayload { request, payload } => {
                if let Some(window) = &mut self.window {
                    window.leave(request, payload);
                }
            }
            HubEvent::UdpEnded { request } => self.close_flow(request),
            HubEvent::TunnelUp {
                site,
                class,
                class_id,
                addresses,
            } => self.note_tunnel_up((site, class), class_id, &addresses),
            HubEvent::TunnelDown {
                site,
                class,
                class_id,
                reason,
            } => self.note_tunnel_down((site, class), class_id, reason),
            HubEvent::Lan {
                site,
                prefixes,
                left_out,
            } => {
                let announced = Announced { prefixes, left_out };
                self.directory
                    .announce(self.number, site.as_str(), announced);
                self.tell_announced();
            }
            HubEvent::Path {
                site,
                class,
                link,
                state,
                before,
                reason,
                heard,
            } => {
                self.note_path((site, class, link), [before, state], (reason, heard), now);
            }
        }
    }

    fn handle_connect(
        &mut self,
        request: RequestId,
        (certificates, bearer, moves): (Vec<CertificateDer<'static>>, Option<String>, bool),
        now: Instant,
    ) {
        let query = Query::Connect {
            worker: self.number,
            request,
            certificates,
            bearer,
            moves,
        };
        self.ask(request, query, now);
    }

    fn handle_enrol(
        &mut self,
        request: RequestId,
        certificates: Vec<CertificateDer<'static>>,
        body: Bytes,
        now: Instant,
    ) {
        let query = Query::Enrol {
            worker: self.number,
            request,
            certificates,
            body,
        };
        self.ask(request, query, now);
    }

    fn handle_udp(
        &mut self,
        request: RequestId,
        (certificates, bearer): (Vec<CertificateDer<'static>>, Option<String>),
        target: Target,
        now: Instant,
    ) {
        let asker = Asker {
            worker: self.number,
            request,
            certificates,
            bearer,
        };
        let query = Query::Udp {
            asker,
            target,
            back: self.queries.clone(),
        };
        if self.queries.try_send(query).is_err() {
            let refusal = targets::refused(503, "proxy_internal_response", "the hub is busy");
            self.hub.refuse_udp(request, &refusal, now);
        }
    }

    fn note_tunnel_up(
        &mut self,
        (site, class): (SiteId, String),
        class_id: ClassId,
        addresses: &[IpAddr],
    ) {
        tracing::info!(%site, class, worker = self.number, "tunnel is up");
        let directory = &self.directory;
        let lost = directory.enter(self.number, site.as_str(), class_id, addresses);
        for (class, old) in lost {
            self.verdict_slots[old].post(Verdict::Replace {
                site: site.clone(),
                class,
            });
        }
        self.note_outer(&site);
        let site = Some(site.to_string());
        self.journal.note(Event::TunnelUp { site, class });
    }

    fn note_tunnel_down(
        &mut self,
        (site, class): (SiteId, String),
        class_id: ClassId,
        reason: String,
    ) {
        tracing::info!(%site, class, reason, "tunnel is down");
        if self.directory.leave(self.number, site.as_str(), class_id) {
            self.tell_announced();
        }
        self.journal.note(Event::TunnelDown {
            site: Some(site.to_string()),
            class,
            reason,
        });
    }

    /// A path came or went, and when it was last heard.
    fn note_path(
        &mut self,
        (site, class, link): (SiteId, String, String),
        [before, state]: [PathState; 2],
        (reason, heard): (health::Reason, Instant),
        now: Instant,
    ) {
        self.note_outer(&site);
        // What happens to a path that is not to be used anyway is of no interest to most.
        if (before == PathState::Up) == (state == PathState::Up) {
            return tracing::debug!(%site, class, link, %state, %reason, "path changed");
        }
        tracing::info!(%site, class, link, %state, %reason, "path changed");
        let site = Some(site.to_string());
        self.journal.note(if state == PathState::Up {
            Event::PathUp { site, class, link }
        } else {
            Event::PathDown {
                site,
                class,
                link,
                cause: facts::cause(reason),
                reason: reason.to_string(),
                silent_seconds: now.saturating_duration_since(heard).as_secs_f64(),
            }
        });
    }

    /// Asks the registrar, unless so many are waiting for it that nobody would wait for the answer.
    fn ask(&mut self, request: RequestId, query: Query, now: Instant) {
        match self.queries.try_send(query) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.hub.refuse(request, 503, "the hub is busy", now);
            }
            Err(TrySendError::Disconnected(_)) => {
                tracing::error!("the registrar is gone; nobody can be let in");
            }
        }
    }

    /// Lets the registrar look into the directory.
    fn tell_announced(&self) {
        // If there is no room, it is awake and will see it.
        let _ = self.queries.try_send(Query::Announced);
    }

    fn close_flow(&self, request: RequestId) {
        if let Some(window) = &self.window {
            window.close(request);
        }
    }

    /// Hands on what came from the targets of proxied UDP.
    fn handle_relayed(&mut self) {
        let payloads = self.window.as_ref().map_or_else(Vec::new, Window::take);
        for (request, payload) in payloads {
            self.hub.send_udp(request, &payload);
        }
    }

    fn note_outer(&self, site: &SiteId) {
        let addresses = self.hub.outer_addresses(site);
        self.directory
            .set_outer(self.number, site.as_str(), addresses);
    }

    fn handle_verdict(&mut self, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Grant(request, grant) => self.hub.grant(request, grant, now),
            Verdict::Refuse(request, status, reason) => {
                self.hub.refuse(request, status, &reason, now);
            }
            Verdict::Reply(request, body) => self.hub.reply(request, 200, body, now),
            Verdict::GrantUdp(request, credential) => {
                if !self.hub.grant_udp(request, credential) {
                    self.close_flow(request);
                }
            }
            Verdict::RefuseUdp(request, refusal) => self.hub.refuse_udp(request, &refusal, now),
            Verdict::EndUdp(request) => self.hub.end_udp(request, now),
            Verdict::Expel { credential, reason } => {
                self.hub.expel_credential(&credential, &reason, now);
            }
            Verdict::Offer(credential, next) => self.hub.offer_authority(&credential, next),
            Verdict::Lan { site, lan, refused } => self.hub.set_lan(&site, &lan, &refused),
            Verdict::Replace { site, class } => self.replace(&site, class, now),
            Verdict::Change {
                config,
                window,
                done,
            } => {
                self.hub.change(*config, now);
                self.window = window.or(self.window.take());
                // Whoever asked may not wait any more.
                let _ = done.send(());
            }
        }
    }

    /// The other worker's tunnel was newer when it said so; ours may be newer still.
    fn replace(&mut self, site: &SiteId, class: ClassId, now: Instant) {
        if !self.directory.has(self.number, site.as_str(), class) {
            self.hub.replace(site, class, now);
        }
    }

    fn handle_handed(&mut self, handed: Handed, now: Instant) {
        match handed {
            Handed::Packet { header, packet } => {
                let taken = self.hub.offer_packet(&header, &packet, now);
                self.handoff.counters.unowned += u64::from(taken.is_err());
            }
            Handed::Datagrams { from, data } => self.hub.handle_datagrams(from, data, now),
        }
    }
}

impl Machine for HubMachine {
    fn handle_datagrams(&mut self, from: Received, data: BytesMut, now: Instant) {
        let owners = Owners {
            here: self.number,
            workers: self.verdict_slots.len(),
        };
        if owners.all_here(&data, from.segment) {
            return self.hub.handle_datagrams(from, data, now);
        }
        for (owner, data) in owners.runs(data, from.segment) {
            if owner == self.number {
                self.hub.handle_datagrams(from, data, now);
            } else {
                self.handoff.hand(owner, Handed::Datagrams { from, data });
            }
        }
    }

    fn handle_packet(&mut self, _: usize, header: &VirtioNetHdr, packet: &[u8], now: Instant) {
        // What another worker read of the same flow was there first.
        for handed in self.handoff.take_early() {
            self.handle_handed(handed, now);
        }
        let Err(NoSuchSite(destination)) = self.hub.offer_packet(header, packet, now) else {
            return;
        };
        match self.directory.worker_of(destination) {
            Some(worker) if worker != self.number => {
                let handed = Handed::Packet {
                    header: *header,
                    packet: Bytes::copy_from_slice(packet),
                };
                self.handoff.hand(worker, handed);
            }
            Some(_) | None => self.hub.handle_unreachable(packet, now),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.hub.handle_timeout(now);
    }

    fn handle_ready(&mut self, token: u64, _: &mut Io, now: Instant) {
        match token {
            QUESTIONS => {
                self.questions.acknowledge();
                self.tell_on(now);
            }
            VERDICTS => {
                self.verdicts.acknowledge();
                while let Some(verdict) = self.verdicts.next() {
                    self.handle_verdict(verdict, now);
                }
            }
            HANDOFF => {
                for handed in self.handoff.take() {
                    self.handle_handed(handed, now);
                }
            }
            RELAYED => self.handle_relayed(),
            _ => {}
        }
    }

    fn digest(&mut self, _: &mut Io, now: Instant) {
        while let Some(event) = self.hub.poll_event(now) {
            self.handle_event(event, now);
        }
        self.handoff.wake_others();
        if let Some(window) = &mut self.window {
            window.tell();
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<(usize, Packet)> {
        Some((0, self.hub.poll_packet(now)?))
    }

    fn poll_transmit(&mut self, buffer: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.hub.poll_transmit(buffer, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.hub.poll_timeout().map(|due| due.at)
    }

    fn tunnels(&self) -> usize {
        self.hub.tunnels()
    }

    fn close(&mut self, now: Instant) {
        self.hub.close(now);
    }
}

#[cfg(test)]
mod tests;
