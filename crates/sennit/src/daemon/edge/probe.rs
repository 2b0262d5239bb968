//! Why no tunnel comes up: what the hub's address answers over each link, by UDP and by TCP.
//!
//! A handshake that nobody answers does not tell a hub that is away from a network that lets no UDP
//! through, or from a portal that wants a login. So while there is no tunnel, a thread sends to the
//! hub's own address, over each link, a QUIC packet of a version that does not exist (RFC 9000 §6:
//! any QUIC server answers it) from a socket that hears of ICMP errors, and opens a TCP connection
//! to the same port. It looks nowhere else.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    time::{Duration, Instant},
};

use sennit_linux::inquiry;

use super::{causes::explain, way::Way};
use crate::daemon::at_once::at_once;

/// A network that is slower than this carries no tunnel worth having.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The packet is sent so often: one may be lost.
const TRIES: u32 = 3;
/// The least that a server must answer (RFC 9000 §14.1).
pub(super) const INITIAL: usize = 1200;
/// A version that is reserved for this (RFC 9000 §15).
const NO_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];

/// What came back by UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Udp {
    Answered,
    Silent,
    /// ICMP port unreachable.
    Refused,
    /// The local firewall, or another rule of this host.
    NotSent(String),
    /// ICMP, or the lack of a route.
    Unreachable(String),
}

/// What came back by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tcp {
    /// A web server, which speaks before TLS.
    Web,
    Accepted,
    Reset,
    Silent,
}

/// What one address of the hub answers over one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) hub: SocketAddr,
    pub(super) udp: Udp,
    pub(super) tcp: Tcp,
}

/// Tries the addresses over a link, all at once; the most telling verdict.
pub(super) fn look(way: &Way, hubs: &[SocketAddr]) -> Option<Verdict> {
    let verdicts = at_once(hubs, |&hub| look_at(way, hub));
    let verdicts = verdicts.into_iter().flatten().flatten();
    verdicts.min_by_key(Verdict::rank)
}

fn look_at(way: &Way, hub: SocketAddr) -> Option<Verdict> {
    let binding = way.binding(hub.ip())?;
    let udp = match inquiry::udp(&binding, hub) {
        Ok(socket) => by_udp(&socket),
        Err(error) => Udp::Unreachable(explain(&error)),
    };
    // What the host itself does not send, or what arrives, needs no second opinion.
    let tcp = match udp {
        Udp::Silent => by_tcp(&inquiry::tcp(&binding, hub, PATIENCE)),
        Udp::Answered | Udp::Refused | Udp::NotSent(_) | Udp::Unreachable(_) => Tcp::Silent,
    };
    Some(Verdict { hub, udp, tcp })
}

fn by_udp(socket: &std::net::UdpSocket) -> Udp {
    ask(socket, INITIAL)
}

/// Whether a QUIC server answers a packet with a UDP payload of this size.
pub(super) fn ask(socket: &std::net::UdpSocket, size: usize) -> Udp {
    let mut packet = vec![0; size.max(INITIAL)];
    // A long header with both connection IDs of eight bytes.
    packet[0] = 0xc0;
    packet[1..5].copy_from_slice(&NO_VERSION);
    (packet[5], packet[14]) = (8, 8);
    if aws_lc_rs::rand::fill(&mut packet[6..14]).is_err() {
        return Udp::Silent;
    }
    if let Err(error) = socket.set_read_timeout(Some(PATIENCE / TRIES)) {
        return Udp::NotSent(error.to_string());
    }
    for _ in 0..TRIES {
        let heard = socket
            .send(&packet)
            .map_err(|error| not_sent(&error))
            .and_then(|_| {
                socket
                    .recv(&mut [0; INITIAL])
                    .map_err(|error| not_heard(&error))
            });
        match heard {
            Ok(_) => return Udp::Answered,
            Err(Udp::Silent) => {}
            Err(other) => return other,
        }
    }
    Udp::Silent
}

fn not_sent(error: &io::Error) -> Udp {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Udp::NotSent(error.to_string()),
        _ => not_heard(error),
    }
}

fn not_heard(error: &io::Error) -> Udp {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
            Udp::Silent
        }
        io::ErrorKind::ConnectionRefused => Udp::Refused,
        _ => Udp::Unreachable(error.to_string()),
    }
}

fn by_tcp(connected: &io::Result<std::net::TcpStream>) -> Tcp {
    match connected {
        Ok(stream) if is_web(stream) => Tcp::Web,
        Ok(_) => Tcp::Accepted,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Tcp::Reset,
        Err(_) => Tcp::Silent,
    }
}

/// Whether a plain request for a page is answered by one, as a captive portal does.
pub(super) fn is_web(mut stream: &std::net::TcpStream) -> bool {
    let asked = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(b"GET / HTTP/1.0\r\n\r\n"));
    let mut start = [0; 5];
    asked.and_then(|()| stream.read_exact(&mut start)).is_ok() && &start == b"HTTP/"
}

impl Verdict {
    /// Lower says more about what to do.
    fn rank(&self) -> u8 {
        match (&self.udp, self.tcp) {
            (Udp::Answered, _) => 0,
            (Udp::NotSent(_), _) => 1,
            (Udp::Refused, _) => 2,
            (Udp::Silent, Tcp::Web | Tcp::Accepted | Tcp::Reset) => 3,
            (Udp::Unreachable(_), _) => 4,
            (Udp::Silent, Tcp::Silent) => 5,
        }
    }

    /// What it means.
    pub(super) fn meaning(&self) -> String {
        match (&self.udp, self.tcp) {
            (Udp::Answered, _) => {
                "a QUIC server answers, but no tunnel comes up: see the log of both ends".into()
            }
            (Udp::NotSent(error), _) => {
                format!("the local firewall refuses to send UDP there ({error})")
            }
            (Udp::Refused, _) => {
                "ICMP says that nothing listens there: the hub does not run, or has another port"
                    .into()
            }
            (Udp::Unreachable(error), _) => format!("it is unreachable: {error}"),
            (Udp::Silent, Tcp::Web) => {
                "UDP gets no answer, and by TCP a web server answers in the hub's place: a captive \
                 portal, or this network blocks UDP"
                    .into()
            }
            (Udp::Silent, Tcp::Accepted | Tcp::Reset) => {
                "TCP reaches the hub's host, UDP gets no answer: this network, or a firewall at the \
                 hub, blocks UDP, or the hub hangs"
                    .into()
            }
            (Udp::Silent, Tcp::Silent) => {
                "neither UDP nor TCP gets an answer: the hub is away, or this network lets nothing \
                 through"
                    .into()
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.hub, self.meaning())
    }
}

/// Since when there is no tunnel, and when to look why.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The tunnels of each worker that are up, where there are any.
    tunnels: BTreeMap<usize, usize>,
    since: Instant,
    next: Option<Instant>,
}

/// A handshake takes less than this where it succeeds, and one attempt is over.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Networks change; this is no load.
const NEXT_LOOK: Duration = Duration::from_secs(30);

impl Schedule {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tunnels: BTreeMap::new(),
            since: now,
            next: Some(now + FIRST_LOOK),
        }
    }

    /// So many tunnels of a worker are up; whether there is one of any worker now, if that is news.
    pub(super) fn count(&mut self, worker: usize, up: usize, now: Instant) -> Option<bool> {
        let before = self.has_tunnel();
        match up {
            0 => self.tunnels.remove(&worker),
            _ => self.tunnels.insert(worker, up),
        };
        let after = self.has_tunnel();
        match (before, after) {
            (false, true) => self.next = None,
            (true, false) => *self = Self::new(now),
            (true, true) | (false, false) => return None,
        }
        Some(after)
    }

    fn has_tunnel(&self) -> bool {
        !self.tunnels.is_empty()
    }

    /// How long there has been no tunnel.
    pub(super) fn without(&self, now: Instant) -> Option<Duration> {
        (!self.has_tunnel()).then(|| now.saturating_duration_since(self.since))
    }

    /// Whether it is time to look; the next time is after [`Self::looked`].
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_some_and(|at| at <= now);
        if due {
            self.next = None;
        }
        due
    }

    pub(super) fn looked(&mut self, now: Instant) {
        if !self.has_tunnel() {
            self.next = Some(now + NEXT_LOOK);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, UdpSocket},
        thread,
    };

    use super::*;

    /// A UDP socket connected to `to`.
    fn socket(to: SocketAddr) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(to).unwrap();
        socket
    }

    #[test]
    fn a_port_where_nothing_listens_is_refused_and_one_that_answers_answers() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let mut packet = [0; 1500];
            let (length, from) = server.recv_from(&mut packet).unwrap();
            server.send_to(&packet[..100], from).unwrap();
            length
        });
        assert_eq!(by_udp(&socket(address)), Udp::Answered);
        assert_eq!(answering.join().unwrap(), INITIAL);

        // The server's socket is closed.
        assert_eq!(by_udp(&socket(address)), Udp::Refused);
    }

    #[test]
    fn a_web_server_is_told_from_a_closed_port() {
        let portal = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = portal.local_addr().unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = portal.accept().unwrap();
            let _ = stream.read(&mut [0; 100]);
            stream.write_all(b"HTTP/1.1 302 Found\r\n\r\n").unwrap();
        });
        assert_eq!(by_tcp(&std::net::TcpStream::connect(address)), Tcp::Web);
        serving.join().unwrap();

        assert_eq!(by_tcp(&std::net::TcpStream::connect(address)), Tcp::Reset);
    }

    #[test]
    fn what_came_back_is_told_in_words() {
        let verdict = |udp, tcp| Verdict {
            hub: "203.0.113.10:443".parse().unwrap(),
            udp,
            tcp,
        };
        let blocked = verdict(Udp::Silent, Tcp::Reset);
        let away = verdict(Udp::Silent, Tcp::Silent);
        assert!(blocked.meaning().contains("blocks UDP"));
        assert!(away.meaning().contains("the hub is away"));
        assert!(blocked.rank() < away.rank(), "it says more");
        assert!(away.to_string().starts_with("203.0.113.10:443: "));
    }

    #[test]
    fn it_is_looked_while_there_is_no_tunnel_and_only_then() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        assert!(!schedule.is_due(now));
        assert!(schedule.is_due(now + FIRST_LOOK));
        assert!(!schedule.is_due(now + FIRST_LOOK), "it is on its way");
        schedule.looked(now + FIRST_LOOK);
        assert_eq!(schedule.poll_timeout(), Some(now + FIRST_LOOK + NEXT_LOOK));

        assert_eq!(schedule.count(0, 1, now), Some(true));
        assert_eq!(schedule.count(0, 2, now), None);
        assert_eq!(schedule.poll_timeout(), None);
        assert_eq!(schedule.without(now), None);

        assert_eq!(schedule.count(0, 1, now), None);
        let later = now + NEXT_LOOK;
        assert_eq!(schedule.count(0, 0, later), Some(false));
        assert_eq!(schedule.without(later + FIRST_LOOK), Some(FIRST_LOOK));
        assert!(schedule.is_due(later + FIRST_LOOK));
    }

    #[test]
    fn there_is_a_tunnel_while_any_worker_has_one() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        assert_eq!(schedule.count(1, 1, now), Some(true));

        assert_eq!(schedule.count(0, 1, now), None);
        assert_eq!(schedule.count(0, 0, now), None, "its engine was replaced");
        assert_eq!(schedule.without(now + NEXT_LOOK), None);
        assert!(!schedule.is_due(now + NEXT_LOOK));

        assert_eq!(schedule.count(1, 0, now), Some(false));
        assert_eq!(schedule.count(1, 0, now), None);
        assert!(schedule.is_due(now + FIRST_LOOK));
    }
}
