//! What workers ask the registrar, and what it says to them.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{Sender, SyncSender},
    },
};

use bytes::Bytes;
use rustls::pki_types::CertificateDer;
use sennit_core::ClassId;
use sennit_engine::{Credential, Grant, HubConfig as HubChange, RequestId, SiteId, UdpRefusal};
use sennit_masque::{capsule::NextAuthority, connect_udp::Target};
use sennit_packet::Prefix;

use crate::{
    config::HubConfig,
    daemon::{
        hub::relay::window::{Order, Window},
        mailbox::Slot,
        reload::Done,
    },
    exit::Failure,
};

/// A peer that wants UDP proxied.
#[derive(Debug)]
pub(in crate::daemon) struct Asker {
    pub(in crate::daemon) worker: usize,
    pub(in crate::daemon) request: RequestId,
    pub(in crate::daemon) certificates: Vec<CertificateDer<'static>>,
    pub(in crate::daemon) bearer: Option<String>,
}

/// What a worker wants to know.
#[derive(Debug)]
pub(in crate::daemon) enum Query {
    /// May this peer have a tunnel?
    Connect {
        worker: usize,
        request: RequestId,
        certificates: Vec<CertificateDer<'static>>,
        bearer: Option<String>,
        /// It moves to another authority when it is told of one.
        moves: bool,
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
        asker: Asker,
        target: Target,
        /// Where to say what a name stands for.
        back: SyncSender<Self>,
    },
    /// What the name of a target stands for, which took a while: who asked may have been shut out
    /// meanwhile, or may reach less.
    Found {
        asker: Asker,
        port: u16,
        found: Result<Vec<IpAddr>, UdpRefusal>,
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
pub(in crate::daemon) enum Verdict {
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
    /// Who was let in by this should move to another authority.
    Offer(Credential, NextAuthority),
    /// What is routed to a site, and what of its announcement is not.
    Lan {
        site: SiteId,
        lan: Vec<Prefix>,
        refused: Vec<(Prefix, String)>,
    },
    /// Another worker has a newer tunnel for this class of a site; this comes from that worker.
    Replace {
        site: SiteId,
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
