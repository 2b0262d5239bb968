//! Another configuration while tunnels run.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use noq_proto::{
    PathId, VarInt,
    crypto::rustls::{NoInitialCipherSuite, QuicClientConfig},
};
use rustls::ClientConfig;
use sennit_core::{ClassId, Classifier};
use sennit_masque::{self as masque, Capsule};
use sennit_packet::Prefix;

use super::{
    ClassConfig, Crypto, Edge, Purpose, Slot, Stage, loss::BRIDGED_FOR, race::Dial, session,
};
use crate::{
    facts::LinkLabel,
    ids::{ConnId, HubName, SocketId},
    resumption::Watched,
    sharing::Sharing,
};

/// What an edge does otherwise from now on.
#[derive(Clone, Debug)]
pub struct EdgeChange {
    /// The classes that this edge carries.
    pub classes: BTreeMap<ClassId, ClassConfig>,
    /// Which packet belongs to which class, of all that there are.
    pub classifier: Classifier,
    /// Prefixes behind this edge.
    pub lan: Vec<Prefix>,
    /// Addresses of the hub.
    pub hubs: Vec<SocketAddr>,
    /// Names of the hub.
    pub hub_names: Vec<HubName>,
    /// How the classes share the links; the same as before if nothing of it has changed.
    pub sharing: Option<Arc<Sharing>>,
}

/// The tunnel of a class that was taken out of the config stays for this long, and so does one
/// whose place another has taken: what is on its way
/// over links of 250 ms one way arrives, and is sent again once if it is lost.
pub(super) const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// Why a path is closed whose link is gone; the hub need not know more.
pub(super) const GONE: VarInt = VarInt::from_u32(0);

/// What handshakes with this configuration need.
pub(super) fn crypto(tls: Arc<ClientConfig>) -> Result<Arc<Crypto>, NoInitialCipherSuite> {
    QuicClientConfig::try_from(tls).map(Watched).map(Arc::new)
}

impl Edge {
    /// Handshakes from now on use these and ask for a far side of this name; what is connected goes
    /// on.
    ///
    /// # Errors
    /// If a configuration lacks the cipher suite that QUIC begins with.
    pub fn set_tls(
        &mut self,
        tls: Arc<ClientConfig>,
        classic: Option<Arc<ClientConfig>>,
        server_name: String,
    ) -> Result<(), NoInitialCipherSuite> {
        self.crypto = crypto(tls)?;
        self.classic = classic.map(crypto).transpose()?;
        self.config.server_name = server_name;
        Ok(())
    }

    /// Takes another configuration. Classes that are in both, and alike, notice nothing of it.
    /// Those that changed keep their tunnels with all that is in them, and others come and go. A
    /// hub that can hear of a change in no other way is asked for another tunnel. A class is known
    /// by its id.
    pub fn handle_change(&mut self, change: EdgeChange, now: Instant) {
        let fallback = self.config.classifier.fallback();
        let other_fallback = change.classifier.fallback();
        let lan_changed = self.config.lan != change.lan;
        self.config.classifier = change.classifier;
        self.config.classes = change.classes;
        self.config.lan = change.lan;
        let shared_otherwise = self.share_otherwise(change.sharing);
        self.set_hubs(change.hubs, change.hub_names, now);
        if matches!(self.purpose, Purpose::Enrol(_)) {
            return self.settle(now);
        }
        let classifier = &self.config.classifier;
        self.flows.keep(|class| classifier.knows(class));
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            // The hub was told which class takes what the others leave.
            let falls_otherwise =
                fallback != other_fallback && [fallback, other_fallback].contains(&slot.id);
            match self.config.classes.get(&slot.id).cloned() {
                _ if slot.gone => {}
                None => self.let_leave(index, now),
                // It left a moment ago, and another has its number already.
                Some(class) if class.name != slot.class.name => self.remove_class(index, now),
                Some(class) => {
                    let otherwise = (falls_otherwise, shared_otherwise);
                    self.change_class(index, class, otherwise, now);
                }
            }
        }
        self.add_classes(now);
        if lan_changed {
            self.announce_lan_anew();
        }
        self.settle(now);
    }

    /// Goes on with a class that may be otherwise now: it has other keys, falls to it what no rule
    /// matches or does so no longer, or shares links by other rules.
    fn change_class(
        &mut self,
        index: usize,
        class: ClassConfig,
        (falls, shares): (bool, bool),
        now: Instant,
    ) {
        let slot = &mut self.slots[index];
        slot.leaves_at = None;
        slot.set_links(class.links.clone(), now);
        let treated = slot.class.treatment != class.treatment;
        let marked = slot.class.dscp != class.dscp;
        slot.class = class;
        if marked {
            self.mark(index);
        }
        if !treated && !marked && !falls && !shares {
            return;
        }
        if self.tell_terms(index, treated || falls) {
            if treated {
                // What is tried beside the tunnel has asked for something else.
                self.end_race(index, now);
                self.treat(index, now);
            }
        } else if treated {
            self.retire_tunnel(index, "the class was changed in the config", now);
            self.treat(index, now);
            self.slots[index].dial = Dial::new(now);
        } else {
            self.ask_anew(index, now);
        }
    }

    /// Marks the packets of all connections of a class as it says.
    fn mark(&mut self, index: usize) {
        let dscp = self.slots[index].class.dscp;
        let conns = self.node.iter();
        let of_class = conns.filter(|(_, conn)| conn.role.slot == index);
        let ids: Vec<ConnId> = of_class.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(conn) = self.node.get_mut(id) {
                conn.dscp = dscp;
            }
        }
    }

    /// Treats the packets of a class as it says, also those that wait.
    pub(super) fn treat(&mut self, index: usize, now: Instant) {
        let slot = &self.slots[index];
        self.node.treat(slot.pipe, slot.class.treatment, now);
    }

    /// Tells the hub of a tunnel what the class wants of it from now on: `all` of it, or how it
    /// shares links and is marked. False if there is none, or if only the request for another
    /// tunnel says so.
    pub(super) fn tell_terms(&mut self, index: usize, all: bool) -> bool {
        let slot = &self.slots[index];
        let Some(id) = slot.live else {
            return false;
        };
        let wants = session::wants(&self.config, slot, None);
        let Some(conn) = self.node.get_mut(id) else {
            return false;
        };
        let Stage::Up(stream) = conn.role.stage else {
            return false;
        };
        // A hub that speaks RFC 9484 alone makes nothing of it, in a request either.
        if !conn.tunnel.is_numbered() {
            return true;
        }
        let hub = conn.role.hub;
        let takes = if all { hub.treatment } else { hub.terms };
        if !takes {
            return false;
        }
        let terms = if hub.treatment {
            wants.encode()
        } else {
            wants.wishes.encode()
        };
        let sent = conn.h3.http.send_capsule(stream, &Capsule::Terms(terms));
        sent.is_ok()
    }

    /// Has the hub hear from another request what it knows of the class, unless it has none so far:
    /// the coming one says it. The class goes on as it is, with the packets that wait.
    fn ask_anew(&mut self, index: usize, now: Instant) {
        let live = self.slots[index].live.and_then(|id| self.node.get(id));
        let live = live.map(|conn| conn.role.stage);
        if let Some(Stage::Requested(_) | Stage::Up(_)) = live {
            self.retire_tunnel(index, "the hub is to hear of another config", now);
            self.slots[index].dial = Dial::new(now);
        } else if live.is_none() && self.has_asked_early(index) {
            self.end_race(index, now);
        }
    }

    /// Whether the request of the class is in the first packets of a handshake that is under way,
    /// be it late.
    fn has_asked_early(&self, index: usize) -> bool {
        let tries = self.slots[index].dial.tries();
        let mut conns = tries.filter_map(|(_, id, _)| self.node.get(id));
        conns.any(|conn| conn.role.early.is_some())
    }

    /// Shares the links by other rules, if they are other ones.
    fn share_otherwise(&mut self, sharing: Option<Arc<Sharing>>) -> bool {
        let same = match (&self.config.sharing, &sharing) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            self.node.links.set_sharing(None, sharing.clone());
            self.config.sharing = sharing;
        }
        !same
    }

    /// Forgets a link: its paths are closed, and no others are opened there.
    pub fn remove_link(&mut self, socket: SocketId, now: Instant) {
        if self.links.remove(&socket).is_none() {
            return;
        }
        self.resolved.remove(&socket);
        self.slow.forget(socket);
        self.end_attempts_over(socket, "the link is gone", now);
        self.ask_again(socket, now);
        self.ports.look(socket, None, now);
        for id in self.live() {
            let Some(conn) = self.node.get_mut(id) else {
                continue;
            };
            let mut paths = conn.tunnel.paths.iter_mut();
            if let Some(path) = paths.find(|path| path.socket == socket) {
                path.health.handle_link(false, now);
                let path = path.id;
                // The last path stays, and the class is dialled again when that is silent for long.
                let _ = conn.tunnel.conn.close_path(now, path, GONE);
            }
        }
        self.settle(now);
    }

    /// A link has another tier or weight than before; the hub hears of it.
    pub(super) fn relabel(&mut self, socket: SocketId, label: &LinkLabel) {
        for id in self.live() {
            let Some(conn) = self.node.get(id) else {
                continue;
            };
            let other = |path: &&crate::path::Path| path.socket == socket && path.link != *label;
            let paths = conn.paths().iter().filter(other).map(|path| path.id);
            let paths: Vec<PathId> = paths.collect();
            for &path in &paths {
                self.node.label_path(id, path, label.clone());
            }
            if !paths.is_empty() {
                self.announce_links(id);
            }
        }
    }

    /// A class is no more. If it has a tunnel, what is on its way may still arrive.
    fn let_leave(&mut self, index: usize, now: Instant) {
        if self.slots[index].live.is_none() {
            return self.remove_class(index, now);
        }
        let slot = &mut self.slots[index];
        slot.leaves_at.get_or_insert(now + LEAVES_WITHIN);
    }

    /// Ends a class that is to leave, once its time is over or its tunnel lost; whether it did.
    pub(super) fn ends_leaving(&mut self, index: usize, now: Instant) -> bool {
        let slot = &mut self.slots[index];
        let Some(at) = slot.leaves_at else {
            return false;
        };
        let ends = now >= at || slot.live.is_none();
        if ends {
            self.remove_class(index, now);
        } else {
            slot.dial.look_at(at);
        }
        ends
    }

    /// Ends the tunnel of a class that is no more.
    fn remove_class(&mut self, index: usize, now: Instant) {
        self.retire_tunnel(index, "the class was taken out of the config", now);
        let slot = &mut self.slots[index];
        (slot.gone, slot.bridge) = (true, None);
        let pipe = slot.pipe;
        self.node.remove_pipe(pipe);
    }

    pub(super) fn retire_tunnel(&mut self, index: usize, reason: &str, now: Instant) {
        self.end_race(index, now);
        self.end_beside(index, now);
        if let Some(id) = self.slots[index].live {
            self.node
                .close(id, masque::Code::H3_NO_ERROR.0, reason, now);
            self.lose(id, reason.into(), false, now);
        }
    }

    fn add_classes(&mut self, now: Instant) {
        let known = |slots: &[Slot], id| slots.iter().any(|slot| !slot.gone && slot.id == id);
        let new: Vec<(ClassId, ClassConfig)> = self
            .config
            .classes
            .iter()
            .filter(|&(&id, _)| !known(&self.slots, id))
            .map(|(&id, class)| (id, class.clone()))
            .collect();
        let mtu = self.least_mtu();
        for (id, class) in new {
            let pipe = self.node.add_pipe(class.treatment, now);
            let slot = Slot {
                // Flows that others had until now go on in it.
                bridge: mtu.map(|mtu| (now + BRIDGED_FOR, mtu)),
                ..Slot::new(id, class, pipe, now)
            };
            match self.vacant_slot() {
                Some(index) => self.slots[index] = slot,
                None => self.slots.push(slot),
            }
        }
    }

    /// The largest packet that all tunnels carry which are up, if any are.
    fn least_mtu(&mut self) -> Option<usize> {
        let ids = self.live().into_iter();
        let sizes = ids.filter_map(|id| {
            let conn = self.node.get_mut(id)?;
            let up = matches!(conn.role.stage, Stage::Up(_));
            up.then(|| conn.tunnel.max_packet())
        });
        sizes.min()
    }

    /// The place of a class that is gone, and of which no connection is left either.
    fn vacant_slot(&self) -> Option<usize> {
        let used = |index| self.node.iter().any(|(_, conn)| conn.role.slot == index);
        (0..self.slots.len()).find(|&index| self.slots[index].gone && !used(index))
    }

    fn announce_lan_anew(&mut self) {
        let ids: Vec<ConnId> = self.live();
        for id in ids {
            if let Some(conn) = self.node.get_mut(id)
                && let Stage::Up(stream) = conn.role.stage
            {
                session::send_lan(conn, stream, &self.config.lan);
            }
        }
    }
}

impl Slot {
    pub(super) fn new(
        id: ClassId,
        class: ClassConfig,
        pipe: crate::ids::PipeId,
        now: Instant,
    ) -> Self {
        let reason = match &class.links {
            None => "no link is up".into(),
            Some(links) => format!("none of its links is up: {}", links.join(", ")),
        };
        Self {
            id,
            class,
            pipe,
            gone: false,
            leaves_at: None,
            live: None,
            next: None,
            left: Vec::new(),
            stays: None,
            bridge: None,
            dial: Dial::new(now),
            reason,
            since: now,
        }
    }

    /// The class may use these links from now on; [`Edge::settle`] leaves the others.
    fn set_links(&mut self, links: Option<Vec<String>>, now: Instant) {
        if self.class.links != links {
            self.class.links = links;
            self.dial.retry_soon(now);
        }
    }
}
