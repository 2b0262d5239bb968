//! The command line of `sennit-lab`, which `sennit lab` starts.

use std::io::BufRead;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Parser, Subcommand};
use sennit_netem::Direction;
use sennit_predict::PredictArgs;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::draft;
use crate::error::{Doing, Error};
use crate::host::{self, Role};
use crate::lab::Lab;
use crate::report::Results;
use crate::report::collection::collection;
use crate::report::compared::{Compared, Count, compare};
use crate::report::page::{Named, page};
use crate::run::{Options, play};
use crate::scenario::{Scenario, Shape};
use crate::tunnel::Programs;
use crate::{chaos, matrix, pacing, predict, scratch, selfcheck, sockets, targets, witness};

/// The scenario that `sennit lab demo` plays.
const DEMO: &str = include_str!("../../../lab/demo.toml");

/// The exit status after a signal that a shell expects.
const INTERRUPTED: i32 = 130;

/// Measure tunnels over emulated links, all on this machine (as root)
#[derive(Debug, Parser)]
#[command(
    name = "sennit-lab",
    bin_name = "sennit lab",
    version,
    max_term_width = 100
)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Build the links of a scenario, run its steps, and report what was measured
    ///
    /// Example: sennit lab run lab/bond-300-80.toml --out /tmp/bond
    Run {
        /// The scenario (TOML)
        file: PathBuf,
        #[command(flatten)]
        options: RunArgs,
    },
    /// Run the built-in demonstration: two links, what one tunnel over both gives, a link cut
    Demo {
        #[command(flatten)]
        options: RunArgs,
    },
    /// Build the links of a scenario, check them, and keep them until Ctrl-C
    ///
    /// Meanwhile each line of input changes a link, for example "fast outage = true" or
    /// "fast delay_ms = 80".
    Links {
        /// The scenario (TOML); its steps are ignored
        file: PathBuf,
        /// The variant, if it has several [default: the first]
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
    },
    /// Print what is to be reached and what others have published beside what was measured
    ///
    /// Example: sennit lab table results
    Table {
        /// Files results.json, or directories to look for them in
        #[arg(required = true, value_name = "RESULTS")]
        places: Vec<PathBuf>,
        /// What is to be reached (TOML) [default: built in, from lab/targets.toml]
        #[arg(long, value_name = "FILE")]
        targets: Option<PathBuf>,
        /// Exit with 1 if something was missed or not exact of the scenarios that were measured, or
        /// nothing is asked of them
        #[arg(long)]
        strict: bool,
        /// Write the same as a page of the book too
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
        /// What that page says was measured [default: what the results say, commits and programs]
        #[arg(long, value_name = "TEXT")]
        build: Option<String>,
    },
    /// Make a page with plots of results: of one scenario, of the same one several times beside
    /// each other, or of different ones beside what others have published
    ///
    /// Example: sennit lab report results/failover-20261126-1200 --out failover.html
    Report {
        /// Files results.json, or directories with one
        #[arg(required = true, num_args = 1..=64, value_name = "RESULTS")]
        places: Vec<PathBuf>,
        /// The page's heading, with results of different scenarios
        #[arg(long, value_name = "TEXT", default_value = "Beside what was published")]
        title: String,
        /// The page [default: report.html beside the first results.json]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Exit with 1 if a figure that others have published was missed without a reason in the
        /// scenario, or was not measured, or is not exact
        #[arg(long)]
        strict: bool,
    },
    /// Measure how much round trips vary by packets a second
    Pacing(Box<pacing::PacingArgs>),
    /// Measure links by `sennit test`, iperf3, irtt, ping and quinn, and say whether they agree
    ///
    /// Exits with 1 if they do not.
    ///
    /// Example: sennit lab witness --link 20/15 --link 50/30/2%
    Witness(witness::WitnessArgs),
    /// Predict what links carry and measure it; `sennit predict --check` starts this
    Predict(PredictArgs),
    /// Run scenarios in virtual time; `sennit sim` starts this
    Sim {
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Remove what labs that were killed have left behind
    Cleanup,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Run every combination of a matrix file; goes on where the same build was stopped
    ///
    /// Example: sennit sim matrix lab/matrix.toml --out results/matrix
    Matrix(matrix::MatrixArgs),
    /// Let everything happen to a hub and its sites, and check what must hold at every step
    ///
    /// The same seed has the same course. Exits with 1 if a rule was broken.
    ///
    /// Example: sennit sim chaos --seeds 20 --hours 24
    Chaos(chaos::ChaosArgs),
}

#[derive(Debug, Parser)]
struct RunArgs {
    /// Print results.json on standard output instead of the table
    #[arg(long)]
    json: bool,
    /// Play only this variant of the scenario
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out the steps that take long
    #[arg(long)]
    quick: bool,
    /// Play all steps so many times; the table has the medians
    #[arg(long, value_name = "N", default_value = "1")]
    repeat: NonZeroUsize,
    /// Where results.json, logs and the raw output of tools go [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep hosts and links until Enter is pressed
    #[arg(long)]
    keep: bool,
    /// The sennit program that runs the tunnel [default: $SENNIT, else sennit beside sennit-lab]
    #[arg(long, value_name = "PATH")]
    sennit: Option<PathBuf>,
    /// The wireguard-go program, for scenarios that compare with it [default: that of the PATH]
    #[arg(long, value_name = "PATH")]
    wireguard_go: Option<PathBuf>,
    /// The ideal tunnel, for scenarios that compare with it [default: ideal-tunnel beside sennit]
    #[arg(long, value_name = "PATH")]
    ideal: Option<PathBuf>,
}

/// The program that is measured, and others beside it.
fn usual_programs(sennit: Option<&Path>) -> Result<Programs, Error> {
    let sennit = match sennit {
        Some(path) => path.to_owned(),
        None => match std::env::var_os("SENNIT") {
            Some(path) => path.into(),
            None => {
                let lab = std::env::current_exe().doing(|| "find this program".into())?;
                lab.with_file_name("sennit")
            }
        },
    };
    Ok(Programs::beside(sennit))
}

impl RunArgs {
    fn programs(&self) -> Result<Programs, Error> {
        let usual = usual_programs(self.sennit.as_deref())?;
        Ok(Programs {
            wireguard_go: self.wireguard_go.clone().unwrap_or(usual.wireguard_go),
            ideal: self.ideal.clone().unwrap_or(usual.ideal),
            sennit: usual.sennit,
        })
    }
}

/// Runs `sennit lab`; `false` means that it ran but some traffic failed.
pub fn run(args: Args) -> Result<bool, Error> {
    leave_nothing_on_signals()?;
    match args.command {
        LabCommand::Run { file, options } => run_text(&read(&file)?, &options),
        LabCommand::Demo { options } => run_text(DEMO, &options),
        LabCommand::Links { file, only } => {
            let scenarios = variants(&read(&file)?, only.as_deref())?;
            scenarios.first().map_or(Ok(()), hold_links).map(|()| true)
        }
        LabCommand::Table {
            places,
            targets,
            strict,
            markdown,
            build,
        } => {
            let text = targets.map_or(Ok(targets::SHIPPED.to_owned()), |file| read(&file))?;
            print!("{}", targets::table(&text, &places)?);
            if let Some(file) = markdown {
                let page = targets::page(&text, &places, build.as_deref())?;
                draft::write(&file, &page)?;
            }
            let lack = match strict {
                true => targets::lack(&text, &places)?,
                false => None,
            };
            if let Some(why) = &lack {
                eprintln!("--strict: {why}");
            }
            Ok(lack.is_none())
        }
        LabCommand::Pacing(args) => pacing::run(&args).map(|()| true),
        LabCommand::Witness(args) => witness::run(&args, &usual_programs(None)?),
        LabCommand::Sim { command } => match command {
            SimCommand::Matrix(args) => matrix::run(&args),
            SimCommand::Chaos(args) => chaos::run(&args),
        },
        LabCommand::Report {
            places,
            title,
            out,
            strict,
        } => report(&places, &title, out, strict),
        LabCommand::Predict(args) => {
            predict::run(&args, usual_programs(None)?)?;
            Ok(true)
        }
        LabCommand::Cleanup => {
            scratch::remove_leftovers();
            sockets::remove_leftovers();
            for name in host::remove_leftovers() {
                println!("{name}");
            }
            Ok(true)
        }
    }
}

/// Writes the page of results, and says where it is; `false` if `strict` is not satisfied.
fn report(
    places: &[PathBuf],
    title: &str,
    out: Option<PathBuf>,
    strict: bool,
) -> Result<bool, Error> {
    let file = |place: &PathBuf| match place.is_dir() {
        true => place.join("results.json"),
        false => place.clone(),
    };
    let files: Vec<_> = places.iter().map(file).collect();
    let all = files
        .iter()
        .map(|file| Results::read(file))
        .collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = places.iter().map(|place| name_of(place)).collect();
    let named: Vec<_> = names
        .iter()
        .zip(&all)
        .map(|(name, results)| Named { name, results })
        .collect();
    let out = out.unwrap_or_else(|| files[0].with_file_name("report.html"));
    let same = all.iter().all(|it| it.scenario() == all[0].scenario());
    let made = match same {
        true => page(&named),
        false => collection(title, &all)?,
    };
    draft::write(&out, &made.html())?;
    println!("{}", out.display());
    // A page of one scenario is about that alone, and needs no scenario that can still be read.
    match same && !strict {
        true => Ok(true),
        false => beside_published(&all, strict),
    }
}

/// Says what came of all that others have published of these results.
fn beside_published(all: &[Results], strict: bool) -> Result<bool, Error> {
    let rows = all.iter().map(compare).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<Compared> = rows.into_iter().flatten().collect();
    for complaint in rows.iter().filter_map(Compared::complaint) {
        println!("{complaint}");
    }
    let count = Count::of(&rows);
    if !rows.is_empty() {
        println!("{count}");
    }
    let lack = count.lack().filter(|_| strict);
    if let Some(why) = &lack {
        eprintln!("--strict: {why}");
    }
    Ok(lack.is_none())
}

/// What a page calls results: their directory.
fn name_of(place: &Path) -> String {
    let directory = match place.is_dir() {
        true => Some(place),
        false => place.parent(),
    };
    let name = directory.and_then(Path::file_name);
    name.map_or("results".into(), |name| name.to_string_lossy().into_owned())
}

fn leave_nothing_on_signals() -> Result<(), Error> {
    let set = ctrlc::set_handler(|| {
        host::remove_all();
        scratch::remove_all();
        sockets::remove_all();
        std::process::exit(INTERRUPTED);
    });
    set.map_err(|error| Error::Scenario(format!("cannot watch for signals: {error}")))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).doing(|| format!("read {}", path.display()))
}

fn run_text(text: &str, args: &RunArgs) -> Result<bool, Error> {
    let mut scenarios = variants(text, args.only.as_deref())?;
    if args.quick {
        scenarios = scenarios.into_iter().map(Scenario::quick).collect();
    }
    let out = match (&args.out, &scenarios[..]) {
        (Some(out), _) => out.clone(),
        (None, [single]) => default_out(&single.name),
        (None, _) => default_out(&Scenario::parse(text)?.name),
    };
    if let [single] = &scenarios[..] {
        return run_one(single, text, args, out);
    }
    let mut good = true;
    for scenario in &scenarios {
        eprintln!("{}", scenario.name);
        good &= run_one(scenario, text, args, out.join(&scenario.name)).unwrap_or_else(|error| {
            eprintln!("{}: {error}", scenario.name);
            false
        });
    }
    Ok(good)
}

/// All variants of a scenario, or the one of this name.
fn variants(text: &str, only: Option<&str>) -> Result<Vec<Scenario>, Error> {
    let scenario = Scenario::parse(text)?;
    let mut variants = scenario.variants();
    if let Some(only) = only {
        let name = format!("{}-{only}", scenario.name);
        variants.retain(|variant| variant.name == name);
    }
    match variants.is_empty() {
        true => Err(Error::Usage(format!(
            "there is no variant {:?}",
            only.unwrap_or_default()
        ))),
        false => Ok(variants),
    }
}

fn run_one(scenario: &Scenario, text: &str, args: &RunArgs, out: PathBuf) -> Result<bool, Error> {
    let options = Options {
        programs: args.programs()?,
        out,
        repeat: args.repeat.get(),
    };
    let start = Instant::now();
    let mut progress = |what: &str| eprintln!("[{:5.1} s] {what}", start.elapsed().as_secs_f64());
    let (lab, results) = play(scenario, text, &options, &mut progress)?;
    // Where there is no room for a file, people have it at least.
    print(&results, args.json);
    results.write(&options.out)?;
    eprintln!("figures: {}", options.out.join("results.json").display());
    if args.keep {
        describe(&lab);
        eprintln!("press Enter to remove everything");
        let _ = std::io::stdin().lock().read_line(&mut String::new());
    }
    Ok(results.failures().is_empty())
}

fn print(results: &Results, json: bool) {
    if json {
        println!("{}", results.to_json());
    } else {
        print!("{}", results.table());
    }
}

fn default_out(name: &str) -> PathBuf {
    let format = format_description!("[year][month][day]-[hour][minute][second]");
    let time = OffsetDateTime::now_utc()
        .format(&format)
        .unwrap_or_default();
    PathBuf::from(format!("results/{name}-{time}"))
}

fn hold_links(scenario: &Scenario) -> Result<(), Error> {
    let lab = scenario.build()?;
    let checks = selfcheck::run(&lab)?;
    for check in &checks {
        eprintln!("{check}");
    }
    selfcheck::verdict(&checks)?;
    describe(&lab);
    eprintln!("change a link by a line such as \"NAME delay_ms = 80\"; Ctrl-C or Ctrl-D ends");
    for line in std::io::stdin().lock().lines() {
        let line = line.doing(|| "read standard input".into())?;
        if let Err(error) = change(&lab, line.trim()) {
            eprintln!("{error}");
        }
    }
    Ok(())
}

/// Applies a line such as `fast outage = true` to both directions of a link.
fn change(lab: &Lab, line: &str) -> Result<(), Error> {
    if line.is_empty() {
        return Ok(());
    }
    let (name, change) = line.split_once(' ').unwrap_or((line, ""));
    let link = lab.link(name)?;
    let shape: Shape =
        toml::from_str(change).map_err(|error| Error::Scenario(error.to_string()))?;
    for direction in Direction::BOTH {
        let changed = shape
            .applied(&link.config(direction))
            .map_err(Error::Scenario)?;
        link.set(direction, |config| *config = changed)?;
    }
    Ok(())
}

fn describe(lab: &Lab) {
    let far = [Role::Hub, Role::Server].map(|role| (role.to_string(), lab.host(role)));
    let near = lab.sites().flat_map(|site| {
        [Role::Lan, Role::Edge].map(move |role| (site.own(&role.to_string()), site.host(role)))
    });
    for (name, host) in near.chain(far) {
        eprintln!("{name}: ip netns exec {} …", host.name());
    }
    for link in lab.links() {
        let (edge, hub) = (link.subnet().edge().v4, link.subnet().hub().v4);
        eprintln!("{}: edge {edge}, hub {hub}", link.device());
    }
}
