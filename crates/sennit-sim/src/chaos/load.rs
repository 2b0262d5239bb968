//! More than the links carry, in a class of its own, for some seconds now and then.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use sennit_core::{ClassId, Policy};
use sennit_engine::ClassConfig;

use super::Log;
use crate::{Dice, SERVER, World, class, udp};

const SECOND: Duration = Duration::from_secs(1);
/// Port of its packets.
pub(super) const PORT: u16 = 8;
/// Bytes of one.
const LEN: usize = 1200;
/// Packets of each direction in a step, at most: 38 Mbit/s.
const MOST: u64 = 400;
/// What waits has left or was dropped after so long.
const LINGERS: Duration = Duration::from_secs(15);

/// Where it has its class, behind that of the other packets.
pub(super) const CLASS: ClassId = ClassId(1);

/// When there is how much. It has dice of its own, so that a seed gives the links the same faults
/// without it.
pub(super) struct Load {
    /// The inner address of its site.
    edge: Ipv4Addr,
    dice: Dice,
    next: Instant,
    until: Instant,
    packets: u64,
    sent: u32,
}

impl Load {
    pub(super) fn new(edge: Ipv4Addr, seed: u64, now: Instant) -> Self {
        Self {
            edge,
            dice: Dice::beside(seed, 2),
            next: now + 20 * SECOND,
            until: now,
            packets: 0,
            sent: 0,
        }
    }

    pub(super) fn class() -> ClassConfig {
        class("load", Policy::Bond)
    }

    /// Whether nothing of it has been sent for so long that nothing waits any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until + LINGERS
    }

    pub(super) fn step(&mut self, world: &mut World, log: &mut Log) {
        let now = world.now();
        if now >= self.next {
            let span = SECOND + SECOND * self.dice.roll(5) as u32;
            self.packets = 20 + self.dice.roll(MOST - 20);
            self.until = now + span;
            self.next = now + span + SECOND * (60 + self.dice.roll(240) as u32);
            let what = format!("load: {} packets a step for {span:?}", self.packets);
            log.note(world.elapsed(), what);
        }
        if now >= self.until {
            return;
        }
        for _ in 0..self.packets {
            // The hub answers in the class in which the edge began.
            world.enter(true, &udp(self.edge, SERVER, PORT, self.sent, LEN));
            world.enter(false, &udp(SERVER, self.edge, PORT, self.sent, LEN));
            self.sent = self.sent.wrapping_add(1);
        }
        world.settle();
    }
}
