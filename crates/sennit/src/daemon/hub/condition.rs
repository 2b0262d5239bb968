//! How a hub and its sites stand, as far as no packet tells it.
//!
//! The registrar puts down what it finds in the store and on the host, and whoever asks for the
//! status reads it here: nobody who asks touches the disk.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use sennit_packet::Prefix;

pub(crate) use crate::journal::Trouble;
use crate::{
    date,
    identity::{Fingerprint, Rotation},
    journal::{Event, Journal},
    site::SiteName,
    status::{AuthorityStatus, LeasedPool, RefusedPrefix, SiteStatus, State},
    store::SiteRecord,
};

/// Sites that are away and listed all the same, those that left last. Each is 150 bytes of a
/// document that is made up to five times a second.
const MOST_AWAY: usize = 1000;

/// A trouble that was told is over when it was not found for so long: one that comes and goes would
/// fill the journal.
const OVER_AFTER: Duration = Duration::from_secs(30);

/// What was found last, and who hears when something begins or ends to be wrong.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    found: Mutex<Found>,
    told: Mutex<BTreeMap<Trouble, Option<Instant>>>,
    journal: Option<Journal>,
}

/// A copy of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Sites that have joined, and when each was last here.
    joined: Arc<[(SiteName, SystemTime)]>,
    troubles: BTreeMap<Trouble, String>,
    /// Chains of the host's firewall that drop what they are not told to forward.
    blockers: Vec<String>,
    /// What sites announce as their LANs and are not routed, by site.
    refused: Arc<BTreeMap<String, Vec<RefusedPrefix>>>,
    /// How far the rotation of the authority is, in words.
    rotation: Option<String>,
    /// By which authority sites know this hub.
    pub(crate) authority: Option<AuthorityStatus>,
    /// Where sites have their addresses from.
    pub(crate) pools: Vec<LeasedPool>,
}

impl Condition {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal: Some(journal),
            ..Self::default()
        }
    }

    /// These are all sites of the store. Clients with a bearer token come and go as they like, and
    /// nobody misses them.
    pub(crate) fn note_sites(&self, sites: &[SiteRecord]) {
        let joined = sites.iter().filter(|it| it.revoked.is_none() && !it.bearer);
        let joined = joined.filter_map(|site| Some((site.name.clone(), site.seen?)));
        let joined = joined.collect();
        self.lock().joined = joined;
    }

    /// So many addresses of the pool are leased.
    pub(crate) fn note_pools(&self, pools: Vec<LeasedPool>) {
        self.lock().pools = pools;
    }

    /// This trouble there is, in words, or not; whether it is new.
    pub(crate) fn note(&self, trouble: Trouble, found: Option<String>) -> bool {
        self.tell(trouble, found.as_deref(), Instant::now());
        let troubles = &mut self.lock().troubles;
        match found {
            Some(found) => troubles.insert(trouble, found).is_none(),
            None => {
                troubles.remove(&trouble);
                false
            }
        }
    }

    /// Has the journal hear of a trouble that begins.
    fn tell(&self, trouble: Trouble, reason: Option<&str>, now: Instant) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match (told.get_mut(&trouble), reason) {
            (None, None) => {}
            (None, Some(reason)) => {
                told.insert(trouble, None);
                self.hear(Event::HubDegraded {
                    trouble,
                    reason: reason.into(),
                });
            }
            (Some(gone), Some(_)) => *gone = None,
            (Some(gone), None) => *gone = Some(gone.unwrap_or(now)),
        }
    }

    /// Has the journal hear of those that are over; to be called now and then.
    pub(crate) fn settle(&self, now: Instant) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|&trouble, gone| {
            let over = gone.is_some_and(|since| now >= since + OVER_AFTER);
            if over {
                self.hear(Event::HubRecovered { trouble });
            }
            !over
        });
    }

    fn hear(&self, event: Event) {
        if let Some(journal) = &self.journal {
            journal.note(event);
        }
    }

    /// These chains block; returns those that were not known to.
    pub(crate) fn note_blockers(&self, chains: Vec<String>) -> Vec<String> {
        let known = &mut self.lock().blockers;
        let new = chains.iter().filter(|chain| !known.contains(chain));
        let new = new.cloned().collect();
        *known = chains;
        new
    }

    /// This is all that a site announces and is not routed there.
    pub(crate) fn note_refused(&self, site: &str, refused: &[(Prefix, String)]) {
        let told = refused.iter().map(|(prefix, reason)| RefusedPrefix {
            prefix: prefix.to_string(),
            reason: reason.clone(),
        });
        let all = &mut self.lock().refused;
        if refused.is_empty() && !all.contains_key(site) {
            return;
        }
        // Who reads the status has the one of before.
        let all = Arc::make_mut(all);
        match refused.is_empty() {
            true => all.remove(site),
            false => all.insert(site.to_owned(), told.collect()),
        };
    }

    /// This is the present authority, and it is rotated, or not.
    pub(crate) fn note_authority(&self, present: Option<Fingerprint>, rotation: Option<&Rotation>) {
        let count = |sites: &[SiteRecord]| sites.len() as u64;
        let authority = present.map(|present| AuthorityStatus {
            fingerprint: present.to_string(),
            former: rotation.map(|it| it.former.to_string()),
            rotated: rotation.and_then(|it| it.since).map(date::seconds),
            behind: rotation.map(|it| count(&it.behind)),
            invited: rotation.map(|it| count(&it.invited)),
        });
        let mut found = self.lock();
        found.rotation = rotation.map(ToString::to_string);
        found.authority = authority;
    }

    pub(crate) fn found(&self) -> Found {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// The state of the hub, and why it is not `up`.
    pub(crate) fn state(&self) -> (State, Option<String>) {
        if self.troubles.is_empty() {
            return (State::Up, None);
        }
        let troubles: Vec<&str> = self.troubles.values().map(String::as_str).collect();
        (State::Degraded, Some(troubles.join("; ")))
    }

    /// What else an operator should know.
    pub(crate) fn notes(&self, device: &str) -> Vec<String> {
        let note = |chain: &String| {
            format!(
                "`{chain}` of this host's firewall drops what it is not told to forward: it has to \
                 accept what comes from {device} and what goes there, else sites reach nothing \
                 behind this hub (see Troubleshooting: the tunnel is up, and there is no internet)"
            )
        };
        let blockers = self.blockers.iter().map(note);
        blockers.chain(self.rotation.clone()).collect()
    }

    /// Adds to each site what it announces and is not routed there.
    pub(crate) fn add_refused(&self, sites: &mut [SiteStatus]) {
        for site in sites {
            if let Some(refused) = self.refused.get(site.name.as_str()) {
                site.refused_lan.clone_from(refused);
            }
        }
    }

    /// Lists the sites that have joined and are not here, also by name; a note if there are more
    /// than anybody lists.
    pub(crate) fn add_away(&self, sites: &mut Vec<SiteStatus>) -> Option<String> {
        let here = |name: &SiteName| sites.binary_search_by(|it| it.name.cmp(name)).is_ok();
        let away = self.joined.iter().filter(|(name, _)| !here(name));
        let mut away: Vec<&(SiteName, SystemTime)> = away.collect();
        away.sort_by_key(|(_, seen)| std::cmp::Reverse(*seen));
        let more = away.len().saturating_sub(MOST_AWAY);
        away.truncate(MOST_AWAY);
        let away = away.into_iter();
        sites.extend(away.map(|(name, seen)| absent(name.clone(), *seen)));
        sites.sort_by(|one, other| one.name.cmp(&other.name));
        (more > 0).then(|| format!("{more} more sites are away: `sennit sites` lists them"))
    }
}

fn absent(name: SiteName, seen: SystemTime) -> SiteStatus {
    SiteStatus {
        name,
        state: State::Down,
        last_seen: Some(date::seconds(seen)),
        classes: Vec::new(),
        sent_bytes: 0,
        received_bytes: 0,
        links: Vec::new(),
        refused_lan: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{self, Keeper, Wanted};

    fn site(name: &str, seen: Option<u64>) -> SiteRecord {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        SiteRecord {
            name: name.parse().unwrap(),
            created: at(0),
            revoked: None,
            v4: None,
            v6: None,
            lan: Vec::new(),
            refused: Vec::new(),
            granted: Vec::new(),
            reach: None,
            bearer: false,
            invited: false,
            seen: seen.map(at),
            seen_from: Vec::new(),
            certified_until: None,
            behind: false,
            moves: true,
        }
    }

    fn here(name: &str) -> SiteStatus {
        SiteStatus {
            state: State::Up,
            last_seen: None,
            classes: vec!["default".into()],
            ..absent(name.parse().unwrap(), SystemTime::UNIX_EPOCH)
        }
    }

    #[test]
    fn who_has_joined_and_is_away_is_listed_as_down_and_nobody_else() {
        let condition = Condition::default();
        let mut revoked = site("old", Some(5));
        revoked.revoked = Some(SystemTime::UNIX_EPOCH);
        let mut phone = site("phone", Some(5));
        phone.bearer = true;
        let invited = site("next", None);
        condition.note_sites(&[
            site("bike", Some(60)),
            invited,
            revoked,
            phone,
            site("ship", Some(5)),
        ]);
        let mut sites = vec![here("car"), here("ship")];

        assert_eq!(condition.found().add_away(&mut sites), None);

        let told: Vec<(&str, State, Option<&str>)> = sites
            .iter()
            .map(|it| (it.name.as_str(), it.state, it.last_seen.as_deref()))
            .collect();
        let expected = [
            ("bike", State::Down, Some("1970-01-01T00:01:00Z")),
            ("car", State::Up, None),
            ("ship", State::Up, None),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn of_many_that_are_away_those_are_listed_that_left_last() {
        let condition = Condition::default();
        let many = (0..MOST_AWAY as u64 + 2).map(|it| site(&format!("site-{it}"), Some(it)));
        condition.note_sites(&many.collect::<Vec<_>>());
        let mut sites = vec![here("site-5")];

        let note = condition.found().add_away(&mut sites).unwrap();

        assert_eq!(sites.len(), MOST_AWAY + 1);
        assert!(note.starts_with("1 more sites are away"), "{note}");
        assert!(!sites.iter().any(|it| it.name.as_str() == "site-0"));
    }

    #[test]
    fn a_site_has_what_is_not_routed_to_it_until_it_announces_that_no_more() {
        let condition = Condition::default();
        let prefix: Prefix = "1.1.1.1/32".parse().unwrap();
        let refused = [(prefix, "no".to_owned())];
        let told = || {
            let mut sites = [here("car"), here("ship")];
            condition.found().add_refused(&mut sites);
            sites.map(|site| site.refused_lan.len())
        };

        condition.note_refused("ship", &refused);
        assert_eq!(told(), [0, 1]);

        condition.note_refused("ship", &[]);
        assert_eq!(told(), [0, 0]);
    }

    #[test]
    fn a_hub_in_trouble_is_degraded_until_that_is_over() {
        let condition = Condition::default();
        assert_eq!(condition.found().state(), (State::Up, None));

        let why = |text: &str| Some(text.to_owned());
        assert!(condition.note(Trouble::Forwarding, why("the host forwards little")));
        assert!(condition.note(Trouble::Reading, why("its store cannot be read")));
        let is_new = condition.note(Trouble::Forwarding, why("the host forwards nothing"));
        assert!(!is_new, "in other words it is the same");
        let all = why("its store cannot be read; the host forwards nothing");
        assert_eq!(condition.found().state(), (State::Degraded, all));

        assert!(!condition.note(Trouble::Forwarding, None));
        condition.note(Trouble::Reading, None);
        assert_eq!(condition.found().state(), (State::Up, None));
        assert!(condition.note(Trouble::Reading, why("it is back")));
    }

    #[test]
    fn the_journal_hears_when_a_trouble_begins_and_once_it_stays_away() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = Keeper::start(&dir.path().join("journal.db")).unwrap();
        let condition = Condition::new(keeper.journal().clone());
        let full = |there: bool| condition.note(Trouble::Pool, there.then(|| "it is full".into()));
        let start = Instant::now();
        // A site comes each second, and goes.
        for _ in 0..5 {
            full(true);
            full(false);
            condition.settle(start + Duration::from_secs(10));
        }
        condition.settle(Instant::now() + OVER_AFTER);
        full(true);

        drop(keeper);
        let told = journal::read_file(&dir.path().join("journal.db"), &Wanted::default());
        let events = told.unwrap().events;
        let texts: Vec<&str> = events.iter().map(|it| it.text.as_str()).collect();
        let begins = "the hub does not do all that it should: it is full";
        let over = "of the hub: its pool has addresses again";
        assert_eq!(texts, [begins, over, begins]);
    }

    #[test]
    fn a_chain_that_blocks_is_a_note_and_is_new_once() {
        let condition = Condition::default();
        let docker = || vec!["ip filter FORWARD".to_owned()];

        assert_eq!(condition.note_blockers(docker()), docker());
        assert_eq!(condition.note_blockers(docker()), [""; 0]);

        let notes = condition.found().notes("sennit0");
        assert!(
            notes[0].starts_with("`ip filter FORWARD` of this host's"),
            "{notes:?}"
        );
        condition.note_blockers(Vec::new());
        assert_eq!(condition.found().notes("sennit0"), [""; 0]);
    }
}
