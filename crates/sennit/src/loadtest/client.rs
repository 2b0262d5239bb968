//! The client of a test, which plans it and puts the figures of both ends together.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sennit_core::Congestion;
use sennit_engine::{Bare, BareConfig, BareEvent, ConnId, Ended, Stream};
use sennit_linux::udp::LinkSocket;
use sennit_load::{TimeFigures, fairness};

use super::{
    load::Load,
    probe::Probes,
    report::{Cpu, Handshakes, Report, RoundTrips, SCHEMA, Way},
    server::{DONE, IDLE, random},
    tls::{self, Exchange, Pin},
    wire::{self, Wire},
    words::{Answer, Ask, Lines, Plan, Side, line},
};

/// What the round trip is without load, is looked at for so long.
const QUIET: Duration = Duration::from_millis(500);
/// What is on its way when the load ends arrives within so many round trips, and this time.
const DRAIN_TRIPS: u32 = 3;
const DRAIN: Duration = Duration::from_millis(200);
const LONGEST_DRAIN: Duration = Duration::from_secs(3);
/// A server's figures have a bin for each tenth of a second.
const LONGEST_ANSWER: usize = 16 << 20;
/// A server that did not answer is asked in another way for so long.
const CLOSER: Duration = Duration::from_secs(1);
/// Progress is told so often.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What to test, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub server: SocketAddr,
    /// What it is to do.
    pub plan: Plan,
    /// How long it may take to answer.
    pub patience: Duration,
    /// Its fingerprint, if that is known.
    pub pin: Option<Pin>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// Nothing came back.
    #[error("no test server answers at {server} within {} s{}", patience.as_secs_f64(), because(.refusal.as_deref()))]
    NoServer {
        /// Where nobody is.
        server: SocketAddr,
        /// How long was waited.
        patience: Duration,
        /// What the kernel said of our packets.
        refusal: Option<String>,
    },
    /// Somebody else is there.
    #[error("{server} speaks QUIC, but it is no test server of this version")]
    OtherProtocol {
        /// Where.
        server: SocketAddr,
    },
    /// Its certificate is another.
    #[error(
        "the certificate of {server} is not the one of --pin: this is another server, or somebody in between"
    )]
    OtherServer {
        /// Where.
        server: SocketAddr,
    },
    /// The server ended it, in its own words.
    #[error("{server} ended the test: {reason}")]
    Refused {
        /// Where.
        server: SocketAddr,
        /// Its words.
        reason: String,
    },
    /// The connection ended.
    #[error("the connection to {server} is over: {reason}")]
    Broken {
        /// Where.
        server: SocketAddr,
        /// Why.
        reason: String,
    },
    /// It was stopped before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
    /// This host.
    #[error("this host: {0}")]
    Host(String),
}

fn because(refusal: Option<&str>) -> String {
    refusal.map_or(String::new(), |reason| format!(": {reason}"))
}

impl From<io::Error> for TestError {
    fn from(error: io::Error) -> Self {
        Self::Host(error.to_string())
    }
}

impl From<String> for TestError {
    fn from(error: String) -> Self {
        Self::Host(error)
    }
}

/// How far it is, once a second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the load began.
    pub elapsed: Duration,
    /// Payload that arrived here in the last second, in bit/s.
    pub received_bits_per_second: f64,
    /// The newest round trip.
    pub rtt: Option<Duration>,
}

/// Runs a test to its end, or until `stop`.
///
/// # Errors
/// If nothing was measured.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, TestError> {
    let mut client = Client::new(options, stop)?;
    let outcome = client.run(progress);
    client.leave();
    outcome
}

struct Client<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    wire: Wire,
    control: Option<(ConnId, Stream)>,
    lines: BTreeMap<(ConnId, Stream), Lines>,
    answers: BTreeMap<ConnId, Vec<Answer>>,
    connected: BTreeMap<ConnId, Instant>,
    lost: BTreeMap<ConnId, Ended>,
    probes: Option<Probes>,
    load: Load,
}

impl<'a> Client<'a> {
    fn new(options: &'a Options, stop: &'a AtomicBool) -> Result<Self, TestError> {
        let word = options.plan.congestion.parse();
        let config = BareConfig {
            congestion: word.unwrap_or(Congestion::Auto),
            idle: IDLE,
            seed: random()?,
            reset_key: random()?,
            most: 0,
            most_per_address: 0,
        };
        let socket = LinkSocket::listen(wire::any(options.server));
        let socket = socket.map_err(|error| TestError::Host(error.to_string()))?;
        Ok(Self {
            options,
            stop,
            wire: Wire::new(Bare::client(config), vec![socket])?,
            control: None,
            lines: BTreeMap::new(),
            answers: BTreeMap::new(),
            connected: BTreeMap::new(),
            lost: BTreeMap::new(),
            probes: None,
            load: Load::new(&options.plan),
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Report, TestError> {
        let tls = tls::client(self.options.pin, Exchange::PostQuantum)?;
        let start = Instant::now();
        let control = self.connect(tls.clone())?;
        if let Err(error) = self.until_connected(control) {
            return Err(self.look_closer(error)?);
        }
        let mut handshake = Handshakes {
            post_quantum_seconds: self.handshake(control, start),
            ..Handshakes::default()
        };
        let stream = self.open(control)?;
        self.wire.bare.set_urgent(control);
        self.control = Some((control, stream));
        self.ask(control, stream, &Ask::Run(self.options.plan.clone()));
        let Answer::Ready(session) = self.answer(control)? else {
            return Err(self.nonsense());
        };
        let classic = tls::client(self.options.pin, Exchange::Classic)?;
        handshake.classic_seconds = self.time_handshake(classic)?;
        handshake.resumed_seconds = self.time_handshake(tls.clone())?;
        let quiet_from = Instant::now();
        self.probes = Some(Probes::new(quiet_from));
        self.pump(quiet_from + QUIET, |_| None::<()>)?;
        self.join_all(&tls, &session)?;
        let begun = self.begin(control, stream)?;
        let interrupted = self.let_run(begun, progress)?;
        self.finish(begun, quiet_from, handshake, interrupted)
    }

    // ---- connections ---------------------------------------------------------------------------

    fn connect(&mut self, tls: std::sync::Arc<rustls::ClientConfig>) -> Result<ConnId, TestError> {
        let (server, now) = (self.options.server, Instant::now());
        let connecting = self.wire.bare.connect(tls, server, tls::NAME, now);
        connecting.map_err(TestError::Host)
    }

    fn until_connected(&mut self, id: ConnId) -> Result<(), TestError> {
        let until = Instant::now() + self.options.patience;
        let there = |client: &mut Self| {
            let known = client.connected.contains_key(&id) || client.lost.contains_key(&id);
            known.then_some(())
        };
        self.pump(until, there)?;
        match self.lost.get(&id) {
            Some(ended) => Err(self.explain(ended)),
            None if self.connected.contains_key(&id) => Ok(()),
            None if self.is_stopped() => Err(TestError::Interrupted),
            None => Err(TestError::NoServer {
                server: self.options.server,
                patience: self.options.patience,
                refusal: self.wire.refusal().map(ToOwned::to_owned),
            }),
        }
    }

    /// A server that refuses a handshake after its first packet may do so in silence, as noq does;
    /// the classic one fits into one packet.
    fn look_closer(&mut self, error: TestError) -> Result<TestError, TestError> {
        if !matches!(error, TestError::NoServer { .. }) {
            return Ok(error);
        }
        let id = self.connect(tls::client(self.options.pin, Exchange::Classic)?)?;
        let until = Instant::now() + self.options.patience.min(CLOSER);
        let lost = |client: &mut Self| client.lost.get(&id).cloned();
        let ended = self.pump(until, lost)?;
        Ok(match ended {
            Some(Ended::OtherProtocol) => self.explain(&Ended::OtherProtocol),
            Some(_) | None => error,
        })
    }

    fn explain(&self, ended: &Ended) -> TestError {
        let server = self.options.server;
        match ended {
            Ended::OtherProtocol | Ended::OtherVersion => TestError::OtherProtocol { server },
            Ended::ByPeer(_, reason) => TestError::Refused {
                server,
                reason: reason.clone(),
            },
            Ended::Failed(reason)
                if self.options.pin.is_some() && reason.contains("certificate") =>
            {
                TestError::OtherServer { server }
            }
            Ended::TimedOut | Ended::Refused | Ended::Here | Ended::Failed(_) => {
                let reason = ended.to_string();
                TestError::Broken { server, reason }
            }
        }
    }

    fn handshake(&self, id: ConnId, start: Instant) -> Option<f64> {
        let done = self.connected.get(&id)?;
        Some(done.saturating_duration_since(start).as_secs_f64())
    }

    /// A connection only for its handshake; `None` if it failed.
    fn time_handshake(
        &mut self,
        tls: std::sync::Arc<rustls::ClientConfig>,
    ) -> Result<Option<f64>, TestError> {
        let start = Instant::now();
        let id = self.connect(tls)?;
        // A handshake that fails has no time, which is no reason to end.
        if let Err(TestError::Interrupted) = self.until_connected(id) {
            return Err(TestError::Interrupted);
        }
        self.wire.bare.close(id, DONE, "", Instant::now());
        Ok(self.handshake(id, start))
    }

    /// The connections of the load, each of which says whose it is.
    fn join_all(
        &mut self,
        tls: &std::sync::Arc<rustls::ClientConfig>,
        session: &str,
    ) -> Result<(), TestError> {
        for _ in 0..self.options.plan.connections {
            let id = self.connect(tls.clone())?;
            self.load.add(id);
        }
        let members: Vec<_> = self.load.members().collect();
        for &id in &members {
            self.until_connected(id)?;
            let stream = self.open(id)?;
            self.ask(id, stream, &Ask::Join(session.to_owned()));
        }
        for id in members {
            let Answer::Joined = self.answer(id)? else {
                return Err(self.nonsense());
            };
        }
        Ok(())
    }

    // ---- asking --------------------------------------------------------------------------------

    fn open(&mut self, id: ConnId) -> Result<Stream, TestError> {
        let stream = self.wire.bare.open(id, true);
        stream.ok_or_else(|| self.nonsense())
    }

    fn ask(&mut self, id: ConnId, stream: Stream, ask: &Ask) {
        self.wire.bare.write(id, stream, &Bytes::from(line(ask)));
    }

    /// The next answer on a connection.
    fn answer(&mut self, id: ConnId) -> Result<Answer, TestError> {
        let until = Instant::now() + self.options.patience;
        let next = |client: &mut Self| {
            let waiting = client.answers.get_mut(&id).filter(|all| !all.is_empty());
            let answer = waiting.map(|all| Ok(all.remove(0)));
            answer.or_else(|| Some(Err(client.lost.get(&id)?.clone())))
        };
        match self.pump(until, next)? {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(ended)) => Err(self.explain(&ended)),
            None if self.is_stopped() => Err(TestError::Interrupted),
            None => Err(self.explain(&Ended::TimedOut)),
        }
    }

    /// The server said something that has no place here.
    fn nonsense(&self) -> TestError {
        TestError::OtherProtocol {
            server: self.options.server,
        }
    }

    // ---- the load ------------------------------------------------------------------------------

    /// Both ends begin; when what arrives here began.
    fn begin(&mut self, control: ConnId, stream: Stream) -> Result<Instant, TestError> {
        self.ask(control, stream, &Ask::Start);
        let (sends, now) = (self.options.plan.up, Instant::now());
        self.load.start(&mut self.wire.bare, sends, now);
        let Answer::Started = self.answer(control)? else {
            return Err(self.nonsense());
        };
        let begun = Instant::now();
        self.load.count_from(begun);
        Ok(begun)
    }

    /// Waits for the end of the load; whether somebody ended it before.
    fn let_run(
        &mut self,
        begun: Instant,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, TestError> {
        let end = begun + Duration::from_secs_f64(self.options.plan.seconds);
        let (mut told, mut before) = (begun, 0);
        while Instant::now() < end && !self.is_stopped() {
            let until = (told + TOLD_EVERY).min(end);
            let broken = self.pump(until, |client| client.broken())?;
            if let Some(ended) = broken {
                return Err(self.explain(&ended));
            }
            let (now, received) = (Instant::now(), self.load.received());
            let span = now.saturating_duration_since(told).as_secs_f64();
            if span > 0.5 {
                progress(Progress {
                    elapsed: now.saturating_duration_since(begun),
                    received_bits_per_second: (received - before) as f64 * 8.0 / span,
                    rtt: self.probes.as_ref().and_then(Probes::newest),
                });
                (told, before) = (now, received);
            }
        }
        Ok(self.is_stopped())
    }

    /// Why the test cannot go on, if it cannot.
    fn broken(&self) -> Option<Ended> {
        let (control, _) = self.control?;
        let members = self.load.members().chain([control]);
        members
            .into_iter()
            .find_map(|id| self.lost.get(&id).cloned())
    }

    fn finish(
        &mut self,
        begun: Instant,
        quiet_from: Instant,
        handshake: Handshakes,
        interrupted: bool,
    ) -> Result<Report, TestError> {
        let ended = Instant::now();
        self.load.stop(&mut self.wire.bare);
        let newest = self.probes.as_ref().and_then(Probes::newest);
        let drain = (newest.unwrap_or_default() * DRAIN_TRIPS + DRAIN).min(LONGEST_DRAIN);
        let stopped = std::mem::replace(&mut self.stop, &NEVER);
        self.pump(ended + drain, |_| None::<()>)?;
        let (control, stream) = self.control.ok_or_else(|| self.nonsense())?;
        let span = ended.saturating_duration_since(begun);
        let stop = Ask::Stop {
            messages: self.load.messages(),
            seconds: span.as_secs_f64(),
        };
        self.ask(control, stream, &stop);
        let theirs = self.answer(control);
        self.stop = stopped;
        let Answer::Done(theirs) = theirs? else {
            return Err(self.nonsense());
        };
        let sent = theirs.sent.messages;
        let ours = self.load.side(&mut self.wire.bare, Some(sent), span, ended);
        let trips = |from, to| {
            let probes = self.probes.as_ref();
            probes.map(|probes| probes.between(from, to))
        };
        let idle = trips(quiet_from, begun).map(|trips| trips.times);
        let rtt = trips(begun, ended).map(|trips| {
            RoundTrips::new(
                idle.unwrap_or_default(),
                trips.times,
                trips.sent,
                trips.lost,
            )
        });
        Ok(self.report(
            &ours,
            &theirs,
            rtt.unwrap_or_default(),
            handshake,
            interrupted,
        ))
    }

    fn report(
        &self,
        ours: &Side,
        theirs: &Side,
        rtt: RoundTrips,
        handshake: Handshakes,
        interrupted: bool,
    ) -> Report {
        let plan = &self.options.plan;
        let up = plan.up.then(|| way(ours, theirs));
        let down = plan.down.then(|| way(theirs, ours));
        let cpu = Cpu {
            client_seconds: ours.cpu_seconds,
            server_seconds: theirs.cpu_seconds,
        };
        let goodput = [&up, &down].into_iter().flatten();
        let mut notes = cpu.notes(ours.received.seconds);
        if interrupted {
            notes.push("interrupted: the figures are of the time until then".into());
        }
        if rtt.idle == TimeFigures::default() {
            notes.push("no probe was answered before the load".into());
        }
        Report {
            schema: SCHEMA.into(),
            server: self.options.server.to_string(),
            plan: Plan {
                token: None,
                ..plan.clone()
            },
            interrupted,
            goodput_bits_per_second: goodput.map(|way| way.goodput_bits_per_second).sum(),
            up,
            down,
            rtt,
            handshake,
            cpu,
            notes,
        }
    }

    /// Says goodbye, if there is somebody.
    fn leave(&mut self) {
        let now = Instant::now();
        let members: Vec<_> = self.load.members().collect();
        let control = self.control.map(|(control, _)| control);
        for id in members.into_iter().chain(control) {
            self.wire.bare.close(id, DONE, "", now);
        }
        while self.wire.bare.poll_event().is_some() {}
        // Whoever does not hear it finds out by itself.
        let _ = self.wire.flush();
    }

    // ---- events --------------------------------------------------------------------------------

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets things happen until `done` has something, `until`, or somebody wants to stop.
    fn pump<T>(
        &mut self,
        until: Instant,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, TestError> {
        loop {
            if let Some(found) = done(self) {
                return Ok(Some(found));
            }
            let now = Instant::now();
            if now >= until || self.is_stopped() {
                return Ok(None);
            }
            self.probe()?;
            self.load.fill(&mut self.wire.bare, Instant::now());
            let probe = self.probes.as_ref().map(Probes::next_at);
            let wakes = [probe, self.load.next_at(now)];
            let wake = wakes.into_iter().flatten().fold(until, Instant::min);
            self.wire.turn(wake)?;
            while let Some(event) = self.wire.bare.poll_event() {
                self.handle_event(event)?;
            }
        }
    }

    /// A probe leaves before anything else does.
    fn probe(&mut self) -> Result<(), TestError> {
        let Some((control, _)) = self.control else {
            return Ok(());
        };
        let probe = self.probes.as_mut().and_then(|p| p.poll(Instant::now()));
        if let Some(probe) = probe {
            self.wire.bare.send_datagram(control, probe);
            self.wire.flush()?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: BareEvent) -> Result<(), TestError> {
        let now = Instant::now();
        match event {
            BareEvent::Connected(id) => {
                self.connected.insert(id, now);
            }
            BareEvent::Lost(id, ended) => {
                self.lost.insert(id, ended);
                self.load.lose(id);
            }
            BareEvent::Readable(id, stream) if stream.goes_both_ways() => {
                self.read_answers(id, stream)?;
            }
            BareEvent::Datagram(id, bytes, arrived)
                if self.control.is_some_and(|(control, _)| control == id) =>
            {
                if let Some(probes) = &mut self.probes {
                    probes.handle_answer(&bytes, arrived);
                }
            }
            event => self.load.handle_event(&mut self.wire.bare, &event, now),
        }
        Ok(())
    }

    fn read_answers(&mut self, id: ConnId, stream: Stream) -> Result<(), TestError> {
        let lines = self.lines.entry((id, stream));
        let lines = lines.or_insert_with(|| Lines::new(LONGEST_ANSWER));
        let mut good = true;
        self.wire
            .bare
            .read(id, stream, |bytes| good &= lines.push(bytes));
        let mut answers = Vec::new();
        while good && let Some(answer) = lines.next::<Answer>() {
            answers.push(answer);
        }
        if !good || answers.iter().any(Result::is_err) {
            return Err(self.nonsense());
        }
        let waiting = self.answers.entry(id).or_default();
        waiting.extend(answers.into_iter().flatten());
        Ok(())
    }
}

/// What the figures are finished with, whatever was interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

/// One direction, by what its two ends say.
fn way(sender: &Side, receiver: &Side) -> Way {
    let received = &receiver.received;
    let flows: Vec<f64> = received.flows.iter().map(|&bytes| bytes as f64).collect();
    Way {
        goodput_bits_per_second: received.bytes as f64 * 8.0 / received.seconds.max(1e-3),
        bytes: received.bytes,
        seconds: received.seconds,
        bins: received.bins.clone(),
        flows: flows.len(),
        fairness: fairness(&flows),
        messages: received.messages.clone(),
        sent_packets: sender.sent.packets,
        lost_packets: sender.sent.lost,
        controllers: sender.sent.controllers.clone(),
    }
}
