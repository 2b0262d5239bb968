//! The thread of a hub that decides who is let in, and what may be behind whom.
//!
//! It owns the store and the authority's key, and tells the host about routes and what may pass, so
//! that neither a slow disk nor a signature nor the kernel's tables ever hold up a packet. A worker
//! asks it and goes on; the answer comes by that worker's mailbox. So many may wait for an answer
//! and no more, and between two answers it looks after what nobody waits for: credentials that are
//! not good any more, and the LANs of sites ([`lans`]).

mod change;
mod lans;
pub(in crate::daemon) mod targets;
mod udp;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use sennit_core::ClassId;
use sennit_engine::{Credential, Grant, HubConfig as HubChange, RequestId, UdpRefusal};
use sennit_masque::connect_udp::Target;
use sennit_packet::Prefix;

use super::{
    hub::{
        Announced, Directory, Gateway, Plan,
        relay::{Order, Window},
    },
    lines::{Allowance, Lines},
    mailbox::Slot,
    reload::Done,
    worker::Lifeline,
};
use crate::{
    cli::Failure,
    config::HubConfig,
    identity::{self, Admission, Authority, Proof, Refusal, Tickets},
    journal::{Event, Journal},
    lan::Host,
    reach::Reach,
    site::SiteName,
    store::{Lease, SiteRecord, Store},
};
use lans::Lans;
use targets::LookUps;

/// How often the store is looked at for what another process wrote, and credentials for their end.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the store is told who is here, and the host is asked for its addresses and routes: the
/// first is a write to a disk, and the others change by the minute at most.
const NOTE_EVERY: Duration = Duration::from_secs(30);
/// Requests that may wait. A fleet that reconnects asks again; each takes about a millisecond, so
/// more of them would wait for longer than an edge does.
const MAX_WAITING: usize = 1024;
/// Refusals that the log is told of in a minute: more than the edges of one hub that were revoked
/// by mistake make, and few enough that a day of a flood is no more than 30,000 lines.
const REFUSALS: u32 = 20;

/// What a worker wants to know.
#[derive(Debug)]
pub(super) enum Query {
    /// May this peer have a tunnel?
    Connect {
        worker: usize,
        request: RequestId,
        certificates: Vec<CertificateDer<'static>>,
        bearer: Option<String>,
    },
    /// May this peer have a certificate?
    Enrol {
        worker: usize,
        request: RequestId,
        certificates: Vec<CertificateDer<'static>>,
        body: Bytes,
    },
    /// May this peer have UDP proxied to that target?
    Udp {
        worker: usize,
        request: RequestId,
        certificates: Vec<CertificateDer<'static>>,
        bearer: Option<String>,
        target: Target,
    },
    /// The directory has news of what sites announce.
    Announced,
    /// Another config; whether it holds, and otherwise nothing has changed.
    Change {
        config: Arc<HubConfig>,
        /// Who has the sockets of proxied UDP by now.
        relay: Option<Slot<Order>>,
        answer: Sender<Result<(), Failure>>,
    },
}

/// What the registrar decided.
#[derive(Debug)]
pub(super) enum Verdict {
    Grant(RequestId, Grant),
    Refuse(RequestId, u16, String),
    Reply(RequestId, Bytes),
    GrantUdp(RequestId, Credential),
    RefuseUdp(RequestId, UdpRefusal),
    /// A flow has idled for too long.
    EndUdp(RequestId),
    /// What hangs on this is to end.
    Expel {
        credential: Credential,
        reason: String,
    },
    /// What is routed to a site, and what of its announcement is not.
    Lan {
        site: String,
        lan: Vec<Prefix>,
        refused: Vec<(Prefix, String)>,
    },
    /// Another worker has a newer tunnel for this class of a site; this comes from that worker.
    Replace {
        site: String,
        class: ClassId,
    },
    /// Another config; to be told when it is done.
    Change {
        config: Box<HubChange>,
        /// Towards the sockets of proxied UDP, if there are some just now.
        window: Option<Window>,
        done: Done,
    },
}

/// Whom the registrar talks to.
pub(super) struct Neighbours {
    /// Of each worker.
    pub(super) verdicts: Arc<[Slot<Verdict>]>,
    pub(super) directory: Arc<Directory>,
    /// Weak, so that nothing is left on the host however the daemon ends.
    pub(super) gateway: Weak<Gateway>,
    pub(super) journal: Journal,
    /// Who has the sockets of proxied UDP, if any is.
    pub(super) relay: Option<Slot<Order>>,
}

struct Registrar {
    store: Store,
    authority: Authority,
    config: Arc<HubConfig>,
    tickets: Arc<Tickets>,
    neighbours: Neighbours,
    generation: i64,
    /// What tunnels were granted to; those that have ended stay until they are not good any more.
    admitted: BTreeMap<Proof, Admission>,
    /// Sites that may reach something else than the config says of all, and their addresses.
    confined: BTreeMap<SiteName, (Vec<Prefix>, Reach)>,
    lans: Lans,
    /// What nobody may announce.
    host: Host,
    /// What is behind nobody unless it was granted by itself.
    networks: Vec<crate::config::Prefix>,
    refusals: Allowance,
    /// Of the log, about sites.
    lines: Lines,
    look_ups: LookUps,
    next_look: Instant,
    next_note: Instant,
}

/// Starts the thread; it ends when the last sender is dropped.
pub(super) fn start(
    store: Store,
    authority: Authority,
    config: Arc<HubConfig>,
    tickets: Arc<Tickets>,
    neighbours: Neighbours,
    lifeline: Lifeline,
) -> Result<SyncSender<Query>, Failure> {
    let now = Instant::now();
    let mut registrar = Registrar {
        generation: store.generation()?,
        store,
        authority,
        config,
        tickets,
        neighbours,
        admitted: BTreeMap::new(),
        confined: BTreeMap::new(),
        lans: Lans::default(),
        host: Host::default(),
        networks: Vec::new(),
        refusals: Allowance::new(REFUSALS, now),
        lines: Lines::default(),
        look_ups: LookUps::default(),
        next_look: now + LOOK_EVERY,
        next_note: now + NOTE_EVERY,
    };
    registrar.learn_host();
    registrar.learn_confined(SystemTime::now())?;
    registrar.apply_filter().map_err(Failure::from)?;
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
    // ---- what is asked -------------------------------------------------------------------------

    fn answer(&mut self, query: Query) {
        let now = SystemTime::now();
        match query {
            Query::Connect {
                worker,
                request,
                certificates,
                bearer,
            } => {
                // Whoever is shut out by now goes before its address is somebody else's.
                self.look_for_changes(now);
                let verdict = match self.admit(&certificates, bearer.as_deref(), now) {
                    Ok(grant) => Verdict::Grant(request, grant),
                    Err(refusal) => {
                        self.tell_refused(&refusal, "peer refused");
                        Verdict::Refuse(request, refusal.http_status(), refusal.to_string())
                    }
                };
                self.neighbours.verdicts[worker].post(verdict);
            }
            Query::Enrol {
                worker,
                request,
                certificates,
                body,
            } => {
                let store = &mut self.store;
                let exchange =
                    identity::exchange(store, &self.authority, &certificates, &body, now);
                let verdict = match exchange.outcome {
                    Ok(site) => {
                        if self.lines.may_tell(site.as_str(), Instant::now()) {
                            tracing::info!(%site, "certificate issued");
                        }
                        self.neighbours.journal.note(Event::CertificateIssued {
                            site: site.to_string(),
                        });
                        self.review(now, |admission| admission.site == site);
                        Verdict::Reply(request, exchange.body.into())
                    }
                    Err(refusal) => {
                        self.tell_refused(&refusal, "enrolment refused");
                        Verdict::Refuse(request, refusal.http_status(), refusal.to_string())
                    }
                };
                self.neighbours.verdicts[worker].post(verdict);
            }
            Query::Udp {
                worker,
                request,
                certificates,
                bearer,
                target,
            } => {
                self.look_for_changes(now);
                let peer = (&certificates[..], bearer.as_deref());
                self.answer_udp((worker, request), peer, target, now);
            }
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

    fn admit(
        &mut self,
        certificates: &[CertificateDer<'static>],
        bearer: Option<&str>,
        now: SystemTime,
    ) -> Result<Grant, Refusal> {
        let admission = self.recognize(certificates, bearer, now)?;
        let site = &admission.site;
        let lease = self.store.lease(site, &self.config.pool)?;
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
        }
        let grant = Grant {
            site: site.to_string(),
            addresses: addresses(lease),
            credential: *admission.proof.digest(),
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
        let due = [Some(self.next_look), self.lans.poll_timeout()];
        let next = due.into_iter().flatten().min().unwrap_or(self.next_look);
        next.saturating_duration_since(now)
    }

    /// Tells the journal of a refusal, as long as there are not too many.
    fn tell_refused(&mut self, refusal: &Refusal, what: &str) {
        if self.refusals.may_tell(Instant::now()) {
            log(refusal, what);
        }
    }

    fn attend(&mut self, now: Instant) {
        if let Some(untold) = self.refusals.take_untold(now) {
            tracing::warn!(untold, "more refusals than the journal was told of");
        }
        self.lines.log_untold(now);
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            let clock = SystemTime::now();
            self.tickets.rotate(clock);
            self.look_for_changes(clock);
            self.review(clock, |admission| {
                admission.expires.is_some_and(|at| clock >= at)
            });
        }
        if now >= self.next_note {
            self.next_note = now + NOTE_EVERY;
            self.learn_host();
            self.note_who_is_here();
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
        if self.lans.take(directory.take_changed(), announced, now) {
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
            Err(error) => return tracing::warn!(%error, "cannot look into the store"),
        };
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        self.review(now, |_| true);
        if let Err(error) = self.learn_confined(now) {
            tracing::warn!(%error, "cannot list the sites");
        }
        self.decide_lans();
    }

    /// Ends what hangs on credentials that are not good any more, of those that `concerns` names.
    fn review(&mut self, now: SystemTime, concerns: impl Fn(&Admission) -> bool) {
        let admitted = std::mem::take(&mut self.admitted);
        for (proof, admission) in admitted {
            let standing = if concerns(&admission) {
                identity::reauthorize(&self.store, &proof, now)
            } else {
                Ok(admission.clone())
            };
            match standing {
                Ok(admission) => {
                    self.admitted.insert(proof, admission);
                }
                // It is asked again at the next look.
                Err(refusal) if refusal.is_transient() => {
                    log(&refusal, "cannot review a site");
                    self.admitted.insert(proof, admission);
                }
                Err(refusal) => self.expel(&admission, &refusal),
            }
        }
    }

    fn expel(&mut self, admission: &Admission, refusal: &Refusal) {
        tracing::info!(site = %admission.site, reason = %refusal, code = refusal.code(), "expelled");
        self.neighbours.journal.note(Event::Expelled {
            site: admission.site.to_string(),
            reason: refusal.to_string(),
        });
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Expel {
                credential: *admission.proof.digest(),
                reason: refusal.to_string(),
            });
        }
        // It may be away, and its LAN kept for it.
        self.lans.look_at(admission.site.as_str());
    }

    fn learn_host(&mut self) {
        let Some(gateway) = self.neighbours.gateway.upgrade() else {
            return;
        };
        gateway.refresh();
        (self.host, self.networks) = gateway.host();
        if let Err(error) = self.store.set_host(&self.host) {
            tracing::warn!(%error, "cannot remember the hub's addresses");
        }
    }

    fn note_who_is_here(&mut self) {
        let here = self.neighbours.directory.outer().into_iter();
        let here =
            here.filter_map(|(site, from)| Some((site.parse().ok()?, from.into_iter().collect())));
        let here: Vec<(SiteName, Vec<IpAddr>)> = here.collect();
        if let Err(error) = self.store.saw(&here, SystemTime::now()) {
            tracing::warn!(%error, "cannot remember which sites are here");
        }
    }

    // ---- what sites may do ---------------------------------------------------------------------

    fn learn_confined(&mut self, now: SystemTime) -> Result<(), crate::store::StoreError> {
        let sites = self.store.sites(now)?;
        self.confined.clear();
        for site in sites {
            self.confine(&site);
        }
        Ok(())
    }

    /// What a site may reach.
    fn reach_of<'a>(&'a self, site: &'a SiteRecord) -> &'a Reach {
        let usual = if site.bearer {
            &self.config.bearer_reach
        } else {
            &self.config.reach
        };
        site.reach.as_ref().unwrap_or(usual)
    }

    /// Notes what a site may reach, if that is not what all may.
    fn confine(&mut self, site: &SiteRecord) {
        let reach = self.reach_of(site);
        let lease = Lease {
            v4: site.v4,
            v6: site.v6,
        };
        // What it had of a former pool may be anybody's by now.
        let pool = &self.host.pool;
        let current = |address: &IpAddr| pool.iter().any(|net| net.contains(address));
        let leased = addresses(lease).into_iter().filter(current);
        let sources: Vec<Prefix> = leased.map(IpNet::from).map(around).collect();
        if site.revoked.is_some() || sources.is_empty() || *reach == self.config.reach {
            self.confined.remove(&site.name);
        } else {
            let confined = (sources, reach.clone());
            self.confined.insert(site.name.clone(), confined);
        }
    }

    /// Decides anew what is routed to whom, and tells everybody.
    fn decide_lans(&mut self) {
        let sites = match self.store.sites(SystemTime::now()) {
            Ok(sites) => sites,
            Err(error) => return tracing::warn!(%error, "cannot list the sites"),
        };
        let granted = sites
            .into_iter()
            .map(|site| (site.name.to_string(), site.granted));
        let outer = self.neighbours.directory.outer();
        let (host, networks) = (&self.host, &self.networks);
        let news = self.lans.decide(&granted.collect(), host, networks, &outer);
        let failed = self.apply_filter();
        let filtered = failed.is_ok();
        if let Err(error) = failed.and_then(|()| self.apply_routes()) {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "cannot set up the host for the LANs of sites");
        }
        for mut news in news {
            self.remember(&news);
            let site: Option<SiteName> = news.name.parse().ok();
            let confined = site.is_some_and(|site| self.confined.contains_key(&site));
            if confined && !filtered {
                // Its LAN would reach what the site may not. It is decided anew in a while.
                self.lans.reconsider(&news.name);
                news.lan.clear();
            }
            if self.lines.may_tell(&news.name, Instant::now()) {
                news.log();
            }
            self.neighbours.directory.set_lan(&news.name, &news.lan);
            self.tell(&news);
        }
    }

    /// Tells the workers what is routed to a site.
    fn tell(&self, news: &lans::News) {
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Lan {
                site: news.name.clone(),
                lan: news.lan.clone(),
                refused: news.refused.clone(),
            });
        }
    }

    fn remember(&mut self, news: &lans::News) {
        // What it had is worth knowing while it is away.
        if news.left {
            return;
        }
        let Ok(site) = news.name.parse::<SiteName>() else {
            return;
        };
        let announced: Vec<_> = news.announced.iter().map(Prefix::net).collect();
        let refused = news.refused.iter();
        let refused: Vec<_> = refused.map(|(p, why)| (p.net(), why.clone())).collect();
        if let Err(error) = self.store.announce(&site, &announced, &refused) {
            tracing::warn!(%site, %error, "cannot remember the LAN prefixes");
        }
    }

    /// Makes the host keep everybody to what they may reach.
    fn apply_filter(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.confine(&self.plan()))
    }

    fn apply_routes(&self) -> Result<(), sennit_linux::Error> {
        let gateway = self.neighbours.gateway.upgrade();
        gateway.map_or(Ok(()), |gateway| gateway.route(&self.plan()))
    }

    fn plan(&self) -> Plan {
        let confined = self.confined.iter().map(|(site, (addresses, reach))| {
            let lan = self.lans.of(site.as_str()).iter().copied();
            let sources = addresses.iter().copied().chain(lan).collect();
            (without_nested(sources), reach.clone())
        });
        Plan {
            lans: self.lans.all(),
            confined: confined.collect(),
            ..Plan::of_all(&self.config)
        }
    }
}

fn around(net: IpNet) -> Prefix {
    Prefix::around(net.network(), net.prefix_len())
}

/// What these prefixes cover together, by prefixes of which none lies in another.
fn without_nested(mut prefixes: Vec<Prefix>) -> Vec<Prefix> {
    prefixes.sort_by_key(Prefix::bits);
    let mut outermost: Vec<Prefix> = Vec::new();
    for prefix in prefixes {
        if !outermost.iter().any(|outer| outer.overlaps(&prefix)) {
            outermost.push(prefix);
        }
    }
    outermost
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
