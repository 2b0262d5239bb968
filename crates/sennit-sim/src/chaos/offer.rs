//! Never below the best link: what comes out at a site that bonds when it has more to send.
//!
//! Now and then such a site has more than its best link carries, in one direction. From then on
//! nothing is broken or mended there, so it is known exactly what that link carries. After a time
//! to fill the links, what arrives in each ten seconds is at least [`LEAST`] of it.

use std::{
    mem::replace,
    time::{Duration, Instant},
};

use sennit_engine::headers::{self, Form, TAG};
use sennit_netem::{Bitrate, Config};

use super::STEP;
use crate::{Dice, SERVER, World, cable::UDP_OVERHEAD, number, setup::inner_address, udp};

const SECOND: Duration = Duration::from_secs(1);
/// Port of its packets.
pub(super) const PORT: u16 = 9;
/// Bytes of one: with all headers it fits any path that QUIC may use (RFC 9000 §14).
const LEN: usize = 1100;
/// Bytes of the packet numbers of QUIC on a path that is busy.
const PACKET_NUMBER: usize = 2;
/// What is sent, as a part of what the best link carries.
const OFFERED: f64 = 1.2;
/// What arrives at least, as a part of what the best link carries. The rest is for what is counted
/// nowhere: acknowledgements, and repairs, of which `fec = "auto"` sends up to a tenth where links
/// lose as many packets as here.
const LEAST: f64 = 0.85;
/// Parts of a step in which packets are handed over, so that they are no bursts.
const PARTS: u32 = 10;
/// Steps of a window: ten seconds.
const WINDOW: usize = 100;
/// Steps before the first window, in which a flow fills the links.
const FILLING: usize = 40;
/// Steps from the start of the first window to the end of the last one.
const JUDGED: usize = 120;
/// A link is the best one that has been as it is for so long: as long as a tunnel may take to be
/// back.
pub(super) const STEADY: Duration = Duration::from_secs(6);

/// What a site has to send, and when.
pub(super) struct Offer {
    dice: Dice,
    next: Instant,
    /// The number of the next packet.
    number: u32,
    flood: Option<Flood>,
}

/// More than the best link carries.
struct Flood {
    site: usize,
    up: bool,
    /// Bytes that the best link carries in a step.
    best: f64,
    /// Bytes that are due and not sent yet.
    owed: f64,
    /// The number of the first packet.
    first: u32,
    /// Which packets have arrived.
    came: Vec<bool>,
    /// Bytes that arrived in each step.
    arrived: Vec<u64>,
}

impl Offer {
    pub(super) fn new(seed: u64, now: Instant) -> Self {
        let mut dice = Dice::beside(seed, 4);
        let next = now + SECOND * (15 + dice.roll(30) as u32);
        Self {
            dice,
            next,
            number: 0,
            flood: None,
        }
    }

    /// Whether it is time for a site to have something to send.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.flood.is_none() && now >= self.next
    }

    /// The site that has something to send.
    pub(super) fn site(&self) -> Option<usize> {
        self.flood.as_ref().map(|flood| flood.site)
    }

    /// One of these sites has more to send than its best link carries, which is so many bytes in a
    /// step; what happens, in words.
    pub(super) fn begin(&mut self, sites: &[(usize, f64)]) -> Option<String> {
        let one = self.dice.roll(sites.len().max(1) as u64) as usize;
        let &(site, best) = sites.get(one)?;
        let up = self.dice.roll(2) == 0;
        self.flood = Some(Flood {
            site,
            up,
            best,
            owed: 0.0,
            first: self.number,
            came: Vec::new(),
            arrived: vec![0],
        });
        let mbit = best * OFFERED * 8.0 / STEP.as_secs_f64() / 1e6;
        Some(format!("{mbit:.1} Mbit/s to send, up {up}"))
    }

    /// Lets a step pass in which it is sent.
    pub(super) fn run(&mut self, world: &mut World) {
        for _ in 0..PARTS {
            self.send(world);
            world.run(STEP / PARTS);
        }
    }

    fn send(&mut self, world: &mut World) {
        let Some(flood) = &mut self.flood else {
            return;
        };
        world.look_at(flood.site);
        flood.owed += flood.best * OFFERED / f64::from(PARTS);
        while flood.owed >= LEN as f64 {
            flood.owed -= LEN as f64;
            flood.came.push(false);
            let bytes = packet(flood.site, flood.up, self.number);
            self.number = self.number.wrapping_add(1);
            world.enter(flood.up, &bytes);
        }
        world.settle();
    }

    /// Takes down what arrived, from a site if it went up.
    pub(super) fn note_arrival(
        &mut self,
        site: usize,
        up: bool,
        bytes: &[u8],
    ) -> Result<(), String> {
        let number = number(bytes).unwrap_or_default();
        if bytes != packet(site, up, number) {
            return Err(format!("a packet of the load came out changed: {number}"));
        }
        // What is left of an earlier one proves nothing.
        let flood = self.flood.as_mut();
        let Some(flood) = flood.filter(|flood| (flood.site, flood.up) == (site, up)) else {
            return Ok(());
        };
        let place = number.wrapping_sub(flood.first) as usize;
        let Some(came) = flood.came.get_mut(place) else {
            return Ok(());
        };
        if replace(came, true) {
            return Err(format!("packet {number} of the load came out twice"));
        }
        if let Some(arrived) = flood.arrived.last_mut() {
            *arrived += bytes.len() as u64;
        }
        Ok(())
    }

    /// A step has passed; when it was the last one, the least of what arrived in a window, in per
    /// mille of what the best link carries.
    pub(super) fn end_step(&mut self, now: Instant) -> Result<Option<u32>, String> {
        let is_last = |flood: &mut Flood| flood.arrived.len() == FILLING + JUDGED;
        let Some(flood) = self.flood.take_if(is_last) else {
            let arrived = self.flood.iter_mut().map(|flood| &mut flood.arrived);
            arrived.for_each(|arrived| arrived.push(0));
            return Ok(None);
        };
        self.next = now + SECOND * (300 + self.dice.roll(600) as u32);
        let least = judge(&flood.arrived[FILLING..], flood.best)?;
        Ok(Some((least * 1000.0) as u32))
    }
}

fn packet(site: usize, up: bool, number: u32) -> Vec<u8> {
    let edge = inner_address(site);
    match up {
        true => udp(edge, SERVER, PORT, number, LEN),
        false => udp(SERVER, edge, PORT, number, LEN),
    }
}

/// Bytes of its packets that one direction of a link carries in a step, if nothing else does.
pub(super) fn carried(link: &Config) -> f64 {
    let headers = headers::before(Form::Numbered, LEN, PACKET_NUMBER);
    let headers: usize = headers.iter().map(|part| part.bytes).sum();
    let on_wire = LEN + headers + TAG + UDP_OVERHEAD + link.frame_overhead;
    let rate = link.rate.map_or(0, Bitrate::as_bps) as f64 / 8.0;
    let passes = 1.0 - link.loss.ratio().unwrap_or(1.0);
    rate * STEP.as_secs_f64() * passes * LEN as f64 / on_wire as f64
}

/// The least that arrived in a window, as a part of what the best link carries; an error if it is
/// too little. `arrived` are bytes in each step, of which the best link carries `best`.
fn judge(arrived: &[u64], best: f64) -> Result<f64, String> {
    let part = |window: &[u64]| window.iter().sum::<u64>() as f64 / (best * WINDOW as f64);
    let least = arrived.windows(WINDOW).map(part).reduce(f64::min);
    let least = least.ok_or("nobody looked for ten seconds")?;
    if least < LEAST {
        let mbit = best * 8.0 / STEP.as_secs_f64() / 1e6;
        let seconds = arrived.chunks(WINDOW / 10);
        let percent = |second: &[u64]| {
            let part = second.iter().sum::<u64>() as f64 / (best * second.len() as f64);
            (part * 100.0) as u32
        };
        let percent: Vec<u32> = seconds.map(percent).collect();
        return Err(format!(
            "in ten seconds there came out {:.1} % of what the best link carries, {mbit:.1} Mbit/s \
             (by seconds: {percent:?})",
            least * 100.0
        ));
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use sennit_netem::Loss;

    use super::*;

    /// What the best link carries in a step, in the records below.
    const BEST: f64 = 100_000.0;

    /// A record of steps in each of which so much arrived.
    fn record(arrived: u64) -> Vec<u64> {
        vec![arrived; JUDGED]
    }

    #[test]
    fn what_falls_short_of_the_best_link_for_ten_seconds_is_told() {
        assert_eq!(judge(&record(95_000), BEST), Ok(0.95));
        let told = judge(&record(84_000), BEST).unwrap_err();
        assert!(
            told.contains("84.0 % of what the best link carries, 8.0 Mbit/s"),
            "{told}"
        );

        let mut late = record(100_000);
        late[JUDGED - WINDOW..].fill(80_000);
        assert!(judge(&late, BEST).is_err(), "the last window counts");
        let mut silent = record(100_000);
        silent[50..66].fill(0);
        assert!(
            judge(&silent, BEST).is_err(),
            "nothing for more than one and a half seconds"
        );
    }

    #[test]
    fn what_is_made_good_within_ten_seconds_is_not() {
        let mut dip = record(100_000);
        dip[50..59].fill(0);
        assert_eq!(judge(&dip, BEST), Ok(0.91));
    }

    #[test]
    fn too_short_a_record_proves_nothing() {
        assert!(judge(&record(100_000)[..WINDOW - 1], BEST).is_err());
    }

    #[test]
    fn a_link_carries_its_rate_without_headers_and_losses() {
        let link = Config {
            rate: Some(Bitrate::mbit(8)),
            ..Config::default()
        };
        let whole = carried(&link);
        assert!(
            (90_000.0..96_000.0).contains(&whole),
            "{whole} of 100,000 bytes"
        );
        let lossy = carried(&Config {
            loss: Loss::Random(0.5),
            ..link
        });
        assert!((lossy * 2.0 - whole).abs() < 1.0, "{lossy}");
    }
}
