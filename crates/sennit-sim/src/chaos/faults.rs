//! What goes wrong, and when it is mended.

use std::{
    mem::take,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use sennit_netem::{Bitrate, Config, Loss};

use super::{Log, Summary, machines::Machine};
use crate::{Dice, LinkSpec, World, setup::hub_address};

const SECOND: Duration = Duration::from_secs(1);
/// Loss that a link may have and still be called usable.
const USABLE_LOSS: f64 = 0.05;
/// Packets of each direction of a link that an attacker has.
const WRITTEN_DOWN: usize = 64;

/// What is wrong with a link, and until when.
struct Ill {
    spec: Config,
    /// Nothing, or too little, passes in one direction or in both until then.
    until: Option<Instant>,
    /// The kernel says that it is down.
    unplugged: bool,
    /// The edge's config says nothing of it.
    absent: bool,
    /// Since when its two ends can hear one another, if they can.
    usable_since: Option<Instant>,
    /// The least delay of one direction that it ever had.
    least: Duration,
    /// How often its address changed.
    moves: u8,
}

impl Ill {
    fn is_lossless(&self) -> bool {
        self.spec.loss.ratio() == Some(0.0)
    }
}

/// All that can go wrong at a site.
pub(super) struct Faults {
    links: Vec<Ill>,
    /// How many links there are at the sites before this one.
    others: usize,
    pub(super) edge: Machine,
    /// The hub has nothing to do with the site.
    revoked: bool,
    dice: Dice,
    /// When something happens next.
    next: Instant,
}

impl Faults {
    pub(super) fn new(links: &[LinkSpec], others: usize, dice: Dice, now: Instant) -> Self {
        let ill = |link: &LinkSpec| Ill {
            spec: link.up.clone(),
            until: None,
            unplugged: false,
            absent: false,
            usable_since: Some(now),
            least: least_delay(&link.up),
            moves: 0,
        };
        Self {
            links: links.iter().map(ill).collect(),
            others,
            edge: Machine::new(now),
            revoked: false,
            dice,
            next: now + SECOND * 3,
        }
    }

    /// Since when there is a way between the edge and the hub, both of which run, if there is one
    /// and the site may use it.
    pub(super) fn usable_since(&self, hub: &Machine) -> Option<Instant> {
        self.since_of(|_| true, hub)
    }

    /// Since when there is one over a link that loses nothing, if there is.
    pub(super) fn lossless_since(&self, hub: &Machine) -> Option<Instant> {
        self.since_of(Ill::is_lossless, hub)
    }

    fn since_of(&self, is_asked: impl Fn(&Ill) -> bool, hub: &Machine) -> Option<Instant> {
        if self.revoked {
            return None;
        }
        let (edge, hub) = self.edge.in_time_since().zip(hub.in_time_since())?;
        let links = self.links.iter().filter(|link| is_asked(link));
        let since = links.filter_map(|link| link.usable_since).min()?;
        Some(since.max(edge).max(hub))
    }

    /// Whether no link was broken, mended or changed since then, and none loses packets if
    /// `lossless` is asked.
    pub(super) fn are_all_steady(&self, since: Instant, lossless: bool) -> bool {
        self.links.iter().all(|link| {
            let is_steady = link.usable_since.is_some_and(|at| at <= since);
            is_steady && (!lossless || link.is_lossless())
        })
    }

    /// The links that have been usable, and as they are, since then at the latest.
    pub(super) fn steady(&self, since: Instant) -> impl Iterator<Item = &Config> {
        let is_steady = move |link: &&Ill| link.usable_since.is_some_and(|at| at <= since);
        self.links.iter().filter(is_steady).map(|link| &link.spec)
    }

    /// What the links are like now, in a few words.
    pub(super) fn links(&self) -> String {
        let link = |ill: &Ill| {
            let Config {
                rate, delay, loss, ..
            } = &ill.spec;
            format!(
                "{rate:?} {delay:?} {loss:?} usable since {:?}",
                ill.usable_since
            )
        };
        let links: Vec<String> = self.links.iter().map(link).collect();
        links.join("; ")
    }

    /// What no round trip on a link can be shorter than: acknowledgements of all paths come by any.
    pub(super) fn physical(&self, link: usize) -> Duration {
        let back = self.links.iter().map(|link| link.least).min();
        self.links[link].least + back.unwrap_or_default()
    }

    /// Mends what is due, and breaks something if it is time.
    pub(super) fn step(
        &mut self,
        world: &mut World,
        hub: &mut Machine,
        log: &mut Log,
        summary: &mut Summary,
    ) {
        let now = world.now();
        for index in 0..self.links.len() {
            if self.links[index].until.is_some_and(|until| until <= now) {
                self.mend(index, world);
                log.note(world.elapsed(), format!("link {index} is mended"));
            }
        }
        world.recover(false, &mut self.edge, log);
        if now >= self.next {
            // Calm is as likely as a storm: what is slow to come back needs time to show it.
            let pause = [200, 1000, 4000, 15_000][self.dice.roll(4) as usize];
            self.next = now + Duration::from_millis(100 + self.dice.roll(pause));
            let (name, what) = self.cause(world, hub);
            *summary.faults.entry(name).or_default() += 1;
            summary.hostile += u64::from(name == "hostile");
            log.note(world.elapsed(), format!("{name}: {what}"));
        }
    }

    /// The hub is disturbed by what goes wrong at the first site, so that it is no more often where
    /// there are more sites.
    pub(super) fn disturbs_hub(&self) -> bool {
        self.others == 0
    }

    fn cause(&mut self, world: &mut World, hub: &mut Machine) -> (&'static str, String) {
        let link = self.dice.roll(self.links.len() as u64) as usize;
        match self.dice.roll(14) {
            0 | 1 => self.cut(link, world),
            2 => self.cut_one_way(link, world),
            3 => self.cut_all(world),
            4 => self.unplug(link, world),
            5 => self.lose(link, world),
            6 => self.slow(link, world),
            7 => self.narrow(link, world),
            8 => {
                world.rebind(link);
                self.renew(link, world.now());
                ("port", format!("link {link} has another port"))
            }
            9 => self.roam(link, world),
            10 => self.restart(world, hub),
            11 => self.keep_busy(world, hub),
            12 => self.repeat(world),
            _ => self.attack(link, world),
        }
    }

    /// Up to 20 s, as often below one second as above.
    fn while_long(&mut self) -> Duration {
        let most = [1_000, 20_000][self.dice.roll(2) as usize];
        Duration::from_millis(100 + self.dice.roll(most))
    }

    fn break_link(&mut self, link: usize, world: &World) -> Duration {
        let span = self.while_long();
        self.break_for(link, span, world);
        span
    }

    fn break_for(&mut self, link: usize, span: Duration, world: &World) {
        self.links[link].until = Some(world.now() + span);
        self.links[link].usable_since = None;
    }

    /// A link is taken out of the config for so long.
    pub(super) fn take_out(&mut self, link: usize, span: Duration, world: &mut World) {
        world.blackhole(link, true);
        world.remove_link(link);
        self.links[link].absent = true;
        self.break_for(link, span, world);
    }

    fn mend(&mut self, link: usize, world: &mut World) {
        let spec = self.links[link].spec.clone();
        world.change(link, |config| *config = spec.clone());
        let Ill {
            unplugged, absent, ..
        } = &mut self.links[link];
        if take(unplugged) | take(absent) {
            world.set_link(link, true);
        }
        self.links[link].until = None;
        self.renew(link, world.now());
    }

    /// A link that works begins to do so anew.
    fn renew(&mut self, link: usize, now: Instant) {
        if self.links[link].until.is_none() {
            self.links[link].usable_since = Some(now);
        }
    }

    fn cut(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        world.blackhole(link, true);
        let span = self.break_link(link, world);
        ("cut", format!("link {link} for {span:?}"))
    }

    fn cut_one_way(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let up = self.dice.roll(2) == 0;
        world.blackhole_one_way(link, up, true);
        let span = self.break_link(link, world);
        ("cut one way", format!("link {link}, up {up}, for {span:?}"))
    }

    fn cut_all(&mut self, world: &mut World) -> (&'static str, String) {
        let span = self.while_long();
        for link in 0..self.links.len() {
            world.blackhole(link, true);
            self.break_for(link, span, world);
        }
        ("cut all", format!("for {span:?}"))
    }

    fn unplug(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        world.blackhole(link, true);
        world.set_link(link, false);
        self.links[link].unplugged = true;
        let span = self.break_link(link, world);
        ("unplug", format!("link {link} for {span:?}"))
    }

    fn lose(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let part = self.dice.roll(80) as f64 / 100.0;
        world.change(link, |config| config.loss = Loss::Random(part));
        let span = self.break_link(link, world);
        ("loss", format!("{part} on link {link} for {span:?}"))
    }

    /// Another rate and another delay for good, as on a radio.
    fn slow(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let other = self.dice.link(1..=60).up;
        let ill = &mut self.links[link];
        let loss = other.loss.ratio().unwrap_or_default().min(USABLE_LOSS);
        ill.spec = Config {
            loss: Loss::Random(loss),
            ..other
        };
        ill.least = ill.least.min(least_delay(&ill.spec));
        let (rate, delay) = (ill.spec.rate.map_or(0, Bitrate::as_bps), ill.spec.delay);
        self.mend(link, world);
        ("other", format!("link {link}: {rate} bit/s, {delay:?}"))
    }

    fn narrow(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let mtu = 1280 + self.dice.roll(221) as usize;
        let told = self.dice.roll(2) == 0;
        let ill = &mut self.links[link];
        (ill.spec.mtu, ill.spec.tells_mtu) = (mtu, told);
        world.set_path_mtu(link, mtu, told);
        self.renew(link, world.now());
        ("mtu", format!("{mtu} on link {link}, told {told}"))
    }

    fn roam(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let ill = &mut self.links[link];
        ill.moves = ill.moves.wrapping_add(1);
        let net = 101 + (self.others + link) as u8;
        let address = Ipv4Addr::new(198, 51, net, ill.moves);
        world.move_to(link, IpAddr::V4(address));
        self.renew(link, world.now());
        ("roam", format!("link {link} to {address}"))
    }

    fn restart(&mut self, world: &mut World, hub: &mut Machine) -> (&'static str, String) {
        let is_hub = self.dice.roll(2) == 0 && self.disturbs_hub();
        if is_hub {
            hub.restart(world.now());
            world.restart_hub();
            return ("restart", "hub".into());
        }
        self.restart_edge(world);
        ("restart", "edge".into())
    }

    fn restart_edge(&mut self, world: &mut World) {
        self.edge.restart(world.now());
        world.restart_edge();
        for (link, ill) in self.links.iter().enumerate() {
            if ill.unplugged {
                world.set_link(link, false);
            }
            if ill.absent {
                world.remove_link(link);
            }
        }
    }

    /// The site is revoked.
    pub(super) fn revoke(&mut self, world: &mut World) {
        self.revoked = true;
        world.revoke();
    }

    /// The site joins anew: its edge starts with nothing that it had.
    pub(super) fn invite(&mut self, world: &mut World) {
        self.revoked = false;
        world.invite();
        self.restart_edge(world);
    }

    /// Machines that are busy, or asleep for up to two seconds at a time.
    fn keep_busy(&mut self, world: &mut World, hub: &mut Machine) -> (&'static str, String) {
        let most = [30, 2000][self.dice.roll(2) as usize];
        let ms = Duration::from_millis(1);
        let turns = [self.dice.roll(most), self.dice.roll(most)].map(|turn| ms * turn as u32);
        let span = self.while_long();
        let (now, until) = (world.now(), world.now() + span);
        self.edge.be_busy(turns[0], until, now);
        world.turns(false).set_every(turns[0], now);
        if !self.disturbs_hub() {
            return ("busy", format!("turns of {:?} for {span:?}", turns[0]));
        }
        hub.be_busy(turns[1], until, now);
        world.turns(true).set_every(turns[1], now);
        ("busy", format!("turns of {turns:?} for {span:?}"))
    }

    fn repeat(&mut self, world: &mut World) -> (&'static str, String) {
        let after = Duration::from_millis(self.dice.roll(200));
        world.repeats_after = world.repeats_after.is_none().then_some(after);
        ("repeat", format!("{:?}", world.repeats_after))
    }

    /// A datagram of somebody else at either end, of noise or of what was seen on the wire.
    fn attack(&mut self, link: usize, world: &mut World) -> (&'static str, String) {
        let to_hub = self.dice.roll(2) == 0;
        let cable = &world.cables[link];
        let seen = if to_hub {
            &cable.up.seen
        } else {
            &cable.down.seen
        };
        let one = self.dice.roll(WRITTEN_DOWN as u64) as usize;
        let mut bytes = match seen.get(one) {
            Some(seen) if self.dice.roll(4) > 0 => seen.clone(),
            Some(_) | None => {
                let len = 1 + self.dice.roll(1400);
                (0..len).map(|_| self.dice.roll(256) as u8).collect()
            }
        };
        let changes = self.dice.roll(4);
        for _ in 0..changes {
            let at = self.dice.roll(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.dice.roll(8);
        }
        if self.dice.roll(4) == 0 {
            bytes.truncate(1 + self.dice.roll(bytes.len() as u64) as usize);
        }
        let len = bytes.len();
        world.inject(link, to_hub, &bytes);
        let what = format!("{len} bytes, {changes} bits changed, to the hub {to_hub}");
        ("hostile", what)
    }
}

fn least_delay(way: &Config) -> Duration {
    way.delay.saturating_sub(way.jitter.spread)
}

impl World {
    /// Has what is sent on all links written down, for who repeats it.
    pub(super) fn write_down(&mut self) {
        for cable in &mut self.cables {
            (cable.up.keeps, cable.down.keeps) = (WRITTEN_DOWN, WRITTEN_DOWN);
        }
    }

    /// A datagram that its address did not send travels on a link like any other: who repeats one
    /// is no faster than it was.
    fn inject(&mut self, link: usize, to_hub: bool, bytes: &[u8]) {
        let now = self.now;
        let cable = &mut self.cables[link];
        let (edge, hub) = (cable.address, hub_address());
        match to_hub {
            true => cable.up.inject(edge, hub, bytes, now),
            false => cable.down.inject(hub, edge, bytes, now),
        }
    }
}
