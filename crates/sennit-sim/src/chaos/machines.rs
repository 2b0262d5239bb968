//! Machines that stand still, as a laptop or a virtual machine does, and calendars that jump.

use std::time::{Duration, Instant};

use super::{Log, Summary, faults::Faults};
use crate::{Dice, World};

const SECOND: Duration = Duration::from_secs(1);
/// How far a calendar may be off, in seconds: ten years.
const FAR: u64 = 10 * 365 * 24 * 3600;

/// What happens to the machines, and when. It has dice of its own, so that a seed gives the links
/// the same faults without it.
pub(super) struct Machines {
    dice: Dice,
    next: Instant,
}

impl Machines {
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        let mut dice = Dice::new(!seed);
        let next = now + SECOND * (5 + dice.roll(20) as u32);
        Self { dice, next }
    }

    pub(super) fn step(
        &mut self,
        world: &mut World,
        faults: &mut Faults,
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
        let (name, what) = match self.dice.roll(3) {
            0 => self.move_calendar(world),
            _ => self.stall(world, faults),
        };
        *summary.faults.entry(name).or_default() += 1;
        log.note(world.elapsed(), format!("{name}: {what}"));
    }

    /// One end does nothing for a while; after three minutes the other has given it up.
    fn stall(&mut self, world: &mut World, faults: &mut Faults) -> (&'static str, String) {
        let most = [2_000, 20_000, 300_000][self.dice.roll(3) as usize];
        let span = Duration::from_millis(100 + self.dice.roll(most));
        let hub = self.dice.roll(2) == 0;
        world.stall(hub, span);
        faults.stand_still(world.now() + span);
        ("stall", format!("hub {hub} for {span:?}"))
    }

    fn move_calendar(&mut self, world: &mut World) -> (&'static str, String) {
        let hub = self.dice.roll(2) == 0;
        let far = [10, 4_000, FAR][self.dice.roll(3) as usize];
        let ahead = self.dice.roll(2 * far) as i64 - far as i64;
        world.set_calendar(hub, ahead);
        ("calendar", format!("hub {hub}: {ahead} s ahead"))
    }
}
