//! Links that move: a script of rates, delays and silences, repeated for ever.
//!
//! A packet is sent at the rates that hold *while* it is sent. One that is on the wire when the
//! rate falls finishes at the new rate, and what waits behind it meets whatever holds when its turn
//! comes. Arithmetic is in whole bits and nanoseconds, so a wire never carries more than the area
//! under its script.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use sennit_packet::Bitrate;

/// Bits at one bit per second and nanosecond: the unit in which sent work is counted.
const PER_BIT: u128 = 1_000_000_000;

/// What one line of a mahimahi file allows to leave, in bytes.
const OPPORTUNITY: u64 = 1500;

/// Bounds the memory of a script that is read: a day in steps of 10 ms.
const STEPS_MAX: usize = 8_640_000;

/// The longest period. At any rate, what such a script carries fits the numbers that count it.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// What becomes of packets whose turn it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Passage {
    /// They leave.
    #[default]
    Open,
    /// They wait: nothing leaves during the step.
    Held,
    /// They leave and are lost, as when a terminal still points at a satellite that has set.
    Lost,
}

/// A time in which a link stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How long.
    pub span: Duration,
    /// Wire rate; without one, that of the link's configuration.
    pub rate: Option<Bitrate>,
    /// One-way delay on top of that of the configuration, for what leaves during the step.
    pub delay: Duration,
    /// Whether anything gets through.
    pub passage: Passage,
}

impl Step {
    /// A step in which only the rate is special.
    pub fn at(span: Duration, rate: Bitrate) -> Self {
        Self {
            span,
            rate: Some(rate),
            delay: Duration::ZERO,
            passage: Passage::Open,
        }
    }

    /// A step in which everything waits.
    pub fn held(span: Duration) -> Self {
        Self {
            span,
            rate: None,
            delay: Duration::ZERO,
            passage: Passage::Held,
        }
    }

    /// Bits per second, `None` if nothing limits them.
    fn speed(&self, nominal: Option<Bitrate>) -> Option<u128> {
        match self.passage {
            Passage::Held => Some(0),
            Passage::Open | Passage::Lost => self.rate.or(nominal).map(speed_of),
        }
    }
}

/// Why steps make no script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTrace(pub(crate) String);

impl Display for BadTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTrace {}

/// A script of steps.
#[derive(Clone, PartialEq, Eq)]
pub struct Trace {
    name: String,
    steps: Vec<Step>,
    /// When each step begins.
    starts: Vec<Duration>,
    period: Duration,
    /// What the steps with a rate of their own carry in one period.
    work: u128,
    /// The time of a period in which the configured rate holds.
    nominal: Duration,
    /// The least and the most extra delay of all that leaves.
    delays: [Duration; 2],
}

/// Its name stands for thousands of steps.
impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trace").field(&self.name).finish()
    }
}

impl Trace {
    /// A script that repeats `steps`.
    pub fn new(name: impl Into<String>, steps: Vec<Step>) -> Result<Self, BadTrace> {
        if steps.len() > STEPS_MAX {
            let count = steps.len();
            return Err(BadTrace(format!("{count} steps are more than {STEPS_MAX}")));
        }
        if steps.iter().any(|step| step.span.is_zero()) {
            return Err(BadTrace("a step takes no time".into()));
        }
        if steps.iter().all(|step| step.passage == Passage::Held) {
            return Err(BadTrace("no step lets anything leave".into()));
        }
        let mut starts = Vec::with_capacity(steps.len());
        let mut period = Duration::ZERO;
        for step in &steps {
            starts.push(period);
            let longer = period.checked_add(step.span);
            period = longer.filter(|it| *it <= PERIOD_MAX).ok_or_else(|| {
                let days = PERIOD_MAX.as_secs() / (24 * 3600);
                BadTrace(format!("the steps take more than {days} days"))
            })?;
        }
        let sends = |step: &&Step| step.passage != Passage::Held;
        let rated = steps.iter().filter(sends);
        let work = rated.filter_map(|step| Some(work(speed_of(step.rate?), step.span)));
        let nominal = steps
            .iter()
            .filter(sends)
            .filter(|step| step.rate.is_none());
        let delays = || steps.iter().filter(sends).map(|step| step.delay);
        Ok(Self {
            name: name.into(),
            work: work.sum(),
            nominal: nominal.map(|step| step.span).sum(),
            delays: [delays().min(), delays().max()].map(Option::unwrap_or_default),
            steps,
            starts,
            period,
        })
    }

    /// Reads a script in whichever of the two forms it has: mahimahi's has nothing but whole
    /// numbers.
    pub fn read(name: &str, text: &str) -> Result<Self, BadTrace> {
        if lines(text).next().is_none() {
            Err(BadTrace("it has no step".into()))
        } else if lines(text).all(|(_, line)| line.parse::<u64>().is_ok()) {
            Self::mahimahi(name, text)
        } else {
            Self::csv(name, text)
        }
    }

    /// Reads mahimahi's form: each line is the millisecond at which 1500 bytes may leave, and the
    /// last one ends the period. Unlike there, a short packet uses up its own bytes only, and they
    /// leave over that millisecond.
    pub fn mahimahi(name: &str, text: &str) -> Result<Self, BadTrace> {
        let mut counts: Vec<u64> = Vec::new();
        let mut latest = 0;
        for (number, line) in lines(text) {
            let bad = |why| BadTrace(format!("line {number}: `{line}` {why}"));
            let at: usize = line.parse().map_err(|_| bad("is not a millisecond"))?;
            if at < latest {
                return Err(bad("is before the line above"));
            }
            latest = at;
            if at > STEPS_MAX {
                return Err(bad("is too late"));
            }
            counts.resize(at + 1, 0);
            counts[at] += 1;
        }
        if latest == 0 {
            return Err(BadTrace("no line is after 0 ms".into()));
        }
        // What may leave at 0 does so when the period begins anew, which is when it ends.
        counts[latest] += counts[0];
        let runs = counts[1..].chunk_by(|a, b| a == b).map(|run| {
            let span = Duration::from_millis(run.len() as u64);
            match run[0] {
                0 => Step::held(span),
                count => Step::at(span, Bitrate::bps(count * OPPORTUNITY * 8 * 1000)),
            }
        });
        Self::new(name, runs.collect())
    }

    /// Reads lines of `seconds,Mbit/s[,delay in ms[,held|lost]]`; `#` begins a comment, and an
    /// empty rate leaves it to the link.
    pub fn csv(name: &str, text: &str) -> Result<Self, BadTrace> {
        let step = |(number, line): (usize, &str)| {
            csv_step(line).ok_or_else(|| {
                let form = "seconds,Mbit/s[,delay in ms[,held|lost]]";
                BadTrace(format!("line {number}: `{line}` is not {form}"))
            })
        };
        Self::new(name, lines(text).map(step).collect::<Result<_, _>>()?)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// After this time it begins anew.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The least and the most extra delay of all that leaves.
    pub fn delays(&self) -> [Duration; 2] {
        self.delays
    }

    /// The longest time in which nothing leaves.
    pub fn longest_silence(&self) -> Duration {
        let (mut longest, mut silence) = (Duration::ZERO, Duration::ZERO);
        // The silence at the end goes on with that at the beginning.
        for step in self.steps.iter().chain(&self.steps) {
            silence = match step.passage {
                Passage::Held => silence + step.span,
                Passage::Open | Passage::Lost => Duration::ZERO,
            };
            longest = longest.max(silence);
        }
        longest
    }

    /// What leaves in a period on average; `None` if that depends on the link's own rate.
    pub fn mean_rate(&self) -> Option<Bitrate> {
        let mean = self.work / self.period.as_nanos().max(1);
        let known = self.nominal.is_zero();
        known.then(|| Bitrate::bps(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The step that holds so long after the start.
    pub fn at(&self, elapsed: Duration) -> &Step {
        &self.steps[self.locate(elapsed).0]
    }

    /// The bytes that can leave between two times after the start; `nominal` is the link's own
    /// rate.
    pub fn bytes_between(&self, from: Duration, to: Duration, nominal: Option<Bitrate>) -> u64 {
        let bytes = self.carried(from, to, nominal) / (8 * PER_BIT);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// When a wire that begins to send `left` at `start` has done so.
    pub(crate) fn finish(&self, start: Duration, left: u128, nominal: Option<Bitrate>) -> Duration {
        let per_period = self.per_period(nominal);
        // The last period is walked even if it is needed whole: it may end in silence.
        let periods = per_period.map_or(0, |work| left.saturating_sub(1) / work);
        let mut left = left - per_period.unwrap_or(0) * periods;
        let mut at = start.saturating_add(times(self.period, periods));
        let (mut index, mut offset) = self.locate(start);
        loop {
            let step = &self.steps[index];
            let rest = step.span - offset;
            let Some(speed) = step.speed(nominal) else {
                return at;
            };
            let carried = work(speed, rest);
            if carried >= left {
                return at.saturating_add(nanos(left.div_ceil(speed.max(1))));
            }
            left -= carried;
            at = at.saturating_add(rest);
            index = (index + 1) % self.steps.len();
            offset = Duration::ZERO;
        }
    }

    /// What a wire sends between two times if it always has something to send.
    pub(crate) fn carried(&self, from: Duration, to: Duration, nominal: Option<Bitrate>) -> u128 {
        let span = to.saturating_sub(from);
        let periods = span.as_nanos() / self.period.as_nanos();
        let mut carried = match self.per_period(nominal) {
            Some(per_period) => per_period.saturating_mul(periods),
            None if periods > 0 => return u128::MAX,
            None => 0,
        };
        let mut rest = span.saturating_sub(times(self.period, periods));
        let (mut index, mut offset) = self.locate(from);
        while !rest.is_zero() {
            let step = &self.steps[index];
            let part = rest.min(step.span - offset);
            let Some(speed) = step.speed(nominal) else {
                return u128::MAX;
            };
            carried += work(speed, part);
            rest -= part;
            index = (index + 1) % self.steps.len();
            offset = Duration::ZERO;
        }
        carried
    }

    /// What a period carries; `None` without a bound.
    fn per_period(&self, nominal: Option<Bitrate>) -> Option<u128> {
        if self.nominal.is_zero() {
            return Some(self.work);
        }
        Some(self.work + work(speed_of(nominal?), self.nominal))
    }

    /// The step that holds at a time, and since when it does.
    fn locate(&self, elapsed: Duration) -> (usize, Duration) {
        let into = elapsed.as_nanos() % self.period.as_nanos();
        let into = nanos(into);
        let index = self.starts.partition_point(|start| *start <= into) - 1;
        (index, into - self.starts[index])
    }
}

/// Bits per second at a rate; at least one, since a link that never sends is an outage.
pub(crate) fn speed_of(rate: Bitrate) -> u128 {
    rate.as_bps().max(1).into()
}

/// Bits at a speed in a time, in units of [`PER_BIT`].
pub(crate) fn work(speed: u128, span: Duration) -> u128 {
    speed.saturating_mul(span.as_nanos())
}

/// The work that `bytes` are.
pub(crate) fn work_of(bytes: usize) -> u128 {
    bytes as u128 * 8 * PER_BIT
}

/// A time that is at most 584 years.
pub(crate) fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn times(span: Duration, count: u128) -> Duration {
    nanos(span.as_nanos().saturating_mul(count))
}

/// Lines with something in them, and their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let content = |line: &'_ str| line.find('#').unwrap_or(line.len());
    let trimmed = text.lines().map(move |line| line[..content(line)].trim());
    (1..).zip(trimmed).filter(|(_, line)| !line.is_empty())
}

fn csv_step(line: &str) -> Option<Step> {
    let mut fields = line.split(',').map(str::trim);
    let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let span = seconds(fields.next()?)?;
    let rate = match fields.next()? {
        "" => None,
        text => Some(
            text.parse()
                .ok()
                .filter(|mbit: &f64| (0.0..=1e6).contains(mbit))?,
        ),
    };
    let delay = match fields.next() {
        None | Some("") => Duration::ZERO,
        Some(text) => seconds(text)? / 1000,
    };
    let passage = match (fields.next(), rate) {
        (None | Some(""), Some(0.0)) | (Some("held"), _) => Passage::Held,
        (None | Some(""), _) => Passage::Open,
        (Some("lost"), _) => Passage::Lost,
        (Some(_), _) => return None,
    };
    let rate = rate.map(|mbit| Bitrate::bps((mbit * 1e6) as u64));
    let step = Step {
        span,
        rate,
        delay,
        passage,
    };
    fields.next().is_none().then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn steps(trace: &Trace) -> Vec<(u64, u64)> {
        let rate = |step: &Step| step.rate.map_or(0, Bitrate::as_bps) / 1_000_000;
        let steps = trace.steps().iter();
        steps
            .map(|step| (step.span.as_millis() as u64, rate(step)))
            .collect()
    }

    #[test]
    fn mahimahis_opportunities_become_rates_and_silences() {
        let trace = Trace::read("file", "0\n1\n1\n2\n2\n5\n").expect("it is in order");

        // Two in each of the first milliseconds, none in two, and in the last its own and that at
        // 0.
        assert_eq!(steps(&trace), [(2, 24), (2, 0), (1, 24)]);
        assert_eq!(trace.period(), MS * 5);
        assert_eq!(trace.bytes_between(Duration::ZERO, MS * 5, None), 6 * 1500);
    }

    #[test]
    fn a_table_has_rates_delays_and_silences() {
        let text = "# seconds, Mbit/s\n1.5, 50\n0.1, 0 # nothing\n2,,30\n0.2,8,5,lost\n";
        let trace = Trace::read("table", text).expect("all lines have the form");

        assert_eq!(steps(&trace), [(1500, 50), (100, 0), (2000, 0), (200, 8)]);
        let passages = trace.steps().iter().map(|step| step.passage);
        let expected = [Passage::Open, Passage::Held, Passage::Open, Passage::Lost];
        assert!(passages.eq(expected));
        assert_eq!(trace.steps()[2].delay, MS * 30);
        assert_eq!((trace.steps()[2].rate, trace.mean_rate()), (None, None));
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_line() {
        for (text, reason) in [
            ("", "no step"),
            ("5\n3\n", "line 2: `3` is before"),
            ("0\n0\n", "no line is after 0"),
            ("1,x", "line 1: `1,x`"),
            ("0,5", "takes no time"),
            ("1,5,0,gone", "line 1"),
            ("1,5\n1,0,0,held,7", "line 2"),
            ("1,-5", "line 1"),
            ("1,0", "no step lets"),
            ("9e18,1000000\n9e18,1000000", "more than 366 days"),
            ("31622401,1000000", "more than 366 days"),
            ("99999999999999", "too late"),
        ] {
            let error = Trace::read("file", text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_longest_script_at_the_highest_rate_can_be_counted() {
        let text = "15811200,1000000\n15811200,\n";
        let trace = Trace::read("table", text).expect("it takes 366 days");

        let bits = Bitrate::bps(u64::MAX);
        let sent = trace.bytes_between(Duration::ZERO, PERIOD_MAX, Some(bits));
        assert_eq!(sent, u64::MAX, "more than anybody counts");
        let done = trace.finish(Duration::ZERO, work_of(125_000_000_000), Some(bits));
        assert_eq!(done, Duration::from_secs(1));
    }

    #[test]
    fn the_longest_silence_may_go_on_where_the_script_begins_anew() {
        let of = |held: [u64; 4]| {
            let step = |(index, &span): (usize, &u64)| match index % 2 {
                0 => Step::held(Duration::from_millis(span)),
                _ => Step::at(Duration::from_millis(span), Bitrate::mbit(8)),
            };
            let steps = held.iter().enumerate().map(step);
            let steps = steps.chain([Step::held(MS * 2)]).collect();
            Trace::new("silent", steps).expect("a step sends")
        };
        assert_eq!(of([3, 1, 4, 1]).longest_silence(), MS * 5);
        assert_eq!(of([3, 1, 7, 1]).longest_silence(), MS * 7);
    }

    #[test]
    fn sending_ends_where_what_was_carried_begins_to_suffice() {
        let trace = [Step::at(MS, Bitrate::mbit(8)), Step::held(MS * 2)];
        let trace = Trace::new("on and off", trace.into()).expect("a step sends");
        // 1000 bytes in each period of 3 ms.
        for (start, bytes, end) in [
            (0, 500, 500),
            (0, 1000, 1000),
            (0, 1001, 3001),
            (500, 1000, 3500),
            (1000, 1, 3001),
            (2000, 5000, 16_000),
        ] {
            let start = Duration::from_micros(start);
            let done = trace.finish(start, work_of(bytes), None);
            assert_eq!(done, Duration::from_micros(end), "{bytes} from {start:?}");
            assert_eq!(trace.bytes_between(start, done, None), bytes as u64);
        }
    }
}
