//! What an operator has the edge do from here: the commands `links` and `speedtest`, on a thread.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::ask::{self, PATIENCE};
use crate::cli::{Failure, links, speedtest};
use crate::control::{Client, ClientError, LinkOrder};
use crate::speedtest::{SpeedtestOrder, SpeedtestWish};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    Pause(String),
    Resume(String),
    /// Lose a link on purpose while pings pass.
    Drill(String),
    /// Measure one link, or the tunnel with all of them.
    Measure {
        link: Option<String>,
        /// Links with a cap may be used.
        metered: bool,
    },
}

/// What came of an errand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// One line.
    Said(String),
    /// Several lines.
    Told(String),
    /// Somebody has to agree first.
    Asks { question: String, errand: Errand },
}

impl Errand {
    /// What is done while it runs.
    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Pause(link) => format!("pausing {link}"),
            Self::Resume(link) => format!("resuming {link}"),
            Self::Drill(link) => format!("losing {link}"),
            Self::Measure { link, .. } => {
                format!("measuring {}", link.as_deref().unwrap_or("the tunnel"))
            }
        }
    }

    /// Does it, tells how far it is, and ends early when `stop` is set.
    pub(super) fn run(
        &self,
        control: &Path,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(&str),
    ) -> Outcome {
        let done = Client::connect(control, PATIENCE)
            .map_err(Failure::from)
            .and_then(|mut client| self.attempt(&mut client, stop, tell));
        let printable = |text: &str| {
            let lines: Vec<String> = text.lines().map(ask::printable).collect();
            lines.join("\n")
        };
        match done {
            Ok(Outcome::Told(text)) => Outcome::Told(printable(&text)),
            Ok(other) => other,
            Err(failure) => Outcome::Told(printable(&failure.to_string())),
        }
    }

    fn attempt(
        &self,
        client: &mut Client,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Outcome, Failure> {
        match self {
            Self::Pause(link) => {
                links::order(client, link, LinkOrder::Pause)?;
                let line = format!("{link} carries nothing until it is resumed: o");
                Ok(Outcome::Said(line))
            }
            Self::Resume(link) => {
                links::order(client, link, LinkOrder::Resume)?;
                Ok(Outcome::Said(format!("{link} may carry again")))
            }
            Self::Drill(link) => links::drill(link, client, stop, tell).map(Outcome::Told),
            Self::Measure { link, metered } => {
                measure(link.as_ref(), *metered, client, (stop, tell))
            }
        }
    }
}

fn measure(
    link: Option<&String>,
    metered: bool,
    client: &mut Client,
    (stop, tell): (&AtomicBool, &mut dyn FnMut(&str)),
) -> Result<Outcome, Failure> {
    let wish = SpeedtestWish {
        links: link.cloned().into_iter().collect(),
        metered,
        attended: true,
        ..SpeedtestWish::default()
    };
    match speedtest::order(client, SpeedtestOrder::Start(wish)) {
        Ok(_) => {}
        Err(ClientError::Refused(refused)) if refused.code == "metered" => {
            let errand = Errand::Measure {
                link: link.cloned(),
                metered: true,
            };
            let question = format!("{}. Measure?", ask::printable(&refused.message));
            return Ok(Outcome::Asks { question, errand });
        }
        Err(error) => return Err(error.into()),
    }
    let test = speedtest::follow(client, stop, tell)?;
    let problem = test.problem.iter().map(|trouble| trouble.message.clone());
    let lines: Vec<String> = problem.chain([speedtest::text(&test)]).collect();
    Ok(Outcome::Told(lines.join("\n")))
}
