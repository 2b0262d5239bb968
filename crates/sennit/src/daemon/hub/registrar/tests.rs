//! Who is let in and shut out, with a store and without a host.

use std::time::Duration;

use sennit_core::ClassId;
use sennit_engine::UdpRefusal;
use sennit_linux::poller::Poller;
use sennit_masque::capsule::NextAuthority;
use tempfile::TempDir;

use super::*;
use crate::{
    daemon::mailbox::{self, Mailbox},
    journal::Keeper,
    status::State,
    store::TokenKind,
};

/// A registrar, what one worker and who has the sockets of proxied UDP hear of it, and the store as
/// the command line has it.
struct World {
    registrar: Registrar,
    verdicts: Mailbox<Verdict>,
    orders: Mailbox<Order>,
    store: Store,
    _poller: Poller,
    keeper: Keeper,
    _dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (poller, now) = (Poller::new().unwrap(), SystemTime::now());
        let keeper = Keeper::start(&dir.path().join("events.jsonl")).unwrap();
        let (verdicts, verdict_slot) = mailbox::open(&poller, 0).unwrap();
        let (orders, order_slot) = mailbox::open(&poller, 1).unwrap();
        let names = ["hub.example".to_owned()];
        let identity = identity::HubIdentity::init(dir.path(), &names, now).unwrap();
        let trust = Arc::new(identity::trust(&identity, false).unwrap());
        let neighbours = Neighbours {
            verdicts: [verdict_slot].into(),
            directory: Arc::default(),
            condition: Arc::default(),
            gateway: Weak::new(),
            journal: keeper.journal().clone(),
            trust,
            relay: Some(order_slot),
        };
        let text = format!(
            "[hub]\nlisten = ['0.0.0.0:443']\npool = ['10.200.0.0/16']\nstate = '{}'\n[connect_udp]\n",
            dir.path().display()
        );
        let config = HubConfig::parse("hub.toml", text.as_bytes())
            .unwrap()
            .config;
        let registrar = Registrar::new(
            Store::create(dir.path()).unwrap(),
            identity.into_authorities(),
            Arc::new(config),
            Arc::new(Tickets::load(dir.path(), now)),
            neighbours,
        );
        Self {
            registrar: registrar.unwrap(),
            verdicts,
            orders,
            store: Store::open(dir.path()).unwrap(),
            _poller: poller,
            keeper,
            _dir: dir,
        }
    }

    /// A client with a bearer token, as it asks for a flow.
    fn client(&mut self, name: &str) -> Asker {
        let site = name.parse().unwrap();
        let token = identity::invite_bearer(&mut self.store, &site, None, SystemTime::now());
        Asker {
            worker: 0,
            request: RequestId::of_nobody(7),
            certificates: Vec::new(),
            bearer: Some(token.unwrap()),
        }
    }

    /// A site that has joined.
    fn joined(&mut self, name: &str) -> identity::EdgeIdentity {
        let (site, now) = (name.parse().unwrap(), SystemTime::now());
        let hubs = ["192.0.2.1:443".parse().unwrap()];
        let authorities = &self.registrar.authorities;
        let ttl = Duration::from_secs(3600);
        let invited = identity::invite(&mut self.store, &authorities[0], &site, &hubs, ttl, now);
        let state = self._dir.path().join(name);
        let mut edge = identity::EdgeIdentity::join(&state, &invited.unwrap(), false).unwrap();
        let request = edge.enrollment_request().unwrap();
        let answer = identity::exchange(&mut self.store, authorities, &[], &request, now);
        edge.accept(&answer.body).unwrap();
        edge
    }

    /// To which authority a site should move that asks for a tunnel.
    fn next(&mut self, edge: &identity::EdgeIdentity, moves: bool) -> Option<NextAuthority> {
        let (request, chain) = (RequestId::of_nobody(7), chain(edge));
        let peer = (&chain[..], None, moves);
        let verdict = self
            .registrar
            .answer_connect(request, peer, SystemTime::now());
        match verdict {
            Verdict::Grant(_, grant) => grant.next,
            other => panic!("{other:?}"),
        }
    }

    /// What the status says of the authority.
    fn rotation(&mut self) -> String {
        self.registrar.note_rotation(SystemTime::now());
        let found = self.registrar.neighbours.condition.found();
        found.notes("sennit0").concat()
    }

    /// The sites that have joined and have no tunnel, as the status lists them.
    fn away(&mut self) -> Vec<String> {
        self.registrar.look_for_changes(SystemTime::now());
        let mut sites = Vec::new();
        let found = self.registrar.neighbours.condition.found();
        assert_eq!(found.add_away(&mut sites), None);
        sites.iter().map(|site| site.name.to_string()).collect()
    }

    /// The addresses that a client is let in with.
    fn admit(&mut self, asker: &Asker) -> Result<Vec<IpAddr>, Refusal> {
        let bearer = asker.bearer.as_deref();
        let grant = self.registrar.admit(&[], bearer, SystemTime::now());
        grant.map(|grant| grant.addresses)
    }

    fn revoke(&mut self, name: &str) {
        let site = name.parse().unwrap();
        self.store.revoke(&site, SystemTime::now()).unwrap();
    }

    /// What came of a look-up that found this.
    fn find(&mut self, asker: &Asker, address: &str) -> Result<(), UdpRefusal> {
        let found = Ok(vec![address.parse().unwrap()]);
        let now = SystemTime::now();
        self.registrar.answer_found(asker, 443, found, now);
        let orders = std::iter::from_fn(|| self.orders.next());
        let opened = orders
            .filter(|order| matches!(order, Order::Open(_)))
            .count();
        let verdicts = std::iter::from_fn(|| self.verdicts.next());
        let mut refusals = verdicts.filter_map(|verdict| match verdict {
            Verdict::RefuseUdp(_, refusal) => Some(refusal),
            _ => None,
        });
        let refusal = refusals.next();
        assert_eq!(opened, usize::from(refusal.is_none()));
        refusal.map_or(Ok(()), Err)
    }
}

/// What a site shows.
fn chain(edge: &identity::EdgeIdentity) -> Vec<CertificateDer<'static>> {
    match &edge.credential {
        identity::Credential::Enrolled { chain, .. } => chain.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_is_here_is_told_of_another_authority_and_so_is_who_comes_until_it_has_moved() {
    let mut world = World::new();
    let (mut van, now, start) = (world.joined("van"), SystemTime::now(), Instant::now());
    assert_eq!(world.next(&van, true), None);
    let state = world._dir.path().to_owned();
    let said =
        |world: &World| -> Vec<Verdict> { std::iter::from_fn(|| world.verdicts.next()).collect() };

    let present = identity::rotate(&state, now).unwrap();
    world.registrar.attend(start + 2 * LOOK_EVERY);
    let next = NextAuthority {
        fingerprint: *present.as_bytes(),
        within: 1,
    };
    let told = said(&world);
    let is_it = |verdict: &&Verdict| matches!(verdict, Verdict::Offer(_, it) if *it == next);
    assert_eq!(told.iter().filter(is_it).count(), 1, "{told:?}");
    assert_eq!(world.next(&van, false), Some(next));
    let words = world.rotation();
    assert!(
        words.contains("van (its Sennit is too old, last here"),
        "{words}"
    );
    assert_eq!(
        world.next(&van, true),
        Some(next),
        "after a restart with a newer one"
    );
    assert!(world.rotation().contains("van (last here"));

    let old = chain(&van);
    van.move_to_authority(present);
    let request = RequestId::of_nobody(8);
    let body = van.enrollment_request().unwrap();
    match world.registrar.answer_enrol(request, &old, &body, now) {
        Verdict::Reply(_, answer) => van.accept(&answer).unwrap(),
        other => panic!("{other:?}"),
    }
    assert!(world.rotation().contains("van ("), "it may have been lost");
    let body = van.enrollment_request().unwrap();
    world
        .registrar
        .answer_enrol(request, &chain(&van), &body, now);
    let words = world.rotation();
    assert!(words.contains("all sites know the present one"), "{words}");

    identity::finish_rotation(&state, false, now).unwrap();
    world.registrar.attend(start + 4 * LOOK_EVERY);
    assert_eq!(world.rotation(), "");
    assert_eq!(world.registrar.authorities.len(), 1);
    let told = said(&world);
    assert!(told.is_empty(), "its tunnel goes on: {told:?}");
    assert_eq!(world.next(&van, true), None);
}

#[test]
fn who_is_locked_out_loses_its_tunnel_when_the_former_authority_is_dropped() {
    let mut world = World::new();
    let (van, now, start) = (world.joined("van"), SystemTime::now(), Instant::now());
    world.next(&van, false);
    identity::rotate(world._dir.path(), now).unwrap();
    world.registrar.attend(start + 2 * LOOK_EVERY);

    identity::finish_rotation(world._dir.path(), true, now).unwrap();
    world.registrar.attend(start + 4 * LOOK_EVERY);

    let mut verdicts = std::iter::from_fn(|| world.verdicts.next());
    assert!(
        verdicts.any(|verdict| matches!(verdict, Verdict::Expel { reason, .. }
        if reason.contains("needs a new invitation")))
    );
}

#[test]
fn who_has_been_here_is_missed_while_it_is_away_and_not_once_it_is_revoked() {
    let mut world = World::new();
    let now = SystemTime::now();
    let van: SiteName = "van".parse().unwrap();
    let invite = TokenKind::Invite;
    world
        .store
        .invite(&van, &[7; 32], None, invite, None, now)
        .unwrap();
    assert_eq!(world.away(), [""; 0], "it has not come yet");

    world.store.saw(&[(van, Vec::new())], now).unwrap();
    assert_eq!(world.away(), ["van"]);

    world.revoke("van");
    assert_eq!(world.away(), [""; 0]);
}

#[test]
fn a_hub_that_cannot_read_its_store_is_degraded_until_it_can() {
    let mut world = World::new();
    let rename = |from: &str, to: &str| {
        let db = rusqlite::Connection::open(world._dir.path().join(Store::FILE)).unwrap();
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        db.execute_batch(&rename).unwrap();
    };

    rename("sites", "gone");
    world.registrar.look_for_changes(SystemTime::now());
    let (state, reason) = world.registrar.neighbours.condition.found().state();
    assert_eq!(state, State::Degraded);
    assert!(reason.unwrap().starts_with("its store cannot be read"));

    rename("gone", "sites");
    world.registrar.look_for_changes(SystemTime::now());
    let found = world.registrar.neighbours.condition.found();
    assert_eq!(found.state(), (State::Up, None));
}

#[test]
fn who_was_revoked_or_may_reach_less_while_a_name_was_looked_up_gets_no_flow() {
    let mut world = World::new();
    let [phone, tablet] = ["phone", "tablet"].map(|name| world.client(name));
    assert_eq!(world.find(&phone, "198.51.100.1"), Ok(()));
    assert_eq!(world.find(&tablet, "198.51.100.1"), Ok(()));

    world.revoke("phone");
    let less = "10.9.0.0/16".parse().unwrap();
    let tablets = "tablet".parse().unwrap();
    world.store.set_reach(&tablets, Some(&less)).unwrap();

    assert_eq!(world.find(&phone, "198.51.100.1").unwrap_err().status, 403);
    assert_eq!(world.find(&tablet, "198.51.100.1").unwrap_err().status, 403);
}

#[test]
fn flows_end_that_were_granted_to_what_is_revoked_or_that_nobody_may_have_any_more() {
    let mut world = World::new();
    let [phone, tablet] = ["phone", "tablet"].map(|name| world.client(name));
    world.find(&phone, "198.51.100.1").unwrap();
    world.find(&tablet, "198.51.100.1").unwrap();

    world.revoke("phone");
    let tablets = "tablet".parse().unwrap();
    let less = "10.9.0.0/16".parse().unwrap();
    world.store.set_reach(&tablets, Some(&less)).unwrap();
    world.registrar.look_for_changes(SystemTime::now());

    let orders: Vec<Order> = std::iter::from_fn(|| world.orders.next()).collect();
    let expelled = orders.iter().filter(|it| matches!(it, Order::Expel(_)));
    assert_eq!(expelled.count(), 1);
    let Some(Order::Change(Some(terms))) = orders.last() else {
        panic!("{orders:?}");
    };
    let target = |address: &str| format!("{address}:443").parse().unwrap();
    assert!(!terms.allow("tablet", target("198.51.100.1")));
    assert!(terms.allow("another", target("198.51.100.1")));
}

#[test]
fn a_site_that_was_revoked_reaches_nothing_and_its_address_is_nobodys_until_it_is_cut() {
    let mut world = World::new();
    let [phone, tablet] = ["phone", "tablet"].map(|name| world.client(name));
    let start = Instant::now();
    world.registrar.host.pool = vec!["10.200.0.0/16".parse().unwrap()];
    let address = world.admit(&phone).unwrap();
    let directory = Arc::clone(&world.registrar.neighbours.directory);
    directory.enter(0, "phone", ClassId(0), &address);

    world.revoke("phone");
    world.registrar.attend(start + 2 * LOOK_EVERY);
    let prefix = Prefix::new(address[0], 32).unwrap();
    let nothing = vec![(vec![prefix], Reach::default())];
    assert_eq!(world.registrar.plan().confined, nothing);
    let early = world.admit(&tablet).unwrap_err();
    assert!(matches!(early, Refusal::AddressInUse), "{early}");

    directory.leave(0, "phone", ClassId(0));
    assert_eq!(world.admit(&tablet).unwrap(), address);
    world.registrar.attend(start + 4 * LOOK_EVERY);
    let tablets = vec![(vec![prefix], Reach::internet())];
    assert_eq!(world.registrar.plan().confined, tablets);
}

/// It reached nothing for as long as its new tunnel was there.
#[test]
fn a_site_that_is_invited_again_at_once_waits_for_its_former_tunnel_and_reaches_what_it_may() {
    let mut world = World::new();
    let start = Instant::now();
    world.registrar.host.pool = vec!["10.200.0.0/16".parse().unwrap()];
    let former = world.client("phone");
    let address = world.admit(&former).unwrap();
    let prefix = Prefix::new(address[0], 32).unwrap();
    let directory = Arc::clone(&world.registrar.neighbours.directory);
    directory.enter(0, "phone", ClassId(0), &address);

    world.revoke("phone");
    let phone = world.client("phone");
    world.registrar.attend(start + 2 * LOOK_EVERY);
    let nothing = vec![(vec![prefix], Reach::default())];
    assert_eq!(world.registrar.plan().confined, nothing);
    let early = world.admit(&phone).unwrap_err();
    assert!(matches!(early, Refusal::AddressInUse), "{early}");

    directory.leave(0, "phone", ClassId(0));
    assert_eq!(world.admit(&phone).unwrap(), address);
    directory.enter(0, "phone", ClassId(0), &address);
    let internet = vec![(vec![prefix], Reach::internet())];
    assert_eq!(world.registrar.plan().confined, internet);
    world.registrar.attend(start + 4 * LOOK_EVERY);
    assert_eq!(world.registrar.plan().confined, internet);
}

/// Its tunnel reached what the hub's general rule lets sites reach, until it was cut.
#[test]
fn a_site_that_is_revoked_and_forgotten_at_once_reaches_nothing() {
    let mut world = World::new();
    world.registrar.host.pool = vec!["10.200.0.0/16".parse().unwrap()];
    let former = world.client("phone");
    let address = world.admit(&former).unwrap();
    let directory = Arc::clone(&world.registrar.neighbours.directory);
    directory.enter(0, "phone", ClassId(0), &address);

    world.revoke("phone");
    world.store.forget(&"phone".parse().unwrap()).unwrap();
    world.registrar.attend(Instant::now() + 2 * LOOK_EVERY);
    let prefix = Prefix::new(address[0], 32).unwrap();
    let nothing = vec![(vec![prefix], Reach::default())];
    assert_eq!(world.registrar.plan().confined, nothing);
}

#[test]
fn a_pool_without_an_address_for_a_site_is_told_to_it_and_to_who_asks_for_the_status() {
    let mut world = World::new();
    let start = Instant::now();
    let mut config = HubConfig::clone(&world.registrar.config);
    config.pool.v4 = Some("10.200.0.0/30".parse().unwrap());
    world.registrar.config = Arc::new(config);
    let [phone, tablet] = ["phone", "tablet"].map(|name| world.client(name));
    world.admit(&phone).unwrap();

    let refused = world.admit(&tablet).unwrap_err();
    let said = (refused.http_status(), refused.to_string());
    assert_eq!(said, (503, "the hub has no address left".to_owned()));
    let (state, reason) = world.registrar.neighbours.condition.found().state();
    assert_eq!(state, State::Degraded);
    assert!(reason.unwrap().contains("pool 10.200.0.0/30"));

    world.revoke("phone");
    world.registrar.attend(start + 2 * LOOK_EVERY);
    let found = world.registrar.neighbours.condition.found();
    assert_eq!(found.state(), (State::Up, None));
    world.admit(&tablet).unwrap();
}

#[test]
fn a_fleet_that_comes_at_once_is_decided_on_a_few_times() {
    const SITES: u32 = 500;
    let mut world = World::new();
    world.store.alter(&format!(
        "WITH RECURSIVE every(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM every WHERE n + 1 < {SITES})
         INSERT INTO sites (name, created, granted)
         SELECT 'site-' || n, 0, '10.' || (n / 256) || '.' || (n % 256) || '.0/24' FROM every"
    ));
    world.registrar.look_for_changes(SystemTime::now());
    let directory = Arc::clone(&world.registrar.neighbours.directory);
    let mut now = Instant::now();
    world.registrar.next_look = now + 60 * LOOK_EVERY;
    let mut decided = 0;
    let mut attend = |world: &mut World, now: Instant| {
        let before = world.registrar.decide_from;
        world.registrar.attend(now);
        decided += u32::from(world.registrar.decide_from != before);
    };

    for n in 0..SITES {
        let name = format!("site-{n}");
        directory.enter(0, &name, ClassId(0), &[]);
        let lan = Prefix::new([10, (n / 256) as u8, (n % 256) as u8, 0].into(), 24).unwrap();
        let announced = Announced {
            prefixes: vec![lan],
            left_out: 0,
        };
        directory.announce(0, &name, announced);
        attend(&mut world, now);
        now += Duration::from_millis(1);
    }
    let left = world.registrar.idle_for(now);
    assert!(left <= DECIDE_EVERY, "it wakes up by itself in {left:?}");
    attend(&mut world, now + left);

    assert_eq!(world.registrar.lans.all().len(), SITES as usize);
    assert_eq!(
        decided, 5,
        "within {SITES} ms and the last {DECIDE_EVERY:?}"
    );
}

/// The store went on saying that the authority was being rotated, or that it was not.
#[test]
fn a_rotation_that_the_power_cut_off_is_in_the_store_what_it_is_in_the_files() {
    let mut world = World::new();
    let (now, start) = (SystemTime::now(), Instant::now());
    let state = world._dir.path().to_owned();
    let present = *world.registrar.authorities[0].fingerprint().as_bytes();
    world.store.begin_rotation(&present, &[7; 32], now).unwrap();
    world.registrar.attend(start + 2 * LOOK_EVERY);
    assert_eq!(world.store.rotating().unwrap(), None, "it has not begun");
    assert_eq!(world.store.take_authority_steps().unwrap(), []);

    let phone = "phone".parse().unwrap();
    let former = Some(&present);
    let invite = TokenKind::Invite;
    let ends = Some(now + Duration::from_secs(3600));
    let invited = world
        .store
        .invite(&phone, &[8; 32], ends, invite, former, now);
    invited.unwrap();
    identity::rotate(&state, now).unwrap();
    world.registrar.attend(start + 4 * LOOK_EVERY);
    std::fs::rename(state.join("next"), state.join("finished")).unwrap();
    world.registrar.attend(start + 6 * LOOK_EVERY);
    assert_eq!(world.store.rotating().unwrap(), None, "it is finished");
    assert_eq!(world.store.token(&[8; 32]).unwrap(), None);
    assert_eq!(world.store.take_authority_steps().unwrap(), []);
}

#[test]
fn a_revocation_is_followed_though_the_store_could_not_be_read_at_first() {
    let mut world = World::new();
    let phone = world.client("phone");
    world.find(&phone, "198.51.100.1").unwrap();
    let start = Instant::now();
    let expelled = |world: &World| {
        let mut verdicts = std::iter::from_fn(|| world.verdicts.next());
        verdicts.any(|verdict| matches!(verdict, Verdict::Expel { .. }))
    };

    world.revoke("phone");
    world
        .registrar
        .store
        .alter("ALTER TABLE tokens RENAME TO away");
    world.registrar.attend(start + 2 * LOOK_EVERY);
    assert!(!expelled(&world), "nobody knows yet");

    world
        .registrar
        .store
        .alter("ALTER TABLE away RENAME TO tokens");
    world.registrar.attend(start + 4 * LOOK_EVERY);
    assert!(expelled(&world));
}

#[test]
fn what_is_known_of_the_host_stays_while_the_kernel_cannot_say_it() {
    let mut world = World::new();
    let host = Host {
        addresses: vec!["203.0.113.10".parse().unwrap()],
        ..Host::default()
    };
    let networks = vec!["203.0.113.0/24".parse().unwrap()];
    let known = Ok((host.clone(), networks.clone()));
    world.registrar.keep_host(known).unwrap();

    let failed = Err(sennit_linux::Error::NotPrivileged);
    world.registrar.keep_host(failed).unwrap_err();

    assert_eq!(
        (world.registrar.host, world.registrar.networks),
        (host, networks)
    );
}

#[test]
fn a_token_that_has_expired_confines_a_client_until_its_name_is_a_sites() {
    let mut world = World::new();
    let (now, name) = (SystemTime::now(), "phone".parse().unwrap());
    let ttl = Some(Duration::from_secs(60));
    identity::invite_bearer(&mut world.store, &name, ttl, now).unwrap();
    let later = now + Duration::from_secs(120);
    let is_client = |world: &World| world.store.site(&name, later).unwrap().bearer;
    assert!(is_client(&world), "its tunnel may not have ended yet");

    let until = later
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        + 1;
    world.store.alter(&format!(
        "INSERT INTO certificates (fingerprint, site, key, der, not_after)
         VALUES (zeroblob(32), 'phone', zeroblob(32), x'', {until})"
    ));

    assert!(!is_client(&world));
}

/// Of a phone that was stolen while it was switched off, nothing told that it is shut out.
#[test]
fn a_site_that_is_revoked_while_it_is_away_is_an_event_and_one_that_is_here_is_one() {
    let mut world = World::new();
    for name in ["away", "here"] {
        let asker = world.client(name);
        if name == "here" {
            world.admit(&asker).unwrap();
        }
    }
    for name in ["away", "here"] {
        world.revoke(name);
        world.registrar.look_for_changes(SystemTime::now());
        world.registrar.look_for_changes(SystemTime::now());
    }

    let World { keeper, .. } = world;
    let journal = keeper.journal().clone();
    drop(keeper);
    let told = journal.read(&crate::journal::Wanted::default()).events;
    let texts: Vec<&str> = told.iter().map(|it| it.text.as_str()).collect();
    let expelled = |name| format!("site {name} is shut out: site `{name}` is revoked");
    assert_eq!(texts, ["away", "here"].map(expelled));
}
