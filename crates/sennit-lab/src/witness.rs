//! `sennit lab witness`: does `sennit test` find on a link what others find on the same one?
//!
//! An emulated link is built and checked, and everything goes over it in one run, in rounds: ping,
//! irtt, iperf3's UDP at half the rate and its TCP at all there is room for, a plain quinn, and
//! `sennit test` for the same, on its own stack and on quinn. What is compared are the medians of
//! the rounds. Where all is filled, what each found is divided by what its headers leave of the
//! rate ([`sennit_predict`]), because TCP and QUIC have other headers.
//!
//! Over a bare pair of devices (`--bare`) nothing limits but this machine: how much `sennit test`
//! carries on its own stack stands beside what it carries on quinn.

mod bare;
mod line;
mod tool;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use sennit_load::quantile;
use sennit_netem::{Bitrate, Direction, LinkSpec};
use sennit_predict::{Counts, Load, Medium, predict};
use sennit_report::{Block, Report, Section};

use crate::draft;
use crate::error::Error;
use crate::host::Role;
use crate::lab::Lab;
use crate::plan;
use crate::report::{Results, made};
use crate::run::{self, Options, play};
use crate::scenario::Scenario;
use crate::scratch::Scratch;
use crate::traffic::{Figures, PingFigures, UdpFigures};
use crate::tunnel::Programs;
use line::{Alike, Found, Line};
use tool::{Irtt, Messages, Said, Tester, ours};

/// Two tools agree if they differ by no more than this share.
const ALIKE: f64 = 0.02;
/// Times that differ by no more are alike, in milliseconds: an echo is answered by the kernel, a
/// probe by a program.
const ALIKE_MS: f64 = 0.3;
/// Standard deviations by which chance sets two tools apart, at most.
const SIGMAS: f64 = 3.0;
/// Payload of a message, and of iperf3's datagrams.
const MESSAGE: u16 = 1000;
/// Between two round trips of each tool, in milliseconds: that of `sennit test`'s probes.
const PROBE_MS: u16 = 20;
/// Congestion control has found the rate after so many seconds.
const WARM_UP: u32 = 3;
/// Payload of a message where few are sent, about as many as irtt's.
const FEW_BYTES: u16 = 100;
/// The link of the scenario.
const LINK: &str = "l";

#[derive(Debug, Args)]
pub(crate) struct WitnessArgs {
    /// A link, like 20/15/1%; may be given several times
    #[arg(long = "link", value_name = "LINK", default_values = ["50/10", "200/5", "20/15±4/1%"])]
    links: Vec<LinkSpec>,
    /// How long each tool measures, in seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// How many times everything is measured, all tools in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Fill a pair of devices with nothing between them, instead of links
    #[arg(long, conflicts_with = "links")]
    bare: bool,
    /// Write a page with the tables too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Measures every link, or the bare pair; whether all tools agree.
pub(crate) fn run(args: &WitnessArgs, programs: &Programs) -> Result<bool, Error> {
    let draft = args.out.as_deref().map(draft::begin).transpose()?;
    let mut page = made(Report::new("Witnesses"));
    let mut agree = true;
    let links = args.links.iter().map(Some);
    let places: Vec<_> = if args.bare {
        vec![None]
    } else {
        links.collect()
    };
    for link in places {
        let name = link.map_or("a bare pair of devices".to_owned(), ToString::to_string);
        let (lines, remarks) = rounds(args, link, programs)?;
        let table = line::table(&name, &lines);
        print!("{}", line::text(&table));
        for remark in &remarks {
            println!("{remark}");
        }
        println!();
        agree &= lines.iter().all(Line::agrees);
        page = page.with(Section::new(name).with(Block::Table(table)));
    }
    println!("{}", verdict(agree));
    if let Some(draft) = draft {
        draft::finish(draft, &page.lede(verdict(agree)).html())?;
    }
    Ok(agree)
}

fn verdict(agree: bool) -> &'static str {
    match agree {
        true => "All tools agree.",
        false => "Some tools do not agree: see the lines with a *.",
    }
}

/// What all tools found, round by round, and what to know of the runs.
fn rounds(
    args: &WitnessArgs,
    link: Option<&LinkSpec>,
    programs: &Programs,
) -> Result<(Vec<Line>, Vec<String>), Error> {
    let mut lines: Vec<Line> = Vec::new();
    let mut remarks = Vec::new();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        let (found, more) = match link {
            Some(link) => measure(link, args.seconds, round, programs)?,
            None => bare::measure(args.seconds, programs)?,
        };
        for line in found {
            match lines.iter_mut().find(|it| it.what == line.what) {
                Some(before) => before.add(line),
                None => lines.push(line),
            }
        }
        remarks.extend(more);
    }
    if link.is_some() && !Irtt::is_here() {
        remarks.push("irtt is not installed, so nobody but ping was asked for round trips".into());
    }
    remarks.dedup();
    Ok((lines, remarks))
}

/// Builds a lab and plays the steps of the tools that are not ours, all of which have to work.
fn played(scenario: &Scenario, text: &str, programs: &Programs) -> Result<(Lab, Results), Error> {
    let scratch = Scratch::create()?;
    let options = Options {
        programs: programs.clone(),
        out: scratch.path().to_owned(),
        repeat: 1,
    };
    let (lab, results) = play(scenario, text, &options, &mut |what| eprintln!("{what}"))?;
    match results.failures().into_iter().next() {
        Some(reason) => Err(Error::Traffic {
            name: "witness".into(),
            reason,
        }),
        None => Ok((lab, results)),
    }
}

/// One round over a link, whose chance is that of a seed.
fn measure(
    link: &LinkSpec,
    seconds: u32,
    seed: u32,
    programs: &Programs,
) -> Result<(Vec<Line>, Vec<String>), Error> {
    let rate = link.down.rate.filter(|_| link.down.trace.is_none());
    let rate = rate.ok_or_else(|| {
        Error::Usage(format!(
            "link {link} needs a rate, and one that stands still"
        ))
    })?;
    let text = scenario(link, rate, seconds, seed);
    let scenario = Scenario::parse(&text)?;
    let (lab, results) = played(&scenario, &text, programs)?;
    run::redirect(&lab, "add", LINK)?;
    let irtt = Irtt::is_here().then(|| Irtt::run(&lab, seconds));
    let tests = Tests::run(&lab, link, rate, seconds, programs)?;
    let lines = lines(link, rate, &results, irtt.transpose()?, &tests)?;
    Ok((lines, results.remarks()))
}

/// The steps of the tools that are not ours.
fn scenario(link: &LinkSpec, rate: Bitrate, seconds: u32, seed: u32) -> String {
    let half = rate.as_bps() as f64 / 2e6;
    let mut text = format!(
        "name = \"witness\"\nseed = {seed}\n[[link]]\nname = \"{LINK}\"\nspec = \"{link}\"\n"
    );
    let mut step = |name: &str, seconds: u32, traffic: &str| {
        let _ = writeln!(
            text,
            "[[step]]\nname = \"{name}\"\nseconds = {seconds}\n[[step.traffic]]\n\
             via = \"link:{LINK}\"\nfrom = \"edge\"\n{traffic}"
        );
    };
    let ping = format!("kind = \"ping\"\ninterval_ms = {PROBE_MS}");
    step("ping", seconds, &ping);
    let udp = format!("kind = \"udp\"\nrate_mbit = {half}\nbytes = {MESSAGE}");
    step("udp", seconds, &udp);
    if is_filled(link) {
        let all = "direction = \"down\"";
        step("tcp", seconds + WARM_UP, &format!("kind = \"tcp\"\n{all}"));
        step(
            "quic",
            seconds + WARM_UP,
            &format!("kind = \"quic\"\n{all}"),
        );
    }
    text
}

/// Over a link that loses packets congestion control decides what is carried, and not headers.
fn is_filled(link: &LinkSpec) -> bool {
    link.down.loss.ratio() == Some(0.0)
}

/// What `sennit test` said.
struct Tests {
    /// Of a few messages, which take no room.
    few: [Said; 2],
    /// Of messages at half the rate.
    half: [Said; 2],
    /// Only over a link that can be filled.
    filled: Option<[Said; 2]>,
}

impl Tests {
    fn run(
        lab: &Lab,
        link: &LinkSpec,
        rate: Bitrate,
        seconds: u32,
        programs: &Programs,
    ) -> Result<Self, Error> {
        let tester = Tester {
            lab,
            programs,
            far: Role::Server,
            address: plan::SERVER,
        };
        let seconds = seconds.to_string();
        let messages = |bytes: u16, rate: u64| {
            let (bytes, rate) = (bytes.to_string(), rate.to_string());
            let cc = ["--cc", "bbr", "--duration", &seconds];
            tester.both(&[&["--message", &bytes, "--rate", &rate], &cc[..]].concat())
        };
        let warm_up = WARM_UP.to_string();
        let cc = ["--cc", "cubic", "--warmup", &warm_up];
        let filled = || tester.both(&[&cc[..], &["--duration", &seconds]].concat());
        let few = u64::from(FEW_BYTES) * 8 * 1000 / u64::from(PROBE_MS);
        Ok(Self {
            few: messages(FEW_BYTES, few)?,
            half: messages(MESSAGE, rate.as_bps() / 2)?,
            filled: is_filled(link).then(filled).transpose()?,
        })
    }
}

/// What everybody found, thing by thing.
fn lines(
    link: &LinkSpec,
    rate: Bitrate,
    results: &Results,
    irtt: Option<Irtt>,
    tests: &Tests,
) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    if let Some(Figures::Ping(ping)) = figures(results, "ping") {
        lines.extend(round_trips(link, ping, irtt, &tests.few));
    }
    if let Some(irtt) = irtt {
        lines.push(one_way(irtt, &tests.few));
    }
    if let Some(Figures::Udp(udp)) = figures(results, "udp") {
        lines.extend(half_of_the_rate(link, rate, udp, &tests.half));
    }
    if let Some(filled) = &tests.filled {
        lines.push(all_there_is(link, results, filled)?);
    }
    Ok(lines)
}

fn figures<'a>(results: &'a Results, step: &str) -> Option<&'a Figures> {
    let step = results.steps.iter().find(|it| it.name == step)?;
    step.traffic.first()?.figures.as_ref()
}

/// Their median, and how much they vary.
fn round_trips(
    link: &LinkSpec,
    ping: &PingFigures,
    irtt: Option<Irtt>,
    said: &[Said; 2],
) -> [Line; 2] {
    let delay = (link.up.delay + link.down.delay).as_secs_f64() * 1e3;
    let found = |ping: Option<f64>, irtt: Option<f64>, ours: Vec<Found>| {
        let ping = ping.map(|it| Found::new("ping", it * 1e3));
        let irtt = irtt.map(|it| Found::new("irtt", it * 1e3));
        ping.into_iter().chain(irtt).chain(ours).collect()
    };
    let (median, late) = (chance_of(ping, 0.5), chance_of(ping, 0.95));
    let ms = |seconds: Option<f64>| seconds.map(|it| it * 1e3);
    let jitter = ping.p95_seconds.zip(ping.p50_seconds);
    [
        Line {
            what: "round trip",
            unit: "ms",
            asked: Some(delay),
            found: found(
                ping.p50_seconds,
                irtt.map(|irtt| irtt.p50),
                ours(said, |said| ms(said.rtt.loaded.p50_seconds)),
            ),
            alike: Alike::Within(ALIKE_MS + median * f64::sqrt(2.0)),
        },
        Line {
            what: "its jitter, P95 − P50",
            unit: "ms",
            asked: None,
            found: found(
                jitter.map(|(p95, p50)| p95 - p50),
                irtt.map(|irtt| irtt.jitter),
                ours(said, |said| ms(said.rtt.jitter_seconds)),
            ),
            alike: Alike::Within(ALIKE_MS + median.hypot(late) * f64::sqrt(2.0)),
        },
    ]
}

/// How far chance sets this quantile of so many round trips off, in milliseconds: what lies within
/// [`SIGMAS`] of its rank.
fn chance_of(ping: &PingFigures, share: f64) -> f64 {
    let times: Vec<f64> = ping.answers_seconds.iter().copied().flatten().collect();
    let ranks = SIGMAS * (share * (1.0 - share) / times.len().max(1) as f64).sqrt();
    let at = |share: f64| quantile(&times, share.clamp(0.0, 1.0)).unwrap_or(0.0);
    (at(share + ranks) - at(share - ranks)) / 2.0 * 1e3
}

/// How the delays of neighbours differ, to the client.
fn one_way(irtt: Irtt, said: &[Said; 2]) -> Line {
    let mean = |said: &Said| Some(messages(said)?.ipdv.mean_seconds? * 1e3);
    let ours = ours(said, mean);
    let theirs = Found::new("irtt", irtt.ipdv * 1e3);
    let chance = irtt.ipdv_deviation * 1e3 / (irtt.count.max(1) as f64).sqrt();
    Line {
        what: "IPDV, down, mean",
        unit: "ms",
        asked: None,
        found: [theirs].into_iter().chain(ours).collect(),
        alike: Alike::Within(ALIKE_MS + SIGMAS * chance * f64::sqrt(2.0)),
    }
}

fn half_of_the_rate(
    link: &LinkSpec,
    rate: Bitrate,
    udp: &UdpFigures,
    said: &[Said; 2],
) -> [Line; 2] {
    let loss = link.down.loss.ratio().unwrap_or(0.0);
    let half = rate.as_bps() as f64 / 2e6 * (1.0 - loss);
    // Which packets are lost is chance, for each tool anew.
    let sent = said.iter().filter_map(|it| Some(messages(it)?.sent));
    let fewest = sent.chain([udp.packets]).min().unwrap_or(1).max(1);
    let chance = SIGMAS * (2.0 * loss * (1.0 - loss) / fewest as f64).sqrt();
    let theirs = |value: f64| [Found::new("iperf3", value)].into_iter();
    let lost = udp.lost as f64 / udp.packets.max(1) as f64 * 100.0;
    [
        Line {
            what: "half of the rate",
            unit: "Mbit/s",
            asked: Some(half),
            found: theirs(udp.goodput * 8.0 / 1e6)
                .chain(ours(said, |said| Some(said.goodput_bits_per_second / 1e6)))
                .collect(),
            alike: Alike::Within(half * (ALIKE + chance)),
        },
        Line {
            what: "lost",
            unit: "%",
            asked: Some(loss * 100.0),
            found: theirs(lost)
                .chain(ours(said, |said| Some(messages(said)?.loss_ratio * 100.0)))
                .collect(),
            alike: Alike::Within((chance + 0.001) * 100.0),
        },
    ]
}

fn all_there_is(link: &LinkSpec, results: &Results, filled: &[Said; 2]) -> Result<Line, Error> {
    let leaves = |load: &Load| leaves(load, link);
    let (tcp, quic) = (leaves(&Load::tcp())?, leaves(&Load::quic())?);
    let of_headers = |step: &str, tool: &'static str, leaves: f64| {
        let bytes = steady(figures(results, step)?)?;
        Some(Found::new(tool, bytes * 8.0 / leaves * 100.0))
    };
    let theirs = [
        of_headers("tcp", "iperf3, TCP", tcp),
        of_headers("quic", "plain quinn", quic),
    ];
    let ours = ours(filled, |said| {
        Some(said.goodput_bits_per_second / quic * 100.0)
    });
    Ok(Line {
        what: "all there is room for",
        unit: "% of what headers leave",
        asked: Some(100.0),
        found: theirs.into_iter().flatten().chain(ours).collect(),
        alike: Alike::Within(ALIKE * 100.0),
    })
}

fn messages(said: &Said) -> Option<&Messages> {
    said.down.as_ref()?.messages.as_ref()
}

/// Bytes a second once congestion control has found the rate.
fn steady(figures: &Figures) -> Option<f64> {
    let span = std::time::Duration::from_secs(WARM_UP.into());
    figures.bulk()?.bins.mean(span)
}

/// What headers leave of the link's rate downward, in bits a second.
fn leaves(load: &Load, link: &LinkSpec) -> Result<f64, Error> {
    let medium = Medium {
        counts: Counts::Frames,
        ..Medium::default()
    };
    let predicted = predict(load, &medium, std::slice::from_ref(link), Direction::Down);
    let predicted = predicted.map_err(|error| Error::Usage(error.to_string()))?;
    Ok(predicted.goodput_bits_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lossy_link_is_not_filled() {
        let rate = Bitrate::from_mbit(10.0).expect("a rate");
        let steps = |link: &str| {
            let link: LinkSpec = link.parse().expect("a link");
            let text = scenario(&link, rate, 4, 1);
            Scenario::parse(&text).expect("it can be played").step.len()
        };
        assert_eq!((steps("10/5"), steps("10/5/1%")), (4, 2));
    }

    #[test]
    fn headers_leave_less_of_a_frame_to_quic_than_to_tcp() {
        let link = "10/5".parse().expect("a link");
        let tcp = leaves(&Load::tcp(), &link).expect("it fits") / 10e6;
        let quic = leaves(&Load::quic(), &link).expect("it fits") / 10e6;
        assert!((tcp - 1448.0 / 1514.0).abs() < 1e-9, "{tcp}");
        assert!((quic - 1419.0 / 1494.0).abs() < 1e-3, "{quic}");
    }

    #[test]
    fn what_chance_does_to_a_quantile_is_seen_in_its_neighbours() {
        let answers_seconds = (1..=200).map(|ms| Some(f64::from(ms) / 1e3)).collect();
        let ping = PingFigures {
            answers_seconds,
            ..PingFigures::default()
        };
        // 3 √(0.25 / 200) and 3 √(0.0475 / 200) of 200 ranks, which are cut at the last.
        assert!((chance_of(&ping, 0.5) - 21.2).abs() < 1.0);
        assert!((4.5..=10.0).contains(&chance_of(&ping, 0.95)));
        assert_eq!(chance_of(&PingFigures::default(), 0.5), 0.0);
    }
}
