use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sennit_linux::{poller::Poller, udp::LinkSocket};

use super::*;
use crate::{
    daemon::edge::tests::{config, engines},
    journal::{Keeper, Wanted},
};

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
const LTE: SocketId = SocketId(0);
/// EMFILE.
const TOO_MANY_FILES: i32 = 24;

/// A worker's links, of which there is one, with what they change.
struct Desk {
    links: Links,
    edge: Edge,
    io: Io,
    lte: config::Link,
    now: Instant,
    /// This host has too many open files for another socket.
    is_full: Arc<AtomicBool>,
    is_unrouted: bool,
    keeper: (Keeper, tempfile::TempDir),
}

impl Desk {
    fn new() -> Self {
        let running = Running::new(config("", &["all"]), Vec::new());
        let directory = tempfile::tempdir().unwrap();
        let keeper = Keeper::start(&directory.path().join("journal.db")).unwrap();
        let is_full = Arc::<AtomicBool>::default();
        let full = Arc::clone(&is_full);
        let ground = Ground::opened_by(&running.config.device, move |address| {
            if full.load(Ordering::Relaxed) {
                let source = io::Error::from_raw_os_error(TOO_MANY_FILES);
                let doing = "open a socket".into();
                return Err(sennit_linux::Error::Os { doing, source });
            }
            LinkSocket::listen((address, 0).into())
        });
        Self {
            links: Links::new(&running, false, keeper.journal().clone(), ground),
            edge: engines(&running, 1).remove(0),
            io: Io::new(Arc::new(Poller::new().unwrap())),
            lte: running.config.links[0].clone(),
            now: Instant::now(),
            is_full,
            is_unrouted: false,
            keeper: (keeper, directory),
        }
    }

    fn change(&mut self, wanted: Option<config::Link>) {
        let deeds = (&mut self.edge, &mut self.io);
        self.links.change(&[wanted], deeds, self.now);
    }

    fn drill(&mut self) {
        let order = LinkOrder::Cut {
            milliseconds: 60_000,
        };
        let deeds = (&mut self.edge, &mut self.io);
        self.links.handle_order(0, order, deeds, self.now);
        assert!(self.io.is_cut(0));
    }

    /// The link's interface is found under this number, with these addresses.
    fn find(&mut self, interface: u32, sources: [Option<IpAddr>; 2]) -> [Option<SocketAddr>; 2] {
        let found = Found {
            sources,
            interface,
            complaint: None,
            mtu: Some(1500),
            is_unrouted: self.is_unrouted,
        };
        self.links
            .follow(&[found], &mut self.edge, &mut self.io, self.now);
        [V4, V6].map(|family| self.io.socket_address(LTE, family))
    }
}

#[test]
fn a_drill_ends_with_its_link_and_does_not_pass_to_the_next_in_its_place() {
    let mut desk = Desk::new();
    let dsl = config::Link {
        name: "dsl".into(),
        ..desk.lte.clone()
    };
    desk.drill();
    desk.change(None);
    assert!(!desk.io.is_cut(0));

    desk.change(Some(dsl));
    desk.drill();
    desk.change(Some(desk.lte.clone()));

    assert!(!desk.io.is_cut(0));
}

#[test]
fn a_drill_goes_on_while_its_link_is_changed_in_the_config() {
    let mut desk = Desk::new();
    desk.drill();
    desk.change(Some(config::Link {
        tier: 7,
        ..desk.lte.clone()
    }));

    assert!(desk.io.is_cut(0));
}

#[test]
fn a_drill_is_in_the_journal_with_its_end_and_not_each_time_that_it_is_renewed() {
    let mut desk = Desk::new();
    desk.links.first = true;
    desk.drill();
    desk.drill();
    desk.now += Duration::from_secs(61);
    desk.links
        .handle_timeout(&mut desk.edge, &mut desk.io, desk.now);
    desk.drill();
    desk.change(None);

    let journal = desk.keeper.0.journal();
    let mut told = Vec::new();
    while told.len() < 4 {
        let wanted = Wanted {
            after: told.last().map(|(id, _)| *id),
            wait_seconds: Some(20),
            ..Wanted::default()
        };
        let new = journal.read(&wanted).events.into_iter();
        told.extend(new.map(|it| (it.id, it.event.kind())));
    }
    let kinds: Vec<&str> = told.iter().map(|(_, kind)| kind.as_str()).collect();
    let once = ["drill_started", "drill_ended"];
    assert_eq!(kinds, [once, once].concat());
}

#[test]
fn a_socket_is_bound_anew_when_its_interface_is_made_anew_with_the_same_address() {
    let mut desk = Desk::new();
    let first = desk.find(4, [Some(V4), None]);
    assert_eq!(desk.find(4, [Some(V4), None]), first);

    let second = desk.find(5, [Some(V4), None]);

    assert!(second[0].is_some());
    assert_ne!(second, first);
}

#[test]
fn what_this_host_has_refused_for_a_link_is_asked_for_again_without_news_of_the_kernel() {
    let mut desk = Desk::new();
    desk.is_full.store(true, Ordering::Relaxed);
    assert_eq!(desk.find(4, [Some(V4), None]), [None; 2]);
    let status = desk.links.status(desk.now);
    assert_eq!(status[0].1.cause, Some(LinkCause::Unusable));
    assert_eq!(desk.links.poll_timeout(), Some(desk.now + AGAIN));
    assert!(!desk.links.is_to_look(desk.now));

    desk.is_full.store(false, Ordering::Relaxed);
    assert!(desk.links.is_to_look(desk.now + AGAIN));
    assert!(desk.find(4, [Some(V4), None])[0].is_some());
    assert_eq!(desk.links.poll_timeout(), None);

    desk.is_unrouted = true;
    desk.find(4, [Some(V4), None]);
    assert_eq!(desk.links.poll_timeout(), Some(desk.now + AGAIN));
}

#[test]
fn a_link_on_another_interface_keeps_no_socket_of_the_one_before() {
    let mut desk = Desk::new();
    desk.find(4, [Some(V4), Some(V6)]);
    desk.change(Some(config::Link {
        interface: "wwan1".into(),
        ..desk.lte.clone()
    }));

    let sockets = desk.find(5, [Some(V4), None]);

    assert!(sockets[0].is_some());
    assert_eq!(sockets[1], None);
}
