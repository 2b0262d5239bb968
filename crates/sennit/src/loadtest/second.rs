//! What a second of a test was like, told while it runs.

use std::time::{Duration, Instant};

use sennit_load::TimeFigures;
use serde::{Deserialize, Serialize};

use super::{
    fec::Symbols,
    lately::Lately,
    words::{Received, Tick},
};

/// The version of this shape.
pub const SCHEMA: &str = "sennit.test.second/1";

/// What arrived in less time than this says nothing of a rate.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);

/// A second of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// [`SCHEMA`].
    pub schema: String,
    /// Since the load began, at the end of this second.
    pub elapsed_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Payload that arrived at the server; `None` in the warm-up, and if that was not heard of.
    pub up_bits_per_second: Option<f64>,
    /// Payload that arrived here; `None` in the warm-up.
    pub down_bits_per_second: Option<f64>,
    /// Round trips of probes that were answered in this second, whenever they left.
    pub rtt: TimeFigures,
    /// Probes that left in this second.
    pub probes: u64,
    /// Probes of these that are not answered yet.
    pub unanswered: u64,
    /// Error correction from the client to the server since the warm-up, by what both ends have
    /// told until now; `None` if messages are not protected.
    pub up_fec: Option<Symbols>,
    /// Error correction from the server to the client.
    pub down_fec: Option<Symbols>,
    /// Requests that ended in this second; `None` in the warm-up, and without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Lately>,
    /// Handshakes over and over that ended in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Lately>,
    /// The round that it is of, from 1 on, of a test that is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u16>,
    /// The configuration that is tested, like `cc=bbr3`, of a test that is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

/// How much arrived until when, by the clock of the far end if it tells the time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    bytes: u64,
}

/// What the far end has said of itself.
#[derive(Debug, Default)]
pub(super) struct Far {
    before: Option<Mark>,
    newest: Option<Mark>,
    complete: bool,
    fec: Symbols,
    /// When it began, as far as this end knows.
    began: Option<Instant>,
    /// What was said since somebody last asked.
    is_fresh: bool,
}

impl Far {
    /// It begins now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    pub(super) fn hear(&mut self, tick: Tick, at: Instant) {
        let Tick {
            bytes,
            complete,
            fec,
            seconds,
        } = tick;
        self.fec = fec;
        // What it says may be held up on its way here.
        let of_test = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let said = seconds.and_then(of_test).zip(self.began);
        let at = said
            .and_then(|(time, began)| began.checked_add(time))
            .unwrap_or(at);
        self.before = self.newest.replace(Mark { at, bytes });
        self.complete |= complete;
        self.is_fresh = true;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What had arrived there by when it was last heard of, as far as that counts.
    pub(super) fn received(&self, counted: Instant) -> Received {
        let seconds = |mark: Mark| mark.at.saturating_duration_since(counted).as_secs_f64();
        Received {
            seconds: self.newest.map_or(0.0, seconds),
            bytes: self.newest.map_or(0, |mark| mark.bytes),
            ..Received::default()
        }
    }

    /// What error correction has done there.
    pub(super) fn symbols(&self) -> Symbols {
        self.fec
    }

    /// Bits a second between what was said last and before that, each once; counted since `begun`.
    pub(super) fn rate(&mut self, begun: Instant) -> Option<f64> {
        let newest = self.newest.filter(|_| std::mem::take(&mut self.is_fresh))?;
        let start = Mark {
            at: begun,
            bytes: 0,
        };
        let before = self.before.unwrap_or(start);
        let span = newest.at.saturating_duration_since(before.at.max(begun));
        let bytes = newest.bytes.saturating_sub(before.bytes);
        (span > SHORTEST).then(|| bytes as f64 * 8.0 / span.as_secs_f64())
    }
}

impl Second {
    /// Names of the columns of [`Self::row`].
    pub const COLUMNS: &str = "elapsed_seconds,seconds,up_bits_per_second,down_bits_per_second,\
         rtt_p50_seconds,rtt_p95_seconds,rtt_max_seconds,probes,unanswered,\
         up_sources_sent,up_sources_received,up_repairs_sent,up_repairs_received,\
         up_recovered,up_arrived_later,up_unneeded,up_failed,up_malformed,\
         down_sources_sent,down_sources_received,down_repairs_sent,down_repairs_received,\
         down_recovered,down_arrived_later,down_unneeded,down_failed,down_malformed,\
         round,configuration,\
         requests_done,requests_failed,requests_p50_seconds,requests_p95_seconds,\
         handshakes_done,handshakes_failed,handshakes_p50_seconds,handshakes_p95_seconds";

    /// A line of a table, without its end.
    #[must_use]
    pub fn row(&self) -> String {
        let fec = [self.up_fec, self.down_fec].into_iter().flat_map(counts);
        let row = [
            self.elapsed_seconds.to_string(),
            self.seconds.to_string(),
            known(self.up_bits_per_second),
            known(self.down_bits_per_second),
            known(self.rtt.p50_seconds),
            known(self.rtt.p95_seconds),
            known(self.rtt.max_seconds),
            self.probes.to_string(),
            self.unanswered.to_string(),
        ];
        let of = [
            self.round
                .map(|round| round.to_string())
                .unwrap_or_default(),
            quoted(self.configuration.as_deref().unwrap_or_default()),
        ];
        let ended = [self.requests, self.handshakes].into_iter().flat_map(ended);
        let fields = row.into_iter().chain(fec).chain(of).chain(ended);
        fields.collect::<Vec<_>>().join(",")
    }
}

/// A field of a table (RFC 4180 §2): a profile's name may have commas.
fn quoted(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A field that is empty where nothing is known.
fn known(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// What ended, column by column.
fn ended(lately: Option<Lately>) -> [String; 4] {
    lately.map_or_else(Default::default, |it| {
        [
            it.done.to_string(),
            it.failed.to_string(),
            known(it.p50_seconds),
            known(it.p95_seconds),
        ]
    })
}

/// What was counted of a direction, column by column.
fn counts(symbols: Option<Symbols>) -> [String; 9] {
    let all = symbols.map(|it| {
        [
            it.sources_sent,
            it.sources_received,
            it.repairs_sent,
            it.repairs_received,
            it.recovered,
            it.arrived_later,
            it.unneeded,
            it.failed,
            it.malformed,
        ]
    });
    all.map_or_else(Default::default, |all| all.map(|count| count.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_far_end_says_becomes_a_rate_once() {
        let begun = Instant::now();
        let mut far = Far::default();
        assert_eq!(far.rate(begun), None);
        let tick = |bytes| Tick {
            bytes,
            ..Tick::default()
        };
        far.hear(tick(1000), begun + Duration::from_secs(1));
        assert_eq!(far.rate(begun), Some(8000.0));
        assert_eq!(far.rate(begun), None, "nothing new was said");
        far.hear(tick(1500), begun + Duration::from_secs(3));
        assert_eq!(far.rate(begun), Some(2000.0));
    }

    #[test]
    fn what_is_heard_late_is_of_the_time_that_the_far_end_says() {
        let begun = Instant::now();
        let mut far = Far::default();
        far.begin(begun);
        for (seconds, bytes, late) in [(1.0, 1000, 0.0), (2.0, 2000, 0.8), (3.0, 3000, 0.0)] {
            let tick = Tick {
                bytes,
                seconds: Some(seconds),
                ..Tick::default()
            };
            far.hear(tick, begun + Duration::from_secs_f64(seconds + late));
            assert_eq!(far.rate(begun), Some(8000.0), "at {seconds} s");
        }
    }

    #[test]
    fn a_row_has_a_field_for_each_column_known_or_not() {
        let second = Second {
            schema: SCHEMA.into(),
            elapsed_seconds: 2.0,
            seconds: 1.0,
            up_bits_per_second: None,
            down_bits_per_second: Some(5e6),
            rtt: TimeFigures::default(),
            probes: 50,
            unanswered: 50,
            up_fec: None,
            down_fec: Some(Symbols {
                sources_sent: 400,
                repairs_sent: 80,
                recovered: 7,
                ..Symbols::default()
            }),
            requests: Some(Lately {
                done: 7,
                failed: 1,
                p50_seconds: Some(0.02),
                p95_seconds: Some(0.5),
            }),
            handshakes: None,
            round: Some(3),
            configuration: Some("profile=lte".into()),
        };
        let row = second.row();
        assert_eq!(
            row,
            "2,1,,5000000,,,,50,50,,,,,,,,,,400,0,80,0,7,0,0,0,0,3,profile=lte,7,1,0.02,0.5,,,,"
        );
        assert_eq!(row.split(',').count(), Second::COLUMNS.split(',').count());
    }
}
