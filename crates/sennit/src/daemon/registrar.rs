//! The thread of a hub that decides who is let in.
//!
//! It owns the store and the authority's key, and tells the host about routes, so that neither a
//! slow disk nor a signature nor the kernel's tables ever hold up a packet. A worker asks it and goes
//! on; the answer comes by that worker's mailbox.

use std::{
    net::IpAddr,
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use sennit_core::ClassId;
use sennit_engine::{Grant, RequestId};

use super::{
    hub::{Directory, Gateway},
    mailbox::Slot,
    worker::Lifeline,
};
use crate::{
    cli::Failure,
    config::{Pool, Prefix},
    identity::{self, Authority, Refusal},
    site::SiteName,
    store::Store,
};

/// How often the store is looked at for revocations made by another process.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
    /// Remember what a site announced, and route it.
    Lan { site: String, prefixes: Vec<Prefix> },
}

/// What the registrar decided.
#[derive(Debug)]
pub(super) enum Verdict {
    Grant(RequestId, Grant),
    Refuse(RequestId, u16, String),
    Reply(RequestId, Bytes),
    /// A site was revoked.
    Expel(SiteName),
    /// Another worker has a newer tunnel for this class of a site; this comes from that worker.
    Replace {
        site: String,
        class: ClassId,
    },
}

/// Whom the registrar talks to.
pub(super) struct Neighbours {
    /// Of each worker.
    pub(super) verdicts: Arc<[Slot<Verdict>]>,
    pub(super) directory: Arc<Directory>,
    /// Weak, so that nothing is left on the host however the daemon ends.
    pub(super) gateway: Weak<Gateway>,
}

struct Registrar {
    store: Store,
    authority: Authority,
    pool: Pool,
    neighbours: Neighbours,
    generation: i64,
}

/// Starts the thread; it ends when the last sender is dropped.
pub(super) fn start(
    store: Store,
    authority: Authority,
    pool: Pool,
    neighbours: Neighbours,
    lifeline: Lifeline,
) -> Result<Sender<Query>, Failure> {
    let generation = store.generation()?;
    let mut registrar = Registrar {
        store,
        authority,
        pool,
        neighbours,
        generation,
    };
    let (sender, queries) = mpsc::channel();
    let run = move || {
        let _lifeline = lifeline;
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            match queries.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(query) => registrar.answer(query),
                Err(RecvTimeoutError::Timeout) => {
                    registrar.look_for_revocations();
                    next_look = Instant::now() + LOOK_EVERY;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    let thread = thread::Builder::new().name("registrar".into()).spawn(run);
    thread.map_err(Failure::runtime)?;
    Ok(sender)
}

impl Registrar {
    fn answer(&mut self, query: Query) {
        let now = SystemTime::now();
        match query {
            Query::Connect {
                worker,
                request,
                certificates,
                bearer,
            } => {
                let verdict = match self.admit(&certificates, bearer.as_deref(), now) {
                    Ok(grant) => Verdict::Grant(request, grant),
                    Err(refusal) => {
                        log(&refusal, "peer refused");
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
                        tracing::info!(%site, "certificate issued");
                        Verdict::Reply(request, exchange.body.into())
                    }
                    Err(refusal) => {
                        log(&refusal, "enrolment refused");
                        Verdict::Refuse(request, refusal.http_status(), refusal.to_string())
                    }
                };
                self.neighbours.verdicts[worker].post(verdict);
            }
            Query::Lan { site, prefixes } => {
                self.remember(&site, &prefixes);
                if let Some(gateway) = self.neighbours.gateway.upgrade() {
                    gateway.route(&self.neighbours.directory.lans());
                }
            }
        }
    }

    fn admit(
        &mut self,
        certificates: &[CertificateDer<'static>],
        bearer: Option<&str>,
        now: SystemTime,
    ) -> Result<Grant, Refusal> {
        let site = match bearer {
            Some(token) if certificates.is_empty() => {
                identity::authorize_bearer(&self.store, token, now)?
            }
            _ => identity::authorize(&self.store, certificates, now)?,
        };
        let lease = self.store.lease(&site, &self.pool)?;
        let addresses = lease
            .v4
            .map(IpAddr::V4)
            .into_iter()
            .chain(lease.v6.map(IpAddr::V6));
        Ok(Grant {
            site: site.to_string(),
            addresses: addresses.collect(),
        })
    }

    fn remember(&mut self, site: &str, prefixes: &[Prefix]) {
        let Ok(site) = site.parse::<SiteName>() else {
            return;
        };
        if let Err(error) = self.store.announce(&site, prefixes) {
            tracing::warn!(%site, %error, "cannot remember the LAN prefixes");
        }
    }

    fn expel(&self, site: &SiteName) {
        for worker in &*self.neighbours.verdicts {
            worker.post(Verdict::Expel(site.clone()));
        }
    }

    fn look_for_revocations(&mut self) {
        let generation = match self.store.generation() {
            Ok(generation) => generation,
            Err(error) => return tracing::warn!(%error, "cannot look into the store"),
        };
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        match self.store.sites(SystemTime::now()) {
            Ok(sites) => sites
                .into_iter()
                .filter(|site| site.revoked.is_some())
                .for_each(|site| self.expel(&site.name)),
            Err(error) => tracing::warn!(%error, "cannot list the sites"),
        }
    }
}

/// The log also says what the peer is not told: what is wrong with this hub.
fn log(refusal: &Refusal, what: &str) {
    let cause = std::error::Error::source(refusal).map(ToString::to_string);
    tracing::warn!(reason = %refusal, code = refusal.code(), cause, "{what}");
}
