//! How the class fares in the direction that the hub sends, which only the hub knows: it tells the
//! edge, which shows it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use sennit_core::frame::{Fare, Queue, Report};

use super::Tunnel;
use crate::{
    facts::{Told, TunnelStatus},
    links::Seat,
    path::{Path, number},
    pipe::Pipe,
    sharing::{self, Plan},
};

/// A hub tells as often as this, while packets flow.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// It tells of further paths after this.
const TELL_ON: Duration = Duration::from_millis(100);

/// What is to be told, and what was heard.
#[derive(Debug, Default)]
pub(super) struct Fares {
    /// When more is told, and from which path on.
    next: Option<Instant>,
    told: usize,
    /// What the next report tells.
    due: Vec<Fare>,
    queue: Option<Queue>,
    /// The queue at the hub, and when it told of it.
    heard: Option<(Queue, Instant)>,
}

impl Fares {
    /// Puts what is due into a report.
    pub(super) fn take(&mut self, report: &mut Report) {
        report.fares = std::mem::take(&mut self.due);
        report.queue = self.queue.take();
    }
}

impl Tunnel {
    /// Looks at how the class fares, if the edge is to be told again.
    pub(super) fn look_at_fares(&mut self, pipe: &Pipe, seat: &Seat<'_>, now: Instant) {
        if self.fares.next.is_some_and(|next| now < next) {
            return;
        }
        // A class that is held has room for moments only: what is told then is new.
        let has_room = self.round.views.iter().any(|view| view.budget > 0);
        if !has_room || !self.activity.is_active(now) {
            return;
        }
        let takes = self
            .codec
            .as_ref()
            .is_some_and(|codec| codec.abilities().fares);
        if !takes || self.conn.side().is_client() {
            self.fares.next = Some(now + TELL_EVERY);
            return;
        }
        self.fares.due.clear();
        let first = self.fares.told;
        let last = self.paths.len().min(first + Report::MAX_FARES);
        for path in self.paths.get(first..last).unwrap_or_default() {
            let loss = path.gate.ledger().losses().lately(now).loss();
            let lost = loss.unwrap_or_default() * 1e6;
            let fare = path
                .on
                .and_then(|link| seat.fare(link, number(path.id), lost as u32, now));
            self.fares.due.extend(fare);
        }
        let shares = !self.fares.due.is_empty();
        self.fares.queue = shares.then(|| pipe.queue.report());
        let (told, after) = if last < self.paths.len() {
            (last, TELL_ON)
        } else {
            (0, TELL_EVERY)
        };
        (self.fares.told, self.fares.next) = (told, Some(now + after));
        if shares {
            self.reports.hurry(now);
        }
    }

    /// A hub told how the class fares there.
    pub(super) fn handle_fares(&mut self, report: &Report, now: Instant) {
        if !self.conn.side().is_client() {
            return;
        }
        for fare in &report.fares {
            let told = |path: &&mut Path| number(path.id) == fare.path;
            if let Some(path) = self.paths.iter_mut().find(told) {
                path.fare = Some((fare.clone(), now));
            }
        }
        if let Some(queue) = report.queue {
            self.fares.heard = Some((queue, now));
        }
    }

    /// Fills in what was heard of how the class fares at the hub; the plan is that of this end.
    pub(crate) fn describe_fares(&self, status: &mut TunnelStatus, plan: Option<&Plan>) {
        let none = BTreeMap::new();
        let names = plan.map_or(&none, |plan| &plan.names);
        status.queue_down = self.fares.heard;
        for path in &mut status.paths {
            let mut known = self.paths.iter();
            let known = known.find(|known| number(known.id) == path.id);
            path.shared_down = known.and_then(|known| {
                let (fare, at) = known.fare.as_ref()?;
                Some(Told {
                    share: sharing::heard(fare, names),
                    loss: f64::from(fare.lost) / 1e6,
                    at: *at,
                })
            });
        }
    }
}
