//! Asks for a certificate in place of the one there is, once that is old.
//!
//! A thread of its own asks over connections of its own, and tunnels notice nothing of it: those
//! that are up go on, the next ones show the fresh certificate. Where the hub refuses or does not
//! answer, nothing is lost either.
//!
//! When one is old is told by the host's clock, and that may be wrong by years. So one that was
//! just received is used, however old it seems to be; from then on its age is what has passed
//! since.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use sennit_linux::confine;

use super::{
    ask::{Asked, Line},
    letter::Letter,
    running::Running,
    way::Way,
};
use crate::{
    daemon::{mailbox::Slot, reload::Reloader},
    exit::Failure,
    identity::EdgeIdentity,
    status::duration,
};

/// Before the first look, in which links come up.
const FIRST: Duration = Duration::from_secs(5);
/// So often it is looked whether the certificate is old: a clock may be set late.
const LOOK: Duration = Duration::from_secs(600);
/// A fresh certificate that seems to be old is of a hub whose clock is far behind ours: so often
/// another one is asked for. It is no longer time, because it stops while a host sleeps, and the
/// certificate grows old.
const RENEWED: Duration = Duration::from_secs(24 * 3600);
/// To a hub, a request each hour from an edge that it refuses is nothing; and months of trying
/// remain.
const REFUSED: Duration = Duration::from_secs(3600);
/// After no answer, doubled with each further one: an edge may be online for minutes a day.
const AGAIN: Duration = Duration::from_secs(15);
const AGAIN_MOST: Duration = Duration::from_secs(300);
/// Long enough for handshakes without post-quantum key exchange, where those with it go unanswered.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the thread, which ends with the daemon, if there is a certificate to renew.
pub(super) fn start(
    reloader: &Arc<Reloader<Running>>,
    letters: Arc<[Slot<Letter>]>,
) -> io::Result<()> {
    if reloader.running().config.proxy.is_some() {
        return Ok(());
    }
    let reloader = Arc::downgrade(reloader);
    let watch = move || {
        confine::keep_files_only();
        let mut schedule = Schedule::default();
        thread::sleep(FIRST);
        while let Some(reloader) = reloader.upgrade() {
            let running = reloader.running();
            drop(reloader);
            // What panics here ends no daemon, and is tried again.
            let looked = thread::scope(|scope| {
                let look = scope.spawn(|| look(&running, &letters[0]));
                look.join()
            });
            let outcome = looked.unwrap_or_else(|_| Outcome::failed(&"what asks has panicked"));
            let pause = schedule.after(&outcome);
            letters[0].post(Letter::NotRenewed(outcome.failure().map(str::to_owned)));
            if let Some(why) = schedule.news(&outcome) {
                let again = duration(pause.as_secs_f64());
                tracing::warn!(why, again_in = again, "the certificate is not renewed now");
            }
            thread::sleep(pause);
        }
    };
    thread::Builder::new().name("renewal".into()).spawn(watch)?;
    Ok(())
}

/// What came of a look.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    NotDue,
    Renewed,
    /// For this reason.
    Refused(String),
    NoAnswer,
}

impl Outcome {
    /// Why there is no fresh certificate although one is wanted.
    fn failure(&self) -> Option<&str> {
        match self {
            Self::NotDue | Self::Renewed => None,
            Self::Refused(why) => Some(why),
            Self::NoAnswer => Some("the hub does not answer"),
        }
    }

    fn failed(why: &dyn ToString) -> Self {
        Self::Refused(why.to_string())
    }
}

fn look(running: &Running, first: &Slot<Letter>) -> Outcome {
    let renewed = renew(running, first);
    renewed.unwrap_or_else(|failure| Outcome::failed(&failure.message()))
}

fn renew(running: &Running, first: &Slot<Letter>) -> Result<Outcome, Failure> {
    let mut identity = EdgeIdentity::load(&running.config.state)?;
    if !identity.is_renewal_due(SystemTime::now()) {
        return Ok(Outcome::NotDue);
    }
    let links = running.links.iter().enumerate();
    let links = links.filter_map(|(number, link)| Some((number, link.as_ref()?)));
    let ways = Way::all(&running.config.device, links);
    let line = Line::open(&running.config.hub, &ways).also_by_its_names();
    if let Err(why) = confine::carry_packets() {
        tracing::debug!(why, "a thread is not confined in every way");
    }
    let asked = line.ask(&mut identity, PATIENCE);
    let is_mine = |there: EdgeIdentity| there.has_key_of(&identity);
    if !matches!(asked, Ok(Asked::Certified))
        && !EdgeIdentity::load(&running.config.state).is_ok_and(is_mine)
    {
        // Somebody has joined meanwhile.
        return Ok(Outcome::NotDue);
    }
    Ok(match asked? {
        Asked::Certified => {
            first.post(Letter::Renewed(Box::new(identity)));
            Outcome::Renewed
        }
        Asked::Refused(why) => Outcome::Refused(why),
        Asked::NoAnswer(_) => Outcome::NoAnswer,
    })
}

/// When to look again, and what to tell.
#[derive(Debug, Default)]
struct Schedule {
    /// Looks in a row without an answer.
    unanswered: u32,
}

impl Schedule {
    /// How long to wait.
    fn after(&mut self, outcome: &Outcome) -> Duration {
        let unanswered = match outcome {
            Outcome::NoAnswer => self.unanswered + 1,
            _ => 0,
        };
        self.unanswered = unanswered;
        match outcome {
            Outcome::NotDue => LOOK,
            Outcome::Renewed => RENEWED,
            Outcome::Refused(_) => REFUSED,
            Outcome::NoAnswer => AGAIN_MOST.min(AGAIN * (1 << (unanswered - 1).min(8))),
        }
    }

    /// What the log should hear of it: of a hub that is away, once.
    fn news<'a>(&self, outcome: &'a Outcome) -> Option<&'a str> {
        outcome.failure().filter(|_| self.unanswered <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often an edge asks within `time`, if its certificate always seems to be old and this
    /// comes of it, and how often the log hears of it.
    fn asks(outcome: &Outcome, time: Duration) -> (u32, u32) {
        let mut schedule = Schedule::default();
        let (mut at, mut asked, mut told) = (Duration::ZERO, 0, 0);
        while at < time {
            asked += 1;
            at += schedule.after(outcome);
            told += u32::from(schedule.news(outcome).is_some());
        }
        (asked, told)
    }

    #[test]
    fn a_clock_that_is_far_ahead_makes_no_loop() {
        assert_eq!(asks(&Outcome::Renewed, 30 * 24 * REFUSED), (30, 0));
    }

    #[test]
    fn a_hub_that_refuses_is_asked_each_hour() {
        assert_eq!(asks(&Outcome::failed(&"no"), 24 * REFUSED), (24, 24));
    }

    #[test]
    fn a_hub_that_is_away_is_asked_soon_and_then_less_often_and_told_of_once() {
        let (asked, told) = asks(&Outcome::NoAnswer, Duration::from_secs(240));
        assert_eq!((asked, told), (5, 1));
        let (asked, told) = asks(&Outcome::NoAnswer, 24 * REFUSED);
        assert!((285..=295).contains(&asked) && told == 1, "{asked} {told}");
    }
}
