//! Plays a scenario: builds the lab, checks it, runs the steps one after the other.

mod evaluation;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use sennit_load::{BIN, Bins};
use sennit_netem::Direction;

use crate::emulator::NatFault;
use crate::error::{Doing, Error};
use crate::flag::Raised;
use crate::host::{Family, Role};
use crate::lab::{Lab, LinkHandle, Site};
use crate::plan::{self, numbered};
use crate::programs;
use crate::progress::Progress;
use crate::report::{Results, StepResult};
use crate::scenario::{Action, Fault, Scenario, Step, Traffic, Via};
use crate::selfcheck;
use crate::steal;
use crate::traffic::{self, Context, Figures, Ours};
use crate::tunnel::{Programs, Traces, Tunnel, Usage};

/// Precedence of the rule that sends a baseline over one link, before those of any tunnel.
const BASELINE_PRIORITY: u32 = 100;

/// The edge's host number on a link after `address_change`.
const OTHER_ADDRESS: u8 = 77;

/// A step with so many faults takes long, and says how far it is.
const MANY_FAULTS: usize = 20;

/// How to play a scenario.
#[derive(Debug, Clone)]
pub struct Options {
    /// Those of the tunnels.
    pub programs: Programs,
    /// Where logs, raw output of tools and `results.json` go.
    pub out: PathBuf,
    /// How often all steps are played.
    pub repeat: usize,
}

/// Plays all steps; `progress` is told what happens now.
///
/// A step that fails is in the results with the reason, and the next one is played all the same.
/// An error means that there was nothing to play on: no lab, or links that are not as asked.
pub fn play(
    scenario: &Scenario,
    text: &str,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<(Lab, Results), Error> {
    scenario.check_plays()?;
    programs::require(&programs::TRAFFIC)?;
    let mut rivals = Vec::new();
    for kind in scenario.tunnel.iter().flat_map(|tunnel| &tunnel.kind) {
        options.programs.require(*kind)?;
        rivals.extend(options.programs.version(*kind));
    }
    rivals.iter().for_each(|rival| progress(rival));
    std::fs::create_dir_all(&options.out).doing(|| format!("create {}", options.out.display()))?;
    progress("building hosts and links");
    let lab = scenario.build()?;
    progress("checking that the links are as asked");
    let checks = selfcheck::run(&lab)?;
    selfcheck::verdict(&checks)?;
    let mut results = Results::new(scenario, text, &options.programs.sennit, rivals, checks);
    let mut player = Player {
        lab: &lab,
        scenario,
        options,
        tunnel: None,
    };
    for run in 1..=options.repeat {
        results.add_run(player.play(run, progress));
    }
    drop(player);
    Ok((lab, results))
}

/// Makes (`add`) or ends (`del`) that everything of each site goes over one of its links.
pub(crate) fn redirect(lab: &Lab, verb: &str, link: &str) -> Result<(), Error> {
    lab.sites().try_for_each(|site| {
        let table = lab.link(&site.own(link))?.subnet().table();
        let line =
            |from| format!("rule {verb} iif {from} lookup {table} priority {BASELINE_PRIORITY}\n");
        let lines: String = ["lan0", "lo"].map(line).concat();
        let edge = site.host(Role::Edge);
        Family::BOTH
            .into_iter()
            .try_for_each(|family| edge.ip_of(family, &lines))
    })
}

struct Player<'a> {
    lab: &'a Lab,
    scenario: &'a Scenario,
    options: &'a Options,
    tunnel: Option<Tunnel<'a>>,
}

impl Player<'_> {
    fn play(&mut self, run: usize, progress: &mut dyn FnMut(&str)) -> Vec<StepResult> {
        let (steps, repeat) = (&self.scenario.step, self.options.repeat);
        let mut results = Vec::new();
        for (number, step) in (1..).zip(steps) {
            let (count, seconds) = (steps.len(), length(step).as_secs());
            let which = match repeat {
                1 => String::new(),
                _ => format!("run {run}/{repeat}, "),
            };
            progress(&format!(
                "{which}step {number}/{count}: {} ({seconds} s)",
                step.name
            ));
            let raw = match repeat {
                1 => format!("step-{number:02}"),
                _ => format!("run-{run}-step-{number:02}"),
            };
            let raw = self.options.out.join(raw);
            let result = self.step(step, &raw).unwrap_or_else(|error| {
                // Whatever state the daemons are in, the next step begins with fresh ones.
                self.tunnel = None;
                StepResult::given_up(&step.name, &error)
            });
            for failure in result.failures() {
                progress(&format!("  FAILED: {failure}"));
            }
            results.push(result);
        }
        results
    }

    fn step(&mut self, step: &Step, raw: &Path) -> Result<StepResult, Error> {
        self.prepare_tunnel(step)?;
        let status = self.tunnel.as_ref().map_or(Vec::new(), Tunnel::status);
        let before = self.usage()?;
        let traces = self.traces(step)?;
        let overruns = self.lab.overruns()?;
        let stolen = steal::seconds();
        self.lab.reset_counters();
        let redirected = self.redirect(step)?;
        let played = self.play_step(step, raw);
        if let Some(link) = &redirected {
            self.end_redirect(link)?;
        }
        self.restore_links()?;
        let mut result = played?;
        result.overruns = self.lab.overruns()? - overruns;
        result.strain = self.lab.strain();
        result.stolen_seconds = steal::seconds() - stolen;
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.check_alive()?;
            // Looking for leaks takes time, which is not the step's.
            result.add_usage(step, &before, &tunnel.usage()?);
            if let Some(traces) = &traces {
                tunnel.note_leaks(traces)?;
            }
            result.add_status(&status, tunnel.status());
            result.operated = tunnel.operated();
        }
        Ok(result)
    }

    /// The daemons run during the steps that use them, and not beside a baseline or another tunnel.
    fn prepare_tunnel(&mut self, step: &Step) -> Result<(), Error> {
        let wanted = step.uses_tunnel().then_some(step.tunnel);
        if self.tunnel.as_ref().map(Tunnel::kind) != wanted {
            // Two tunnels never run at once.
            self.tunnel = None;
        }
        if let (Some(table), Some(kind), None) = (&self.scenario.tunnel, wanted, &self.tunnel) {
            let Options { programs, out, .. } = self.options;
            self.tunnel = Some(Tunnel::start(self.lab, kind, table, programs, out)?);
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.forget_peaks();
        }
        Ok(())
    }

    fn usage(&self) -> Result<Vec<Usage>, Error> {
        self.tunnel.as_ref().map_or(Ok(Vec::new()), Tunnel::usage)
    }

    /// What there was before a step that may leave nothing.
    fn traces(&self, step: &Step) -> Result<Option<Traces>, Error> {
        let tunnel = self.tunnel.as_ref().filter(|_| step.leaks);
        tunnel.map(Tunnel::traces).transpose()
    }

    /// Sends everything of a site over one of its links for a baseline; gives its name.
    fn redirect(&self, step: &Step) -> Result<Option<String>, Error> {
        let link = step.traffic.iter().find_map(|traffic| match traffic.via() {
            Via::Link(name) => Some(name.clone()),
            Via::Tunnel | Via::Mptcp => None,
        });
        if let Some(name) = &link {
            self.change_redirect("add", name)?;
        }
        Ok(link)
    }

    fn end_redirect(&self, link: &str) -> Result<(), Error> {
        self.change_redirect("del", link)
    }

    fn change_redirect(&self, verb: &str, link: &str) -> Result<(), Error> {
        redirect(self.lab, verb, link)
    }

    fn restore_links(&self) -> Result<(), Error> {
        for link in self.lab.links().filter(LinkHandle::is_emulated) {
            Direction::BOTH
                .into_iter()
                .try_for_each(|direction| link.restore(direction))?;
        }
        Ok(())
    }

    /// Traffic in threads of its own, faults from this one, a look at the links every bin.
    fn play_step(&mut self, step: &Step, raw: &Path) -> Result<StepResult, Error> {
        self.lab.begin_traces();
        let controls = self.tunnel.as_ref().map_or(Vec::new(), Tunnel::controls);
        let ours = Ours {
            program: &self.options.programs.sennit,
            controls: &controls,
        };
        let (lab, start) = (self.lab, Instant::now());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let over = Raised(&done);
            let sampler = scope.spawn(|| sample_links(lab, start, &done));
            let running: Vec<_> = (0..)
                .zip(&step.traffic)
                .map(|(index, traffic)| {
                    let raw = format!("{}-{}", raw.display(), index + 1);
                    sites_of(lab, traffic)
                        .map(|site| {
                            let raw = PathBuf::from(site.own(&raw));
                            scope.spawn(move || {
                                run_traffic(site, step, traffic, index, start, &raw, ours)
                            })
                        })
                        .collect::<Vec<_>>()
                })
                .collect();
            let faults = self.break_things(step, start);
            let traffic: Vec<_> = running
                .into_iter()
                .map(|sites| {
                    let join = |thread: ScopedJoinHandle<'_, _>| thread.join();
                    let joined = sites.into_iter().map(join);
                    joined
                        .map(|outcome| outcome.expect("traffic does not panic"))
                        .collect()
                })
                .collect();
            drop(over);
            let links = sampler.join().expect("the sampler does not panic");
            faults?;
            Ok(evaluation::evaluate(
                step,
                lab,
                start.elapsed(),
                traffic,
                links,
            ))
        })
    }

    fn break_things(&mut self, step: &Step, start: Instant) -> Result<(), Error> {
        let many = Some(step.fault.len()).filter(|many| *many >= MANY_FAULTS);
        let progress = many.map(|many| Progress::new(many, many));
        let mut done = 0;
        let outcome = in_turn(&step.fault, |fault| {
            thread::sleep((start + fault.at_s.0).saturating_duration_since(Instant::now()));
            self.apply(fault)?;
            done += 1;
            if let Some(progress) = &progress {
                progress.tell(done);
            }
            Ok(())
        });
        if let Some(progress) = &progress {
            progress.end();
        }
        outcome
    }

    fn apply(&mut self, fault: &Fault) -> Result<(), Error> {
        let Some(name) = &fault.link else {
            return self.tunnel.as_mut().map_or(Ok(()), |tunnel| {
                tunnel.apply(fault.action, fault.edge_index())
            });
        };
        if fault.action == Action::Drill {
            return self
                .tunnel
                .as_mut()
                .map_or(Ok(()), |tunnel| tunnel.drill(name, fault.edge_index()));
        }
        break_link(self.lab.link(&link_name(self.lab, fault, name))?, fault)
    }
}

/// Applies all in turn. After one that fails, whose error this gives, only the ends of what
/// happened to links are applied: the next step is played on the same links, with other daemons.
fn in_turn(
    faults: &[Fault],
    mut apply: impl FnMut(&Fault) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut faults = faults.iter();
    let outcome = faults.by_ref().try_for_each(&mut apply);
    if outcome.is_err() {
        let ends = faults.filter(|fault| fault.link.is_some() && fault.action.repairs());
        for fault in ends {
            let _ = apply(fault);
        }
    }
    outcome
}

/// Does what happens to a link and not to daemons.
fn break_link(link: LinkHandle<'_>, fault: &Fault) -> Result<(), Error> {
    let ways = match fault.direction {
        Some(direction) => vec![direction],
        None => Direction::BOTH.to_vec(),
    };
    match fault.action {
        Action::Outage => ways
            .into_iter()
            .try_for_each(|way| link.set(way, |config| config.outage = true)),
        Action::Restore => ways.into_iter().try_for_each(|way| link.restore(way)),
        Action::Set => ways.into_iter().try_for_each(|way| {
            let shape = fault.set.clone().unwrap_or_default();
            let changed = shape.applied(&link.config(way)).map_err(Error::Scenario)?;
            link.set(way, |config| *config = changed)
        }),
        Action::CarrierDown => link.set_carrier(false),
        Action::CarrierUp => link.set_carrier(true),
        Action::DeviceDown => link.set_up(false),
        Action::DeviceUp => link.set_up(true),
        Action::AddressRemove => link.set_address(None),
        Action::AddressAdd => link.set_address(Some(plan::EDGE)),
        Action::AddressChange => link.set_address(Some(OTHER_ADDRESS)),
        Action::DeviceDelete => link.set_plugged(false),
        Action::DeviceCreate => link.set_plugged(true),
        Action::DeviceMtu => link.set_mtu(fault.mtu),
        Action::DeviceMtuBack => link.set_mtu(None),
        Action::DropIn => link.set_drop(Some(Direction::Down)),
        Action::DropOut => link.set_drop(Some(Direction::Up)),
        Action::DropMarked => fault
            .marked
            .map_or(Ok(()), |it| link.drop_marked(it.dscp, it.percent)),
        Action::DropOnTun => fault
            .tun
            .as_ref()
            .map_or(Ok(()), |it| link.drop_on_tun(&it.device, it.percent)),
        Action::Accept => link.set_drop(None),
        Action::NatForget => link.break_nat(NatFault::Forget),
        Action::NatWedge => link.break_nat(NatFault::Wedge),
        Action::Drill
        | Action::RestartHub
        | Action::KillHub
        | Action::RestartEdge
        | Action::StopAll
        | Action::FillDisk
        | Action::FreeDisk
        | Action::TakeFiles
        | Action::GiveFiles
        | Action::Revoke
        | Action::JoinAnew
        | Action::JoinUsed
        | Action::Reload
        | Action::ReadHistory => Ok(()),
    }
}

/// The sites at which a traffic runs.
fn sites_of<'a>(lab: &'a Lab, traffic: &Traffic) -> impl Iterator<Item = Site<'a>> {
    let only = traffic.edge().map(|number| number - 1);
    lab.sites()
        .filter(move |site| only.is_none_or(|index| site.index == index))
}

/// What the link of a fault is called in the lab.
fn link_name(lab: &Lab, fault: &Fault, name: &str) -> String {
    numbered(name, fault.edge_index(), lab.edges())
}

/// When the last traffic or fault of a step ends.
fn length(step: &Step) -> Duration {
    let traffic = step.traffic.iter().map(|traffic| {
        let (start, seconds) = traffic.span(step);
        start + Duration::from_secs(seconds.into())
    });
    traffic
        .chain(step.fault.iter().map(|fault| fault.at_s.0))
        .max()
        .unwrap_or_default()
}

fn run_traffic(
    site: Site<'_>,
    step: &Step,
    traffic: &Traffic,
    index: usize,
    start: Instant,
    raw: &Path,
    ours: Ours<'_>,
) -> Result<Figures, Error> {
    let (after, seconds) = traffic.span(step);
    thread::sleep((start + after).saturating_duration_since(Instant::now()));
    traffic::run(
        traffic,
        &Context::new(site, step, start, seconds, index, raw, ours),
    )
}

/// Bytes per second that each emulated link delivered, up and down, in bins of the whole step.
type LinkBins = Vec<(String, [Bins; 2])>;

fn sample_links(lab: &Lab, start: Instant, done: &AtomicBool) -> LinkBins {
    let links = lab.links().filter(LinkHandle::is_emulated);
    let none = || Bins::new(BIN, Vec::new());
    let mut bins: LinkBins = links
        .map(|link| (link.name().to_owned(), [none(), none()]))
        .collect();
    let mut last = vec![[0; 2]; bins.len()];
    for number in 1.. {
        thread::sleep((start + BIN * number).saturating_duration_since(Instant::now()));
        for (index, (_, counters)) in lab.counters().into_iter().enumerate() {
            let now = counters.map(|counters| counters.delivered_bytes);
            for way in 0..2 {
                let bytes = now[way].saturating_sub(last[index][way]);
                bins[index].1[way].push(bytes as f64 / BIN.as_secs_f64());
            }
            last[index] = now;
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_fault_that_fails_links_are_made_whole_and_nothing_else_happens() {
        let text = r#"
            name = "t"
            [[link]]
            name = "a"
            [tunnel]
            [[step]]
            name = "s"
            traffic = [{ kind = "idle" }]
            fault = [
                { at_s = 1, link = "a", action = "address_remove", for_s = 9 },
                { at_s = 2, action = "kill_hub" },
                { at_s = 3, link = "a", action = "device_down", for_s = 2 },
                { at_s = 4, action = "kill_hub" },
            ]
        "#;
        let scenario = Scenario::parse(text).expect("it is right");
        let mut applied = Vec::new();

        let outcome = in_turn(&scenario.step[0].fault, |fault| {
            applied.push(fault.action);
            match fault.action {
                Action::KillHub => Err(Error::Tunnel("the hub is gone".into())),
                _ => Ok(()),
            }
        });

        assert!(outcome.is_err_and(|error| error.to_string().contains("the hub is gone")));
        let whole = [Action::DeviceUp, Action::AddressAdd];
        assert_eq!(
            applied,
            [&[Action::AddressRemove, Action::KillHub][..], &whole].concat()
        );
    }
}
