//! `sennit lab witness`: does `sennit test` find on a link what others find on the same one?
//!
//! One emulated link is built and checked, and everything goes over it in one run: ping, iperf3's
//! UDP at half the rate and its TCP at all there is room for, a plain quinn, and `sennit test` for
//! the same, on its own stack and on quinn. Where all is filled, what each found is divided by what
//! its headers leave of the rate ([`sennit_predict`]), because TCP and QUIC have other headers.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use sennit_netem::{Bitrate, Direction, LinkSpec};
use sennit_predict::{Counts, Load, Medium, predict};
use sennit_report::{Block, Report, Section, Table};
use serde::Deserialize;

use crate::error::{Doing, Error};
use crate::host::{self, Role, Running};
use crate::lab::Lab;
use crate::plan;
use crate::report::{Machine, Results};
use crate::run::{self, Options, play};
use crate::scenario::Scenario;
use crate::scratch::Scratch;
use crate::traffic::{Figures, PingFigures, UdpFigures};
use crate::tunnel::Programs;

/// Two tools agree if they differ by no more than this share.
const ALIKE: f64 = 0.02;
/// Round trips that differ by no more are alike, in milliseconds: an echo is answered by the
/// kernel, a probe by a program.
const ALIKE_MS: f64 = 0.3;
/// Payload of a message, and of iperf3's datagrams.
const MESSAGE: u16 = 1000;
/// Congestion control has found the rate after so many seconds.
const WARM_UP: u32 = 3;
/// Where the server of `sennit test` is, unless told otherwise.
const PORT: u16 = 4774;
/// The link of the scenario.
const LINK: &str = "l";

#[derive(Debug, Args)]
pub(crate) struct WitnessArgs {
    /// A link, like 20/15/1%; may be given several times
    #[arg(long = "link", value_name = "LINK", default_values = ["10/5", "30/20", "20/15/1%"])]
    links: Vec<LinkSpec>,
    /// How long each tool measures, in seconds
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Write a page with the tables too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// One thing that several tools measured.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    what: &'static str,
    unit: &'static str,
    /// As the link was asked for.
    asked: f64,
    /// Each tool with what it found; the first is not ours.
    found: Vec<(&'static str, f64)>,
    /// How far any may be from the first and be alike, in the unit.
    alike: f64,
}

/// What `sennit test client --json` prints, as far as it counts here.
#[derive(Debug, Deserialize)]
struct Said {
    goodput_bits_per_second: f64,
    down: Option<Way>,
    rtt: RoundTrips,
}

#[derive(Debug, Deserialize)]
struct Way {
    messages: Option<Messages>,
}

#[derive(Debug, Deserialize)]
struct Messages {
    sent: u64,
    loss_ratio: f64,
}

#[derive(Debug, Deserialize)]
struct RoundTrips {
    idle: Times,
}

#[derive(Debug, Deserialize)]
struct Times {
    p50_seconds: Option<f64>,
}

/// Measures every link; whether all tools agree.
pub(crate) fn run(args: &WitnessArgs, programs: &Programs) -> Result<bool, Error> {
    let mut page = Report::new("Witnesses")
        .fact("machine", Machine::here().to_string())
        .fact("command", crate::programs::command());
    let mut agree = true;
    for link in &args.links {
        let (lines, remarks) = measure(link, args.seconds, programs)?;
        let table = table(link, &lines);
        print!("{}", text(&table));
        for remark in &remarks {
            println!("{remark}");
        }
        println!();
        agree &= lines.iter().all(Line::agrees);
        page = page.with(Section::new(link.to_string()).with(Block::Table(table)));
    }
    println!("{}", verdict(agree));
    if let Some(out) = &args.out {
        let writing = || format!("write {}", out.display());
        std::fs::write(out, page.lede(verdict(agree)).html()).doing(writing)?;
    }
    Ok(agree)
}

fn verdict(agree: bool) -> &'static str {
    match agree {
        true => "All tools agree.",
        false => "Some tools do not agree: see the lines with a *.",
    }
}

/// What all tools found on a link, and what to know of the run.
fn measure(
    link: &LinkSpec,
    seconds: u32,
    programs: &Programs,
) -> Result<(Vec<Line>, Vec<String>), Error> {
    let rate = link.down.rate.filter(|_| link.down.trace.is_none());
    let rate = rate.ok_or_else(|| {
        Error::Scenario(format!(
            "link {link} needs a rate, and one that stands still"
        ))
    })?;
    let scratch = Scratch::create()?;
    let options = Options {
        programs: programs.clone(),
        out: scratch.path().to_owned(),
        repeat: 1,
    };
    let text = scenario(link, rate, seconds);
    let scenario = Scenario::parse(&text)?;
    let (lab, results) = play(&scenario, &text, &options, &mut |what| eprintln!("{what}"))?;
    if let Some(reason) = results.failures().into_iter().next() {
        let name = link.to_string();
        return Err(Error::Traffic { name, reason });
    }
    let tests = Tests::run(&lab, link, rate, seconds, programs)?;
    Ok((lines(link, rate, &results, &tests)?, results.remarks()))
}

/// The steps of the tools that are not ours.
fn scenario(link: &LinkSpec, rate: Bitrate, seconds: u32) -> String {
    let half = rate.as_bps() as f64 / 2e6;
    let mut text = format!("name = \"witness\"\n[[link]]\nname = \"{LINK}\"\nspec = \"{link}\"\n");
    let mut step = |name: &str, seconds: u32, traffic: &str| {
        let _ = writeln!(
            text,
            "[[step]]\nname = \"{name}\"\nseconds = {seconds}\n[[step.traffic]]\n\
             via = \"link:{LINK}\"\nfrom = \"edge\"\n{traffic}"
        );
    };
    step("ping", seconds, "kind = \"ping\"\ninterval_ms = 20");
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
    messages: [Said; 2],
    /// Only over a link that can be filled.
    filled: Option<[Said; 2]>,
}

/// The stacks of `sennit test`, and what the columns are called.
const STACKS: [(&str, &str); 2] = [("sennit", "sennit test"), ("quinn", "sennit test on quinn")];

impl Tests {
    fn run(
        lab: &Lab,
        link: &LinkSpec,
        rate: Bitrate,
        seconds: u32,
        programs: &Programs,
    ) -> Result<Self, Error> {
        run::redirect(lab, "add", LINK)?;
        let seconds = seconds.to_string();
        let half = format!("{}", rate.as_bps() / 2);
        let message = MESSAGE.to_string();
        let messages = ["--message", &message, "--rate", &half, "--cc", "bbr"];
        let warm_up = WARM_UP.to_string();
        let filled = ["--cc", "cubic", "--warmup", &warm_up];
        let both = |arguments: &[&str]| -> Result<[Said; 2], Error> {
            let [first, second] = STACKS.map(|(stack, _)| {
                eprintln!("sennit test, {stack}");
                let more = ["--stack", stack, "--duration", &seconds];
                one(lab, programs, stack, &[arguments, &more].concat())
            });
            Ok([first?, second?])
        };
        Ok(Self {
            messages: both(&messages)?,
            filled: is_filled(link).then(|| both(&filled)).transpose()?,
        })
    }
}

/// One run of `sennit test`, with a server of its own.
fn one(lab: &Lab, programs: &Programs, stack: &str, arguments: &[&str]) -> Result<Said, Error> {
    let address = format!("{}:{PORT}", plan::SERVER.text(false));
    let mut server = lab.host(Role::Server).command(&programs.sennit);
    server.args(["test", "server", "--listen", &address, "--stack", stack]);
    server.stderr(std::process::Stdio::null());
    // Ends with the test.
    let _server = Running::start(&mut server)?;
    let mut client = lab.host(Role::Edge).command(&programs.sennit);
    client.args(["test", "client", &address, "--json"]);
    let output = host::run(client.args(arguments))?;
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Traffic {
        name: "sennit test".into(),
        reason: error.to_string(),
    })
}

/// What everybody found, thing by thing.
fn lines(
    link: &LinkSpec,
    rate: Bitrate,
    results: &Results,
    tests: &Tests,
) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    if let Some(Figures::Ping(ping)) = figures(results, "ping") {
        lines.push(round_trip(link, ping, tests));
    }
    if let Some(Figures::Udp(udp)) = figures(results, "udp") {
        lines.extend(half_of_the_rate(link, rate, udp, tests));
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

/// What our stacks said of a thing, those that said anything.
fn ours(of: &dyn Fn(&Said) -> Option<f64>, said: &[Said; 2]) -> Vec<(&'static str, f64)> {
    let named = STACKS.iter().zip(said);
    named
        .filter_map(|((_, name), said)| Some((*name, of(said)?)))
        .collect()
}

fn round_trip(link: &LinkSpec, ping: &PingFigures, tests: &Tests) -> Line {
    let delay = (link.up.delay + link.down.delay).as_secs_f64() * 1e3;
    let theirs = ping.p50_seconds.map(|it| ("ping", it * 1e3));
    let ours = ours(
        &|said| Some(said.rtt.idle.p50_seconds? * 1e3),
        &tests.messages,
    );
    Line::new("round trip", "ms", delay, theirs, ours, ALIKE_MS)
}

fn half_of_the_rate(link: &LinkSpec, rate: Bitrate, udp: &UdpFigures, tests: &Tests) -> [Line; 2] {
    let loss = link.down.loss.ratio().unwrap_or(0.0);
    let half = rate.as_bps() as f64 / 2e6 * (1.0 - loss);
    // Which packets are lost is chance, for each tool anew.
    let sent = tests
        .messages
        .iter()
        .filter_map(|it| Some(messages(it)?.sent));
    let fewest = sent.chain([udp.packets]).min().unwrap_or(1).max(1);
    let chance = 3.0 * (2.0 * loss * (1.0 - loss) / fewest as f64).sqrt();
    let goodput = Line::new(
        "half of the rate",
        "Mbit/s",
        half,
        Some(("iperf3", udp.goodput * 8.0 / 1e6)),
        ours(
            &|said| Some(said.goodput_bits_per_second / 1e6),
            &tests.messages,
        ),
        half * (ALIKE + chance),
    );
    let theirs = udp.lost as f64 / udp.packets.max(1) as f64 * 100.0;
    let lost = ours(
        &|said| Some(messages(said)?.loss_ratio * 100.0),
        &tests.messages,
    );
    let (theirs, alike) = (Some(("iperf3", theirs)), (chance + 0.001) * 100.0);
    [
        goodput,
        Line::new("lost", "%", loss * 100.0, theirs, lost, alike),
    ]
}

fn all_there_is(link: &LinkSpec, results: &Results, filled: &[Said; 2]) -> Result<Line, Error> {
    let leaves = |load: &Load| leaves(load, link);
    let (tcp, quic) = (leaves(&Load::tcp())?, leaves(&Load::quic())?);
    let theirs = figures(results, "tcp")
        .and_then(steady)
        .map(|it| ("iperf3", it * 8.0 / tcp * 100.0));
    let plain = figures(results, "quic")
        .and_then(steady)
        .map(|it| ("quinn", it * 8.0 / quic * 100.0));
    let ours = ours(
        &|said| Some(said.goodput_bits_per_second / quic * 100.0),
        filled,
    );
    Ok(Line::new(
        "all there is room for",
        "% of what headers leave",
        100.0,
        theirs,
        plain.into_iter().chain(ours).collect(),
        ALIKE * 100.0,
    ))
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
    let predicted = predicted.map_err(|error| Error::Scenario(error.to_string()))?;
    Ok(predicted.goodput_bits_per_second)
}

impl Line {
    fn new(
        what: &'static str,
        unit: &'static str,
        asked: f64,
        theirs: Option<(&'static str, f64)>,
        ours: Vec<(&'static str, f64)>,
        alike: f64,
    ) -> Self {
        let found = theirs.into_iter().chain(ours).collect();
        Self {
            what,
            unit,
            asked,
            found,
            alike,
        }
    }

    /// Whether everybody found what the first did.
    fn agrees(&self) -> bool {
        let first = self.found.first().map(|(_, value)| *value);
        first.is_some_and(|first| {
            let apart = |(_, value): &(_, f64)| (value - first).abs();
            self.found.iter().all(|found| apart(found) <= self.alike)
        })
    }
}

fn table(link: &LinkSpec, lines: &[Line]) -> Table {
    let head = [
        "",
        "unit",
        "asked",
        "found by",
        "",
        "at most apart",
        "agree",
    ];
    let mut table = Table::new(link.to_string(), head);
    for line in lines {
        for (index, (tool, value)) in line.found.iter().enumerate() {
            let first = index == 0;
            let once = |text: String| if first { text } else { String::new() };
            let mark = if line.agrees() { "yes" } else { "no *" };
            table.row([
                once(line.what.into()),
                once(line.unit.into()),
                once(format!("{:.3}", line.asked)),
                (*tool).to_owned(),
                format!("{value:.3}"),
                once(format!("{:.3}", line.alike)),
                once(mark.into()),
            ]);
        }
    }
    table
}

fn text(table: &Table) -> String {
    let rows = table
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
    let rows: Vec<Vec<&str>> = [table.head.iter().map(String::as_str).collect()]
        .into_iter()
        .chain(rows)
        .collect();
    let mut text = format!("{}\n", table.caption);
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let of_column = |row: &Vec<&str>| row[column].chars().count();
            let width = rows.iter().map(of_column).max().unwrap_or(0);
            let _ = write!(text, "{cell:width$}  ");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(found: &[(&'static str, f64)]) -> Line {
        Line {
            what: "lost",
            unit: "%",
            asked: 1.0,
            found: found.to_vec(),
            alike: 0.1,
        }
    }

    #[test]
    fn whoever_is_alone_with_a_figure_does_not_agree() {
        assert!(line(&[("iperf3", 1.0), ("sennit test", 1.09)]).agrees());
        let off = line(&[("iperf3", 1.0), ("sennit test", 1.0), ("quinn", 1.2)]);
        assert!(!off.agrees());
        assert!(!line(&[]).agrees(), "nothing was measured");
        let link: LinkSpec = "10/5/1%".parse().expect("a link");
        let text = text(&table(&link, &[off]));
        assert!(text.contains("no *") && text.contains("1.200"), "{text}");
    }

    #[test]
    fn a_lossy_link_is_not_filled() {
        let rate = Bitrate::from_mbit(10.0).expect("a rate");
        let steps = |link: &str| {
            let link: LinkSpec = link.parse().expect("a link");
            let text = scenario(&link, rate, 4);
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
}
