//! What the two ends tell each other of the paths, beside data.

use std::time::{Duration, Instant};

use bytes::Bytes;
use noq_proto::PathId;
use sennit_core::{
    PathSet,
    frame::{PathReport, Report},
};

use super::{Tunnel, within};
use crate::{codec::Codec, gate::SizeSource, path::number, pipe::Pipe};

/// An end that heard a report this recently probes quickly for the other's sake.
const PEER_ACTIVE_FOR: Duration = Duration::from_secs(1);
/// How often an active end reports.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// A change is reported this many times even by an idle end, as datagrams may be lost.
const REPORTS_PER_CHANGE: u8 = 5;
/// How often bad news of a path is repeated: the peer does not believe it for good.
const REPORT_AGAIN: Duration = Duration::from_secs(1);
/// How often bad news of a path is repeated while nothing flows: less than half of the time for
/// which the peer believes it then.
const REPORT_IDLE: Duration = Duration::from_secs(100);
/// A path that is not to be used for longer than this gets no news any more.
const NEWS_FOR: Duration = Duration::from_secs(60);
/// Reports leave a slow path once in so many probes: one is longer than a probe, and as good a
/// sign of life.
const SLOW_EVERY: u32 = 3;
/// No copy of a report is under way for longer.
const REPORT_OLD: Duration = Duration::from_secs(10);

/// When reports are due, and what came of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    /// When the peer last reported.
    last: Option<Instant>,
    /// When the newest report was sent, by the peer's clock.
    newest: u32,
    /// When the peer last reported because packets flow there.
    peer_active: Option<Instant>,
    /// When the next one may leave.
    next: Instant,
    /// How many of the change that was last noticed are still to leave.
    left: u8,
}

impl Reports {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: None,
            newest: 0,
            peer_active: None,
            next: now,
            left: 0,
        }
    }

    /// Whether packets flow at the peer.
    pub(super) fn is_peer_active(&self, now: Instant) -> bool {
        within(self.peer_active, PEER_ACTIVE_FOR, now)
    }

    /// Something changed that the peer should hear of at once.
    pub(super) fn announce(&mut self, now: Instant) {
        self.left = REPORTS_PER_CHANGE;
        self.next = now;
    }

    /// There is something to tell, and room for it now.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = self.next.min(now);
    }

    /// Bad news are not new, and told again now and then; more often if `hurries`.
    pub(super) fn repeat(&mut self, hurries: bool, now: Instant) {
        let again = if hurries { REPORT_AGAIN } else { REPORT_IDLE };
        if now >= self.next + again {
            self.left = self.left.max(1);
        }
    }

    /// When a report is due that does not wait for packets; `owes` says that templates are to be
    /// acknowledged.
    pub(super) fn poll_timeout(&self, owes: bool) -> Option<Instant> {
        (self.left > 0 || owes).then_some(self.next)
    }
}

impl Tunnel {
    /// Stages a report for every path that has room; news go out even where there is none, and on
    /// all paths: the only one on which the peer hears may be one on which nothing arrives here.
    ///
    /// An active end reports regularly, which also tells the peer to probe quickly and how late
    /// each path is. If acknowledgements ride on a path that is dead in one direction, all windows
    /// fill up until the peer hears of it.
    pub(super) fn report_due(&mut self, pipe: &mut Pipe, now: Instant) -> Option<PathSet> {
        let owes = self.codec().is_some_and(Codec::owes_templates);
        let active = self.activity.is_active(now) || self.reports.left > 0 || owes;
        if !self.is_numbered() || now < self.reports.next || !active {
            return None;
        }
        self.reports.next = now + REPORT_EVERY;
        let news = self.reports.left > 0;
        self.reports.left = self.reports.left.saturating_sub(1);
        // Two ends that take all paths for dead because the other said so would never hear
        // otherwise.
        let none_usable = !self.round.views.iter().any(|view| view.usable);
        let mut paths = PathSet::default();
        for (index, (path, view)) in self.paths.iter().zip(&self.round.views).enumerate() {
            let gets_news = news
                && (path.is_trusted()
                    || now.saturating_duration_since(path.health.since()) < NEWS_FOR);
            // Nor would it be seen that noq sends again where it refused to.
            if !(view.usable || none_usable || gets_news || path.refuses()) {
                continue;
            }
            if news {
                path.gate
                    .set_floor(path.gate.in_flight() + 2 * self.packet_size);
            }
            let apart = SLOW_EVERY * path.health.probes_apart();
            if news || view.budget > 0 && !within(path.reported, apart, now) {
                paths = paths.with(index);
            }
        }
        if paths == PathSet::default() {
            return None;
        }
        for index in paths.iter() {
            self.paths[index].reported = Some(now);
        }
        let report = self.report(pipe, now)?;
        self.put_aside(report, paths);
        Some(paths)
    }

    fn report(&mut self, pipe: &Pipe, now: Instant) -> Option<Bytes> {
        let halves = self.takes_halves();
        let paths = self.paths.iter_mut().map(|path| {
            let heard = path.health.hears();
            PathReport {
                path: number(path.id),
                heard,
                shrunk: halves && heard && path.gate.size_source() == SizeSource::BlackHole,
                away: path.away.filter(|_| !heard),
                spacing: path.health.tell_spacing(now),
            }
        });
        let mut report = Report {
            sent_micros: pipe.numbering.clock(now),
            paths: paths.collect(),
            templates: self.codec.as_mut()?.poll_templates(),
            ..Report::default()
        };
        self.fares.take(&mut report);
        Some(self.codec()?.report(&report))
    }

    pub(super) fn handle_report(
        &mut self,
        pipe: &mut Pipe,
        report: &Report,
        path: u32,
        now: Instant,
    ) {
        // One alone that tells of a silent path may come from an end that has nothing else to tell.
        let regular = within(self.reports.last, 3 * REPORT_EVERY, now);
        if regular || report.paths.iter().all(|path| path.heard) {
            self.reports.peer_active = Some(now);
        }
        // Copies of an older one are still under way on slower paths. The clock wraps after an hour
        // of silence.
        let age = self.reports.newest.wrapping_sub(report.sent_micros) as i32;
        if let Some(codec) = &mut self.codec {
            codec.handle_report(report, now);
        }
        let is_old = age > 0 && within(self.reports.last, REPORT_OLD, now);
        self.reports.last = Some(now);
        pipe.resequencer.handle_clock(path, report.sent_micros, now);
        if is_old {
            return;
        }
        self.reports.newest = report.sent_micros;
        self.handle_fares(report, now);
        for entry in &report.paths {
            let id = PathId::from(entry.path);
            if let Some(path) = self.paths.iter_mut().find(|path| path.id == id) {
                path.health.handle_report(entry.heard, entry.away, now);
                path.health.set_spacing(entry.spacing);
                if entry.shrunk && !path.peer_shrunk {
                    path.gate.doubt_size();
                }
                path.peer_shrunk = entry.shrunk;
            }
        }
    }
}
