//! The thread of a hub that decides who is let in, and what may be behind whom.
//!
//! It owns the store and the authority's key, and tells the host about routes and what may pass, so
//! that neither a slow disk nor a signature nor the kernel's tables ever hold up a packet. A worker
//! asks it and goes on; the answer comes by that worker's mailbox. So many may wait for an answer
//! and no more, and between two answers it looks after what nobody waits for: credentials that are
//! not good any more, and the LANs of sites ([`lans`]).

mod change;
mod clock;
mod confined;
mod health;
mod lans;
pub(super) mod query;
mod rotation;
pub(super) mod targets;
mod udp;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustls::pki_types::CertificateDer;
use sennit_engine::{Grant, RequestId};
use sennit_linux::Lost;
use sennit_packet::Prefix;

use super::{
    condition::Condition,
    directory::{Announced, Directory},
    gateway::Gateway,
    relay::window::Order,
};
use crate::{
    config::HubConfig,
    daemon::{mailbox::Slot, worker::Lifeline},
    exit::Failure,
    identity::{self, Admission, Authority, Mark, Proof, Refusal, Tickets, Trust},
    journal::{Event, Journal},
    lan::Host,
    reach::Reach,
    site::SiteName,
    store::{Lease, Store, StoreError},
};
use clock::Clock;
use lans::Lans;
pub(super) use query::{Asker, Query, Verdict};
use targets::LookUps;

/// How often the store is looked at for what another process wrote, and credentials for their end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is routed to sites is decided so often at most: all of them are looked at then, and a fleet
/// that comes at once announces as many changes within seconds.
const DECIDE_EVERY: Duration = Duration::from_millis(150);
/// How often the store is told who is here, and the host is asked for its addresses and routes: the
/// first is a write to a disk, and the others change by the minute at most.
const NOTE_EVERY: Duration = Duration::from_secs(30);
/// Requests that may wait. A fleet that reconnects asks again; each takes about a millisecond, so
/// more of them would wait for longer than an edge does.
const MAX_WAITING: usize = 1024;

/// Whom the registrar talks to.
pub(super) struct Neighbours {
    /// Of each worker.
    pub(super) verdicts: Arc<[Slot<Verdict>]>,
    pub(super) directory: Arc<Directory>,
    /// For those who ask how the hub stands.
    pub(super) condition: Arc<Condition>,
    /// Weak, so that nothing is left on the host however the daemon ends.
    pub(super) gateway: Weak<Gateway>,
    pub(super) journal: Journal,
    /// What workers show and believe in handshakes.
    pub(super) trust: Arc<Trust>,
    /// Who has the sockets of proxied UDP, if any is.
    pub(super) relay: Option<Slot<Order>>,
}

struct Registrar {
    store: Store,
    /// The present one, and the former while it is rotated.
    authorities: Vec<Authority>,
    /// Of which state of their files these are.
    mark: Option<Mark>,
    /// Sites that hold only the former one.
    behind: usize,
    config: Arc<HubConfig>,
    tickets: Arc<Tickets>,
    neighbours: Neighbours,
    generation: i64,
    /// Something that followed from a change could not be done, and is tried again then.
    is_behind: bool,
    retry_at: Instant,
    /// How often that was in vain.
    tries: u32,
    /// What tunnels were granted to; those that have ended stay until they are not good any more.
    admitted: BTreeMap<Proof, Admission>,
    /// Sites that are revoked, as the journal has heard or was so before the start.
    revoked: BTreeSet<SiteName>,
    /// Sites that may reach something else than the config says of all, and their addresses.
    confined: BTreeMap<SiteName, (Vec<Prefix>, Reach)>,
    /// Revoked sites that were confined, and their addresses: they reach nothing until workers have
    /// cut their tunnels.
    departing: BTreeMap<SiteName, Vec<Prefix>>,
    /// What those may reach by name, also without an address in the tunnel.
    reaches: BTreeMap<String, Reach>,
    lans: Lans,
    /// Sites have announced something else since that was decided on, which may be done again from
    /// this time on.
    is_undecided: bool,
    decide_from: Instant,
    /// What nobody may announce.
    host: Host,
    /// What is behind nobody unless it was granted by itself.
    networks: Vec<crate::config::Prefix>,
    look_ups: LookUps,
    clock: Clock,
    next_look: Instant,
    next_note: Instant,
    /// What was put back on the host and the journal was not told of, and when it was told last.
    untold: Lost,
    told_lost: Option<Instant>,
}

/// Starts the thread; it ends when the last sender is dropped.
pub(super) fn start(
    store: Store,
    authorities: Vec<Authority>,
    config: Arc<HubConfig>,
    tickets: Arc<Tickets>,
    neighbours: Neighbours,
    lifeline: Lifeline,
) -> Result<SyncSender<Query>, Failure> {
    let mut registrar = Registrar::new(store, authorities, config, tickets, neighbours)?;
    let state = &registrar.config.state;
    identity::reconcile(state, &mut registrar.store, SystemTime::now())?;
    registrar.learn_host().map_err(Failure::from)?;
    registrar.learn_confined(SystemTime::now())?;
    registrar.apply_filter().map_err(Failure::from)?;
    registrar.note_rotation(SystemTime::now());
    // What is not found out now is asked for again when the store was written.
    registrar.tell_of_authority();
    let (sender, queries) = mpsc::sync_channel(MAX_WAITING);
    let run = move || {
        let _lifeline = lifeline;
        loop {
            match queries.recv_timeout(registrar.idle_for(Instant::now())) {
                Ok(query) => registrar.answer(query),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            registrar.attend(Instant::now());
        }
    };
    let thread = thread::Builder::new().name("registrar".into()).spawn(run);
    thread.map_err(Failure::runtime)?;
    Ok(sender)
}

impl Registrar {
    fn new(
        store: Store,
        authorities: Vec<Authority>,
        config: Arc<HubConfig>,
        tickets: Arc<Tickets>,
        neighbours: Neighbours,
    ) -> Result<Self, StoreError> {
        let now = Instant::now();
        Ok(Self {
            generation: store.generation()?,
            revoked: confined::revoked(&store.sites(SystemTime::now())?).collect(),
            store,
            authorities,
            mark: None,
            behind: 0,
            config,
            tickets,
            neighbours,
            is_behind: false,
            retry_at: now,
            tries: 0,
            admitted: BTreeMap::new(),
            confined: BTreeMap::new(),
            departing: BTreeMap::new(),
            reaches: BTreeMap::new(),
            lans: Lans::default(),
            is_undecided: false,
            decide_from: now,
            host: Host::default(),
            networks: Vec::new(),
            look_ups: LookUps::default(),
            clock: Clock::new(SystemTime::now(), now),
            next_look: now + LOOK_EVERY,
            next_note: now + NOTE_EVERY,
            untold: Lost::default(),
            told_lost: None,
        })
    }

    // ---- what is asked -------------------------------------------------------------------------

    fn answer(&mut self, query: Query) {
        let now = SystemTime::now();
        match query {
            Query::Connect {
                worker,
                request,
                certificates,
                bearer,
                moves,
            } => {
                let peer = (&certificates[..], bearer.as_deref(), moves);
                let verdict = self.answer_connect(request, peer, now);
                self.neighbours.verdicts[worker].post(verdict);
            }
            Query::Enrol {
                worker,
                request,
                certificates,
                body,
            } => {
                let verdict = self.answer_enrol(request, &certificates, &body, now);
                self.neighbours.verdicts[worker].post(verdict);
            }
            Query::Udp {
                asker,
                target,
                back,
            } => self.answer_udp(asker, target, back, now),
            Query::Found { asker, port, found } => self.answer_found(&asker, port, found, now),
            // Whoever left because it is shut out keeps nothing.
            Query::Announced => self.look_for_changes(now),
            Query::Change {
                config,
                relay,
                answer,
            } => {
                // Whoever asked may not wait any more.
                let _ = answer.send(self.change(config, relay, now));
            }
        }
    }

    fn answer_connect(
        &mut self,
        request: RequestId,
        (certificates, bearer, moves): (&[CertificateDer<'static>], Option<&str>, bool),
        now: SystemTime,
    ) -> Verdict {
        // Whoever is shut out by now goes before its address is somebody else's.
        self.look_for_changes(now);
        match self.admit(certificates, bearer, now) {
            Ok(mut grant) => {
                grant.next = self.next_for(&grant, moves, now);
                Verdict::Grant(request, grant)
            }
            Err(refusal) => {
                log(&refusal, "peer refused");
                Verdict::Refuse(request, refusal.http_status(), refusal.to_string())
            }
        }
    }

    fn answer_enrol(
        &mut self,
        request: RequestId,
        certificates: &[CertificateDer<'static>],
        body: &[u8],
        now: SystemTime,
    ) -> Verdict {
        let store = &mut self.store;
        let exchange = identity::exchange(store, &self.authorities, certificates, body, now);
        match exchange.outcome {
            Ok(site) => {
                tracing::info!(%site, "certificate issued");
                self.neighbours.journal.note(Event::CertificateIssued {
                    site: site.to_string(),
                });
                self.note_shown(certificates, now);
                self.review(now, |admission| admission.site == site);
                Verdict::Reply(request, exchange.body.into())
            }
            Err(refusal) => {
                log(&refusal, "enrolment refused");
                Verdict::Refuse(request, refusal.http_status(), refusal.to_string())
            }
        }
    }

    fn admit(
        &mut self,
        certificates: &[CertificateDer<'static>],
        bearer: Option<&str>,
        now: SystemTime,
    ) -> Result<Grant, Refusal> {
        let admission = self.recognize(certificates, bearer, now)?;
        let site = &admission.site;
        let lease = self.lease(site)?;
        if self.is_still_used(site, lease) {
            return Err(Refusal::AddressInUse);
        }
        let record = self.store.site(site, now)?;
        if record.seen.is_none() {
            // Later visits are noted by the minute.
            self.store.saw(&[(site.clone(), Vec::new())], now)?;
        }
        let was_confined = self.confined.contains_key(site);
        self.confine(&record);
        if was_confined || self.confined.contains_key(site) {
            // Before it can send anything, and however often that has failed.
            self.apply_filter().map_err(Refusal::CannotConfine)?;
        } else if !self.config.reach.is_everything() {
            self.hold_filter().map_err(Refusal::CannotConfine)?;
        }
        let grant = Grant {
            site: site.as_str().into(),
            addresses: addresses(lease),
            credential: *admission.proof.digest(),
            next: None,
        };
        self.admitted.insert(admission.proof, admission);
        Ok(grant)
    }

    /// Who a peer is, by its certificate or its token.
    fn recognize(
        &self,
        certificates: &[CertificateDer<'static>],
        bearer: Option<&str>,
        now: SystemTime,
    ) -> Result<Admission, Refusal> {
        match bearer {
            Some(token) if certificates.is_empty() => {
                identity::authorize_bearer(&self.store, token, now)
            }
            _ => identity::authorize(&self.store, certificates, now),
        }
    }

    // ---- what nobody asks for ------------------------------------------------------------------

    fn idle_for(&self, now: Instant) -> Duration {
        let decide_from = Some(self.decide_from).filter(|_| self.is_undecided);
        let due = [Some(self.next_look), self.lans.poll_timeout(), decide_from];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_look);
        next.saturating_duration_since(now)
    }

    fn attend(&mut self, now: Instant) {
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            let wall = SystemTime::now();
            self.tickets.rotate(wall);
            self.look_after_authority(wall);
            self.look_for_changes(wall);
            if self.is_behind && now >= self.retry_at {
                self.follow_changes(wall);
            }
            self.forget_departed();
            self.look_after_host();
            self.neighbours.condition.settle(now);
            let time = self.clock.time(wall, now);
            self.review(wall, |admission| {
                admission.expires.is_some_and(|at| time >= at)
            });
        }
        if now >= self.next_note {
            self.next_note = now + NOTE_EVERY;
            if let Err(error) = self.learn_host() {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot list the addresses of the host");
            }
            self.note_who_is_here();
            self.note_rotation(SystemTime::now());
            // An address of the hub or of a site may be in somebody's way now, or no longer.
            self.decide_lans();
        }
        let directory = &self.neighbours.directory;
        let admitted = &self.admitted;
        let may_come_back = |site: &str| admitted.values().any(|it| it.site.as_str() == site);
        let announced = |site: &str| match directory.announced(site) {
            None if !may_come_back(site) => Some(Announced::default()),
            announced => announced,
        };
        self.is_undecided |= self.lans.take(directory.take_changed(), announced, now);
        if now >= self.decide_from && std::mem::take(&mut self.is_undecided) {
            self.decide_from = now + DECIDE_EVERY;
            self.decide_lans();
        }
        for known in self.lans.take_untold() {
            self.tell(&known);
        }
    }

    /// Does what follows from what another process wrote.
    fn look_for_changes(&mut self, now: SystemTime) {
        let generation = match self.store.generation() {
            Ok(generation) => generation,
            Err(error) => {
                tracing::warn!(%error, "cannot look into the store");
                return self.note_reading(Some(&error));
            }
        };
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.follow_changes(now);
        }
    }

    fn follow_changes(&mut self, now: SystemTime) {
        self.is_behind = false;
        self.review(now, |_| true);
        match self.learn_confined(now) {
            Ok(sites) => self.is_behind |= !self.decide_lans_of(sites),
            Err(error) => {
                tracing::warn!(%error, "cannot list the sites");
                self.is_behind = true;
            }
        }
        self.is_behind |= !self.tell_of_authority();
        self.change_relay();
        self.tries = if self.is_behind { self.tries + 1 } else { 0 };
        // At the next look, and then after ever more of them.
        let looks = (1 << self.tries.min(5)) / 2;
        self.retry_at = self.next_look + LOOK_EVERY * (looks.max(1) - 1);
    }

    /// Ends what hangs on credentials that are not good any more, of those that `concerns` names.
    fn review(&mut self, now: SystemTime, concerns: impl Fn(&Admission) -> bool) {
        let now = self.clock.time(now, Instant::now());
        let admitted = std::mem::take(&mut self.admitted);
        let mut is_answered = true;
        for (proof, admission) in admitted {
            let standing = if is_answered && concerns(&admission) {
                identity::reauthorize(&self.store, &proof, now)
            } else {
                Ok(admission.clone())
            };
            match standing {
                Ok(admission) => {
                    self.admitted.insert(proof, admission);
                }
                // It is asked again later, and so are the others.
                Err(refusal) if refusal.is_transient() => {
                    log(&refusal, "cannot review the sites");
                    (self.is_behind, is_answered) = (true, false);
                    self.admitted.insert(proof, admission);
                }
                Err(refusal) => self.expel(&admission, &refusal),
            }
        }
    }

    fn expel(&mut self, admission: &Admission, refusal: &Refusal) {
        tracing::info!(site = %admission.site, reason = %refusal, code = refusal.code(), "expelled");
        self.tell_of_expelled(&admission.site, refusal);
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Expel {
                credential: *admission.proof.digest(),
                reason: refusal.to_string(),
            });
        }
        if let Some(relay) = &self.neighbours.relay {
            // A flow that was granted just now is ended by who grants it.
            relay.post(Order::Expel(*admission.proof.digest()));
        }
        // It may be away, and its LAN kept for it.
        self.lans.look_at(admission.site.as_str());
    }
}

fn addresses(lease: Lease) -> Vec<IpAddr> {
    let v4 = lease.v4.map(IpAddr::V4).into_iter();
    v4.chain(lease.v6.map(IpAddr::V6)).collect()
}

/// The log also says what the peer is not told: what is wrong with this hub.
fn log(refusal: &Refusal, what: &str) {
    let cause = std::error::Error::source(refusal).map(ToString::to_string);
    tracing::warn!(reason = %refusal, code = refusal.code(), cause, "{what}");
}

#[cfg(test)]
mod tests;
