//! A ping beside other traffic: a small packet each so often, and its echo.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{EDGE, SERVER, endpoint::Endpoint, number, udp};

/// No transfer uses it.
pub(crate) const PORT: u16 = 4999;
/// Bytes of the IP packet, as of `ping` without options.
const LEN: usize = 84;

/// When a ping left, and how long its answer took.
type Ping = (Instant, Option<Duration>);

/// All pings so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    all: Rc<RefCell<Vec<Ping>>>,
    /// No more of them leave.
    ended: Rc<Cell<bool>>,
}

impl Answers {
    /// No ping leaves any more; answers are taken.
    pub(crate) fn end(&self) {
        self.ended.set(true);
    }

    pub(crate) fn round_trips(&self) -> Vec<Duration> {
        let all = self.all.borrow();
        all.iter()
            .map(|(_, answer)| answer.unwrap_or(Duration::MAX))
            .collect()
    }
}

/// The end that asks.
pub(crate) struct Pinger {
    every: Duration,
    next: Instant,
    answers: Answers,
}

impl Pinger {
    pub(crate) fn new(every: Duration, answers: Answers, now: Instant) -> Self {
        Self {
            every,
            next: now,
            answers,
        }
    }
}

impl Endpoint for Pinger {
    fn handle_packet(&mut self, packet: &[u8], now: Instant) {
        let mut all = self.answers.all.borrow_mut();
        let asked = number(packet).and_then(|number| all.get_mut(number as usize));
        if let Some((sent, answer)) = asked {
            answer.get_or_insert(now - *sent);
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.poll_timeout().is_none_or(|next| now < next) {
            return None;
        }
        self.next += self.every;
        let mut all = self.answers.all.borrow_mut();
        all.push((now, None));
        Some(udp(EDGE, SERVER, PORT, all.len() as u32 - 1, LEN))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.answers.ended.get()).then_some(self.next)
    }

    fn received(&self) -> u64 {
        0
    }
}

/// The end that answers.
#[derive(Default)]
pub(crate) struct Echo {
    asked: Vec<u32>,
}

impl Endpoint for Echo {
    fn handle_packet(&mut self, packet: &[u8], _: Instant) {
        self.asked.extend(number(packet));
    }

    fn poll_packet(&mut self, _: Instant) -> Option<Vec<u8>> {
        let number = self.asked.pop()?;
        Some(udp(SERVER, EDGE, PORT, number, LEN))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn received(&self) -> u64 {
        0
    }
}
