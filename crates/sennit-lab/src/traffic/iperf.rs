//! Bulk TCP and constant-rate UDP by iperf3, with the figures of whichever side received.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sennit_load::{BIN, Bins};
use sennit_netem::Direction;
use serde::Deserialize;

use super::{BulkFigures, Context, UdpFigures, far, wait};
use crate::error::{Doing, Error};
use crate::host::{Role, Running};
use crate::plan;
use crate::scenario::{Tcp, Udp};

/// Longer than any start of iperf3.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);

/// The part of iperf3's JSON that we use.
#[derive(Debug, Clone, Deserialize)]
struct Report {
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct End {
    sum_sent: Sum,
    sum_received: Sum,
    sum: Sum,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Sum {
    seconds: f64,
    end: f64,
    bytes: u64,
    bits_per_second: f64,
    retransmits: Option<u64>,
    jitter_ms: f64,
    lost_packets: u64,
    packets: u64,
}

/// One run of a client against a server of its own.
struct Session<'a> {
    context: &'a Context<'a>,
    from: Role,
    to: Role,
    direction: Direction,
    port: String,
    address: String,
    /// Of the client, beyond those that every session has.
    arguments: Vec<String>,
}

/// What a session gave.
struct Outcome {
    /// Of the side that asked for the traffic; it holds the totals of both.
    client: Report,
    /// Of the side that received the data.
    receiver: Report,
    /// When the client ended, after the start of the step.
    ended: Duration,
}

pub(super) fn tcp(tcp: &Tcp, context: &Context<'_>) -> Result<BulkFigures, Error> {
    let session = Session {
        context,
        from: tcp.from,
        to: tcp.to,
        direction: tcp.direction,
        port: tcp.port.unwrap_or(context.port).to_string(),
        address: far(tcp.to, &tcp.via).text(tcp.ipv6),
        arguments: vec![
            format!("--parallel={}", tcp.streams),
            format!("--congestion={}", tcp.congestion),
            format!("--dscp={}", tcp.dscp),
        ],
    };
    let outcome = session.run()?;
    let total = &outcome.client.end.sum_received;
    let last = outcome
        .receiver
        .intervals
        .last()
        .map_or(0.0, |interval| interval.sum.end);
    Ok(BulkFigures {
        bytes: total.bytes,
        seconds: total.seconds,
        goodput: total.bits_per_second / 8.0,
        retransmits: outcome.client.end.sum_sent.retransmits,
        start_seconds: outcome.ended.as_secs_f64() - last,
        bins: bins(&outcome.receiver),
    })
}

pub(super) fn udp(udp: &Udp, context: &Context<'_>) -> Result<UdpFigures, Error> {
    let session = Session {
        context,
        from: udp.from,
        to: Role::Server,
        direction: udp.direction,
        port: udp.port.unwrap_or(context.port).to_string(),
        address: plan::SERVER.text(udp.ipv6),
        arguments: vec![
            "--udp".to_owned(),
            format!("--bitrate={}", udp.rate_mbit * 1e6),
            format!("--length={}", udp.bytes),
            format!("--dscp={}", udp.dscp),
        ],
    };
    let reader = match udp.direction {
        Direction::Up => session.to,
        Direction::Down => session.from,
    };
    let before = overflowed(context, reader)?;
    let Outcome {
        client, receiver, ..
    } = session.run()?;
    let overflowed = overflowed(context, reader)? - before;
    // What waits in queues arrives after the sender's last second, so the receiver's time counts.
    let sums = || receiver.intervals.iter().map(|interval| &interval.sum);
    let seconds: f64 = sums().map(|sum| sum.seconds).sum();
    let total = &client.end.sum;
    let (site, step) = (context.site, context.step);
    let readers = step.udp_readers(reader, site.index + 1, site.lab.edges());
    let unread = unread(overflowed, total.lost_packets, readers);
    Ok(UdpFigures {
        goodput: sums().map(|sum| sum.bytes as f64).sum::<f64>() / seconds.max(1e-3),
        packets: total.packets,
        lost: total.lost_packets - unread,
        unread,
        jitter_seconds: total.jitter_ms / 1e3,
        bins: Some(bins(&receiver)),
        ..UdpFigures::default()
    })
}

/// How many of the lost packets arrived all the same, if a host's kernel has dropped so many for
/// this and other sockets. Where there are others nobody knows whose they were, and all are lost.
fn unread(overflowed: u64, lost: u64, readers: usize) -> u64 {
    match readers {
        0 | 1 => overflowed.min(lost),
        _ => 0,
    }
}

/// Packets that a host's kernel has dropped because the sockets that they were for were full.
///
/// At an edge or hub they may be for the daemon's, and are the tunnel's loss: there it counts none.
fn overflowed(context: &Context<'_>, role: Role) -> Result<u64, Error> {
    match role {
        Role::Edge | Role::Hub => return Ok(0),
        Role::Lan | Role::Server => {}
    }
    let command = ["nstat", "-asjz", "UdpRcvbufErrors", "Udp6RcvbufErrors"];
    let printed = context.host(role).exec(&command)?.stdout;
    receive_buffer_errors(&printed)
        .map_err(|error| failed(format!("nstat told no counters of UDP: {error}")))
}

/// The sum of what nstat(8) prints as JSON.
fn receive_buffer_errors(printed: &[u8]) -> serde_json::Result<u64> {
    #[derive(Deserialize)]
    struct Printed {
        kernel: BTreeMap<String, u64>,
    }
    let Printed { kernel } = serde_json::from_slice(printed)?;
    Ok(kernel.values().sum())
}

/// Whole bins only: the last one may have been cut short.
fn bins(receiver: &Report) -> Bins {
    let whole = |sum: &&Sum| sum.seconds > 0.5 * BIN.as_secs_f64();
    let sums = receiver
        .intervals
        .iter()
        .map(|interval| &interval.sum)
        .filter(whole);
    let rates = sums.map(|sum| sum.bytes as f64 / sum.seconds);
    Bins::new(BIN, rates.collect())
}

impl Session<'_> {
    fn run(&self) -> Result<Outcome, Error> {
        let deadline = self.context.deadline();
        let (server_path, mut server) = self.serve()?;
        self.until_listening()?;
        let (client_path, mut client) = self.connect()?;
        wait(&mut client, deadline)?;
        let ended = self.context.start.elapsed();
        let client = report(&client_path)?;
        wait(&mut server, deadline)?;
        let server = report(&server_path)?;
        Ok(match self.direction {
            Direction::Up => Outcome {
                client,
                receiver: server,
                ended,
            },
            Direction::Down => Outcome {
                receiver: client.clone(),
                client,
                ended,
            },
        })
    }

    fn serve(&self) -> Result<(PathBuf, Running), Error> {
        let (path, file) = self.context.file("server.json")?;
        let mut command = self.context.host(self.to).command("iperf3");
        command.args(["--server", "--one-off", "--json", "--interval=0.1"]);
        command
            .args(["--port", &self.port])
            .stdin(Stdio::null())
            .stdout(file);
        Ok((path, Running::start(&mut command)?))
    }

    fn connect(&self) -> Result<(PathBuf, Running), Error> {
        let (path, file) = self.context.file("client.json")?;
        let mut command = self.context.host(self.from).command("iperf3");
        command.args(["--client", &self.address, "--json", "--interval=0.1"]);
        command.args(["--connect-timeout=10000", "--port", &self.port]);
        command
            .args(["--time", &self.context.seconds.to_string()])
            .args(&self.arguments);
        if self.direction == Direction::Down {
            command.arg("--reverse");
        }
        Ok((
            path,
            Running::start(command.stdin(Stdio::null()).stdout(file))?,
        ))
    }

    /// A client that comes too early is refused.
    fn until_listening(&self) -> Result<(), Error> {
        let deadline = Instant::now() + LISTEN_PATIENCE;
        let filter = format!("sport = :{}", self.port);
        while Instant::now() < deadline {
            let sockets = self.context.host(self.to).exec(&["ss", "-Hltn", &filter])?;
            if !sockets.stdout.is_empty() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(failed(format!(
            "iperf3 does not listen on port {}",
            self.port
        )))
    }
}

fn report(path: &Path) -> Result<Report, Error> {
    let text = std::fs::read_to_string(path).doing(|| format!("read {}", path.display()))?;
    parse(&text).map_err(failed)
}

fn parse(text: &str) -> Result<Report, String> {
    let report: Report = serde_json::from_str(text)
        .map_err(|error| format!("iperf3 printed no report ({error}): {:.200}", text.trim()))?;
    match report.error {
        Some(error) => Err(error),
        None => Ok(report),
    }
}

fn failed(reason: String) -> Error {
    Error::Traffic {
        name: "iperf3".into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_its_whole_bins() {
        let text = r#"{"intervals": [
            {"sum": {"start": 0, "end": 0.1, "seconds": 0.1, "bytes": 1000}},
            {"sum": {"start": 0.1, "end": 0.2, "seconds": 0.1, "bytes": 3000}},
            {"sum": {"start": 0.2, "end": 0.21, "seconds": 0.01, "bytes": 7}}
        ], "end": {"sum_received": {"bytes": 4007, "seconds": 0.21}}}"#;

        let report = parse(text).expect("it is complete");

        assert_eq!(bins(&report), Bins::new(BIN, vec![10_000.0, 30_000.0]));
        assert_eq!(report.end.sum_received.bytes, 4007);
    }

    #[test]
    fn packets_for_full_sockets_are_counted_in_both_families() {
        let printed = br#"{"kernel":{"UdpRcvbufErrors":54,"Udp6RcvbufErrors":3}}"#;

        assert_eq!(receive_buffer_errors(printed).ok(), Some(57));
        assert!(receive_buffer_errors(b"").is_err());
    }

    #[test]
    fn what_was_dropped_for_several_sockets_excuses_none_of_them() {
        assert_eq!(unread(54, 60, 1), 54);
        assert_eq!(unread(54, 20, 1), 20);
        assert_eq!(unread(54, 60, 2), 0);
    }

    #[test]
    fn what_iperf3_complains_about_is_the_reason() {
        let refused = r#"{"start": {}, "intervals": [], "end": {}, "error": "unable to connect"}"#;

        assert_eq!(
            parse(refused).expect_err("there was an error"),
            "unable to connect"
        );
        assert!(
            parse("")
                .expect_err("nothing was printed")
                .contains("no report")
        );
    }
}
