//! Latency and loss by `ping`, request by request.

use std::collections::BTreeMap;
use std::process::Stdio;

use sennit_load::quantile;

use super::{Context, PingFigures, far, wait};
use crate::error::{Doing, Error};
use crate::host::Running;
use crate::scenario::Ping;

/// Sequence numbers of ICMP have 16 bits.
const REQUESTS_MAX: f64 = 60_000.0;

/// How long an answer may take before the request counts as lost.
const PATIENCE_S: &str = "3";

pub(super) fn run(ping: &Ping, context: &Context<'_>) -> Result<PingFigures, Error> {
    let count = (f64::from(context.seconds) * 1e3 / ping.interval_ms).ceil();
    if count > REQUESTS_MAX {
        let reason = format!("{count} requests are too many: ping less often or shorter");
        return Err(Error::Traffic {
            name: "ping".into(),
            reason,
        });
    }
    let (path, file) = context.file("ping.txt")?;
    let mut command = context.host(ping.from).command("ping");
    command.args(["-n", "-D", "-W", PATIENCE_S, "-c", &count.to_string()]);
    command.args([
        "-i",
        &(ping.interval_ms / 1e3).to_string(),
        "-s",
        &ping.bytes.to_string(),
    ]);
    // DSCP is the upper six bits of what was once the type of service (RFC 2474 §3).
    command.args([
        "-Q",
        &(ping.dscp << 2).to_string(),
        &far(ping.to, &ping.via).text(ping.ipv6),
    ]);
    let deadline = context.deadline();
    wait(
        &mut Running::start(command.stdin(Stdio::null()).stdout(file))?,
        deadline,
    )?;
    let text = std::fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    Ok(figures(&text, count as u64, ping.interval_ms / 1e3))
}

fn figures(text: &str, sent: u64, interval: f64) -> PingFigures {
    let mut answers: BTreeMap<u64, f64> = BTreeMap::new();
    let mut duplicates = 0;
    for (sequence, seconds) in text.lines().filter_map(answer) {
        match answers.entry(sequence) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(seconds);
            }
            std::collections::btree_map::Entry::Occupied(_) => duplicates += 1,
        }
    }
    let times: Vec<f64> = answers.values().copied().collect();
    PingFigures {
        sent,
        received: answers.len() as u64,
        duplicates,
        silence_seconds: longest_silence(text, sent, interval),
        gap_seconds: longest_run_missing(&answers, sent) as f64 * interval,
        p50_seconds: quantile(&times, 0.5),
        p95_seconds: quantile(&times, 0.95),
        p99_seconds: quantile(&times, 0.99),
        max_seconds: quantile(&times, 1.0),
        interval_seconds: interval,
        answers_seconds: (1..=sent)
            .map(|number| answers.get(&number).copied())
            .collect(),
    }
}

/// Sequence number and round-trip time of a line such as
/// `[1700000000.123456] 64 bytes from 203.0.113.10: icmp_seq=1 ttl=62 time=20.3 ms`.
fn answer(line: &str) -> Option<(u64, f64)> {
    let field = |key: &str| {
        let rest = &line[line.find(key)? + key.len()..];
        rest.split_whitespace().next()
    };
    let sequence = field("icmp_seq=")?.parse().ok()?;
    let millis: f64 = field("time=")?.parse().ok()?;
    Some((sequence, millis / 1e3))
}

/// The longest time without an answer: from when the first could have come, to the next, to when
/// the last could. Between answers the stamps at the beginning of the lines tell it, and at both
/// ends how many requests are missing there and how much longer than the fastest the answer took.
fn longest_silence(text: &str, sent: u64, interval: f64) -> f64 {
    let answers: Vec<_> = text.lines().filter_map(stamped_answer).collect();
    let ([(first, ..), ..], [.., (last, ..)]) = (&answers[..], &answers[..]) else {
        return sent as f64 * interval;
    };
    let fastest = answers.iter().map(|(answer, _)| answer.1);
    let fastest = fastest.fold(f64::INFINITY, f64::min);
    let missing = |requests: u64| requests as f64 * interval;
    let before = missing(first.0.saturating_sub(1)) + (first.1 - fastest);
    let after = missing(sent.saturating_sub(last.0)) - (last.1 - fastest);
    let waits = answers.windows(2).map(|pair| pair[1].1 - pair[0].1);
    waits.chain([before, after]).fold(0.0, f64::max)
}

/// An answer and the time at which its line was written.
fn stamped_answer(line: &str) -> Option<((u64, f64), f64)> {
    let stamp = line.strip_prefix('[')?.split(']').next()?.parse().ok()?;
    Some((answer(line)?, stamp))
}

fn longest_run_missing(answers: &BTreeMap<u64, f64>, sent: u64) -> u64 {
    let mut longest = 0;
    let mut last = 0;
    for sequence in answers.keys().copied().chain([sent + 1]) {
        longest = longest.max(sequence.saturating_sub(last + 1));
        last = sequence;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
PING 203.0.113.10 (203.0.113.10) 56(84) bytes of data.
[1700000000.100000] 64 bytes from 203.0.113.10: icmp_seq=2 ttl=62 time=20.5 ms
[1700000000.200000] 64 bytes from 203.0.113.10: icmp_seq=3 ttl=62 time=31.25 ms
[1700000000.200500] 64 bytes from 203.0.113.10: icmp_seq=3 ttl=62 time=30.5 ms (DUP!)
From 192.168.8.1 icmp_seq=4 Destination Net Unreachable
[1700000000.700000] 64 bytes from 203.0.113.10: icmp_seq=7 ttl=62 time=0.512 ms

--- 203.0.113.10 ping statistics ---
9 packets transmitted, 3 received, +1 duplicates, 66% packet loss, time 801ms
";

    #[test]
    fn answers_duplicates_and_gaps_are_told_apart() {
        let figures = figures(OUTPUT, 9, 0.1);

        assert_eq!(
            (figures.sent, figures.received, figures.duplicates),
            (9, 3, 1)
        );
        assert!(
            (figures.gap_seconds - 0.3).abs() < 1e-9,
            "4, 5 and 6 are missing"
        );
        assert!(
            (figures.silence_seconds - 0.4995).abs() < 1e-6,
            "from the last 3 to 7"
        );
        assert_eq!(figures.p50_seconds, Some(0.0205));
        assert_eq!(figures.max_seconds, Some(0.03125));
    }

    #[test]
    fn a_silent_ping_is_one_long_gap() {
        let figures = figures("", 50, 0.01);

        assert_eq!((figures.received, figures.p50_seconds), (0, None));
        assert!((figures.gap_seconds - 0.5).abs() < 1e-9);
        assert!((figures.silence_seconds - 0.5).abs() < 1e-9);
    }

    #[test]
    fn silence_before_the_first_and_after_the_last_answer_counts() {
        let answers = |requests: std::ops::RangeInclusive<u32>| -> String {
            let line = |number: u32| {
                let stamp = 1_700_000_000.0 + 0.1 * f64::from(number);
                format!("[{stamp:.6}] 64 bytes: icmp_seq={number} ttl=62 time=20 ms\n")
            };
            requests.map(line).collect()
        };
        let silence = |text: &str| figures(text, 50, 0.1).silence_seconds;

        assert!((silence(&answers(1..=50)) - 0.1).abs() < 1e-6);
        assert!(
            (silence(&answers(1..=20)) - 3.0).abs() < 1e-6,
            "cut for good"
        );
        assert!(
            (silence(&answers(31..=50)) - 3.0).abs() < 1e-6,
            "dead at first"
        );
        let late = answers(1..=50).replacen("time=20 ms", "time=1020 ms", 1);
        assert!(
            (silence(&late) - 1.0).abs() < 1e-6,
            "the first waited in a queue"
        );
    }
}
