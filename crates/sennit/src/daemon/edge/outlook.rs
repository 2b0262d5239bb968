//! What there is to see of the hub while there is no tunnel: where its name leads, and what answers
//! there.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use sennit_engine::SocketId;

use super::{
    ground::Host,
    letter::Letter,
    names::Names,
    probe::{self, Schedule, Verdict},
    way::{Resolved, Way},
};
use crate::{daemon::mailbox::Slot, status::LinkStatus};

/// Addresses of the hub that are looked at over each link.
const MOST_LOOKED_AT: usize = 4;

/// Belongs to the first worker.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Looks the hub's name up, if it has one.
    names: Option<Names>,
    /// The hub's addresses in the config.
    hubs: Vec<SocketAddr>,
    ways: Vec<Way>,
    schedule: Schedule,
    verdicts: BTreeMap<SocketId, Verdict>,
}

impl Outlook {
    pub(super) fn new(names: Option<Names>, hubs: Vec<SocketAddr>, now: Instant) -> Self {
        Self {
            names,
            hubs,
            ways: Vec::new(),
            schedule: Schedule::new(now),
            verdicts: BTreeMap::new(),
        }
    }

    /// The links have changed.
    pub(super) fn set_ways(&mut self, ways: Vec<Way>) {
        if self.ways != ways {
            if let Some(names) = &self.names {
                names.set_ways(ways.clone());
            }
            self.ways = ways;
        }
    }

    pub(super) fn count_tunnel(&mut self, up: bool, now: Instant) {
        if let Some(any) = self.schedule.count(up, now) {
            self.verdicts.clear();
            self.names.iter().for_each(|names| names.set_tunnel(any));
        }
    }

    /// The engines were replaced, and no tunnel is left.
    pub(super) fn start_over(&mut self, now: Instant) {
        self.schedule.start_over(now);
    }

    /// Looks, on a thread of its own, if it is time.
    pub(super) fn look(
        &mut self,
        resolved: &Resolved,
        answer_to: &Slot<Letter>,
        host: &Host,
        now: Instant,
    ) {
        if !self.schedule.is_due(now) {
            return;
        }
        let tasks: Vec<(Way, Vec<SocketAddr>)> = self
            .ways
            .iter()
            .map(|way| (way.clone(), self.hubs_of(way, resolved)))
            .collect();
        let slot = answer_to.clone();
        let probe = move || {
            let verdicts = thread::scope(|scope| {
                let threads: Vec<_> = tasks
                    .iter()
                    .map(|(way, hubs)| (way.socket, scope.spawn(|| probe::look(way, hubs))))
                    .collect();
                let joined = threads.into_iter();
                joined
                    .map(|(socket, thread)| (socket, thread.join().ok().flatten()))
                    .collect()
            });
            slot.post(Letter::Probed(verdicts));
        };
        // Its sockets keep to links, which a packet thread may not ask of them.
        let started = host.ask(move |_| thread::Builder::new().name("probe".into()).spawn(probe));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot look why there is no tunnel");
            self.schedule.looked(now);
        }
    }

    fn hubs_of(&self, way: &Way, resolved: &Resolved) -> Vec<SocketAddr> {
        let found = resolved.get(&way.socket).into_iter().flatten();
        let all = self.hubs.iter().chain(found).copied();
        all.filter(|hub| way.binding(hub.ip()).is_some())
            .take(MOST_LOOKED_AT)
            .collect()
    }

    /// What was seen; the log hears of what is new.
    pub(super) fn handle_verdicts(
        &mut self,
        verdicts: Vec<(SocketId, Option<Verdict>)>,
        now: Instant,
    ) {
        self.schedule.looked(now);
        if self.schedule.without(now).is_none() {
            return;
        }
        for (socket, verdict) in verdicts {
            let Some(verdict) = verdict else {
                self.verdicts.remove(&socket);
                continue;
            };
            if self.verdicts.get(&socket) != Some(&verdict) {
                let way = self.ways.iter().find(|way| way.socket == socket);
                let interface = way.map_or("?", |way| way.device.as_str());
                tracing::warn!(interface, %verdict, "no tunnel");
                self.verdicts.insert(socket, verdict);
            }
        }
    }

    /// Says of each link what the hub answers there.
    pub(super) fn describe(&self, links: &mut [LinkStatus], now: Instant) {
        let Some(since) = self.schedule.without(now) else {
            return;
        };
        for (index, link) in links.iter_mut().enumerate() {
            if let Some(verdict) = self.verdicts.get(&SocketId(index as u32))
                && link.hub.is_none()
            {
                link.hub = Some(tried(verdict, since));
            }
        }
    }

    /// Why there is no tunnel, once it was looked over every link.
    pub(super) fn verdict(&self, links: &[LinkStatus]) -> Option<String> {
        let told = links
            .iter()
            .filter_map(|link| Some((&link.name, link.hub.as_ref()?)));
        let told: Vec<(&String, &String)> = told.collect();
        if self.verdicts.is_empty() || told.len() < self.ways.len() {
            return None;
        }
        let mut meanings = self.verdicts.values().map(Verdict::meaning);
        let first = meanings.next()?;
        if self.verdicts.len() == told.len() && meanings.all(|other| other == first) {
            return Some(format!("no link reaches the hub: {first}"));
        }
        let each = told.iter().map(|(name, told)| format!("{name}: {told}"));
        Some(format!(
            "no link reaches the hub; {}",
            each.collect::<Vec<_>>().join("; ")
        ))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.poll_timeout()
    }
}

fn tried(verdict: &Verdict, since: Duration) -> String {
    format!("tried for {} s, {verdict}", since.as_secs())
}
