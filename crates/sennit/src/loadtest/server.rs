//! The server of tests: it does what clients plan, within its limits.

mod limits;
mod session;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aws_lc_rs::rand;
use bytes::Bytes;
use sennit_core::Congestion;
use sennit_engine::{BareConfig, BareEvent, ConnId, Stream};
use sennit_packet::Bitrate;

use limits::MOST_CONNECTIONS;
use session::{Session, network_of};

use super::{
    perf::Responder,
    probe,
    requests::Answerer,
    stack::{Stack, StackName},
    tls,
    wire::{self, Network, Wire},
    words::{Answer, Ask, Lines, Plan, Side, line},
};

/// What a client says is short.
const LONGEST_ASK: usize = 16 << 10;
/// Whoever says nothing for so long is sent away.
const SILENCE: Duration = Duration::from_secs(15);
/// Without a sign of life a connection is over; an outage of a moment is none.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// After a fault nothing is done for so long: one that comes again at once fills no processor.
const RESPITE: Duration = Duration::from_millis(100);
/// Between two looks for clients that should be gone.
const SWEEP: Duration = Duration::from_secs(1);

/// Code of a connection that ends as it should.
pub(super) const DONE: u32 = 0;
/// Code of a connection that the server does not want.
const NOT_WANTED: u32 = 1;

/// How a server is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; `None`: at [`super::PORT`] of all addresses, of IPv4 and IPv6.
    pub listen: Option<SocketAddr>,
    /// What clients must say, if anything.
    pub token: Option<String>,
    /// The longest load.
    pub most_seconds: Duration,
    /// Payload of one client in each direction; `None`: all there is room for.
    pub most_rate: Option<Bitrate>,
    /// Clients at once.
    pub most_clients: usize,
    /// Whether clients of other stacks are served too, by the protocol that they have for it.
    pub perf: bool,
    /// The QUIC of this end.
    pub stack: StackName,
}

/// A server of tests on the sockets of this host.
pub struct Server(Serving<Wire>);

/// A server of tests.
pub(super) struct Serving<N> {
    quic: Box<dyn Stack>,
    net: N,
    options: Options,
    tls: Arc<rustls::ServerConfig>,
    fingerprint: String,
    reset_key: [u8; 32],
    peers: BTreeMap<ConnId, Peer>,
    sessions: BTreeMap<ConnId, Session>,
    /// What each connection says, on the one stream that it may have for it.
    lines: BTreeMap<ConnId, (Stream, Lines)>,
    answerer: Answerer,
    responder: Responder,
    swept: Instant,
}

struct Peer {
    remote: SocketAddr,
    since: Instant,
    /// The control connection of the session that it belongs to, perhaps itself.
    session: Option<ConnId>,
}

impl Server {
    /// A server that listens.
    ///
    /// # Errors
    /// If an address cannot be listened on, or this host gives no random numbers.
    pub fn bind(options: Options) -> Result<Self, String> {
        let sockets = wire::listen(options.listen)?;
        let wire = Wire::new(sockets, None).map_err(|error| error.to_string())?;
        Serving::over(wire, options).map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.net.addresses()
    }

    /// SHA-256 of its certificate, in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }

    /// Serves until `stop`; all clients are told then.
    ///
    /// # Errors
    /// If the host refuses the sockets.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.0.run(stop)
    }
}

impl<N: Network> Serving<N> {
    /// A server on a network.
    pub(super) fn over(net: N, options: Options) -> Result<Self, String> {
        let (tls, fingerprint) = tls::server(options.perf)?;
        let reset_key = random()?;
        let quic = endpoint(&options, reset_key, Arc::clone(&tls))?;
        let swept = net.now();
        Ok(Self {
            quic,
            net,
            options,
            tls,
            fingerprint,
            reset_key,
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            lines: BTreeMap::new(),
            answerer: Answerer::default(),
            responder: Responder::default(),
            swept,
        })
    }

    /// Serves until `stop`. A fault in the middle of a test ends all tests, and no more: whoever
    /// comes after it is served.
    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match catch_unwind(AssertUnwindSafe(|| self.turn())) {
                Ok(turn) => turn?,
                Err(_) => self.begin_anew().map_err(io::Error::other)?,
            }
        }
        self.leave()
    }

    /// Forgets all tests. Clients learn it by the resets of an endpoint that does not know them.
    fn begin_anew(&mut self) -> Result<(), String> {
        tracing::error!(tests = self.sessions.len(), "a fault ended all tests");
        thread::sleep(RESPITE);
        self.quic = endpoint(&self.options, self.reset_key, Arc::clone(&self.tls))?;
        self.peers.clear();
        self.sessions.clear();
        self.lines.clear();
        self.answerer = Answerer::default();
        self.responder = Responder::default();
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        let next = self.wake_at(self.net.now());
        self.net.turn(&mut *self.quic, next)?;
        self.serve();
        Ok(())
    }

    /// Tells all clients that it ends.
    fn leave(&mut self) -> io::Result<()> {
        let now = self.net.now();
        let peers: Vec<_> = self
            .peers
            .keys()
            .copied()
            .chain(self.responder.peers())
            .collect();
        for id in peers {
            self.quic.close(id, NOT_WANTED, "the server stops", now);
        }
        while self.quic.poll_event().is_some() {}
        self.net.flush(&mut *self.quic).map(drop)
    }

    /// The machine, for a network that moves its packets.
    #[cfg(test)]
    pub(super) fn quic(&mut self) -> &mut dyn Stack {
        &mut *self.quic
    }

    /// When there is something to do without anything having come.
    pub(super) fn wake_at(&self, now: Instant) -> Instant {
        let loads = self.sessions.values();
        let next = loads.filter_map(|session| session.load.next_at(now));
        next.fold(self.swept + SWEEP, Instant::min)
    }

    /// Does what is due, after the network's turn.
    pub(super) fn serve(&mut self) {
        while let Some(event) = self.quic.poll_event() {
            self.handle_event(event);
        }
        let now = self.net.now();
        for session in self.sessions.values_mut() {
            session.load.fill(&mut *self.quic, now);
        }
        let sweeps = now >= self.swept + SWEEP;
        self.tell(sweeps, now);
        if sweeps {
            self.sweep(now);
        }
    }

    /// Tells clients how much has arrived: all of them, or those for whom it is all.
    fn tell(&mut self, all: bool, now: Instant) {
        for (&id, session) in &mut self.sessions {
            let complete = session.load.is_complete() && !session.told_complete;
            let tells = session.load.has_begun() && (all || complete);
            if let Some((stream, _)) = self.lines.get(&id).filter(|_| tells) {
                session.told_complete |= complete;
                let tick = Answer::Tick(session.load.tick(now));
                self.quic.write(id, *stream, &Bytes::from(line(&tick)));
            }
        }
    }

    /// Sends away who says nothing, and whose time is up.
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        let silent = self.peers.iter().filter(|(_, peer)| {
            peer.session.is_none() && now.saturating_duration_since(peer.since) > SILENCE
        });
        let silent = silent.map(|(&id, _)| (id, "nothing was asked for"));
        let sessions = self.sessions.iter();
        let late = sessions.filter_map(|(&id, session)| Some((id, session.overstays(now)?)));
        let perf = self.responder.late(self.options.most_seconds, now);
        let perf = perf
            .into_iter()
            .map(|id| (id, "the time for this test is up"));
        let gone: Vec<_> = silent.chain(late).chain(perf).collect();
        for (id, reason) in gone {
            self.send_away(id, reason);
        }
    }

    fn send_away(&mut self, id: ConnId, reason: &str) {
        let now = self.net.now();
        self.quic.close(id, NOT_WANTED, reason, now);
        self.forget(id);
    }

    fn handle_event(&mut self, event: BareEvent) {
        let now = self.net.now();
        let event = self.responder.handle_event(&mut *self.quic, event, now);
        let Some(event) = event else { return };
        match event {
            BareEvent::Accepted(id, remote) => {
                let peer = Peer {
                    remote,
                    since: now,
                    session: None,
                };
                self.peers.insert(id, peer);
            }
            BareEvent::Lost(id, ended) => {
                if self.sessions.contains_key(&id) {
                    tracing::info!(%ended, "a client is gone");
                }
                self.forget(id);
            }
            BareEvent::Opened(id, stream) | BareEvent::Readable(id, stream)
                if stream.goes_both_ways() =>
            {
                if !self.is_request(id, stream) {
                    self.read_asks(id, stream, now);
                } else if !self.answerer.handle_readable(&mut *self.quic, id, stream) {
                    self.send_away(id, "this is no request, or wants too much");
                }
            }
            BareEvent::Writable(id, stream) if stream.goes_both_ways() => {
                self.answerer.write(&mut *self.quic, id, stream);
            }
            BareEvent::Datagram(id, bytes, arrived) if self.sessions.contains_key(&id) => {
                if let Some(answer) = probe::answer(&bytes, arrived, self.net.now()) {
                    self.quic.send_datagram(id, answer);
                }
            }
            event => self.hand_over(&event, now),
        }
    }

    /// Whether a stream carries a request of a client that planned some.
    fn is_request(&self, id: ConnId, stream: Stream) -> bool {
        let talks = self.lines.get(&id).map(|(talk, _)| *talk);
        let session = self.peers.get(&id).and_then(|peer| peer.session);
        let session = session.and_then(|control| self.sessions.get(&control));
        let plans = session.is_some_and(|session| session.plan.requests.is_some());
        plans && talks.is_some_and(|talk| talk != stream) && !self.sessions.contains_key(&id)
    }

    /// The event is one of a load.
    fn hand_over(&mut self, event: &BareEvent, now: Instant) {
        let id = match event {
            BareEvent::Accepted(id, _)
            | BareEvent::Connected(id)
            | BareEvent::Lost(id, _)
            | BareEvent::Opened(id, _)
            | BareEvent::Readable(id, _)
            | BareEvent::Writable(id, _)
            | BareEvent::Delivered(id, _)
            | BareEvent::DatagramRoom(id)
            | BareEvent::Datagram(id, ..) => id,
        };
        let session = self.peers.get(id).and_then(|peer| peer.session);
        let session = session.filter(|control| control != id);
        // Nobody would read it.
        if session.is_none() && matches!(event, BareEvent::Opened(..)) {
            return self.send_away(*id, "only connections that joined a test carry load");
        }
        if let Some(session) = session.and_then(|control| self.sessions.get_mut(&control)) {
            session.load.handle_event(&mut *self.quic, event, now);
        }
    }

    /// A connection is over: if it was that of a session, so are all of its load.
    fn forget(&mut self, id: ConnId) {
        self.lines.remove(&id);
        self.answerer.forget(id);
        self.responder.forget(id);
        let peer = self.peers.remove(&id);
        if let Some(session) = self.sessions.remove(&id) {
            for member in session.load.members() {
                self.quic
                    .close(member, DONE, "the test is over", self.net.now());
                self.peers.remove(&member);
            }
        } else if let Some(control) = peer.and_then(|peer| peer.session)
            && let Some(session) = self.sessions.get_mut(&control)
        {
            session.load.lose(id);
        }
    }

    fn read_asks(&mut self, id: ConnId, stream: Stream, now: Instant) {
        let lines = self.lines.entry(id);
        let (only, lines) = lines.or_insert_with(|| (stream, Lines::new(LONGEST_ASK)));
        if *only != stream {
            return self.send_away(id, "one stream is enough to talk");
        }
        let mut good = true;
        self.quic
            .read(id, stream, &mut |bytes| good &= lines.push(bytes));
        let mut asks = Vec::new();
        while good && let Some(ask) = lines.next::<Ask>() {
            asks.push(ask);
        }
        if !good {
            return self.send_away(id, "this is longer than anything a client says");
        }
        for ask in asks {
            let answered = ask.and_then(|ask| self.answer(id, ask, now));
            match answered {
                Ok(answer) => {
                    let answer = Bytes::from(line(&answer));
                    self.quic.write(id, stream, &answer);
                }
                Err(reason) => return self.send_away(id, &reason),
            }
        }
    }

    fn answer(&mut self, id: ConnId, ask: Ask, now: Instant) -> Result<Answer, String> {
        match ask {
            Ask::Run(plan) => {
                let protects = plan.fec.is_some();
                let name = self.begin(id, plan, now)?;
                Ok(match protects {
                    true => Answer::Protected(name),
                    false => Answer::Ready(name),
                })
            }
            Ask::Join(name) => self.join(id, &name, now).map(|()| Answer::Joined),
            Ask::Echo => Ok(Answer::Echo),
            Ask::Start => {
                let session = session::start(&mut self.sessions, id)?;
                let sends = session.plan.down;
                session.load.start(&mut *self.quic, sends, now);
                Ok(Answer::Started)
            }
            Ask::Stop { messages, seconds } => {
                let session = self.sessions.get_mut(&id).ok_or("there is no plan")?;
                session.end(now)?;
                session.load.stop(&mut *self.quic);
                let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                let load = &mut session.load;
                let side = Side {
                    other_tests: Some(session.others),
                    ..load.side(&mut *self.quic, Some(messages), span, now)
                };
                Ok(Answer::Done(Box::new(side)))
            }
        }
    }

    /// The name of a new session.
    fn begin(&mut self, id: ConnId, plan: Plan, now: Instant) -> Result<String, String> {
        self.options.allow(&plan)?;
        if self.sessions.len() >= self.options.most_clients {
            return Err("there are as many clients as this server takes: try later".into());
        }
        let peer = self.peers.get_mut(&id).ok_or("the connection is over")?;
        let network = network_of(peer.remote.ip());
        let sessions = self.sessions.values();
        let of_network = sessions.filter(|other| other.network == network).count();
        // Or one host could keep all others away.
        let most = self.options.most_clients;
        if of_network >= (most - (most / 4).max(1)).max(1) {
            let most = "your address has as many places of this server as one may have: try later";
            return Err(most.into());
        }
        if peer.session.replace(id).is_some() {
            return Err("a connection has one test".into());
        }
        tracing::info!(client = %peer.remote, ?plan.up, ?plan.down, plan.seconds, "test");
        let name: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let session = Session::new(name.clone(), plan, network, now);
        self.quic.set_urgent(id);
        self.sessions.insert(id, session);
        Ok(name)
    }

    fn join(&mut self, id: ConnId, name: &str, now: Instant) -> Result<(), String> {
        let mut sessions = self.sessions.iter_mut();
        let (&control, session) = sessions
            .find(|(_, session)| session.name == name)
            .ok_or("there is no such session")?;
        if session.load.members().count() >= session.plan.connections.into() {
            return Err("the session has all of its connections".into());
        }
        let peer = self.peers.get_mut(&id).ok_or("the connection is over")?;
        if peer.session.replace(control).is_some() {
            return Err("a connection belongs to one session".into());
        }
        session.load.add(id);
        session.note_joined(now);
        if let Ok(word) = session.plan.congestion.parse() {
            self.quic.set_congestion(id, word);
        }
        Ok(())
    }
}

/// An endpoint for so many clients as a server has, and that no peer knows yet.
fn endpoint(
    options: &Options,
    reset_key: [u8; 32],
    tls: Arc<rustls::ServerConfig>,
) -> Result<Box<dyn Stack>, String> {
    let config = BareConfig {
        congestion: Congestion::Auto,
        idle: IDLE,
        seed: random()?,
        reset_key,
        most: options.most_clients * usize::from(MOST_CONNECTIONS + 1),
        most_per_address: usize::from(MOST_CONNECTIONS + 1) * 2,
    };
    options.stack.server(config, tls)
}

pub(super) fn random() -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| "the operating system gives no random numbers")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that stands still. In its first turn something goes wrong, and in the third it is
    /// over.
    struct Faulty<'a> {
        turns: u32,
        stop: &'a AtomicBool,
    }

    impl Network for Faulty<'_> {
        fn now(&self) -> Instant {
            Instant::now()
        }

        fn turn(&mut self, _: &mut dyn Stack, _: Instant) -> io::Result<()> {
            self.turns += 1;
            assert!(self.turns > 1, "as a fault of ours would");
            self.stop.store(self.turns == 3, Ordering::Relaxed);
            Ok(())
        }

        fn flush(&mut self, _: &mut dyn Stack) -> io::Result<bool> {
            Ok(false)
        }
    }

    fn serving(stop: &AtomicBool, most_clients: usize) -> Serving<Faulty<'_>> {
        let options = Options {
            listen: None,
            token: None,
            most_seconds: Duration::from_secs(300),
            most_rate: None,
            most_clients,
            perf: false,
            stack: StackName::Sennit,
        };
        let net = Faulty { turns: 0, stop };
        Serving::over(net, options).expect("it needs random numbers only")
    }

    fn plan() -> Plan {
        Plan {
            down: true,
            ..Plan::example()
        }
    }

    /// A client at such an address plans a test.
    fn come(serving: &mut Serving<Faulty<'_>>, number: u64, host: u8) -> Result<Answer, String> {
        let (id, now) = (ConnId(number), Instant::now());
        let peer = Peer {
            remote: ([192, 0, 2, host], 1000).into(),
            since: now,
            session: None,
        };
        serving.peers.insert(id, peer);
        serving.answer(id, Ask::Run(plan()), now)
    }

    #[test]
    fn a_fault_in_a_test_ends_the_tests_and_not_the_server() {
        let stop = AtomicBool::new(false);
        let mut serving = serving(&stop, 4);
        assert!(come(&mut serving, 1, 1).is_ok());

        serving.run(&stop).expect("the network has no fault");

        assert_eq!((serving.net.turns, serving.sessions.len()), (3, 0));
    }

    #[test]
    fn one_address_leaves_places_for_others() {
        let stop = AtomicBool::new(false);
        let mut serving = serving(&stop, 4);
        let mut comes = |number, host| come(&mut serving, number, host).is_ok();

        let of_one = [1, 2, 3, 4].map(|number| comes(number, 1));
        assert_eq!(of_one, [true, true, true, false]);
        assert_eq!([comes(5, 2), comes(6, 3)], [true, false]);
    }
}
