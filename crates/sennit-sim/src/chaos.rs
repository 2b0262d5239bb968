//! Chaos: links, faults and hostile packets by chance, and what must hold at every step.
//!
//! A run is a seed and a span of virtual time. Its world has a hub and two to four sites, each with
//! two or three links and a class of any policy and delivery. Every few hundred milliseconds
//! something goes wrong there or is mended. Now and then a machine stands still, its calendar
//! jumps, a site lies about who it is, one has more to send than its best link carries, a config is
//! reloaded, or a site is revoked and joins anew. All ends are looked at after each step. A run
//! that breaks a rule says which, when, and what had happened before, and the same seed breaks it
//! again.

mod drafts;
mod faults;
mod load;
mod machines;
mod offer;
mod play;
mod reloads;
mod rules;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use sennit_engine::{EdgeEvent, HubEvent};

use self::{drafts::GUEST, play::Play};
use crate::World;

/// How far apart steps are, and the packets of each direction.
const STEP: Duration = Duration::from_millis(100);
/// What a run that failed tells of the time before.
const REMEMBERED: usize = 60;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many sites there were.
    pub sites: usize,
    /// How often each fault was caused.
    pub faults: BTreeMap<&'static str, u64>,
    /// Inner packets sent, of both directions.
    pub sent: u64,
    /// Inner packets that arrived.
    pub arrived: u64,
    /// Those that arrived of classes that have more to send than shared links carry.
    pub load: u64,
    /// Hostile datagrams that either end was sent.
    pub hostile: u64,
    /// Inner packets that a site sent from the address of another one.
    pub forged: u64,
    /// How often a config was reloaded.
    pub reloads: u64,
    /// Those of them that came in a calm, so that it is known that they lost nothing.
    pub watched: u64,
    /// Of each time that a site had more to send than its best link carries, the least of it that
    /// came out in ten seconds, in per mille of what that link carries.
    pub best_link: Vec<u32>,
    /// Tunnels that came up.
    pub tunnels: u64,
    /// Tunnels that moved to another address of the hub.
    pub moved: u64,
    /// How often a site that was revoked joined anew.
    pub invited: u64,
    /// How often the keys of one connection were renewed, at most.
    pub renewed: u64,
    /// How long it took, each time that there was a way and no tunnel that carried, until one did;
    /// in steps of 100 ms.
    pub back: Vec<Duration>,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The run's seed, which breaks it again.
    pub seed: u64,
    /// When, since the start.
    pub at: Duration,
    /// What did not hold.
    pub what: String,
    /// What was done before, oldest first.
    pub before: Vec<(Duration, String)>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at, what, .. } = self;
        write!(f, "seed {seed}, after {:.1} s: {what}", at.as_secs_f64())?;
        for (at, what) in &self.before {
            write!(f, "\n  {:>10.1} s  {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishaps {
    /// At one site: links, ends that restart or are slow, and hostile packets.
    OfLinks,
    /// Also other sites, machines that stand still, calendars that jump, configs that are reloaded,
    /// and links that are shared by rules or not, with more traffic than they carry. The first site
    /// of a seed is the same.
    All,
}

/// Lets things happen to the world of `seed` for `span` of virtual time.
///
/// # Errors
/// If a rule does not hold.
pub fn run(seed: u64, span: Duration, mishaps: Mishaps) -> Result<Summary, Box<Broken>> {
    let mut play = Play::new(seed, mishaps);
    while play.world.elapsed() < span {
        if let Err(what) = play.step() {
            return Err(Box::new(Broken {
                seed,
                at: play.world.elapsed(),
                what,
                before: play.log.lines(),
            }));
        }
    }
    Ok(play.summary())
}

/// The last things that were done, behind what the sites are like.
#[derive(Default)]
struct Log {
    sites: Vec<(Duration, String)>,
    last: VecDeque<(Duration, String)>,
    /// What is noted is of this one.
    site: Option<usize>,
}

impl Log {
    fn begin(&mut self, what: String) {
        self.sites.push((Duration::ZERO, what));
    }

    fn note(&mut self, at: Duration, what: String) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        let what = match self.site {
            Some(site) => format!("site {site}: {what}"),
            None => what,
        };
        self.last.push_back((at, what));
    }

    fn lines(&self) -> Vec<(Duration, String)> {
        self.sites.iter().chain(&self.last).cloned().collect()
    }
}

impl World {
    /// Takes down what the edge said, and forgets it.
    ///
    /// # Errors
    /// If a reload cost a class its tunnel that the config still has.
    fn hear(&mut self, log: &mut Log, summary: &mut Summary) -> Result<(), String> {
        for (at, event) in std::mem::take(&mut self.edge_events) {
            summary.tunnels += u64::from(matches!(event, EdgeEvent::TunnelUp { .. }));
            summary.moved += u64::from(matches!(event, EdgeEvent::TunnelMoved { .. }));
            log.note(at, format!("the edge: {event:?}"));
            if let EdgeEvent::TunnelDown { class, reason } = event
                && class != GUEST
                && reason.contains("config")
            {
                return Err(format!("{class} lost its tunnel: {reason}"));
            }
        }
        self.told_mtu.clear();
        Ok(())
    }

    /// Takes down which tunnels the hub lost, and forgets all that it said.
    fn hear_hub(&mut self, log: &mut Log) {
        for (at, event) in std::mem::take(&mut self.hub_events) {
            if let HubEvent::TunnelDown { .. } = event {
                log.note(at, format!("the hub: {event:?}"));
            }
        }
    }
}
