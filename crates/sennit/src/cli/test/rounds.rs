//! A test again and again, in one configuration or several.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use sennit_linux::Draft;

use super::super::output;
use super::told::Told;
use super::{ClientArgs, failure, options, read};
use crate::exit::{Exit, Failure};
use crate::loadtest::client::{self, Options};
use crate::loadtest::compare::{Comparison, Draws};
use crate::loadtest::report::Report;
use crate::loadtest::second::Second;

/// An option and the values that it takes in turn.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    key: Key,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum Key {
    Congestion,
    Profile,
    Fec,
    Connections,
    Streams,
    Rate,
    Stack,
}

impl Key {
    const ALL: [(&str, Self); 7] = [
        ("cc", Self::Congestion),
        ("profile", Self::Profile),
        ("fec", Self::Fec),
        ("connections", Self::Connections),
        ("streams", Self::Streams),
        ("rate", Self::Rate),
        ("stack", Self::Stack),
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Congestion => "cc",
            Self::Profile => "profile",
            Self::Fec => "fec",
            Self::Connections => "connections",
            Self::Streams => "streams",
            Self::Rate => "rate",
            Self::Stack => "stack",
        }
    }

    /// The arguments with this value.
    fn set(self, args: &mut ClientArgs, value: &str) -> Result<(), String> {
        let count = |most: u16| {
            let number = value
                .parse()
                .ok()
                .filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("write 1 to {most}"))
        };
        match self {
            Self::Congestion => args.congestion = read::congestion(value)?,
            Self::Profile => args.profile = Some(value.parse()?),
            Self::Fec => args.fec = read::fec(value)?,
            Self::Connections => args.connections = count(1000)?,
            Self::Streams => args.streams = count(256)?,
            Self::Rate => args.rate = Some(read::rate(value)?),
            Self::Stack => args.stack = value.parse()?,
        }
        Ok(())
    }
}

impl FromStr for Compared {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, values) = text.split_once('=').ok_or("write KEY=VALUE,VALUE")?;
        let known = Key::ALL.iter().find(|(known, _)| *known == word);
        let (_, key) = known.ok_or_else(|| {
            let words = Key::ALL.map(|(word, _)| word).join(", ");
            format!("`{word}` is none of {words}")
        })?;
        let values: Vec<String> = values.split(',').map(ToOwned::to_owned).collect();
        if values.len() < 2 || values.iter().any(String::is_empty) {
            return Err("a comparison needs two values at least".into());
        }
        Ok(Self { key: *key, values })
    }
}

/// The configurations, each with its name.
fn configurations(args: &ClientArgs) -> Result<Vec<(String, Options)>, Failure> {
    let Some(compared) = &args.compare else {
        return Ok(vec![("all".into(), options(args)?)]);
    };
    let one = |value: &String| -> Result<(String, Options), Failure> {
        let (mut args, word) = (args.clone(), compared.key.word());
        let set = compared.key.set(&mut args, value);
        set.map_err(|reason| Failure::usage(format!("--compare {word}={value}: {reason}")))?;
        Ok((format!("{word}={value}"), options(&args)?))
    };
    let configurations: Vec<_> = compared.values.iter().map(one).collect::<Result<_, _>>()?;
    of_one_server(configurations)
}

/// Configurations that differ, all against the server of the first: a name may have many addresses.
fn of_one_server(
    mut configurations: Vec<(String, Options)>,
) -> Result<Vec<(String, Options)>, Failure> {
    let server = configurations.first().map(|(_, options)| options.server);
    for index in 0..configurations.len() {
        let (before, rest) = configurations.split_at_mut(index);
        let (name, options) = &mut rest[0];
        options.server = server.unwrap_or(options.server);
        if let Some((same, _)) = before.iter().find(|(_, other)| other == options) {
            let message =
                format!("--compare: {same} and {name} are one test, by what else is said");
            return Err(Failure::usage(message));
        }
    }
    Ok(configurations)
}

/// What chance decides of rounds. Of another seed no round has the same.
struct Chance {
    seeds: Draws,
    orders: Draws,
}

impl Chance {
    fn new(seed: u64) -> Self {
        let mut seeds = Draws::new(seed);
        let orders = Draws::new(seeds.number());
        Self { seeds, orders }
    }

    /// In which order so many configurations run, and the seed of their links, which is one for all
    /// of a round.
    fn next_round(&mut self, configurations: usize) -> (Vec<usize>, u64) {
        (self.orders.order(configurations), self.seeds.number())
    }
}

/// Runs all rounds, or those until somebody stops it.
pub(super) fn run(
    args: &ClientArgs,
    count: u16,
    stop: &AtomicBool,
    told: &mut Told,
    page: Option<Draft>,
) -> Result<Exit, Failure> {
    let mut configurations = configurations(args)?;
    let mut chance = Chance::new(args.seed);
    let mut rounds: Vec<Vec<Report>> = Vec::new();
    let mut broken = None;
    for round in 0..count {
        let (order, seed) = chance.next_round(configurations.len());
        for (_, options) in &mut configurations {
            options.seed = seed;
        }
        match one_round(&configurations, &order, round, stop, told) {
            Ok(Some(mut reports)) => {
                for report in &mut reports {
                    report.gates = args.gates.iter().map(|gate| gate.check(report)).collect();
                }
                rounds.push(reports);
            }
            Ok(None) => break,
            // What was measured so far is worth telling.
            Err(failure) if !rounds.is_empty() => {
                broken = Some(failure);
                break;
            }
            Err(failure) => return Err(failure),
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    if interrupted && rounds.is_empty() {
        let message = "interrupted before all configurations had been measured once";
        return Err(Failure::new(Exit::Interrupted, message));
    }
    let names: Vec<String> = configurations.into_iter().map(|(name, _)| name).collect();
    let comparison = Comparison::new(&names, rounds, args.seed).asked(count.into(), interrupted);
    let printed = output::print_measured(&comparison, args.json);
    let written = page.map_or(Ok(()), |page| {
        output::finish(page, &comparison.page().html())
    });
    printed?;
    written?;
    match broken.or_else(|| told.failure()) {
        Some(failure) => Err(failure),
        None if interrupted => Ok(Exit::Interrupted),
        None if comparison.passes() => Ok(Exit::Ok),
        None => Ok(Exit::Findings),
    }
}

/// Every configuration once; `None` if somebody stopped it.
fn one_round(
    configurations: &[(String, Options)],
    order: &[usize],
    round: u16,
    stop: &AtomicBool,
    told: &mut Told,
) -> Result<Option<Vec<Report>>, Failure> {
    let mut reports: Vec<Option<Report>> = vec![None; configurations.len()];
    for &index in order {
        let (name, options) = &configurations[index];
        told.say(&format!("Round {}: {name}", round + 1));
        let mut tell = |second: &Second| {
            told.tell(&Second {
                round: Some(round + 1),
                configuration: Some(name.clone()),
                ..second.clone()
            });
        };
        let report = client::run(options, stop, &mut tell).map_err(|error| failure(&error));
        let report = match report {
            Err(failure) if failure.exit() == Exit::Interrupted => return Ok(None),
            report => report?,
        };
        if report.interrupted {
            return Ok(None);
        }
        if let Some(broken) = report.broken {
            return Err(Failure::runtime(broken));
        }
        reports[index] = Some(report);
    }
    Ok(reports.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_has_a_known_key_and_two_values() {
        let known: Compared = "cc=cubic,bbr3".parse().expect("it is one");
        assert_eq!(known.key.word(), "cc");
        assert_eq!(known.values, ["cubic", "bbr3"]);
        for (text, reason) in [
            ("cc", "KEY=VALUE"),
            ("speed=1,2", "none of cc, profile"),
            ("cc=cubic", "two values"),
            ("cc=cubic,", "two values"),
        ] {
            let error = text.parse::<Compared>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn no_round_of_another_seed_has_the_same_chance() {
        let seeds = |seed| {
            let mut chance = Chance::new(seed);
            let round = |configurations| chance.next_round(configurations).1;
            // With three configurations as with two.
            [2, 2, 2, 2, 3, 3, 3, 3, 3].map(round)
        };
        let [first, other] = [1, 2].map(seeds);
        assert_eq!(seeds(1), first);
        let all: std::collections::BTreeSet<u64> = first.into_iter().chain(other).collect();
        assert_eq!(all.len(), 18, "{all:?}");
        assert_eq!(Chance::new(1).next_round(3), Chance::new(1).next_round(3));
    }

    /// The client's arguments, as they are written.
    fn args(text: &str) -> ClientArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ClientArgs,
        }
        let words = "client 192.0.2.1 --repeat 6 ".to_owned() + text;
        let line: Line = clap::Parser::try_parse_from(words.split_whitespace()).expect(text);
        line.args
    }

    #[test]
    fn what_changes_nothing_is_not_compared() {
        for text in [
            "--compare cc=cubic,bbr3,cubic",
            "--compare rate=1M,1000k",
            "--compare rate=1M,2M --requests",
            "--compare rate=1M,2M --handshakes 4",
            "--compare streams=1,4 --message 100",
            "--compare streams=1,4 --requests",
        ] {
            let error = configurations(&args(text)).expect_err(text);
            assert!(
                error.to_string().contains("are one test"),
                "{text}: {error}"
            );
        }
        for text in [
            "--compare streams=1,4",
            "--compare rate=1M,2M --message 100",
            "--compare fec=off,rs:10+2 --message 100",
            "--compare fec=rs:10+2,auto --message 100",
        ] {
            let found = configurations(&args(text)).expect(text);
            assert_eq!(found.len(), 2, "{text}");
        }
    }
}
