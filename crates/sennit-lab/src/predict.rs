//! `sennit predict --check`: the same load over emulated links, and how far the sum was off.
//!
//! What is predicted becomes a scenario: links that count as the prediction does, and a step for
//! each link, or one over all of them through the tunnel. Goodput is what the receiver got after
//! the first seconds, in which congestion control finds the rate.

use std::fmt::Write as _;
use std::time::Duration;

use sennit_load::Echo;
use sennit_netem::{Bitrate, Config, LinkSpec};
use sennit_predict::{
    HeadersWord, Inner, LinkFigures, Load, LoadArgs, Medium, MediumArgs, PACKET_NUMBER,
    PredictArgs, PredictError, Prediction, Sweep, SweepArgs, What,
};
use serde::Serialize;

use crate::draft;
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::report::{Results, StepResult, made};
use crate::run::{Options, play};
use crate::scenario::Scenario;
use crate::scratch::Scratch;
use crate::selfcheck;
use crate::tunnel::Programs;

/// Congestion control has found the rate.
const WARM_UP: Duration = Duration::from_secs(2);

/// UDP is offered so much more than there is room for.
const OFFERED: f64 = 1.1;

/// An echo that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// The least MTU of a device with IPv6.
const MTU_LEAST: usize = 1280;

/// Beside a prediction.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    prediction: &'a Prediction,
    measured_bits_per_second: f64,
    /// Of the prediction.
    difference: f64,
    remarks: Vec<String>,
}

/// Predicts, measures, and prints both.
pub(crate) fn run(args: &PredictArgs, programs: Programs) -> Result<(), Error> {
    let load = match &args.what {
        What::RttSweep(args) => return sweep(args),
        what => what.load().expect("all but the sweep are loads"),
    };
    let predicted = load.predict();
    let predicted = predicted.map_err(|error| Error::Usage(error.to_string()))?;
    if !load.medium.json() {
        print!("{}", load.print(&predicted));
    }
    if !load.medium.check() {
        if load.medium.json() {
            print!("{}", load.print(&predicted));
        }
        return Ok(());
    }
    let text = scenario(&args.what, &load, &predicted)?;
    let results = measure(&text, programs)?;
    report(load.medium, &predicted, &results)
}

/// From the edge to the hub, with nothing but the link between them.
fn sweep(args: &SweepArgs) -> Result<(), Error> {
    let wrong = |error: PredictError| Error::Usage(error.to_string());
    // The link has addresses of both kinds, and the sum is for one of IPv4.
    let mut sweep = Sweep::new(args, false).map_err(wrong)?;
    let Some(link) = &args.link else {
        return Err(Error::Usage("--check needs --link".into()));
    };
    let page = args.report.as_deref().map(draft::begin).transpose()?;
    let medium = args.medium(false);
    refuse_padding(sweep.is_padded(&medium))?;
    let mut text = String::from("name = \"rtt-sweep\"\n");
    write_link(&mut text, 1, link, &medium);
    let lab = Scenario::parse(&text)?.build()?;
    selfcheck::verdict(&selfcheck::run(&lab)?)?;
    let hub = lab.link("l1")?.subnet().hub().ip(medium.ip.v6);
    let opened = lab.host(Role::Edge).netns().run(|| Echo::open(hub));
    let mut echo = opened
        .and_then(|echo| echo)
        .doing(|| "open an ICMP socket on the edge".into())?;
    lab.reset_counters();
    sweep
        .measure(|payload| echo.fastest(payload, args.count, PATIENCE))
        .doing(|| "measure round trips".into())?;
    if !sweep.is_answered() {
        return Err(Error::Traffic {
            name: "rtt-sweep".into(),
            reason: "no echo came back: the link loses too many".into(),
        });
    }
    let strain = lab.strain();
    if strain.over_1ms > 0 {
        let late = strain.late_max_seconds * 1e3;
        eprintln!(
            "NOT EXACT, this machine was busy: packets left the link up to {late:.1} ms late, and \
             the fastest of a size may be one of them"
        );
    }
    if let Some(page) = page {
        draft::finish(page, &made(sweep.page(args)).html())?;
    }
    print!("{}", sweep.print(args));
    Ok(())
}

fn measure(text: &str, programs: Programs) -> Result<Results, Error> {
    let scratch = Scratch::create()?;
    let options = Options {
        programs,
        out: scratch.path().to_owned(),
        repeat: 1,
    };
    let scenario = Scenario::parse(text)?;
    let (_lab, results) = play(&scenario, text, &options, &mut |what| eprintln!("{what}"))?;
    Ok(results)
}

fn report(args: &MediumArgs, predicted: &Prediction, results: &Results) -> Result<(), Error> {
    if let Some(failure) = results.failures().into_iter().next() {
        return Err(Error::Traffic {
            name: predicted.what.clone(),
            reason: failure,
        });
    }
    let steps = results.steps.iter().map(goodput);
    let measured = steps.sum::<Option<f64>>().ok_or_else(|| Error::Traffic {
        name: predicted.what.clone(),
        reason: "nothing was measured".into(),
    })?;
    let expected = predicted.goodput_bits_per_second;
    let checked = Checked {
        prediction: predicted,
        measured_bits_per_second: measured,
        difference: measured / expected - 1.0,
        remarks: results.remarks(),
    };
    if args.json() {
        let json = serde_json::to_string_pretty(&checked);
        println!("{}", json.expect("it holds only numbers, texts and lists"));
        return Ok(());
    }
    println!("predicted   {:9.3} Mbit/s", expected / 1e6);
    println!("measured    {:9.3} Mbit/s", measured / 1e6);
    println!("difference  {:+9.2} %", checked.difference * 100.0);
    for remark in &checked.remarks {
        println!("{remark}");
    }
    Ok(())
}

/// Bits per second of a step, once it was under way.
fn goodput(step: &StepResult) -> Option<f64> {
    let bins = step.traffic.first()?.figures.as_ref()?.bins()?;
    bins.mean(WARM_UP).map(|bytes| bytes * 8.0)
}

/// The scenario of a prediction.
fn scenario(what: &What, load: &LoadArgs<'_>, predicted: &Prediction) -> Result<String, Error> {
    let args = load.medium;
    refuse(what, load)?;
    refuse_padding(predicted.is_padded())?;
    let mut text = String::from("name = \"predict\"\n");
    for (number, link) in (1..).zip(args.links()) {
        write_link(&mut text, number, &link, &args.medium());
    }
    let tunnel = match what {
        What::Tunnel(tunnel) => Some(tunnel),
        What::Tcp(_) | What::Udp(_) | What::Quic(_) | What::RttSweep(_) => None,
    };
    if let Some(tunnel) = tunnel {
        let (mtu, fec) = (tunnel.inner_mtu, tunnel.fec);
        let headers = match tunnel.headers {
            HeadersWord::Thin => "thin",
            HeadersWord::Whole => "whole",
        };
        let _ = writeln!(
            text,
            "[tunnel]\nedge = {{ mtu = {mtu} }}\nhub = {{ mtu = {mtu} }}\n\
             [[tunnel.class]]\nname = \"default\"\nheaders = \"{headers}\"\nfec = \"{fec}\""
        );
    }
    let inner = tunnel.map(|tunnel| tunnel.inner);
    let kind = match (what, inner) {
        (What::Udp(_), _) | (_, Some(Inner::Udp)) => "udp",
        (What::Quic(_), _) | (_, Some(Inner::Quic)) => "quic",
        (What::Tcp(_) | What::Tunnel(_) | What::RttSweep(_), _) => "tcp",
    };
    let v6 = tunnel.map_or(args.medium().ip.v6, |tunnel| tunnel.inner_ipv6);
    let steps = match tunnel {
        Some(_) => vec![("tunnel".into(), predicted.goodput_bits_per_second)],
        None => plain_steps(predicted),
    };
    let (seconds, direction) = (args.seconds() + WARM_UP.as_secs() as u32, args.direction());
    for (via, room) in steps {
        let _ = writeln!(
            text,
            "[[step]]\nname = \"{via}\"\nseconds = {seconds}\n[[step.traffic]]\nkind = \"{kind}\"\n\
             via = \"{via}\"\ndirection = \"{direction}\"\nipv6 = {v6}"
        );
        if tunnel.is_none() {
            text.push_str("from = \"edge\"\n");
        }
        if kind == "udp" {
            let mbit = room * OFFERED / 1e6;
            let bytes = predicted.payload_bytes;
            let _ = writeln!(text, "rate_mbit = {mbit}\nbytes = {bytes}");
        }
    }
    Ok(text)
}

/// A step over each link, and the payload in bits per second that there is room for: also for that
/// of packets that will be lost.
fn plain_steps(predicted: &Prediction) -> Vec<(String, f64)> {
    let step = |(number, link): (i32, &LinkFigures)| {
        let room = link.goodput_bits_per_second / link.arrives;
        (format!("link:l{number}"), room)
    };
    (1..).zip(&predicted.links).map(step).collect()
}

/// What the kernel or the emulator would do otherwise than was asked.
fn refuse(what: &What, load: &LoadArgs<'_>) -> Result<(), Error> {
    let wrong = |reason: &str| Err(Error::Usage(format!("--check {reason}")));
    if let Some(reason) = otherwise(&load.load) {
        return wrong(reason);
    }
    let ip = load.medium.medium().ip;
    if !(MTU_LEAST..=9000).contains(&ip.mtu) {
        return wrong("emulates links with an MTU of 1280 to 9000");
    }
    if ip.v6 && matches!(what, What::Tunnel(_)) {
        return wrong("measures the tunnel over IPv4");
    }
    Ok(())
}

/// What programs here do otherwise than this load, if anything.
fn otherwise(load: &Load) -> Option<&'static str> {
    match load {
        Load::Tcp { .. } if *load != Load::tcp() => Some(
            "measures Linux's TCP, whose options are 12 bytes and which acknowledges two segments \
             at a time: leave --options and --ack-every out",
        ),
        Load::Quic { .. } if *load != Load::quic() => Some(
            "measures quinn, with connection IDs of 8 bytes, datagrams of 1452 at most, and packet \
             numbers and acknowledgements as it likes: leave out what says otherwise",
        ),
        Load::Tunnel(tunnel) if tunnel.bare => {
            Some("measures two Sennits, which number their packets: leave --bare out")
        }
        Load::Tunnel(tunnel) if tunnel.packet_number != PACKET_NUMBER => Some(
            "measures packet numbers of the lengths that Sennit chooses: leave --packet-number out",
        ),
        Load::Tunnel(tunnel) => otherwise(&tunnel.inner),
        Load::Tcp { .. } | Load::Udp { .. } | Load::Quic { .. } => None,
    }
}

/// An emulated link adds the same to every packet, however short its frame is.
fn refuse_padding(is_padded: bool) -> Result<(), Error> {
    if !is_padded {
        return Ok(());
    }
    let reason = "--check emulates links that pad no frames, and a frame here is shorter than \
                  Ethernet's least: send more, or count with --counts frames";
    Err(Error::Usage(reason.into()))
}

fn write_link(text: &mut String, number: usize, link: &LinkSpec, medium: &Medium) {
    let (mtu, bytes) = (medium.ip.mtu, medium.frame_bytes());
    let _ = writeln!(
        text,
        "[[link]]\nname = \"l{number}\"\nmtu = {mtu}\nframe_bytes = {bytes}\nshared = {}",
        medium.half_duplex
    );
    for (way, config) in [("up", &link.up), ("down", &link.down)] {
        let Config {
            rate,
            delay,
            jitter,
            loss,
            ..
        } = config;
        let mbit = rate.map_or(0.0, |rate: Bitrate| rate.as_bps() as f64 / 1e6);
        let percent = loss.ratio().unwrap_or(0.0) * 100.0;
        let [ms, jitter_ms] = [*delay, jitter.spread].map(|it| it.as_secs_f64() * 1e3);
        let _ = writeln!(
            text,
            "{way} = {{ rate_mbit = {mbit}, delay_ms = {ms}, loss_percent = {percent}, \
             jitter_ms = {jitter_ms}, reorder = {} }}",
            jitter.reorder
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use sennit_netem::Direction;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PredictArgs,
    }

    fn written(line: &str) -> Result<String, Error> {
        let line = Line::parse_from(["predict"].into_iter().chain(line.split(' ')));
        let load = line.args.what.load().expect("a load");
        let predicted = load.predict().expect("it fits");
        scenario(&line.args.what, &load, &predicted)
    }

    #[test]
    fn what_is_predicted_can_be_played() {
        for line in [
            "tcp --rate 10Mbit --rate 20Mbit --vlan 1",
            "udp --rate 10Mbit --pppoe --payload 512",
            "quic --link 10:2/5/1% --ipv6 --direction down",
            "tunnel --link 30/10 --link 8/30 --inner quic --inner-mtu 1300",
            "tunnel --link 30/10/5% --inner udp --fec rlc:1/8",
            "tcp --rate 10Mbit --half-duplex",
            "udp --rate 10Mbit --payload 16 --counts frames",
        ] {
            let text = written(line).expect("nothing is asked that cannot be");
            let scenario = Scenario::parse(&text).expect(line);
            assert!(!scenario.step.is_empty());
        }
    }

    #[test]
    fn the_link_that_is_played_is_the_one_that_was_named() {
        for link in ["10:2/5±2r/1%", "10/20±4", "30/10"] {
            let text = written(&format!("tcp --link {link}")).expect("it can be played");
            let spec = Scenario::parse(&text).expect("it is one").spec();
            let shape = &spec.expect("it can be built").links[0].shape;
            let asked: LinkSpec = link.parse().expect("a link");
            for direction in Direction::BOTH {
                let (played, asked) = (shape.way(direction), asked.way(direction));
                assert_eq!(
                    (played.rate, played.delay),
                    (asked.rate, asked.delay),
                    "{link}"
                );
                assert_eq!(played.jitter, asked.jitter, "{link}");
                assert_eq!(played.loss.ratio(), asked.loss.ratio(), "{link}");
            }
        }
    }

    #[test]
    fn udp_is_offered_more_than_a_lossy_link_has_room_for() {
        let offered = |line: &str| {
            let text = written(line).expect("it can be played");
            // Those of links stand in braces.
            let mut lines = text.lines();
            let rate = lines.find_map(|line| line.strip_prefix("rate_mbit = "));
            rate.expect("a rate").parse::<f64>().expect("a number")
        };
        let plain = offered("udp --rate 10Mbit");
        assert!((plain - 1.1 * 14720.0 / 1538.0).abs() < 1e-6, "{plain}");
        assert_eq!(offered("udp --rate 10Mbit --loss 20%"), plain);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for (line, part) in [
            ("tcp --rate 10Mbit --options 0", "options are 12"),
            ("tcp --rate 10Mbit --ack-every 4", "two segments"),
            ("quic --rate 10Mbit --packet-number 4", "quinn"),
            ("quic --rate 10Mbit --ack-every 10", "quinn"),
            ("tunnel --rate 10Mbit --bare", "number their packets"),
            ("tunnel --rate 10Mbit --options 0", "options are 12"),
            ("tunnel --rate 10Mbit --packet-number 4", "Sennit chooses"),
            ("tcp --rate 10Mbit --mtu 600", "1280 to 9000"),
            ("udp --rate 10Mbit --payload 16", "pad no frames"),
            // The second fragment has eight bytes.
            ("udp --rate 10Mbit --payload 1480", "pad no frames"),
        ] {
            let error = written(line).expect_err(line).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
