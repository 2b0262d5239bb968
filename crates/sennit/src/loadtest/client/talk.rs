//! Connections, what is said on them, and what happens meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustls::ClientConfig;
use sennit_engine::{BareEvent, ConnId, Ended, Stream};

use super::{
    super::{
        probe::Probes,
        requests::Asker,
        server::DONE,
        tls::{self, Exchange, Pin},
        visits::Visits,
        wire::Network,
        words::{Answer, Ask, Lines, line, plain},
    },
    Client, TestError,
};

/// A server's figures have a bin for each tenth of a second.
const LONGEST_ANSWER: usize = 16 << 20;
/// Handshakes at the same time: each takes some kilobytes at both ends, which a process keeps.
const AT_ONCE: u16 = 128;
/// A server that did not answer is asked in another way for so long.
const CLOSER: Duration = Duration::from_secs(1);

impl<N: Network> Client<'_, N> {
    // ---- connections ---------------------------------------------------------------------------

    pub(super) fn connect(&mut self, tls: Arc<ClientConfig>) -> Result<ConnId, TestError> {
        let (server, now) = (self.options.server, self.net.now());
        let connecting = self.quic.connect(tls, server, tls::NAME, now);
        connecting.map_err(TestError::Host)
    }

    pub(super) fn until_connected(&mut self, id: ConnId) -> Result<(), TestError> {
        let until = self.net.now() + self.options.patience;
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
                refusal: self.net.refusal().map(ToOwned::to_owned),
            }),
        }
    }

    /// A server that refuses a handshake after its first packet may do so in silence, as noq does;
    /// the classic one fits into one packet.
    pub(super) fn look_closer(
        &mut self,
        error: TestError,
        client: fn(Option<Pin>, Exchange) -> Result<Arc<ClientConfig>, String>,
    ) -> Result<TestError, TestError> {
        if !matches!(error, TestError::NoServer { .. }) {
            return Ok(error);
        }
        let id = self.connect(client(self.options.pin, Exchange::Classic)?)?;
        let until = self.net.now() + self.options.patience.min(CLOSER);
        let lost = |client: &mut Self| client.lost.get(&id).cloned();
        let ended = self.pump(until, lost)?;
        Ok(match ended {
            Some(Ended::OtherProtocol) => self.explain(&Ended::OtherProtocol),
            Some(_) | None => error,
        })
    }

    pub(super) fn explain(&self, ended: &Ended) -> TestError {
        let server = self.options.server;
        match ended {
            Ended::OtherProtocol | Ended::OtherVersion => TestError::OtherProtocol {
                server,
                perf: self.options.perf,
            },
            Ended::ByPeer(_, reason) => TestError::Refused {
                server,
                reason: plain(reason),
            },
            Ended::Failed(reason)
                if self.options.pin.is_some() && reason.contains("certificate") =>
            {
                TestError::OtherServer { server }
            }
            Ended::TimedOut | Ended::Refused | Ended::Here | Ended::Failed(_) => {
                let reason = plain(&ended.to_string());
                TestError::Broken { server, reason }
            }
        }
    }

    pub(super) fn handshake(&self, id: ConnId, start: Instant) -> Option<f64> {
        let done = self.connected.get(&id)?;
        Some(done.saturating_duration_since(start).as_secs_f64())
    }

    /// A connection only for its handshake; `None` if it failed.
    pub(super) fn time_handshake(
        &mut self,
        tls: Arc<ClientConfig>,
    ) -> Result<Option<f64>, TestError> {
        let start = self.net.now();
        let id = self.connect(tls)?;
        // A handshake that fails has no time, which is no reason to end.
        if let Err(TestError::Interrupted) = self.until_connected(id) {
            return Err(TestError::Interrupted);
        }
        self.quic.close(id, DONE, "", self.net.now());
        Ok(self.handshake(id, start))
    }

    /// How long a client that was here before waits for the answer to a question that it asks with
    /// its first packet; `None` if the server did not take it so early.
    pub(super) fn time_early(&mut self, tls: Arc<ClientConfig>) -> Result<Option<f64>, TestError> {
        let start = self.net.now();
        let id = self.connect(tls)?;
        let early = self.quic.may_send_early(id);
        let stream = early.then(|| self.quic.open(id, true)).flatten();
        let answer = stream.map(|stream| {
            self.ask(id, stream, &Ask::Echo);
            self.answer(id)
        });
        let elapsed = self.net.now().saturating_duration_since(start);
        let taken = self.quic.was_early_taken(id);
        self.quic.close(id, DONE, "", self.net.now());
        match answer {
            Some(Err(TestError::Interrupted)) => Err(TestError::Interrupted),
            Some(Ok(Answer::Echo)) if taken => Ok(Some(elapsed.as_secs_f64())),
            Some(_) | None => Ok(None),
        }
    }

    /// The connections of the load; `then` is done with each as soon as it is there.
    pub(super) fn connect_all(
        &mut self,
        tls: &Arc<ClientConfig>,
        mut then: impl FnMut(&mut Self, ConnId) -> Result<(), TestError>,
    ) -> Result<(), TestError> {
        let mut left = self.options.plan.connections;
        while left > 0 {
            let count = left.min(AT_ONCE);
            let connecting = (0..count).map(|_| self.connect(tls.clone()));
            for id in connecting.collect::<Result<Vec<_>, _>>()? {
                self.load.add(id);
                self.until_connected(id)?;
                then(self, id)?;
            }
            left -= count;
        }
        Ok(())
    }

    /// The connections of the load, each of which says whose it is.
    pub(super) fn join_all(
        &mut self,
        tls: &Arc<ClientConfig>,
        session: &str,
    ) -> Result<(), TestError> {
        self.connect_all(tls, |client, id| {
            let stream = client.open(id)?;
            client.ask(id, stream, &Ask::Join(session.to_owned()));
            Ok(())
        })?;
        let members: Vec<_> = self.load.members().collect();
        for id in members {
            let Answer::Joined = self.answer(id)? else {
                return Err(self.nonsense());
            };
        }
        Ok(())
    }

    // ---- asking --------------------------------------------------------------------------------

    pub(super) fn open(&mut self, id: ConnId) -> Result<Stream, TestError> {
        let stream = self.quic.open(id, true);
        stream.ok_or_else(|| self.nonsense())
    }

    pub(super) fn ask(&mut self, id: ConnId, stream: Stream, ask: &Ask) {
        self.quic.write(id, stream, &Bytes::from(line(ask)));
    }

    /// The next answer on a connection.
    pub(super) fn answer(&mut self, id: ConnId) -> Result<Answer, TestError> {
        let until = self.net.now() + self.options.patience;
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
    pub(super) fn nonsense(&self) -> TestError {
        self.explain(&Ended::OtherProtocol)
    }

    // ---- events --------------------------------------------------------------------------------

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets things happen until `done` has something, `until`, or somebody wants to stop.
    pub(super) fn pump<T>(
        &mut self,
        until: Instant,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, TestError> {
        loop {
            if let Some(found) = done(self) {
                return Ok(Some(found));
            }
            let now = self.net.now();
            if now >= until || self.is_stopped() {
                return Ok(None);
            }
            self.probe()?;
            self.load.fill(&mut *self.quic, self.net.now());
            if let Some(perf) = &mut self.perf {
                perf.fill(&mut *self.quic);
            }
            self.question()?;
            let probe = self.probes.as_ref().map(Probes::next_at);
            let asks = self.asker.as_ref().and_then(Asker::next_at);
            let visit = self.visits.as_ref().and_then(Visits::next_at);
            let wakes = [probe, self.load.next_at(now), asks, visit];
            let wake = wakes.into_iter().flatten().fold(until, Instant::min);
            self.net.turn(&mut *self.quic, wake)?;
            while let Some(event) = self.quic.poll_event() {
                self.handle_event(event)?;
            }
        }
    }

    /// A probe leaves before anything else does.
    pub(super) fn probe(&mut self) -> Result<(), TestError> {
        let (Some(control), Some(probes)) = (self.control, &mut self.probes) else {
            return Ok(());
        };
        let now = self.net.now();
        if let Some(perf) = &mut self.perf {
            let Some(number) = probes.next(now) else {
                return Ok(());
            };
            perf.ping(&mut *self.quic, control, number);
        } else {
            let Some(probe) = probes.poll(now) else {
                return Ok(());
            };
            self.quic.send_datagram(control, probe);
        }
        self.net.flush(&mut *self.quic)?;
        Ok(())
    }

    /// Requests and newcomers that are due.
    fn question(&mut self) -> Result<(), TestError> {
        let now = self.net.now();
        if let Some(asker) = &mut self.asker {
            asker.fill(&mut *self.quic, now);
        }
        let Some((mut visits, tls)) = self.visits.take().zip(self.tls.clone()) else {
            return Ok(());
        };
        for id in visits.tired(now) {
            visits.lose(id, now);
            self.quic.close(id, DONE, "", now);
        }
        while visits.is_due(now) {
            visits.knock(self.connect(tls.clone())?, now);
        }
        self.visits = Some(visits);
        Ok(())
    }

    /// A newcomer is through: it goes again, or asks something first.
    fn welcome(&mut self, id: ConnId) -> bool {
        let (now, asks) = (self.net.now(), self.options.responsiveness);
        let is_visit = self
            .visits
            .as_mut()
            .is_some_and(|visits| visits.enter(id, asks, now));
        let asked = (is_visit && asks).then(|| self.quic.open(id, true));
        if let Some(stream) = asked.flatten() {
            self.ask(id, stream, &Ask::Echo);
        } else if is_visit {
            self.quic.close(id, DONE, "", now);
        }
        is_visit
    }

    /// Whether this answers a newcomer, who goes then.
    fn hear_visit(&mut self, id: ConnId) -> bool {
        let now = self.net.now();
        let is_visit = self
            .visits
            .as_mut()
            .is_some_and(|visits| visits.hear(id, now));
        if is_visit {
            self.quic.close(id, DONE, "", now);
            self.lines.retain(|(of, _), _| *of != id);
        }
        is_visit
    }

    pub(super) fn handle_event(&mut self, event: BareEvent) -> Result<(), TestError> {
        let now = self.net.now();
        if let BareEvent::Opened(..)
        | BareEvent::Readable(..)
        | BareEvent::Delivered(..)
        | BareEvent::Datagram(..) = event
        {
            self.heard = now;
        }
        if self.is_for_perf(&event, now) {
            return Ok(());
        }
        match event {
            BareEvent::Connected(id) if self.welcome(id) => {}
            BareEvent::Lost(id, _)
                if self
                    .visits
                    .as_mut()
                    .is_some_and(|visits| visits.lose(id, now)) => {}
            BareEvent::Connected(id) => {
                self.connected.insert(id, now);
            }
            BareEvent::Lost(id, ended) => {
                self.lost.insert(id, ended);
                self.load.lose(id);
            }
            BareEvent::Readable(id, stream) if stream.goes_both_ways() => {
                let asker = self.asker.as_mut();
                if !asker.is_some_and(|all| all.handle_readable(&mut *self.quic, id, stream, now)) {
                    self.read_answers(id, stream)?;
                }
            }
            BareEvent::Writable(id, stream) if stream.goes_both_ways() => {
                if let Some(asker) = &mut self.asker {
                    asker.write(&mut *self.quic, id, stream);
                }
            }
            BareEvent::Datagram(id, bytes, arrived) if self.control == Some(id) => {
                if let Some(probes) = &mut self.probes {
                    probes.handle_answer(&bytes, arrived);
                }
            }
            event => self.load.handle_event(&mut *self.quic, &event, now),
        }
        Ok(())
    }

    pub(super) fn read_answers(&mut self, id: ConnId, stream: Stream) -> Result<(), TestError> {
        let lines = self.lines.entry((id, stream));
        let lines = lines.or_insert_with(|| Lines::new(LONGEST_ANSWER));
        let mut good = true;
        self.quic
            .read(id, stream, &mut |bytes| good &= lines.push(bytes));
        let mut answers = Vec::new();
        while good && let Some(answer) = lines.next::<Answer>() {
            answers.push(answer);
        }
        if !good || answers.iter().any(Result::is_err) {
            return Err(self.nonsense());
        }
        let now = self.net.now();
        for answer in answers.into_iter().flatten() {
            match answer {
                Answer::Tick(tick) => self.far.hear(tick, now),
                Answer::Echo if self.hear_visit(id) => {}
                answer => self.answers.entry(id).or_default().push(answer),
            }
        }
        Ok(())
    }
}
