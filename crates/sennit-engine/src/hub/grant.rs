//! How a tunnel begins.
//!
//! A request may come as early data (RFC 8446 §2.3), before its sender has proved that it is there
//! now. It is answered at once, and only the sender can read that. But nothing else happens until
//! the handshake is complete: no tunnel is replaced and no packet goes its way.

use std::{sync::Arc, time::Instant};

use sennit_core::{ClassId, Delivery, Policy};
use sennit_fec::Fec;
use sennit_masque::{self as masque, Code, ResponseHead, StreamId, connect_ip};

use super::{
    Grant, Hub, HubEvent, RequestId, Role, Stage,
    pipes::Owner,
    requests::{assignment, everywhere},
};
use crate::{
    codec::{Codec, Peer},
    hello::{self, Hello},
    ids::{ConnId, SiteId},
    node::Conn,
    numbers::{Numbers, Run},
    treatment::Treatment,
};

impl Hub {
    /// Grants a tunnel.
    pub fn grant(&mut self, request: RequestId, grant: Grant, now: Instant) {
        let RequestId { conn: id, stream } = request;
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Asking {
            stream: asked,
            hello,
            granted: None,
        } = &conn.role.stage
        else {
            return;
        };
        if *asked != stream {
            return;
        }
        let is_sennit = hello.is_some();
        let asks = hello
            .as_ref()
            .and_then(|hello| Some((hello.run?, hello.index)));
        let numbers = asks.map(|(theirs, class)| {
            let ours = self.run_of(&grant.site, class);
            self.runs.agree(theirs, ours)
        });
        let says = || hello::answer(&self.config.addresses, self.shares, numbers);
        let says = is_sennit.then(says);
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        if let Err(error) = answer(conn, stream, &grant, says) {
            tracing::debug!(%error, site = %grant.site, "the peer left before it was answered");
            return;
        }
        if let Stage::Asking { granted, .. } = &mut conn.role.stage {
            *granted = Some((grant, numbers));
        }
        if conn.tunnel.conn.is_handshaking() {
            // Its first packets come right behind the end of the handshake.
            conn.tunnel.keep_early();
        } else {
            self.begin(id, now);
        }
    }

    /// Begins the tunnel that was granted, if one was: its peer is there.
    pub(super) fn begin(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        let Stage::Asking {
            stream,
            hello,
            granted,
        } = &mut conn.role.stage
        else {
            return;
        };
        let Some((grant, numbers)) = granted.take() else {
            return;
        };
        let hello = hello.take().map(|hello| hello.known(self.shares));
        let stream = *stream;
        let index = hello.as_ref().map(|hello| hello.index);
        let run = self.run_of(&grant.site, index.unwrap_or_default());
        if numbers.is_some_and(|numbers| !numbers.fit(run)) {
            let reason = "the class's numbers have changed since it was answered";
            return self.fail(id, reason, now);
        }
        self.enter(id, (stream, hello), (grant, numbers), now);
    }

    fn enter(
        &mut self,
        id: ConnId,
        (stream, hello): (StreamId, Option<Hello>),
        (grant, numbers): (Grant, Option<Numbers>),
        now: Instant,
    ) {
        let Some(conn) = self.node.get_mut(id) else {
            return;
        };
        conn.tunnel.allow_paths(now);
        conn.tunnel.party = Arc::clone(&grant.site.0);
        let peer = hello.as_ref().map_or(Peer::Standard, Hello::peer);
        let is_fallback = hello.as_ref().is_none_or(|hello| hello.fallback);
        let wishes = hello.as_ref().map(|hello| hello.wishes.clone());
        let wishes = wishes.unwrap_or_default();
        let beside = is_beside(hello.as_ref(), numbers);
        conn.dscp = wishes.dscp;
        let (name, class, treatment) = class_of(hello);
        conn.tunnel.set_treatment(treatment);
        let (site, addresses, next) = (grant.site.clone(), grant.addresses.clone(), grant.next);
        conn.role.stage = Stage::Up {
            site: site.clone(),
            class,
            name: name.clone(),
            stream,
            treatment,
            credential: grant.credential,
            abilities: peer.abilities(),
        };
        self.strangers.remove(id);
        let replaced = self.sites.enter(grant, class, id);
        // An edge has no two classes of one name, so this one is gone there. Whoever reads of both
        // could not tell them apart.
        if let Some(namesake) = self.sites.name_class(&site, class, &name) {
            self.replace(&site, namesake, now);
        }
        self.share(&site, vec![(class, name.clone(), wishes)], now);
        if is_fallback {
            self.sites.set_fallback(&site, class);
        }
        self.plug(
            id,
            (&site, class),
            (Codec::new(stream, peer), numbers, treatment),
            beside,
            now,
        );
        self.let_leave(replaced, beside, now);
        if let Some(next) = next {
            self.tell_authority(id, next);
        }
        self.events.push_back(HubEvent::TunnelUp {
            site,
            class: name,
            class_id: class,
            addresses,
        });
    }

    /// The run of numbers that a class of a site has.
    fn run_of(&mut self, site: &SiteId, class: ClassId) -> Run {
        let owner = Owner {
            site: site.clone(),
            class,
        };
        let pipe = self.pipes.get(&owner);
        let pipe = pipe.and_then(|pipe| self.node.pipe_mut(pipe));
        pipe.map_or(Run::NONE, |pipe| pipe.run())
    }

    /// A connection is of no use: its edge makes another, or has made one.
    pub(super) fn fail(&mut self, id: ConnId, reason: &str, now: Instant) {
        self.node.close(id, Code::H3_NO_ERROR.0, reason, now);
        if let Some(conn) = self.node.get_mut(id) {
            conn.role.stage = Stage::Closing;
        }
    }

    /// Plugs a tunnel into the pipe of its class, with what waits there.
    fn plug(
        &mut self,
        id: ConnId,
        (site, class): (&SiteId, ClassId),
        (codec, numbers, treatment): (Codec, Option<Numbers>, Treatment),
        beside: bool,
        now: Instant,
    ) {
        let owner = Owner {
            site: site.clone(),
            class,
        };
        let make = || self.node.add_pipe(treatment, now);
        let pipe = self.pipes.take(owner, make);
        if let Some(pipe) = self.node.pipe_mut(pipe) {
            pipe.set_treatment(treatment);
        }
        self.node
            .plug(id, (pipe, class), (codec, numbers), beside, now);
    }
}

/// Answers a request that is granted; a Sennit is told what this one is.
fn answer(
    conn: &mut Conn<Role>,
    stream: StreamId,
    grant: &Grant,
    says: Option<String>,
) -> Result<(), masque::SendError> {
    let mut head = ResponseHead::new(200);
    head.fields = connect_ip::response_fields();
    if let Some(says) = says {
        head.fields.push(hello::NAME, says);
    }
    let http = &mut conn.h3.http;
    http.respond(stream, &head, false)?;
    http.send_capsule(stream, &assignment(&grant.addresses, &[]))?;
    http.send_capsule(stream, &everywhere(&grant.addresses))
}

/// Whether a tunnel comes beside another one that carries: only who has that knows its numbers.
fn is_beside(hello: Option<&Hello>, numbers: Option<Numbers>) -> bool {
    hello.is_some_and(|hello| hello.beside) && numbers.is_some_and(|numbers| numbers.go_on)
}

/// The class that a peer asks for, and how it is treated. A plain RFC 9484 client has one tunnel,
/// on one path at a time.
fn class_of(hello: Option<Hello>) -> (String, ClassId, Treatment) {
    let plain = Treatment {
        policy: Policy::Failover,
        delivery: Delivery::Datagram,
        fec: Fec::Off,
        ..Treatment::default()
    };
    match hello {
        Some(hello) => (hello.class, hello.index, hello.treatment),
        None => ("default".to_owned(), ClassId::default(), plain),
    }
}
