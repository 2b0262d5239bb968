use std::{
    io::Write as _,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{Local, SocketId};
use sennit_linux::{
    netlink::{Interface, Netlink},
    netns::Netns,
    poller::{Poller, Waker},
    tun::{Offload, Tun, TunConfig},
    udp::LinkSocket,
};

use super::{
    sockets::{LONG_STRETCH, earlier, socket_token},
    *,
};

/// A machine that has one packet for the host, or never anything to do.
#[derive(Default)]
struct Mock {
    question: Option<Packet>,
    answers: usize,
    /// When datagrams arrived, and how long it takes to handle one.
    arrived: Vec<Instant>,
    takes: Duration,
    /// Batches to send, and the times of those that were made.
    batches: usize,
    made: Vec<Instant>,
}

impl Machine for Mock {
    fn handle_datagrams(&mut self, from: Received, _: BytesMut, now: Instant) {
        assert!(from.arrived <= now && now <= Instant::now());
        self.arrived.push(from.arrived);
        thread::sleep(self.takes);
    }
    fn handle_packet(&mut self, _: usize, _: &VirtioNetHdr, _: &[u8], _: Instant) {
        self.answers += 1;
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_ready(&mut self, _: u64, _: &mut Io, _: Instant) {}
    fn digest(&mut self, _: &mut Io, _: Instant) {}
    fn poll_packet(&mut self, _: Instant) -> Option<(usize, Packet)> {
        Some((0, self.question.take()?))
    }
    fn poll_transmit(&mut self, _: &mut Vec<u8>, now: Instant) -> Option<Transmit> {
        self.batches = self.batches.checked_sub(1)?;
        thread::sleep(self.takes);
        self.made.push(now);
        Some(Transmit {
            local: Local {
                socket: SocketId(9),
                ip: None,
            },
            remote: SocketAddr::from(([127, 0, 0, 1], 9)),
            ecn: 0,
            dscp: 0,
            size: 0,
            segment: None,
        })
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn tunnels(&self) -> usize {
        0
    }
    fn close(&mut self, _: Instant) {}
}

/// A UDP datagram from 192.0.2.2 to 192.0.2.1, where nothing listens.
static UNWANTED: [u8; 28] = [
    0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0xb6, 0xcd, 192, 0, 2, 2, 192, 0, 2, 1, 0, 1, 0, 1, 0,
    8, 0, 0,
];

/// How many answers of the host a turn takes that has a question for it.
fn answers(takes_answers: bool) -> usize {
    let config = TunConfig {
        name: "snt-loop".parse().unwrap(),
        mtu: 1400,
        queues: 1,
        offload: Offload::None,
    };
    let tun = Tun::open(&config).unwrap().remove(0);
    let mut netlink = Netlink::open().unwrap();
    let index = Interface::lookup(&mut netlink, "snt-loop").unwrap().index;
    let address = "192.0.2.1/24".parse().unwrap();
    netlink.add_address(index, address).unwrap();
    let mut machine = Mock {
        question: Some(Bytes::from_static(&UNWANTED).into()),
        ..Mock::default()
    };
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    io.add_tun(tun).unwrap();
    settle(&mut machine, &mut io, takes_answers).unwrap();
    machine.answers
}

#[test]
fn what_the_host_answers_at_once_leaves_with_a_rare_turn() {
    if !sennit_linux::privilege::has_net_admin() {
        let test = "what_the_host_answers_at_once_leaves_with_a_rare_turn";
        writeln!(io::stderr(), "SKIPPED: {test} needs root").unwrap();
        return;
    }
    for (takes_answers, expected) in [(true, 1), (false, 0)] {
        let host = Netns::anonymous().unwrap();
        let found = host.run(|| answers(takes_answers)).unwrap();
        assert_eq!(found, expected);
    }
}

const MS: Duration = Duration::from_millis(1);

/// A worker's socket, its token, and a socket that sends to it.
fn socket(io: &mut Io, number: u32) -> (u64, UdpSocket) {
    let socket = LinkSocket::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr();
    io.set_socket(SocketId(number), address.ip(), Some(socket))
        .unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(address).unwrap();
    (socket_token(number as usize, 0), sender)
}

#[test]
fn a_datagram_that_waited_for_the_thread_arrived_when_it_did() {
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    let (token, sender) = socket(&mut io, 0);
    // The kernel begins to note times some moments after it was first asked to on this host.
    let found = (0..100).any(|_| {
        let before = Instant::now();
        sender.send(b"x").unwrap();
        let after = Instant::now();
        thread::sleep(20 * MS);
        let mut machine = Mock::default();
        io.read_socket(token, &mut machine);
        let arrived = machine.arrived[0];
        assert!(before <= arrived && arrived <= Instant::now());
        arrived <= after
    });
    assert!(found, "all datagrams arrive when they are read");
}

#[test]
fn a_datagram_that_comes_while_the_thread_is_busy_is_not_stamped_before_it_was_sent() {
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    let (first_token, first) = socket(&mut io, 0);
    let (second_token, second) = socket(&mut io, 1);
    let mut machine = Mock {
        takes: 5 * MS,
        ..Mock::default()
    };
    first.send(b"x").unwrap();
    io.read_socket(first_token, &mut machine);
    let sent = Instant::now();
    second.send(b"x").unwrap();
    io.read_socket(second_token, &mut machine);
    assert!(machine.arrived[1] >= sent);
}

#[test]
fn what_leaves_is_stamped_after_all_that_was_done_before_but_not_for_ever_anew() {
    let mut io = Io::new(Arc::new(Poller::new().unwrap()));
    let mut machine = Mock {
        batches: 10,
        takes: 2 * LONG_STRETCH,
        ..Mock::default()
    };
    let before = Instant::now();
    io.flush(&mut machine, &mut Vec::new());
    let mut times = machine.made.clone();
    assert!(times[0] >= before && times.is_sorted());
    times.dedup();
    assert_eq!((machine.made.len(), times.len()), (10, 3));
}

#[test]
fn timers_do_not_run_ahead_of_what_a_socket_still_has() {
    let start = Instant::now();
    let newest = |ms| Some(start + MS * ms);
    assert_eq!(earlier(None, None), None);
    assert_eq!(earlier(None, newest(5)), newest(5));
    assert_eq!(earlier(newest(3), newest(5)), newest(3));
}

/// How the loop ended, and how the thread that ended it.
fn run_until(end: impl FnOnce(Stop) + Send) -> (io::Result<()>, thread::Result<()>) {
    let poller = Arc::new(Poller::new().unwrap());
    let stop = Stop::new(vec![Waker::new(&poller, 0).unwrap()]);
    thread::scope(|scope| {
        let other = stop.clone();
        let thread = scope.spawn(move || end(other));
        (
            run(&mut Mock::default(), &mut Io::new(poller), &stop),
            thread.join(),
        )
    })
}

#[test]
fn a_panic_of_a_thread_that_the_daemon_needs_ends_the_loop_as_a_failure() {
    let (outcome, _) = run_until(|stop| {
        let _lifeline = stop.lifeline();
        panic!("on purpose");
    });

    assert!(outcome.unwrap_err().to_string().contains("has failed"));
}

#[test]
fn all_loops_end_when_one_thread_panics() {
    let pollers = [(); 3].map(|()| Arc::new(Poller::new().unwrap()));
    let waker = |poller: &Arc<Poller>| Waker::new(poller, 0).unwrap();
    let stop = Stop::new(pollers.iter().map(waker).collect());

    let outcomes: Vec<io::Result<()>> = thread::scope(|scope| {
        let loops = pollers.map(|poller| {
            let stop = &stop;
            scope.spawn(move || run(&mut Mock::default(), &mut Io::new(poller), stop))
        });
        let doomed = stop.clone();
        let doomed = scope.spawn(move || {
            let _lifeline = doomed.lifeline();
            panic!("on purpose");
        });
        assert!(doomed.join().is_err());
        loops.into_iter().map(|it| it.join().unwrap()).collect()
    });

    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
}

#[test]
fn a_thread_that_only_ends_does_not_end_the_loop() {
    let (outcome, thread) = run_until(|stop| {
        drop(stop.lifeline());
        assert!(!stop.is_requested());
        stop.request();
    });

    assert!(outcome.is_ok() && thread.is_ok());
}
