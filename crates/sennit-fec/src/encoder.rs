//! Makes repairs of the sources that it is shown.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{Code, MOST_BYTES, MOST_COVERED, code::Key, symbol::Symbol};

/// A group is closed, and a repair of a window made, when its oldest unprotected source is this
/// old: a packet of a thin flow that is lost comes back in a time that a call bears.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// The age while more sources wait to leave: a slow link fills groups too, and gets no more repairs
/// than the code says.
const PATIENCE_WITH_MORE: Duration = Duration::from_millis(400);
/// A repair of a window covers sources that are not older than this, unless the caller says
/// otherwise. What is lost is of no use to a call that is older, and a transfer sends
/// [`Code::WINDOW`] packets in less.
pub const WINDOW_TIME: Duration = Duration::from_millis(100);

/// What stands before a repair: how it was made, and of which sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repair {
    pub(crate) key: Key,
    /// Number of the last source.
    pub(crate) last: u16,
    /// How many sources follow each other up to that.
    pub(crate) covered: u8,
}

impl Repair {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The bytes of this header.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [high, low] = self.last.to_be_bytes();
        [self.key.encode(), high, low, self.covered]
    }

    /// Splits a payload into its header and what was combined; `None` if that cannot be.
    pub fn decode(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (&[kind, high, low, covered], symbol) = payload.split_first_chunk::<{ Self::LEN }>()?;
        let last = u16::from_be_bytes([high, low]);
        let key = Key::decode(kind, last)?;
        let fits = (1..=key.most_covered()).contains(&covered.into());
        let is_source = (1..=MOST_BYTES).contains(&symbol.len());
        (fits && is_source).then_some((Self { key, last, covered }, symbol))
    }
}

/// Numbers sources and makes repairs of them.
#[derive(Debug)]
pub struct Encoder {
    code: Code,
    /// Number of the next source; counts on beyond what is on the wire.
    next: u64,
    /// Sources since the last repair, and when the first of them was shown.
    unprotected: usize,
    since: Option<Instant>,
    /// One sum for each repair of a group.
    sums: Vec<Symbol>,
    /// The newest sources, of a code with a window.
    window: VecDeque<(Instant, Symbol)>,
    window_time: Duration,
    /// More sources wait to leave.
    more: bool,
    /// Memory of a source that has left the window.
    spare: Symbol,
    /// Repairs that follow each other when a window is closed because nothing more comes, and how
    /// many of them are left.
    tail: u8,
    left: u8,
    /// The repair that is made next, while some are due.
    due: Option<u16>,
    symbol: Symbol,
}

impl Encoder {
    /// Its first source has the number 0.
    pub fn new(code: Code) -> Self {
        Self {
            code,
            next: 0,
            unprotected: 0,
            since: None,
            sums: Vec::new(),
            window: VecDeque::new(),
            window_time: WINDOW_TIME,
            more: false,
            spare: Symbol::default(),
            tail: 1,
            left: 0,
            due: None,
            symbol: Symbol::default(),
        }
    }

    /// How repairs are made.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Makes repairs in another way from now on; a group that is open has none.
    pub fn set_code(&mut self, code: Code) {
        if self.code == code {
            return;
        }
        let windows = |code| matches!(code, Code::Rlc { .. });
        if !(windows(self.code) && windows(code)) {
            self.forget();
        }
        (self.code, self.due) = (code, None);
    }

    /// Repairs of a window cover sources that are not older than this from now on.
    pub fn set_window_time(&mut self, time: Duration) {
        self.window_time = time;
    }

    /// Whether more sources wait to leave after the next one, so that its group is soon full.
    pub fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// How old the oldest unprotected source becomes.
    fn patience(&self) -> Duration {
        if self.more {
            PATIENCE_WITH_MORE
        } else {
            PATIENCE
        }
    }

    /// Closes a window by so many repairs, one after each [`PATIENCE`], if nothing more comes. The
    /// last packet before a pause is protected by nothing else.
    pub fn set_tail(&mut self, repairs: u8) {
        self.tail = repairs.max(1);
    }

    /// Makes no repairs of the sources so far. Numbers go on.
    pub fn forget(&mut self) {
        (self.unprotected, self.since, self.due, self.left) = (0, None, None, 0);
        self.sums.clear();
        self.window.clear();
    }

    /// Takes a source in two parts and returns its number. `None` if it is too long to be
    /// protected.
    pub fn push(&mut self, head: &[u8], body: &[u8], now: Instant) -> Option<u16> {
        if head.len() + body.len() > MOST_BYTES {
            return None;
        }
        let mut source = std::mem::take(&mut self.spare);
        source.set(head, body);
        if let Code::Rlc { .. } = self.code {
            self.spare = self.slide(source, now);
        } else {
            self.add(&source);
            self.spare = source;
        }
        let id = self.next as u16;
        self.next += 1;
        self.unprotected += 1;
        self.since = self.since.filter(|_| self.unprotected > 1).or(Some(now));
        self.left = self.tail;
        if self.unprotected >= self.code.sources() {
            self.due.get_or_insert(0);
        }
        Some(id)
    }

    /// Adds a source to the sums of its group.
    fn add(&mut self, source: &Symbol) {
        if self.unprotected == 0 {
            self.sums
                .resize_with(self.code.repairs().into(), Symbol::default);
            self.sums.iter_mut().for_each(|sum| sum.reset(0));
        }
        let place = self.unprotected as u8;
        for (row, sum) in self.sums.iter_mut().enumerate() {
            sum.add_product(source, group_key(self.code, row as u16).factor(place));
        }
    }

    /// Puts a source at the end of the window; returns memory that is free.
    fn slide(&mut self, source: Symbol, now: Instant) -> Symbol {
        let mut spare = Symbol::default();
        let is_old = |at: Instant| now.saturating_duration_since(at) > self.window_time;
        while self.window.front().is_some_and(|(at, _)| {
            let len = self.window.len();
            // What no repair has covered yet stays, however old it is.
            len >= Code::WINDOW || (len > self.unprotected && is_old(*at))
        }) {
            spare = self
                .window
                .pop_front()
                .map_or_else(Symbol::default, |(_, old)| old);
        }
        self.window.push_back((now, source));
        spare
    }

    /// When the sources that are not protected yet have waited long enough.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.since.map(|since| since + self.patience())
    }

    /// Makes repairs due of what has waited long enough, though there could be more of it.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.due.get_or_insert(0);
        }
    }

    /// The next repair that is due: what stands before it, and what was combined.
    pub fn poll_repair(&mut self) -> Option<(Repair, &[u8])> {
        let row = self.due?;
        let repair = if let Code::Rlc { .. } = self.code {
            self.combine()
        } else {
            let sum = self.sums.get_mut(usize::from(row))?;
            std::mem::swap(&mut self.symbol, sum);
            self.header(group_key(self.code, row), self.unprotected)
        };
        if row + 1 < self.code.repairs() {
            self.due = Some(row + 1);
        } else {
            self.left = self.left.saturating_sub(1);
            let goes_on = self.left > 0 && matches!(self.code, Code::Rlc { .. });
            let next = self.since.filter(|_| goes_on).map(|since| since + PATIENCE);
            (self.due, self.unprotected, self.since) = (None, 0, next);
        }
        Some((repair, self.symbol.bytes()))
    }

    /// A combination of the window.
    fn combine(&mut self) -> Repair {
        let key = Key::Random(self.last());
        let mut factors = [0; MOST_COVERED];
        let factors = &mut factors[..self.window.len()];
        for (factor, place) in factors.iter_mut().zip(0..) {
            *factor = key.factor(place);
        }
        self.symbol.reset(0);
        let window = &self.window;
        self.symbol.add_products(factors, |place| &window[place].1);
        self.header(key, self.window.len())
    }

    /// The header of a repair of the newest sources.
    fn header(&self, key: Key, covered: usize) -> Repair {
        Repair {
            key,
            last: self.last(),
            covered: covered as u8,
        }
    }

    /// Number of the newest source.
    fn last(&self) -> u16 {
        (self.next as u16).wrapping_sub(1)
    }
}

/// The coefficients of one repair of a group.
fn group_key(code: Code, row: u16) -> Key {
    match code {
        Code::Xor { .. } | Code::Rlc { .. } => Key::Sum,
        Code::Rs { .. } => Key::Cauchy(row as u8),
    }
}
