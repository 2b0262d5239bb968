//! Machines that stand still, as a laptop or a virtual machine does, are busy or start anew, and
//! calendars that jump.

use std::time::{Duration, Instant};

use super::{Log, Summary};
use crate::{Dice, World};

const SECOND: Duration = Duration::from_secs(1);
/// How far a calendar may be off, in seconds: ten years.
const FAR: u64 = 10 * 365 * 24 * 3600;
/// Machines that are busier than this are not asked to be in time.
const BUSY: Duration = Duration::from_millis(30);

/// What keeps the hub or an edge from being in time, and since when nothing does.
pub(super) struct Machine {
    /// When it was last restarted.
    restarted: Option<Instant>,
    /// When it was last restarted or held up.
    disturbed: Instant,
    /// When it is as fast as ever again.
    busy_until: Option<Instant>,
    /// It is so slow that nothing is in time.
    asleep: bool,
    /// Until when it stands still.
    still_until: Option<Instant>,
    /// Since when it has run, and was not asleep.
    run_since: Instant,
}

impl Machine {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            restarted: None,
            disturbed: now,
            busy_until: None,
            asleep: false,
            still_until: None,
            run_since: now,
        }
    }

    /// It stands still until then.
    fn stand_still(&mut self, until: Instant) {
        self.still_until = self.still_until.max(Some(until));
        self.run_since = self.run_since.max(until);
    }

    /// It starts anew.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.restarted, self.disturbed) = (Some(now), now);
    }

    /// It acts in turns that are so far apart.
    pub(super) fn be_busy(&mut self, turn: Duration, until: Instant, now: Instant) {
        self.asleep = turn > BUSY;
        if self.asleep {
            self.run_since = self.run_since.max(until);
        }
        (self.disturbed, self.busy_until) = (now, Some(until));
    }

    /// Whether it acts at once whenever something happens.
    pub(super) fn is_quick(&self) -> bool {
        self.busy_until.is_none() && self.still_until.is_none()
    }

    /// Since when it is in time, if it is.
    pub(super) fn in_time_since(&self) -> Option<Instant> {
        let in_time = !self.asleep && self.still_until.is_none();
        in_time.then_some(self.disturbed)
    }

    /// Since when it has not stood still or been asleep; in the future if it does.
    pub(super) fn run_since(&self) -> Instant {
        self.run_since
    }

    /// When it last started anew.
    pub(super) fn restarted(&self) -> Option<Instant> {
        self.restarted
    }

    /// Ends what is over by now: whether it acts again, and whether it is as fast as ever again.
    fn recover(&mut self, now: Instant) -> (bool, bool) {
        let is_over = |until: &mut Option<Instant>| until.take_if(|at| *at <= now).is_some();
        let over = (
            is_over(&mut self.still_until),
            is_over(&mut self.busy_until),
        );
        self.asleep &= !over.1;
        if over.0 || over.1 {
            self.disturbed = now;
        }
        over
    }
}

/// What happens to the machines by themselves, and when. It has dice of its own, so that a seed
/// gives the links the same faults without it.
pub(super) struct Mishap {
    dice: Dice,
    next: Instant,
}

impl Mishap {
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        let mut dice = Dice::new(!seed);
        let next = now + SECOND * (5 + dice.roll(20) as u32);
        Self { dice, next }
    }

    /// What happens now, if anything, to the hub or the edges.
    pub(super) fn step<'a>(
        &mut self,
        world: &mut World,
        hub: &mut Machine,
        edges: impl ExactSizeIterator<Item = &'a mut Machine>,
        log: &mut Log,
        summary: &mut Summary,
    ) {
        let now = world.now();
        if now < self.next {
            return;
        }
        // As often soon again as after a time.
        let pause = [5, 60][self.dice.roll(2) as usize];
        self.next = now + SECOND + SECOND * self.dice.roll(pause) as u32;
        let caused = match self.dice.roll(3) {
            0 => Some(self.move_calendar(world)),
            _ => self.stall(world, hub, edges),
        };
        let Some((name, what)) = caused else {
            return;
        };
        *summary.faults.entry(name).or_default() += 1;
        log.note(world.elapsed(), format!("{name}: {what}"));
    }

    /// One end does nothing for a while, unless it stands still already; after three minutes the
    /// other has given it up.
    fn stall<'a>(
        &mut self,
        world: &mut World,
        hub: &mut Machine,
        mut edges: impl ExactSizeIterator<Item = &'a mut Machine>,
    ) -> Option<(&'static str, String)> {
        let most = [2_000, 20_000, 300_000][self.dice.roll(3) as usize];
        let span = Duration::from_millis(100 + self.dice.roll(most));
        let until = world.now() + span;
        let is_hub = self.dice.roll(2) == 0;
        let (machine, whose) = if is_hub {
            (hub, "the hub".to_owned())
        } else {
            let site = self.dice.roll(edges.len() as u64) as usize;
            world.look_at(site);
            let edge = edges.nth(site).expect("the dice has a side for each");
            (edge, format!("the edge of site {site}"))
        };
        if machine.still_until.is_some() {
            return None;
        }
        world.stall(is_hub, span);
        machine.stand_still(until);
        Some(("stall", format!("{whose} for {span:?}")))
    }

    fn move_calendar(&mut self, world: &mut World) -> (&'static str, String) {
        let hub = self.dice.roll(2) == 0;
        let far = [10, 4_000, FAR][self.dice.roll(3) as usize];
        let ahead = self.dice.roll(2 * far) as i64 - far as i64;
        world.set_calendar(hub, ahead);
        ("calendar", format!("hub {hub}: {ahead} s ahead"))
    }
}

impl World {
    /// Ends what is over by now for the hub, or else for the edge.
    pub(super) fn recover(&mut self, hub: bool, machine: &mut Machine, log: &mut Log) {
        let name = if hub { "the hub" } else { "the edge" };
        let (acts, is_quick) = machine.recover(self.now());
        if acts {
            log.note(self.elapsed(), format!("{name} acts again"));
        }
        if is_quick {
            let now = self.now();
            self.turns(hub).set_every(Duration::ZERO, now);
            log.note(self.elapsed(), format!("{name} is fast again"));
        }
    }
}
