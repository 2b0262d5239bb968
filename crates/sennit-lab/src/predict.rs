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
    HeadersWord, Inner, Load, LoadArgs, Medium, MediumArgs, PredictArgs, PredictError, Prediction,
    Sweep, SweepArgs, What,
};
use serde::Serialize;

use crate::draft;
use crate::error::{Doing, Error};
use crate::host::Role;
use crate::report::{Results, StepResult};
use crate::run::{Options, play};
use crate::scenario::Scenario;
use crate::scratch::Scratch;
use crate::selfcheck;
use crate::tunnel::Programs;

/// Congestion control has found the rate.
const WARM_UP: Duration = Duration::from_secs(2);

/// UDP is offered so much more than what should arrive.
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
    write_link(&mut text, 1, link, &medium)?;
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
    let strain = lab.strain();
    if strain.over_1ms > 0 {
        let late = strain.late_max_seconds * 1e3;
        eprintln!(
            "NOT EXACT, this machine was busy: packets left the link up to {late:.1} ms late, and \
             the fastest of a size may be one of them"
        );
    }
    if let Some(page) = page {
        draft::finish(page, &sweep.page().html())?;
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
        write_link(&mut text, number, &link, &args.medium())?;
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
    let steps: Vec<(String, f64)> = match tunnel {
        Some(_) => vec![("tunnel".into(), predicted.goodput_bits_per_second)],
        None => {
            let each = (1..).zip(&predicted.links);
            let step = |(number, link): (i32, &sennit_predict::LinkFigures)| {
                (format!("link:l{number}"), link.goodput_bits_per_second)
            };
            each.map(step).collect()
        }
    };
    let (seconds, direction) = (args.seconds() + WARM_UP.as_secs() as u32, args.direction());
    for (via, goodput) in steps {
        let _ = writeln!(
            text,
            "[[step]]\nname = \"{via}\"\nseconds = {seconds}\n[[step.traffic]]\nkind = \"{kind}\"\n\
             via = \"{via}\"\ndirection = \"{direction}\"\nipv6 = {v6}"
        );
        if tunnel.is_none() {
            text.push_str("from = \"edge\"\n");
        }
        if kind == "udp" {
            let mbit = goodput * OFFERED / 1e6;
            let bytes = predicted.payload_bytes;
            let _ = writeln!(text, "rate_mbit = {mbit}\nbytes = {bytes}");
        }
    }
    Ok(text)
}

/// What the kernel or the emulator would do otherwise than was asked.
fn refuse(what: &What, load: &LoadArgs<'_>) -> Result<(), Error> {
    let wrong = |reason: &str| Err(Error::Usage(format!("--check {reason}")));
    match &load.load {
        Load::Tcp { options, .. } if *options != 12 => {
            return wrong("measures Linux's TCP, whose options are 12 bytes");
        }
        Load::Quic {
            connection_id,
            datagram,
            ..
        } if (*connection_id, *datagram) != (8, 1452) => {
            return wrong("measures quinn: connection IDs of 8 bytes, datagrams of 1452 at most");
        }
        Load::Tunnel(tunnel) if tunnel.bare => {
            return wrong("measures two Sennits, which number their packets");
        }
        Load::Tcp { .. } | Load::Udp { .. } | Load::Quic { .. } | Load::Tunnel(_) => {}
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

/// An emulated link adds the same to every packet, however short its frame is.
fn refuse_padding(is_padded: bool) -> Result<(), Error> {
    if !is_padded {
        return Ok(());
    }
    let reason = "--check emulates links that pad no frames, and a frame here is shorter than \
                  Ethernet's least: send more, or count with --counts frames";
    Err(Error::Usage(reason.into()))
}

fn write_link(
    text: &mut String,
    number: usize,
    link: &LinkSpec,
    medium: &Medium,
) -> Result<(), Error> {
    if link.up.trace.is_some() || link.down.trace.is_some() {
        let reason = format!("link {link} moves: only what stands still can be predicted");
        return Err(Error::Usage(reason));
    }
    if medium.half_duplex && link.up != link.down {
        let reason = format!("link {link}: with --half-duplex both directions are alike");
        return Err(Error::Usage(reason));
    }
    let (mtu, bytes) = (medium.ip.mtu, medium.frame_bytes());
    let _ = writeln!(
        text,
        "[[link]]\nname = \"l{number}\"\nmtu = {mtu}\nframe_bytes = {bytes}\nshared = {}",
        medium.half_duplex
    );
    for (way, config) in [("up", &link.up), ("down", &link.down)] {
        let Config {
            rate, delay, loss, ..
        } = config;
        let mbit = rate.map_or(0.0, |rate: Bitrate| rate.as_bps() as f64 / 1e6);
        let percent = loss.ratio().unwrap_or(0.0) * 100.0;
        let ms = delay.as_secs_f64() * 1e3;
        let _ = writeln!(
            text,
            "{way} = {{ rate_mbit = {mbit}, delay_ms = {ms}, loss_percent = {percent} }}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
    fn what_cannot_be_measured_is_refused() {
        for (line, part) in [
            ("tcp --rate 10Mbit --options 0", "options are 12"),
            ("tunnel --rate 10Mbit --bare", "number their packets"),
            ("tcp --rate 10Mbit --mtu 600", "1280 to 9000"),
            (
                "tcp --link 10:2/5 --half-duplex",
                "both directions are alike",
            ),
            ("tcp --link lte/20", "moves"),
            ("udp --rate 10Mbit --payload 16", "pad no frames"),
            // The second fragment has eight bytes.
            ("udp --rate 10Mbit --payload 1480", "pad no frames"),
        ] {
            let error = written(line).expect_err(line).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
