//! What there is to see of the hub while there is no tunnel, and over links on which no tunnel gets
//! a path: where its name leads, and what answers there.

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
    probe::{self, FIRST_LOOK, Schedule, Verdict},
    way::{Resolved, Way},
};
use crate::{
    daemon::{at_once::at_once, mailbox::Slot},
    remote::Remote,
    status::LinkStatus,
};

/// How often the engine is asked by which links nothing is answered.
const FOLLOWS: Duration = Duration::from_secs(1);
/// Such a link is looked at again after this: some kilobytes, that may cost money.
const NEXT_SILENT_LOOK: Duration = Duration::from_secs(600);
/// Addresses of the hub that are looked at over each link.
const MOST_LOOKED_AT: usize = 4;

/// Belongs to the first worker.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Looks the hub's names up, if it has any.
    names: Names,
    /// The hub's addresses in the config.
    hubs: Vec<SocketAddr>,
    ways: Vec<Way>,
    schedule: Schedule,
    /// Links on which tunnels ask for a path in vain.
    silent: BTreeMap<SocketId, Silence>,
    follows_at: Instant,
    verdicts: BTreeMap<SocketId, Verdict>,
}

#[derive(Debug)]
struct Silence {
    since: Instant,
    looks_at: Instant,
}

impl Outlook {
    pub(super) fn new(names: Names, hubs: Vec<SocketAddr>, now: Instant) -> Self {
        Self {
            names,
            hubs,
            ways: Vec::new(),
            schedule: Schedule::new(now),
            silent: BTreeMap::new(),
            follows_at: now,
            verdicts: BTreeMap::new(),
        }
    }

    /// The hub is at these from now on: what was seen elsewhere says nothing.
    pub(super) fn set_hubs(&mut self, hubs: &[Remote]) {
        let addresses: Vec<SocketAddr> = hubs.iter().filter_map(Remote::address).collect();
        if self.hubs != addresses {
            self.verdicts.clear();
        }
        self.hubs = addresses;
        self.names.set_hubs(hubs.to_vec());
    }

    /// The links have changed.
    pub(super) fn set_ways(&mut self, ways: Vec<Way>) {
        if self.ways != ways {
            // A place may have passed to another link.
            let stays = |socket: &SocketId| {
                let device = |ways: &[Way]| device(ways, *socket).map(str::to_owned);
                device(&ways).is_some_and(|it| device(&self.ways) == Some(it))
            };
            self.verdicts.retain(|socket, _| stays(socket));
            self.names.set_ways(ways.clone());
            self.ways = ways;
        }
    }

    /// So many tunnels of a worker are up, of which none is left if its engine was replaced.
    pub(super) fn handle_tunnels(&mut self, worker: usize, up: usize, now: Instant) {
        if let Some(any) = self.schedule.count(worker, up, now) {
            self.verdicts.clear();
            self.names.set_tunnel(any);
        }
    }

    /// Whether it is time for [`Self::follow`].
    pub(super) fn is_to_follow(&self, now: Instant) -> bool {
        self.follows_at <= now
    }

    /// By these links the engine asks for a path, and since when.
    pub(super) fn follow(&mut self, asks: &BTreeMap<SocketId, Instant>, now: Instant) {
        self.follows_at = now + FOLLOWS;
        self.silent.retain(|socket, _| asks.contains_key(socket));
        for (&socket, &since) in asks {
            self.silent.entry(socket).or_insert(Silence {
                since,
                looks_at: since + FIRST_LOOK,
            });
        }
        if self.schedule.without(now).is_none() {
            self.verdicts
                .retain(|socket, _| self.silent.contains_key(socket));
        }
    }

    /// The links to look at now.
    fn due(&mut self, now: Instant) -> Vec<Way> {
        if self.schedule.is_due(now) {
            if self.ways.is_empty() {
                self.schedule.looked(now);
            }
            return self.ways.clone();
        }
        let mut due = Vec::new();
        for way in &self.ways {
            if let Some(silence) = self.silent.get_mut(&way.socket)
                && silence.looks_at <= now
            {
                silence.looks_at = now + NEXT_SILENT_LOOK;
                due.push(way.clone());
            }
        }
        due
    }

    /// How long a link has been of no use, or all are.
    fn without(&self, socket: SocketId, now: Instant) -> Option<Duration> {
        let silence = self.silent.get(&socket);
        let silent = silence.map(|it| now.saturating_duration_since(it.since));
        self.schedule.without(now).or(silent)
    }

    /// Looks, on a thread of its own, if it is time.
    pub(super) fn look(
        &mut self,
        resolved: &Resolved,
        answer_to: &Slot<Letter>,
        host: &Host,
        now: Instant,
    ) {
        let due = self.due(now);
        if due.is_empty() {
            return;
        }
        let tasks: Vec<(Way, Vec<SocketAddr>)> = due
            .into_iter()
            .map(|way| {
                let hubs = self.hubs_of(&way, resolved);
                (way, hubs)
            })
            .collect();
        let slot = answer_to.clone();
        let probe = move || {
            let verdicts = at_once(&tasks, |(way, hubs)| probe::look(way, hubs));
            let sockets = tasks.iter().map(|(way, _)| way.socket);
            let verdicts = sockets.zip(verdicts.into_iter().map(Option::flatten));
            slot.post(Letter::Probed(verdicts.collect()));
        };
        // It opens sockets, which a packet thread may not.
        let started = host.ask(move |_| thread::Builder::new().name("probe".into()).spawn(probe));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot look why there is no tunnel or path");
            self.schedule.looked(now);
        }
    }

    fn hubs_of(&self, way: &Way, resolved: &Resolved) -> Vec<SocketAddr> {
        let found = resolved.get(&way.socket).into_iter().flatten();
        let found = found.map(|&(_, address)| address);
        let all = self.hubs.iter().copied().chain(found);
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
        for (socket, verdict) in verdicts {
            // It works by now.
            if self.without(socket, now).is_none() {
                continue;
            }
            let Some(verdict) = verdict else {
                self.verdicts.remove(&socket);
                continue;
            };
            // The link may be gone by now.
            let Some(interface) = device(&self.ways, socket) else {
                continue;
            };
            if self.verdicts.get(&socket) != Some(&verdict) {
                let what = match self.schedule.without(now) {
                    Some(_) => "no tunnel",
                    None => "no path",
                };
                tracing::warn!(interface, %verdict, "{what}");
                self.verdicts.insert(socket, verdict);
            }
        }
    }

    /// Says of each link what the hub answers there.
    pub(super) fn describe(&self, links: &mut [(SocketId, LinkStatus)], now: Instant) {
        for (socket, link) in links {
            if let Some(verdict) = self.verdicts.get(socket)
                && let Some(since) = self.without(*socket, now)
                && link.hub.is_none()
            {
                link.hub = Some(tried(verdict, since));
            }
        }
    }

    /// Why there is no tunnel, once it was looked over every link.
    pub(super) fn verdict(
        &self,
        links: &[(SocketId, LinkStatus)],
        resolved: &Resolved,
        now: Instant,
    ) -> Option<String> {
        let without = self.schedule.without(now)?;
        let nowhere = self.nowhere_to_ask(resolved);
        if nowhere.is_some() && without >= FIRST_LOOK {
            return nowhere;
        }
        let told = links
            .iter()
            .filter_map(|(socket, link)| Some((*socket, (&link.name, link.hub.as_ref()?))));
        let told: BTreeMap<SocketId, (&String, &String)> = told.collect();
        let untold = self.ways.iter().any(|way| !told.contains_key(&way.socket));
        if self.verdicts.is_empty() || untold {
            return None;
        }
        let mut meanings = self.verdicts.values().map(Verdict::meaning);
        let first = meanings.next()?;
        if self.verdicts.len() == told.len() && meanings.all(|other| other == first) {
            return Some(format!("no link reaches the hub: {first}"));
        }
        let each = told.values();
        let each = each.map(|(name, told)| format!("{name}: {told}"));
        Some(format!(
            "no link reaches the hub; {}",
            each.collect::<Vec<_>>().join("; ")
        ))
    }

    /// Why no link knows an address of the hub that it could reach, if that is so.
    fn nowhere_to_ask(&self, resolved: &Resolved) -> Option<String> {
        let unreachable = |way: &Way| self.hubs_of(way, resolved).is_empty();
        if self.ways.is_empty() || !self.ways.iter().all(unreachable) {
            return None;
        }
        let known = !self.hubs.is_empty() || resolved.values().any(|hubs| !hubs.is_empty());
        Some(if known {
            "no link has an address of the family that the hub's addresses are of".into()
        } else {
            "no resolver knows the hub's name".into()
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.schedule.poll_timeout()
    }
}

/// The interface of the link with a number.
fn device(ways: &[Way], socket: SocketId) -> Option<&str> {
    let way = ways.iter().find(|way| way.socket == socket);
    way.map(|way| way.device.as_str())
}

fn tried(verdict: &Verdict, since: Duration) -> String {
    format!("tried for {} s, {verdict}", since.as_secs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::daemon::edge::probe::{Tcp, Udp};

    const FIRST: SocketId = SocketId(0);
    const THIRD: SocketId = SocketId(2);

    fn way(socket: SocketId, device: &str) -> Way {
        Way {
            socket,
            device: device.into(),
            index: 1,
            sources: [Some([192, 0, 2, 1].into()), None],
            mark: None,
        }
    }

    fn link(socket: SocketId, name: &str) -> (SocketId, LinkStatus) {
        let status = json!({
            "name": name, "interface": name, "tier": 1, "weight": 1, "state": "up"
        });
        (socket, serde_json::from_value(status).unwrap())
    }

    fn verdict(udp: Udp) -> Option<Verdict> {
        Some(Verdict {
            hub: ([203, 0, 113, 10], 443).into(),
            udp,
            tcp: Tcp::Silent,
        })
    }

    /// An edge whose second link was taken out of the config, after a look over each link.
    fn looked(now: Instant) -> Outlook {
        let mut outlook = Outlook::new(
            Names::overheard().0,
            vec![([203, 0, 113, 10], 443).into()],
            now,
        );
        outlook.set_ways(vec![way(FIRST, "dsl"), way(THIRD, "lte")]);
        let verdicts = vec![
            (FIRST, verdict(Udp::Silent)),
            (THIRD, verdict(Udp::Refused)),
        ];
        outlook.handle_verdicts(verdicts, now);
        outlook
    }

    #[test]
    fn each_link_is_told_its_own_verdict_also_behind_an_empty_place() {
        let now = Instant::now();
        let outlook = looked(now);
        let mut links = [link(FIRST, "dsl"), link(THIRD, "lte")];

        outlook.describe(&mut links, now);

        let told = links.each_ref().map(|(_, link)| link.hub.clone().unwrap());
        assert!(told[0].contains("neither UDP nor TCP"), "{told:?}");
        assert!(told[1].contains("nothing listens there"), "{told:?}");
        let verdict = outlook.verdict(&links, &Resolved::new(), now).unwrap();
        assert!(
            verdict.contains("dsl: ") && verdict.contains("lte: "),
            "{verdict}"
        );
    }

    #[test]
    fn a_verdict_goes_with_its_link() {
        let now = Instant::now();
        let mut outlook = looked(now);
        outlook.set_ways(vec![way(FIRST, "wwan0"), way(THIRD, "lte")]);
        let mut links = [link(FIRST, "wwan0"), link(THIRD, "lte")];

        // The second link was removed while it was looked at.
        outlook.handle_verdicts(vec![(SocketId(1), verdict(Udp::Refused))], now);
        outlook.describe(&mut links, now);

        assert_eq!(links[0].1.hub, None);
        assert!(links[1].1.hub.is_some());
        assert_eq!(outlook.verdict(&links, &Resolved::new(), now), None);
        assert!(outlook.verdicts.keys().eq([&THIRD]));
    }

    #[test]
    fn a_link_by_which_nothing_is_answered_is_looked_at_beside_a_tunnel_and_no_other_is() {
        let now = Instant::now();
        let mut outlook = looked(now);
        outlook.handle_tunnels(0, 1, now);
        let asks = BTreeMap::from([(THIRD, now)]);
        assert!(outlook.is_to_follow(now));
        outlook.follow(&asks, now);
        assert!(!outlook.is_to_follow(now));
        assert_eq!(outlook.due(now), []);
        assert_eq!(outlook.due(now + FIRST_LOOK), [way(THIRD, "lte")]);
        assert_eq!(outlook.due(now + FIRST_LOOK), [], "it is on its way");

        let later = now + 2 * FIRST_LOOK;
        let verdicts = [FIRST, THIRD].map(|socket| (socket, verdict(Udp::Silent)));
        outlook.handle_verdicts(verdicts.into(), later);
        let mut links = [link(FIRST, "dsl"), link(THIRD, "lte")];
        outlook.describe(&mut links, later);
        assert_eq!(links[0].1.hub, None);
        let told = links[1].1.hub.take().unwrap();
        assert!(told.contains("neither UDP nor TCP"), "{told}");
        assert_eq!(outlook.verdict(&links, &Resolved::new(), later), None);

        outlook.follow(&BTreeMap::new(), later);
        outlook.describe(&mut links, later);
        assert_eq!(links[1].1.hub, None, "it is answered");
        assert_eq!(outlook.due(later + NEXT_SILENT_LOOK), []);
    }

    #[test]
    fn the_hubs_name_is_asked_for_again_when_the_engines_have_begun_anew() {
        let (names, told) = Names::overheard();
        let now = Instant::now();
        let mut outlook = Outlook::new(names, Vec::new(), now);
        outlook.handle_tunnels(0, 1, now);
        outlook.handle_tunnels(1, 1, now);
        assert_eq!(told(), [true]);

        outlook.handle_tunnels(0, 0, now);
        outlook.handle_tunnels(1, 0, now);

        assert_eq!(told(), [false]);
        assert_eq!(outlook.poll_timeout(), Some(now + FIRST_LOOK));
    }
}
