//! What the workers of an edge say of themselves, as one document.

use std::{
    net::IpAddr,
    sync::{Arc, mpsc},
    time::{Instant, SystemTime},
};

use sennit_packet::Prefix;

use super::{
    accounts::Accounts,
    answer::{Answer, Report},
    leak,
    letter::{Letter, TakesNot},
    limits,
    machine::TURNED_AWAY_HELP,
    passing::Passing,
    running::Running,
    sorted,
    starved::Starved,
};
use crate::{
    config::{self, EdgeConfig, HostFinding},
    control::{Ask, IdentityAnswer, LinkAnswer, LinkBounds, LinkRates, Refused, Request, Response},
    daemon::{
        confinement,
        mailbox::{self, Question, Slot},
        reload::{self, Reloader},
        traffic,
    },
    date,
    drill::Drills,
    identity::EdgeIdentity,
    journal::Journal,
    speedtest::Speedtests,
    status::{
        LinkCause, LinkState, LinkStatus, PathState, PathStatus, RefusedPrefix, Role, SCHEMA,
        State, Status, TunnelStatus,
    },
};

/// Where an edge is asked: on threads of the control socket and the API, with what all workers say.
pub(super) struct Front {
    pub(super) reloader: Arc<Reloader<Running>>,
    pub(super) accounts: Arc<Accounts>,
    pub(super) passing: Passing,
    pub(super) starved: Starved,
    pub(super) started: Instant,
    pub(super) hold: leak::Hold,
    /// What is wrong with the LAN.
    pub(super) lan: leak::Seen<Vec<HostFinding>>,
    pub(super) workers: Vec<Slot<Question<Answer>>>,
    pub(super) letters: Arc<[Slot<Letter>]>,
    pub(super) journal: Journal,
    pub(super) speedtests: Speedtests,
    pub(super) drills: Drills,
}

impl Ask for Front {
    fn status(&self, request: &Request) -> Result<Status, Refused> {
        let answers = mailbox::ask_all(&self.workers, request)?;
        Ok(self.document(answers))
    }

    fn answer(&self, request: Request) -> Response {
        match request {
            Request::Status | Request::Summary | Request::Flow { .. } => {
                Response::result(self.status(&request))
            }
            Request::Packet { ref packet } => {
                match sorted::sort(&self.reloader.running(), packet) {
                    Some(reason) => Response::document(&reason),
                    None => Response::refused("no_packet", format!("`{packet}` is no packet")),
                }
            }
            Request::Events { wanted } => Response::document(&self.journal.read(&wanted)),
            Request::Disconnect { .. } => {
                Response::refused("not_a_hub", "an edge has no sites to disconnect")
            }
            Request::Link { ref link, .. } => self.link_answer(link, &request),
            Request::Drill {
                ref link,
                ref order,
            } => self.drills.answer(link, order),
            Request::Limit { ref link, bounds } => match self.limit(link, bounds) {
                Ok(()) => self.link_answer(link, &Request::Summary),
                Err(refused) => Response::Refused(refused),
            },
            Request::Identity => match self.take_up_identity() {
                Ok(answer) => Response::document(&answer),
                Err(refused) => Response::Refused(refused),
            },
            Request::Reload { confirm_seconds } => self.reloader.reload(confirm_seconds),
            Request::Keep => self.reloader.keep(),
            Request::Leases => Response::refused("not_a_hub", "an edge leases nothing"),
            Request::Invitations { .. } => Response::refused("not_a_hub", "an edge invites nobody"),
            Request::Config { ref order } => self.reloader.handle_config(order),
            Request::Usage => self.accounts.document(),
            Request::Speedtest { ref order } => self.speedtests.answer(order),
        }
    }

    fn note_second(&self, status: &Status, rates: LinkRates) {
        let now = Instant::now();
        self.passing.note(rates, now);
        for event in self.starved.look(&status.tunnels, now) {
            self.journal.note(event);
        }
    }
}

impl Front {
    /// Has a link carry so much at most, until it is said otherwise or the edge ends.
    fn limit(&self, link: &str, bounds: LinkBounds) -> Result<(), Refused> {
        let amended = self
            .reloader
            .amend(|running| running.limited(link, bounds))?;
        tracing::info!(link, ?bounds, "the operator has spoken");
        self.journal.note(limits::event(link, &amended.limits));
        Ok(())
    }

    /// Has the tunnels started over as who the state directory says that this edge is.
    fn take_up_identity(&self) -> Result<IdentityAnswer, Refused> {
        let running = self.reloader.running();
        let loaded = EdgeIdentity::load(&running.config.state);
        let identity = loaded.map_err(|error| Refused::new("no_identity", error.to_string()))?;
        let answer = IdentityAnswer {
            schema: IdentityAnswer::SCHEMA.into(),
            site: identity.site.clone(),
        };
        let tunnels = self.status(&Request::Summary)?.tunnels;
        let any = tunnels.iter().any(|tunnel| tunnel.state == State::Up);
        if any && !identity.is_enrolled() {
            let message = "its tunnel is up, and whether the hub takes the new token is not known";
            return Err(Refused::new("tunnel_is_up", message));
        }
        let hubs: Vec<String> = identity
            .hubs
            .iter()
            .map(|hub| format!("\"{hub}\""))
            .collect();
        let (done, heard) = mpsc::channel();
        self.letters[0].post(Letter::Identity(Box::new(identity), done));
        match heard.recv_timeout(reload::PATIENCE) {
            Ok(Ok(())) => Ok(answer),
            Ok(Err(TakesNot::Proxied)) => {
                let message = "it connects to a proxy, and is no site of a hub";
                Err(Refused::new("no_site", message))
            }
            Ok(Err(TakesNot::OtherHub)) => {
                let message = format!(
                    "another hub has invited it than its config names: first write hub = [{}] there",
                    hubs.join(", ")
                );
                Err(Refused::new("other_hub", message))
            }
            Err(_) => Err(Refused::new("busy", "it does not answer in time")),
        }
    }

    fn document(&self, answers: Vec<Answer>) -> Status {
        let reports = answers.into_iter().map(Answer::tell).collect();
        let running = self.reloader.running();
        let mut status = status(&running.config, self.started, reports);
        running.describe_limits(&mut status.links);
        self.accounts.describe(&mut status.links);
        self.passing.describe(&mut status.links, Instant::now());
        status.notes.extend(self.reloader.notes());
        let now = Instant::now();
        let look = || config::look_at_lan(&running.config);
        let lan = self.lan.within(leak::FRESH_ROUTES, now, look);
        status.notes.extend(lan.into_iter().map(|it| it.message));
        status.leak = self.hold.status(&running.config, now);
        status.config = Some(self.reloader.status());
        status
    }

    /// What there is to say of a link after the workers have done what is asked.
    fn link_answer(&self, name: &str, request: &Request) -> Response {
        let answers = match mailbox::ask_all(&self.workers, request) {
            Ok(answers) => answers,
            Err(busy) => return Response::Refused(busy),
        };
        let inside = answers.iter().flat_map(|it| &it.hub_inside).copied();
        let hub_inside = inside.collect();
        let mut links = self.document(answers).links.into_iter();
        match links.find(|link| link.name == name) {
            Some(link) => Response::document(&LinkAnswer {
                schema: LinkAnswer::SCHEMA.into(),
                link,
                hub_inside,
            }),
            None => Response::Refused(Refused::no_link(name)),
        }
    }
}

/// One document for all workers, with the tunnels in the order of the classes.
fn status(config: &EdgeConfig, started: Instant, reports: Vec<Report>) -> Status {
    let (mut addresses, mut links) = (Vec::new(), Vec::new());
    let (mut tunnels, mut workers) = (Vec::new(), Vec::new());
    let mut refused_lan = Vec::new();
    let (mut notes, mut verdict, mut certificate) = (Vec::new(), None, None);
    let mut refusal = None;
    let mut facts = Vec::new();
    for report in reports {
        notes.extend(report.notes);
        verdict = verdict.or(report.verdict);
        refusal = refusal.or(report.refusal);
        certificate = certificate.or(report.certificate);
        addresses.extend(report.addresses);
        add_refused(&mut refused_lan, report.refused);
        links.extend(report.links);
        tunnels.extend(report.tunnels);
        workers.push(report.worker);
        facts.extend(report.traffic);
    }
    in_order_of_classes(&mut tunnels, config);
    for link in &mut links {
        judge(link, &tunnels);
    }
    traffic::add(&mut links, &facts, &tunnels);
    let (state, reason) = state(&addresses, &links, &tunnels, config.classes.len());
    let any = tunnels.iter().any(|tunnel| tunnel.state == State::Up);
    // What the hub itself has said comes before what was seen from outside.
    let refusal = refusal.filter(|_| !any);
    let turned_away = refusal.is_some();
    if turned_away {
        notes.insert(0, TURNED_AWAY_HELP.to_owned());
    }
    let reason = refusal.or(verdict.filter(|_| !any)).or(reason);
    Status {
        schema: SCHEMA.into(),
        time: date::millis(SystemTime::now()),
        role: Role::Edge,
        version: env!("CARGO_PKG_VERSION").into(),
        state,
        reason,
        turned_away,
        uptime_seconds: started.elapsed().as_secs_f64(),
        device: config.device.to_string(),
        addresses,
        notes,
        links,
        refused_lan,
        sites: Vec::new(),
        tunnels,
        leak: None,
        pools: Vec::new(),
        config: None,
        certificate,
        authority: None,
        workers,
        confinement: confinement::status(),
    }
}

/// Adds those that are not known: the hub says the same to each worker.
fn add_refused(known: &mut Vec<RefusedPrefix>, refused: Vec<(Prefix, String)>) {
    for (prefix, reason) in refused {
        let prefix = prefix.to_string();
        if !known.iter().any(|it| it.prefix == prefix) {
            known.push(RefusedPrefix { prefix, reason });
        }
    }
}

/// Puts tunnels into the order of their classes, with the links that these may use.
fn in_order_of_classes(tunnels: &mut [TunnelStatus], config: &EdgeConfig) {
    let position = |tunnel: &TunnelStatus| {
        let mut classes = config.classes.iter();
        classes.position(|class| class.name == tunnel.class)
    };
    tunnels.sort_by_key(position);
    for tunnel in tunnels {
        let class = position(tunnel).map(|place| &config.classes[place]);
        tunnel.links = class.and_then(|class| class.links.clone());
    }
}

/// A path comes up within this, also on a slow link beside others that carry.
const ANSWERED_WITHIN: f64 = 5.0;

/// A link is down if all its paths are, or if nobody gets one there, whatever its interface says.
fn judge(link: &mut LinkStatus, tunnels: &[TunnelStatus]) {
    let paths = tunnels.iter().flat_map(|tunnel| &tunnel.paths);
    let paths = paths.filter(|path| path.link.as_ref() == Some(&link.name));
    let dead = |path: &&PathStatus| matches!(path.state, PathState::Suspect | PathState::Down);
    let paths: Vec<&PathStatus> = paths.collect();
    if link.state == LinkState::Down || !paths.iter().all(dead) {
        return;
    }
    if paths.is_empty()
        && let Some(since) = unanswered(link, tunnels)
    {
        link.state = LinkState::Down;
        link.cause = Some(LinkCause::NoPath);
        let unknown = || "the hub answers nothing that leaves by it".to_owned();
        link.reason = Some(link.hub.clone().unwrap_or_else(unknown));
        link.since_seconds = since;
    }
    let latest = |one: &&&PathStatus, other: &&&PathStatus| {
        one.since_seconds.total_cmp(&other.since_seconds)
    };
    if let Some(path) = paths.iter().min_by(latest) {
        link.state = LinkState::Down;
        link.cause = Some(LinkCause::NoPath);
        link.reason.clone_from(&path.reason);
        link.since_seconds = path.since_seconds;
    }
}

/// How long tunnels have asked in vain for a path on a link, if that is long.
fn unanswered(link: &LinkStatus, tunnels: &[TunnelStatus]) -> Option<f64> {
    let asks = tunnels.iter().flat_map(|tunnel| &tunnel.unanswered);
    let here = asks.filter(|ask| ask.link == link.name);
    let longest = here.map(|ask| ask.since_seconds).reduce(f64::max);
    longest.filter(|since| *since >= ANSWERED_WITHIN)
}

/// Whether all of it works, and what does not.
fn state(
    addresses: &[IpAddr],
    links: &[LinkStatus],
    tunnels: &[TunnelStatus],
    classes: usize,
) -> (State, Option<String>) {
    let up = tunnels.iter().filter(|it| it.state == State::Up).count();
    let wanted = links.iter().filter(|it| it.state == LinkState::Up).count();
    let pathless: Vec<&str> = pathless(links, tunnels).collect();
    if up == 0 && tunnels.iter().all(|it| it.state == State::Connecting) {
        let reason = tunnels.first().and_then(|it| it.reason.clone());
        (State::Connecting, reason)
    } else if up == 0 {
        (State::Down, tunnels.iter().find_map(|it| it.reason.clone()))
    } else if addresses.is_empty() {
        // Without them there are no routes: packets would leave beside the tunnel.
        let reason = "the hub has not assigned addresses yet";
        (State::Connecting, Some(reason.into()))
    } else if up < classes || links.len() > wanted {
        let reason = format!(
            "{wanted} of {} links, {up} of {classes} tunnels",
            links.len(),
        );
        (State::Degraded, Some(reason))
    } else if !pathless.is_empty() {
        let reason = format!("not every class has its path on {}", pathless.join(", "));
        (State::Degraded, Some(reason))
    } else {
        (State::Up, None)
    }
}

/// Links that are up and on which a class that may use them has no path that is.
fn pathless<'a>(
    links: &'a [LinkStatus],
    tunnels: &'a [TunnelStatus],
) -> impl Iterator<Item = &'a str> {
    let lacks = |tunnel: &TunnelStatus, link: &LinkStatus| {
        let names = tunnel.links.as_ref();
        let is_used = names.is_none_or(|names| names.contains(&link.name));
        let up = tunnel.paths.iter().filter(|it| it.state == PathState::Up);
        let mut here = up.filter(|it| it.link.as_ref() == Some(&link.name));
        is_used && here.next().is_none()
    };
    let up = links.iter().filter(|it| it.state == LinkState::Up);
    let lacking = up.filter(move |&link| tunnels.iter().any(|tunnel| lacks(tunnel, link)));
    lacking.map(|link| link.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::{
        edge::tests::config,
        tests::{self, tunnel},
    };
    use crate::status::UnansweredStatus;

    fn link(state: LinkState) -> LinkStatus {
        LinkStatus {
            state,
            ..tests::link("lte")
        }
    }

    #[test]
    fn what_workers_report_is_one_document_in_the_order_of_the_classes() {
        let config = config("", &["voice", "bulk", "rest"]);
        let worker = |tunnels: &[&str]| Report {
            tunnels: tunnels.iter().map(|class| tunnel("van", class)).collect(),
            ..Report::default()
        };
        let first = Report {
            addresses: vec!["10.200.0.2".parse().unwrap()],
            links: vec![link(LinkState::Up)],
            ..worker(&["voice", "rest"])
        };

        let status = status(&config, Instant::now(), vec![first, worker(&["bulk"])]);

        let classes: Vec<&str> = status.tunnels.iter().map(|it| it.class.as_str()).collect();
        assert_eq!(classes, ["voice", "bulk", "rest"]);
        assert_eq!((status.links.len(), status.addresses.len()), (1, 1));
        assert_eq!(status.workers.len(), 2);
    }

    /// It was forgotten for what is seen from outside: that a QUIC server answers, and no tunnel
    /// comes up.
    #[test]
    fn what_the_hub_said_when_it_turned_the_edge_away_comes_before_what_was_seen_from_outside() {
        let refused = "the hub refused the tunnel: site van is revoked (status 403)";
        let waiting = TunnelStatus {
            state: State::Connecting,
            ..tunnel("van", "all")
        };
        let of = |refusal: Option<&str>, tunnel: &TunnelStatus| {
            let report = Report {
                refusal: refusal.map(str::to_owned),
                verdict: Some("no link reaches the hub".into()),
                tunnels: vec![tunnel.clone()],
                ..Report::default()
            };
            status(&config("", &["all"]), Instant::now(), vec![report])
        };

        let status = of(Some(refused), &waiting);
        assert_eq!(status.reason.as_deref(), Some(refused));
        assert!(status.turned_away);
        assert!(status.notes[0].contains("sennit join TOKEN --force"));

        let unreached = of(None, &waiting);
        let seen = Some("no link reaches the hub");
        assert_eq!(
            (unreached.reason.as_deref(), unreached.turned_away),
            (seen, false)
        );
        assert!(!of(Some(refused), &tunnel("van", "all")).turned_away);
    }

    #[test]
    fn a_link_is_down_by_which_nobody_gets_a_path_and_not_before_one_could_have_come() {
        let asks = |since_seconds| {
            let mut one = tunnel("van", "voice");
            one.paths.clear();
            one.unanswered = vec![UnansweredStatus {
                link: "lte".into(),
                since_seconds,
            }];
            one
        };
        let judged = |tunnels: &[TunnelStatus]| {
            let mut link = link(LinkState::Up);
            judge(&mut link, tunnels);
            link
        };

        assert_eq!(judged(&[asks(1.0)]).state, LinkState::Up);
        let dead = judged(&[asks(1.0), asks(60.0)]);
        assert_eq!(dead.state, LinkState::Down);
        assert_eq!(dead.cause, Some(LinkCause::NoPath));
        assert_eq!(dead.since_seconds, 60.0);
        let mut served = tunnel("van", "bulk");
        served.paths = vec![tests::path("lte")];
        assert_eq!(judged(&[asks(60.0), served]).state, LinkState::Up);
    }

    #[test]
    fn an_edge_is_up_when_all_classes_are_and_says_what_is_missing() {
        let classes = ["voice", "bulk"];
        let tunnels = classes.map(|class| tunnel("van", class));
        let up = [link(LinkState::Up)];
        let of = |links: &[LinkStatus], tunnels: &[TunnelStatus]| {
            let assigned = ["10.200.0.2".parse().unwrap()];
            let (state, reason) = state(&assigned, links, tunnels, classes.len());
            (state, reason.unwrap_or_default())
        };

        let degraded = |reason: &str| (State::Degraded, reason.to_owned());
        let pathless = degraded("not every class has its path on lte");
        assert_eq!(of(&up, &tunnels), pathless);
        assert_eq!(of(&[], &tunnels), (State::Up, String::new()));
        assert_eq!(
            state(&[], &[], &tunnels, classes.len()).0,
            State::Connecting
        );
        // The second worker has no engine for its class yet.
        let half = degraded("1 of 1 links, 1 of 2 tunnels");
        assert_eq!(of(&up, &tunnels[..1]), half);
        let cut = degraded("0 of 1 links, 2 of 2 tunnels");
        assert_eq!(of(&[link(LinkState::Down)], &tunnels), cut);

        let mut waiting = tunnels.clone();
        for tunnel in &mut waiting {
            tunnel.state = State::Connecting;
            tunnel.reason = Some("no link is up".into());
        }
        let connecting = (State::Connecting, "no link is up".to_owned());
        assert_eq!(of(&up, &waiting), connecting);
        waiting[0].state = State::Down;
        assert_eq!(of(&up, &waiting).0, State::Down);
    }
}
