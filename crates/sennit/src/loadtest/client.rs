//! The client of a test, which plans it and puts the figures of both ends together.

mod error;
mod figures;
mod perf;
mod seconds;
mod talk;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

pub use error::TestError;
use rustls::ClientConfig;
use sennit_core::Congestion;
use sennit_engine::{BareConfig, ConnId, Ended, Stream};
use sennit_linux::udp::LinkSocket;
use sennit_load::selfcheck::Check;

use super::{
    emulation::Emulation,
    load::Load,
    perf::Caller,
    probe::Probes,
    profile::Profile,
    report::{Handshakes, Report},
    requests::Asker,
    second::{self, Far, Second},
    selfcheck,
    server::{DONE, IDLE, random},
    stack::{Stack, StackName},
    tls::{self, Exchange, Pin},
    visits::Visits,
    wire::{self, Network, Wire},
    words::{Answer, Ask, Lines, Plan, Side},
};

/// What the round trip is without load, is looked at for so long.
const QUIET: Duration = Duration::from_millis(500);
/// Between two timed handshakes, in which a link of 0.2 Mbit/s carries two packets.
const REST: Duration = Duration::from_millis(100);
/// What is on its way when the load ends arrives within so many round trips, and this time.
const DRAIN_TRIPS: u32 = 3;
const DRAIN: Duration = Duration::from_millis(200);
const LONGEST_DRAIN: Duration = Duration::from_secs(3);
/// Between two newcomers that show how responsive a loaded network is.
const VISIT_EVERY: Duration = Duration::from_millis(100);
/// Progress is told so often.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// What to test, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The server.
    pub server: SocketAddr,
    /// What it is to do.
    pub plan: Plan,
    /// How long it may take to answer.
    pub patience: Duration,
    /// Its fingerprint, if that is known.
    pub pin: Option<Pin>,
    /// A link to emulate between here and there.
    pub profile: Option<Profile>,
    /// Decides what happens by chance on that link.
    pub seed: u64,
    /// Handshakes at the same time, over and over.
    pub handshakes: Option<u16>,
    /// Whether responsiveness is measured beside the load.
    pub responsiveness: bool,
    /// Whether the server is of another stack, and speaks the protocol that those have for it.
    pub perf: bool,
    /// The QUIC of this end.
    pub stack: StackName,
}

/// Runs a test to its end, or until `stop`. If a link is to be emulated, it is checked first.
/// What was measured before the server was lost is in the report, which says why there is no more.
///
/// # Errors
/// If nothing was measured.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Second),
) -> Result<Report, TestError> {
    let profile = options.profile.as_ref();
    let checks = profile.map_or(Ok(Vec::new()), |it| selfcheck::run(&it.spec, stop));
    let checks = checks.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => TestError::Unbegun,
        _ => error.into(),
    })?;
    let link = profile.map(|profile| Emulation::new(&profile.spec, options.seed));
    let socket = LinkSocket::listen(wire::any(options.server));
    let socket = socket.map_err(|error| TestError::Host(wire::with_cause(&error)))?;
    run_over(
        Wire::new(vec![socket], link)?,
        options,
        checks,
        stop,
        progress,
    )
}

/// Runs a test over a network.
pub(super) fn run_over<N: Network>(
    net: N,
    options: &Options,
    checks: Vec<Check>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Second),
) -> Result<Report, TestError> {
    let mut client = Client::new(net, options, checks, stop)?;
    let outcome = match options.perf {
        true => client.run_perf(progress),
        false => client.run(progress),
    };
    client.leave();
    outcome
}

/// How a load came to its end.
enum Ending {
    Planned,
    /// Somebody ended it before.
    Interrupted,
    /// There is nobody any more at the other end.
    Broken(TestError),
}

struct Client<'a, N> {
    options: &'a Options,
    /// What was found of the emulated link before the test.
    checks: Vec<Check>,
    stop: &'a AtomicBool,
    quic: Box<dyn Stack>,
    net: N,
    control: Option<ConnId>,
    lines: BTreeMap<(ConnId, Stream), Lines>,
    answers: BTreeMap<ConnId, Vec<Answer>>,
    connected: BTreeMap<ConnId, Instant>,
    lost: BTreeMap<ConnId, Ended>,
    far: Far,
    /// When anything came of the far end last.
    heard: Instant,
    probes: Option<Probes>,
    load: Load,
    /// Load for a server of another stack.
    perf: Option<Caller>,
    asker: Option<Asker>,
    visits: Option<Visits>,
    /// With what newcomers knock.
    tls: Option<Arc<ClientConfig>>,
}

impl<'a, N: Network> Client<'a, N> {
    fn new(
        net: N,
        options: &'a Options,
        checks: Vec<Check>,
        stop: &'a AtomicBool,
    ) -> Result<Self, TestError> {
        let (word, heard) = (options.plan.congestion.parse(), net.now());
        let config = BareConfig {
            congestion: word.unwrap_or(Congestion::Auto),
            idle: IDLE,
            seed: random()?,
            reset_key: random()?,
            most: 0,
            most_per_address: 0,
        };
        Ok(Self {
            options,
            checks,
            stop,
            quic: options.stack.client(config),
            net,
            control: None,
            lines: BTreeMap::new(),
            answers: BTreeMap::new(),
            connected: BTreeMap::new(),
            lost: BTreeMap::new(),
            far: Far::default(),
            heard,
            probes: None,
            load: Load::new(&options.plan),
            perf: options.perf.then(|| Caller::new(&options.plan)),
            asker: None,
            visits: None,
            tls: None,
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(&Second)) -> Result<Report, TestError> {
        let tls = tls::client(self.options.pin, Exchange::PostQuantum)?;
        let start = self.net.now();
        let control = self.connect(tls.clone())?;
        if let Err(error) = self.until_connected(control) {
            return Err(self.look_closer(error, tls::client)?);
        }
        let mut handshake = Handshakes {
            post_quantum_seconds: self.handshake(control, start),
            ..Handshakes::default()
        };
        let stream = self.open(control)?;
        self.quic.set_urgent(control);
        self.control = Some(control);
        self.ask(control, stream, &Ask::Run(self.options.plan.clone()));
        let answer = self.answer(control)?;
        let session = session(answer, &self.options.plan, self.options.server)?;
        let quiet = self.keep_quiet()?;
        let classic = tls::client(self.options.pin, Exchange::Classic)?;
        handshake.classic_seconds = self.time_handshake(classic)?;
        self.rest()?;
        handshake.resumed_seconds = self.time_handshake(tls.clone())?;
        self.rest()?;
        handshake.zero_rtt_answer_seconds = self.time_early(tls.clone())?;
        self.tls = Some(tls::newcomer(self.options.pin)?);
        self.join_all(&tls, &session)?;
        self.net.begin();
        let begun = self.begin(control, stream)?;
        let ending = self.let_run(begun, progress)?;
        self.finish(stream, (quiet, begun), handshake, ending)
    }

    /// Probes leave while nothing else does: from when to when. Handshakes follow, and what their
    /// connections say when they are closed; and no load runs before the far end has said so.
    fn keep_quiet(&mut self) -> Result<Range<Instant>, TestError> {
        let from = self.net.now();
        self.probes = Some(Probes::new(from));
        self.pump(from + QUIET, |_| None::<()>)?;
        Ok(from..from + QUIET)
    }

    /// What a connection says when it is closed would hold up the next handshake on a slow link.
    fn rest(&mut self) -> Result<(), TestError> {
        self.pump(self.net.now() + REST, |_| None::<()>).map(drop)
    }

    // ---- the load ------------------------------------------------------------------------------

    /// Both ends begin; when what arrives here began.
    fn begin(&mut self, control: ConnId, stream: Stream) -> Result<Instant, TestError> {
        self.ask(control, stream, &Ask::Start);
        let (sends, now) = (self.options.plan.up, self.net.now());
        self.load.start(&mut *self.quic, sends, now);
        let Answer::Started = self.answer(control)? else {
            return Err(self.nonsense());
        };
        let begun = self.net.now();
        self.far.begin(begun);
        self.load.count_from(begun);
        let counted = self.counted(begun);
        let members = self.load.members().collect();
        let requests = self.options.plan.requests;
        self.asker = requests.map(|requests| Asker::new(requests, members, counted, begun));
        let handshakes = self.options.handshakes;
        self.visits = match self.options.responsiveness {
            true => Some(Visits::each(VISIT_EVERY, counted, begun)),
            false => handshakes.map(|count| Visits::always(count, counted)),
        };
        Ok(begun)
    }

    /// When the warm-up of a load that began then is over.
    fn counted(&self, begun: Instant) -> Instant {
        begun + Duration::from_secs_f64(self.options.plan.warmup_seconds)
    }

    /// Waits for the end of the load.
    fn let_run(
        &mut self,
        begun: Instant,
        progress: &mut dyn FnMut(&Second),
    ) -> Result<Ending, TestError> {
        let plan = &self.options.plan;
        let span = Duration::from_secs_f64(plan.warmup_seconds + plan.seconds);
        let end = begun + span;
        let (mut told, mut before) = (begun, 0_u64);
        while self.net.now() < end && !self.is_stopped() && !self.is_complete() {
            let until = (told + TOLD_EVERY).min(end);
            let ends = |client: &mut Self| client.is_complete().then_some(None);
            let ends = |client: &mut Self| client.broken().map(Some).or_else(|| ends(client));
            let now_broken = self.pump(until, ends)?.flatten();
            let now = self.net.now();
            if let Some(ended) = now_broken {
                let error = self.explain(&ended);
                return match now > self.counted(begun) + second::SHORTEST {
                    true => Ok(Ending::Broken(error)),
                    false => Err(error),
                };
            }
            if now.saturating_duration_since(told) > TOLD_EVERY / 2 {
                let received = self.arrived(now);
                progress(&self.second(begun, told, received - before));
                (told, before) = (now, received);
            }
        }
        Ok(match self.is_stopped() {
            true => Ending::Interrupted,
            false => Ending::Planned,
        })
    }

    /// Whether all bytes have arrived that were to arrive.
    fn is_complete(&self) -> bool {
        let plan = &self.options.plan;
        if let Some(perf) = &self.perf {
            return plan.bytes.is_some() && perf.is_complete();
        }
        let up = !plan.up || self.far.is_complete();
        let down = !plan.down || self.load.is_complete();
        plan.bytes.is_some() && up && down
    }

    /// Why the test cannot go on, if it cannot.
    fn broken(&self) -> Option<Ended> {
        let members = self.load.members().chain(self.control);
        members
            .into_iter()
            .find_map(|id| self.lost.get(&id).cloned())
    }

    fn finish(
        &mut self,
        stream: Stream,
        (quiet, begun): (Range<Instant>, Instant),
        handshake: Handshakes,
        ending: Ending,
    ) -> Result<Report, TestError> {
        let ended = self.net.now();
        self.load.stop(&mut *self.quic);
        self.asker.iter_mut().for_each(|all| all.stop(ended));
        self.visits.iter_mut().for_each(|all| all.stop(ended));
        let span_until = |end: Instant| end.saturating_duration_since(self.counted(begun));
        let (span, heard) = (span_until(ended), span_until(ended.min(self.heard)));
        let interrupted = matches!(ending, Ending::Interrupted);
        let theirs = match ending {
            Ending::Broken(error) => Err(error),
            Ending::Planned | Ending::Interrupted => self.theirs(stream, span, ended),
        };
        let (theirs, span, broken) = match theirs {
            Ok(theirs) => (Ok(theirs), span, None),
            Err(error) if heard < second::SHORTEST => return Err(error),
            Err(error) => {
                let received = self.far.received(self.counted(begun));
                (Err(received), heard, Some(error))
            }
        };
        let sent = theirs.as_ref().ok().map(|theirs| theirs.sent.messages);
        let ours = self.load.side(&mut *self.quic, sent, span, ended);
        let rtt = self.round_trips(quiet, self.counted(begun)..ended);
        let theirs = theirs.unwrap_or_else(|received| {
            Box::new(Side {
                received,
                ..Side::default()
            })
        });
        let mut report = self.report(&ours, &theirs, rtt, handshake, interrupted);
        self.add_questions(&mut report, &ours, ended);
        Ok(match broken {
            Some(error) => report.broken_off(&error, true),
            None => report,
        })
    }

    /// What the far end measured, after what is on its way has arrived. It is asked in spite of who
    /// wants to stop.
    fn theirs(
        &mut self,
        stream: Stream,
        span: Duration,
        ended: Instant,
    ) -> Result<Box<Side>, TestError> {
        let stopped = std::mem::replace(&mut self.stop, &NEVER);
        let answer = self.drain(ended).and_then(|()| {
            let control = self.control.ok_or_else(|| self.nonsense())?;
            let stop = Ask::Stop {
                messages: self.load.messages(&mut *self.quic),
                seconds: span.as_secs_f64(),
            };
            self.ask(control, stream, &stop);
            self.answer(control)
        });
        self.stop = stopped;
        match answer? {
            Answer::Done(theirs) => Ok(Box::new(theirs.cleaned(self.options.plan.connections))),
            _ => Err(self.nonsense()),
        }
    }

    /// Waits for what is on its way when the load ends.
    fn drain(&mut self, ended: Instant) -> Result<(), TestError> {
        let newest = self.probes.as_ref().and_then(Probes::newest);
        let drain = (newest.unwrap_or_default() * DRAIN_TRIPS + DRAIN).min(LONGEST_DRAIN);
        self.pump(ended + drain, |_| None::<()>).map(drop)
    }

    /// Says goodbye, if there is somebody.
    fn leave(&mut self) {
        let now = self.net.now();
        let members: Vec<_> = self.load.members().collect();
        for id in members.into_iter().chain(self.control) {
            self.quic.close(id, DONE, "", now);
        }
        while self.quic.poll_event().is_some() {}
        // Whoever does not hear it finds out by itself.
        let _ = self.net.flush(&mut *self.quic);
    }
}

/// The name of the session, if the server has understood all of the plan.
fn session(answer: Answer, plan: &Plan, server: SocketAddr) -> Result<String, TestError> {
    match (answer, plan.fec.is_some()) {
        (Answer::Ready(name), false) | (Answer::Protected(name), true) => Ok(name),
        (Answer::Ready(_), true) => Err(TestError::NoFec { server }),
        (
            Answer::Protected(_)
            | Answer::Joined
            | Answer::Started
            | Answer::Echo
            | Answer::Tick(_)
            | Answer::Done(_),
            _,
        ) => Err(TestError::OtherProtocol {
            server,
            perf: false,
        }),
    }
}

/// What the figures are finished with, whatever was interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    /// One of before there was error correction overlooks it in the plan.
    #[test]
    fn a_server_that_cannot_protect_messages_is_told_from_one_that_does() {
        let server = ([192, 0, 2, 1], 4774).into();
        let asked = |fec: Option<&str>, answer: Answer| {
            let plan = Plan {
                fec: fec.map(str::to_owned),
                ..Plan::example()
            };
            session(answer, &plan, server)
        };
        let name = || "name".to_owned();

        let older = asked(Some("rs:10+2"), Answer::Ready(name()));

        assert!(matches!(older, Err(TestError::NoFec { .. })));
        for (fec, answer) in [
            (None, Answer::Ready(name())),
            (Some("rs:10+2"), Answer::Protected(name())),
        ] {
            assert_eq!(asked(fec, answer).ok(), Some(name()));
        }
    }
}
