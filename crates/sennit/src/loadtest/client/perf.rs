//! A test against a server of another stack, by the protocol that all have for it.

use std::{ops::Range, time::Instant};

use sennit_engine::BareEvent;

use super::{
    super::{
        perf::{self, Taken},
        probe::Probes,
        report::{Handshakes, Report},
        second::{self, Second},
        tls::{self, Exchange},
        wire::Network,
        words::Side,
    },
    Client, Ending, NEVER, TestError,
};

/// What to know of the figures: such a server says nothing.
const NOTES: [&str; 2] = [
    "what went up is what the server acknowledged, in pieces of 128 KiB",
    "round trips are those of questions for one byte, with the time that the server took",
];

impl<N: Network> Client<'_, N> {
    pub(super) fn run_perf(
        &mut self,
        progress: &mut dyn FnMut(&Second),
    ) -> Result<Report, TestError> {
        let (quiet, handshake) = self.meet()?;
        let tls = tls::perf_client(self.options.pin, Exchange::PostQuantum)?;
        self.connect_all(&tls, |_, _| Ok(()))?;
        self.net.begin();
        let begun = self.begin_perf();
        let ending = self.let_run(begun, progress)?;
        self.finish_perf((quiet, begun), handshake, ending)
    }

    /// The connection for questions, when nothing else was there, and how long handshakes take.
    fn meet(&mut self) -> Result<(Range<Instant>, Handshakes), TestError> {
        let start = self.net.now();
        let control = self.connect(tls::perf_client(self.options.pin, Exchange::PostQuantum)?)?;
        if let Err(error) = self.until_connected(control) {
            return Err(self.look_closer(error, tls::perf_client)?);
        }
        self.quic.set_urgent(control);
        self.control = Some(control);
        let quiet = self.keep_quiet()?;
        let classic = tls::perf_client(self.options.pin, Exchange::Classic)?;
        let handshakes = Handshakes {
            // The server may have wanted a classic one.
            post_quantum_seconds: (self.quic.is_post_quantum(control) == Some(true))
                .then(|| self.handshake(control, start))
                .flatten(),
            classic_seconds: self.time_handshake(classic)?,
            ..Handshakes::default()
        };
        Ok((quiet, handshakes))
    }

    /// Load begins; when it counts: what is sent now arrives and is known a round trip later.
    fn begin_perf(&mut self) -> Instant {
        let now = self.net.now();
        let trip = self.probes.as_ref().and_then(Probes::newest);
        // Unless all bytes are waited for: then the first ones count as well.
        let trip = trip.filter(|_| self.options.plan.bytes.is_none());
        let begun = now + trip.unwrap_or_default();
        self.load.start(&mut *self.quic, false, now);
        let members: Vec<_> = self.load.members().collect();
        if let Some(perf) = &mut self.perf {
            perf.start(&mut *self.quic, &members, begun);
        }
        begun
    }

    fn finish_perf(
        &mut self,
        (quiet, begun): (Range<Instant>, Instant),
        handshake: Handshakes,
        ending: Ending,
    ) -> Result<Report, TestError> {
        let ended = self.net.now();
        // After the server was heard of last there was nothing to count.
        let end = match ending {
            Ending::Broken(_) => ended.min(self.heard),
            Ending::Planned | Ending::Interrupted => ended,
        };
        let span = end.saturating_duration_since(self.counted(begun));
        let ending = match ending {
            Ending::Broken(error) if span < second::SHORTEST => return Err(error),
            ending => ending,
        };
        let received = self.perf.as_mut().map(|perf| {
            perf.stop(&mut *self.quic);
            perf.received(span, ended)
        });
        let [up, down] = received.unwrap_or_default();
        let ours = Side {
            received: down,
            ..self.load.side(&mut *self.quic, None, span, ended)
        };
        let theirs = Side {
            received: up,
            ..Side::default()
        };
        let stopped = std::mem::replace(&mut self.stop, &NEVER);
        let drained = self.drain(ended);
        self.stop = stopped;
        let rtt = self.round_trips(quiet, self.counted(begun)..ended);
        let interrupted = matches!(ending, Ending::Interrupted);
        let mut report = self.report(&ours, &theirs, rtt, handshake, interrupted);
        let broken = match ending {
            Ending::Broken(error) => Some(error),
            Ending::Planned | Ending::Interrupted => drained.err(),
        };
        if let Some(error) = broken {
            report = report.broken_off(&error, false);
        }
        report.protocol = String::from_utf8_lossy(perf::ALPN).into_owned();
        report.notes.extend(NOTES.map(str::to_owned));
        Ok(report)
    }

    /// Whether an event is one of such a test.
    pub(super) fn is_for_perf(&mut self, event: &BareEvent, now: Instant) -> bool {
        let perf = self.perf.as_mut();
        let taken = perf.map(|perf| perf.handle_event(&mut *self.quic, event, now));
        if let (Some(Taken::Ping(number)), Some(probes)) = (taken, &mut self.probes) {
            probes.note(number, now, std::time::Duration::ZERO);
        }
        taken.is_some_and(|taken| taken != Taken::No)
    }
}
