//! What strangers on the way and elsewhere can do.

use std::net::SocketAddr;

use rustls::Side;

use super::edges::EdgeSide;
use super::hubs::HubSide;
use super::initial::Ids;
use super::scene::{HUB, LINKS, STRANGER, Scene, Wire};
use crate::input::Input;

/// A second of virtual time; more rounds bring nothing new.
const ROUNDS: usize = 200;
/// Packets remembered for replay.
const REMEMBERED: usize = 32;

/// A script: per packet for the victim what becomes of it, and per round what else is sent.
pub(super) struct Attack<'a, 'b> {
    input: &'a mut Input<'b>,
    victim: Side,
    /// Packets to the victim.
    seen: Vec<Wire>,
    /// How to speak to the edge as if one were its hub.
    ids: Option<Ids>,
}

impl<'a, 'b> Attack<'a, 'b> {
    pub(super) fn on_hub(input: &'a mut Input<'b>) -> Self {
        Self::new(input, Side::Server)
    }

    pub(super) fn on_edge(input: &'a mut Input<'b>) -> Self {
        Self::new(input, Side::Client)
    }

    fn new(input: &'a mut Input<'b>, victim: Side) -> Self {
        Self {
            input,
            victim,
            seen: Vec::new(),
            ids: None,
        }
    }

    pub(super) fn run(mut self, scene: &mut Scene<EdgeSide, HubSide>) {
        scene.round(|wire| vec![wire]);
        for _ in 0..ROUNDS {
            if self.input.is_empty() {
                return;
            }
            scene.round(|wire| self.meddle(wire));
            for wire in self.inject() {
                scene.deliver(wire);
            }
        }
    }

    fn meddle(&mut self, wire: Wire) -> Vec<Wire> {
        if wire.to == HUB {
            self.ids = Ids::to_answer(&wire.bytes).or(self.ids.take());
        }
        if (wire.to == HUB) != (self.victim == Side::Server) {
            return vec![wire];
        }
        if self.seen.len() < REMEMBERED {
            self.seen.push(wire.clone());
        }
        match self.input.byte() % 8 {
            0..=2 => vec![wire],
            3 => vec![],
            4 => vec![wire.clone(), wire],
            5 => vec![self.damaged(&wire)],
            6 => vec![self.damaged(&wire), wire],
            _ => vec![self.cut(&wire), wire],
        }
    }

    fn damaged(&mut self, wire: &Wire) -> Wire {
        let (at, change) = (usize::from(self.input.u16()), self.input.byte());
        let mut damaged = wire.clone();
        let at = at % damaged.bytes.len().max(1);
        if let Some(byte) = damaged.bytes.get_mut(at) {
            *byte ^= change;
        }
        damaged
    }

    fn cut(&mut self, wire: &Wire) -> Wire {
        let mut cut = wire.clone();
        cut.bytes
            .truncate(usize::from(self.input.u16()) % (wire.bytes.len() + 1));
        cut
    }

    /// Packets that nobody honest sent.
    fn inject(&mut self) -> Vec<Wire> {
        let kind = self.input.byte();
        let from = if kind & 0x10 == 0 {
            STRANGER
        } else {
            self.honest()
        };
        let to = match self.victim {
            Side::Server => HUB,
            Side::Client => LINKS[usize::from(kind >> 5) % 2],
        };
        let bytes = match kind % 6 {
            1 => self.input.block().to_vec(),
            2 => padded(self.input.block()),
            3 | 4 => self.sealed(),
            5 => self.replayed(),
            _ => return Vec::new(),
        };
        vec![Wire { from, to, bytes }]
    }

    /// An address that the victim knows.
    fn honest(&self) -> SocketAddr {
        match self.victim {
            Side::Server => LINKS[0],
            Side::Client => HUB,
        }
    }

    fn sealed(&mut self) -> Vec<u8> {
        match (self.victim, &self.ids) {
            (Side::Server, _) => Ids::of_client(self.input).seal(Side::Client, self.input),
            (Side::Client, Some(ids)) => ids.seal(Side::Server, self.input),
            (Side::Client, None) => Vec::new(),
        }
    }

    fn replayed(&mut self) -> Vec<u8> {
        let index = usize::from(self.input.byte());
        let seen = index
            .checked_rem(self.seen.len())
            .map(|index| self.seen[index].clone());
        seen.map_or_else(Vec::new, |wire| self.damaged(&wire).bytes)
    }
}

/// Long enough for a server to look at (RFC 9000 §14.1).
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(1200), 0);
    bytes
}
