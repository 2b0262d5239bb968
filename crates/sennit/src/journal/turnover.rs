//! How much the journal is told of the comings and goings at the other end of tunnels.
//!
//! A site may end its tunnels and come back, and renew its certificate, as often as it likes; so
//! may a hub have its edges do, and refuse them, and assign other addresses. The journal keeps a
//! bounded number of events for all. So it has the first of each minute of a site, or at an edge of
//! its hub, and when the minute is over how tunnels and paths stand then, and how much happened in
//! between.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use super::Event;

/// Time after which a site's events are told again.
const WINDOW: Duration = Duration::from_secs(60);
/// Events of a site that are told in that time: three classes over six links that all fail and
/// come back make 42.
const TOLD: u32 = 60;
/// Tunnels and paths of a site whose last state is kept to be told: a site names its links as it
/// likes.
const KEPT: usize = 120;
/// Events of an edge's hub that are told in that time. The edge has nobody else to leave room for:
/// sixteen classes over four links that all fail over are 144, and with what is told later the
/// journal has ten minutes at least.
const TOLD_AT_EDGE: u32 = 240;
/// What an edge's own events are of: no site is called so.
const HUB: &str = "the hub";

/// The accounts of all sites.
#[derive(Debug, Default)]
pub(super) struct Turnover {
    sites: BTreeMap<String, Account>,
}

#[derive(Debug)]
struct Account {
    since: Instant,
    told: u32,
    untold: u64,
    /// How a class stands, or its path over a link, and since when, of what was not told.
    latest: BTreeMap<(String, Option<String>), (SystemTime, Event)>,
}

/// What is told when a site's time is over.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Late {
    /// The oldest first.
    pub(super) events: Vec<(SystemTime, Event)>,
    /// How many more there were.
    pub(super) untold: u64,
    /// The sites that they are of.
    pub(super) sites: Vec<String>,
}

impl Turnover {
    /// The event back, if the journal is to be told of it now.
    pub(super) fn admit(&mut self, at: SystemTime, event: Event, now: Instant) -> Option<Event> {
        let Some((site, subject)) = subject(&event) else {
            return Some(event);
        };
        let most = if site == HUB { TOLD_AT_EDGE } else { TOLD };
        let account = self.sites.entry(site).or_insert_with(|| Account::new(now));
        if account.untold == 0 && account.is_over(now) {
            *account = Account::new(now);
        }
        if account.told < most {
            account.told += 1;
            return Some(event);
        }
        account.untold += 1;
        if account.latest.len() < KEPT || account.latest.contains_key(&subject) {
            account.latest.insert(subject, (at, event));
        }
        None
    }

    /// When there is something to tell.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let waiting = self.sites.values().filter(|account| account.untold > 0);
        waiting.map(|account| account.since + WINDOW).min()
    }

    /// What is told of the sites whose time is over; of all if `now` is none.
    pub(super) fn take_late(&mut self, now: Option<Instant>) -> Late {
        let mut late = Late::default();
        self.sites.retain(|site, account| {
            if now.is_some_and(|now| !account.is_over(now)) {
                return true;
            }
            if account.untold > 0 {
                late.untold += account.untold - account.latest.len() as u64;
                late.events
                    .extend(std::mem::take(&mut account.latest).into_values());
                late.sites.push(site.clone());
            }
            false
        });
        late.events.sort_by_key(|(at, _)| *at);
        late
    }
}

impl Account {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            told: 0,
            untold: 0,
            latest: BTreeMap::new(),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

/// Whose coming or going it is, and of what.
fn subject(event: &Event) -> Option<(String, (String, Option<String>))> {
    let whose = |site: &Option<String>| site.clone().unwrap_or_else(|| HUB.into());
    match event {
        Event::TunnelUp { site, class } | Event::TunnelDown { site, class, .. } => {
            Some((whose(site), (class.clone(), None)))
        }
        Event::PathUp { site, class, link }
        | Event::PathDown {
            site, class, link, ..
        } => Some((whose(site), (class.clone(), Some(link.clone())))),
        // Of a class without a tunnel that is the last that is known.
        Event::Refused { class, .. } => Some((HUB.into(), (class.clone(), None))),
        // Where a class has gone over to is where it has paths that are up.
        Event::Failover { class, from, .. } => {
            Some((HUB.into(), (class.clone(), Some(format!("from {from}")))))
        }
        // As both announce and refuse what they like, the last word stands for all. No class is
        // called so.
        Event::LanRefused { site, .. } => Some((whose(site), (event.kind(), None))),
        // A site may renew as often as it likes. No class is called so.
        Event::CertificateIssued { site } => Some((site.clone(), (String::new(), None))),
        Event::CertificateReceived { .. } | Event::AddressesAssigned { .. } => {
            Some((HUB.into(), (event.kind(), None)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(site: &str) -> Event {
        Event::TunnelUp {
            site: Some(site.into()),
            class: "bulk".into(),
        }
    }

    fn down(site: &str) -> Event {
        Event::TunnelDown {
            site: Some(site.into()),
            class: "bulk".into(),
            reason: "it said goodbye".into(),
        }
    }

    #[test]
    fn a_site_that_comes_and_goes_leaves_room_for_the_others_and_its_last_state_is_told() {
        let (start, at) = (Instant::now(), SystemTime::now());
        let mut turnover = Turnover::default();
        let mut told = 0;
        for turn in 0..10_000_u64 {
            let now = start + Duration::from_millis(turn);
            let event = if turn % 2 == 0 {
                up("loop")
            } else {
                down("loop")
            };
            told += u32::from(turnover.admit(at, event, now).is_some());
            if turn % 1000 == 0 {
                assert_eq!(turnover.admit(at, up("quiet"), now), Some(up("quiet")));
            }
        }
        assert_eq!(told, TOLD);
        assert_eq!(
            turnover.admit(at, Event::Stopped, start),
            Some(Event::Stopped)
        );
        assert_eq!(
            turnover.take_late(Some(start + WINDOW / 2)),
            Late::default()
        );

        assert_eq!(turnover.due_at(), Some(start + WINDOW));
        let late = turnover.take_late(Some(start + WINDOW));
        assert_eq!(late.events, [(at, down("loop"))]);
        assert_eq!(u64::from(told) + late.untold + 1, 10_000);
        assert_eq!(late.sites, ["loop"]);
        assert_eq!(turnover.due_at(), None);
    }

    #[test]
    fn a_hub_that_does_what_it_likes_leaves_an_edges_journal_ten_minutes() {
        let (start, at) = (Instant::now(), SystemTime::now());
        let (mut turnover, mut told) = (Turnover::default(), 0);
        let [up, down] = [up, down].map(|event| {
            let mut event = event("");
            if let Event::TunnelUp { site, .. } | Event::TunnelDown { site, .. } = &mut event {
                *site = None;
            }
            event
        });
        let others = (0..4).map(|n| Event::AddressesAssigned {
            addresses: vec![[10, 200, 0, n].into()],
        });
        let refused = Event::Refused {
            class: "web".into(),
            reason: "no".into(),
        };
        let all: Vec<Event> = [up, down, refused].into_iter().chain(others).collect();
        for millis in 0..600_000_u64 {
            let now = start + Duration::from_millis(millis);
            let late = turnover.take_late(Some(now));
            told += late.events.len() + usize::from(late.untold > 0);
            let event = all[usize::try_from(millis).unwrap() % all.len()].clone();
            told += usize::from(turnover.admit(at, event, now).is_some());
        }
        assert!(told < super::super::KEPT, "{told}");
        // Each class as it stands, and the addresses.
        assert_eq!(turnover.take_late(None).events.len(), 3);
    }

    #[test]
    fn who_comes_and_goes_now_and_then_is_always_told_of() {
        let (start, at) = (Instant::now(), SystemTime::now());
        let mut turnover = Turnover::default();
        for seconds in (0..7200).step_by(2) {
            let now = start + Duration::from_secs(seconds);
            assert!(turnover.admit(at, up("van"), now).is_some());
        }
        assert_eq!(turnover.take_late(None), Late::default());
    }

    #[test]
    fn a_site_that_renews_all_the_time_is_told_of_as_often_as_one_that_comes_and_goes() {
        let (start, at) = (Instant::now(), SystemTime::now());
        let mut turnover = Turnover::default();
        let issued = || Event::CertificateIssued {
            site: "loop".into(),
        };
        let told = (0..1000).filter(|_| turnover.admit(at, issued(), start).is_some());
        assert_eq!(told.count(), TOLD as usize);
        let late = turnover.take_late(None);
        assert_eq!(late.events, [(at, issued())]);
        assert_eq!(late.untold, 1000 - u64::from(TOLD) - 1);
    }

    #[test]
    fn links_of_any_number_of_names_are_bounded() {
        let (start, at) = (Instant::now(), SystemTime::now());
        let mut turnover = Turnover::default();
        for link in 0..100_000 {
            let event = Event::PathUp {
                site: Some("loop".into()),
                class: "bulk".into(),
                link: format!("link-{link}"),
            };
            turnover.admit(at, event, start);
        }
        let late = turnover.take_late(None);
        assert_eq!(late.events.len(), KEPT);
        assert_eq!(late.untold, 100_000 - u64::from(TOLD) - KEPT as u64);
    }
}
