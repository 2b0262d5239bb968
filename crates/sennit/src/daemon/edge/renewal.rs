//! Asks for a certificate in place of the one there is, once that is old.
//!
//! A thread of its own asks over connections of its own, and tunnels notice nothing of it: those
//! that are up go on, the next ones show the fresh certificate. Where the hub refuses or does not
//! answer, nothing is lost either.
//!
//! One of another authority is asked for when the hub says so in a tunnel ([`NextAuthority`]), at a
//! moment of this edge's own choice, because all sites hear of it at once. When it is kept, the hub
//! is asked once more with it: so it knows that this edge is not locked out when the authority
//! before is dropped, though tunnels go on that began with the certificate before.
//!
//! When one is old is told by the host's clock, and that may be wrong by years. So one that was
//! just received is used, however old it seems to be; from then on its age is what has passed
//! since.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use sennit_linux::confine;
use sennit_masque::capsule::NextAuthority;

use super::{
    ask::{Asked, Line},
    letter::Letter,
    running::Running,
    way::Way,
};
use crate::{
    daemon::{at_once::at_once, mailbox::Slot, random_seed, reload::Reloader},
    exit::Failure,
    identity::{EdgeIdentity, Fingerprint},
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
/// A hub that has other sites ask first waits no longer for this one.
const LATEST_MOVE: Duration = Duration::from_secs(24 * 3600);

/// Starts the thread, which ends with the daemon, if there is a certificate to renew; by what it
/// hears of other authorities.
pub(super) fn start(
    reloader: &Arc<Reloader<Running>>,
    letters: Arc<[Slot<Letter>]>,
) -> io::Result<Sender<NextAuthority>> {
    let (sender, heard) = mpsc::channel();
    if reloader.running().config.proxy.is_some() {
        return Ok(sender);
    }
    let reloader = Arc::downgrade(reloader);
    let watch = move || {
        confine::keep_files_only();
        let mut schedule = Schedule::new(Instant::now());
        while schedule.wait(&heard) {
            let Some(reloader) = reloader.upgrade() else {
                return;
            };
            let running = reloader.running();
            drop(reloader);
            let wanted = schedule.wanted(Instant::now());
            // What panics here, or has no thread, ends no daemon and is tried again.
            let looked = at_once([()], |()| look(&running, wanted, &letters[0]));
            let none = || Outcome::failed(&"what asks has panicked, or has no thread");
            let outcome = looked.into_iter().flatten().next().unwrap_or_else(none);
            let pause = schedule.handle(&outcome, wanted, Instant::now());
            letters[0].post(Letter::NotRenewed(outcome.failure().map(str::to_owned)));
            if let Some(why) = schedule.news(&outcome) {
                let again = duration(pause.as_secs_f64());
                tracing::warn!(why, again_in = again, "the certificate is not renewed now");
            }
        }
    };
    thread::Builder::new().name("renewal".into()).spawn(watch)?;
    Ok(sender)
}

/// What came of a look.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    NotDue,
    Renewed,
    /// There is a certificate of another authority, and the hub does not know yet that it is kept.
    Moved,
    /// For this reason.
    Refused(String),
    NoAnswer,
}

impl Outcome {
    /// Why there is no fresh certificate although one is wanted.
    fn failure(&self) -> Option<&str> {
        match self {
            Self::NotDue | Self::Renewed | Self::Moved => None,
            Self::Refused(why) => Some(why),
            Self::NoAnswer => Some("the hub does not answer"),
        }
    }

    fn failed(why: &dyn ToString) -> Self {
        Self::Refused(why.to_string())
    }
}

fn look(running: &Running, wanted: Option<Fingerprint>, first: &Slot<Letter>) -> Outcome {
    let renewed = renew(running, wanted, first);
    renewed.unwrap_or_else(|failure| Outcome::failed(&failure.message()))
}

fn renew(
    running: &Running,
    wanted: Option<Fingerprint>,
    first: &Slot<Letter>,
) -> Result<Outcome, Failure> {
    let mut identity = EdgeIdentity::load(&running.config.state)?;
    let moves = wanted.filter(|_| identity.is_enrolled());
    if moves.is_none() && !identity.is_renewal_due(SystemTime::now()) {
        return Ok(Outcome::NotDue);
    }
    let is_new = moves.is_some_and(|wanted| wanted != identity.authority);
    if let Some(wanted) = moves {
        identity.move_to_authority(wanted);
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
            if is_new {
                Outcome::Moved
            } else {
                Outcome::Renewed
            }
        }
        Asked::Refused(why) => Outcome::Refused(why),
        Asked::NoAnswer(_) => Outcome::NoAnswer,
    })
}

/// When to look again, and what to tell.
#[derive(Debug)]
struct Schedule {
    /// Looks in a row without an answer.
    unanswered: u32,
    look_at: Instant,
    /// The authority to move to, and when.
    next: Option<(Fingerprint, Instant)>,
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self {
            unanswered: 0,
            look_at: now + FIRST,
            next: None,
        }
    }

    /// Waits until it is time to look; false if nobody is there any more to look for.
    fn wait(&mut self, heard: &Receiver<NextAuthority>) -> bool {
        loop {
            let now = Instant::now();
            match heard.recv_timeout(self.due().saturating_duration_since(now)) {
                Ok(next) => {
                    let dice = random_seed().map_or(0, |seed| dice(&seed));
                    self.hear(next, dice, Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn due(&self) -> Instant {
        let move_at = self.next.map_or(self.look_at, |(_, at)| at);
        move_at.min(self.look_at)
    }

    /// The hub has another authority. It may say so in each tunnel and to each that begins.
    fn hear(&mut self, next: NextAuthority, dice: u64, now: Instant) {
        let authority = Fingerprint::from_bytes(next.fingerprint);
        if self.next.is_some_and(|(known, _)| known == authority) {
            return;
        }
        let within = Duration::from_secs(next.within.into()).min(LATEST_MOVE);
        let wait = Duration::from_millis(dice % (within.as_millis() as u64).max(1));
        let asks_in = duration(wait.as_secs_f64());
        tracing::info!(%authority, asks_in, "the hub has another authority");
        self.next = Some((authority, now + wait));
    }

    /// The authority that it is time to move to.
    fn wanted(&self, now: Instant) -> Option<Fingerprint> {
        let (authority, at) = self.next?;
        (at <= now).then_some(authority)
    }

    /// Goes by what came of a look; how long it is until the next.
    fn handle(&mut self, outcome: &Outcome, wanted: Option<Fingerprint>, now: Instant) -> Duration {
        let pause = self.after(outcome);
        self.look_at = now + pause;
        if let Some(wanted) = wanted {
            self.next = match outcome {
                // What failed here, as on a full disk, passes, and the hub may not say so again.
                Outcome::Moved | Outcome::NoAnswer | Outcome::Refused(_) => {
                    Some((wanted, self.look_at))
                }
                Outcome::NotDue | Outcome::Renewed => None,
            };
        }
        pause
    }

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
            Outcome::Moved => Duration::ZERO,
            Outcome::Refused(_) => REFUSED,
            Outcome::NoAnswer => AGAIN_MOST.min(AGAIN * (1 << (unanswered - 1).min(8))),
        }
    }

    /// What the log should hear of it: of a hub that is away, once.
    fn news<'a>(&self, outcome: &'a Outcome) -> Option<&'a str> {
        outcome.failure().filter(|_| self.unanswered <= 1)
    }
}

/// A number out of random bytes.
fn dice(seed: &[u8; 32]) -> u64 {
    let first = seed.first_chunk().expect("there are 32 bytes");
    u64::from_le_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(number: u8, within: u32) -> NextAuthority {
        NextAuthority {
            fingerprint: [number; 32],
            within,
        }
    }

    /// As dice fall, but the same each time.
    fn dice_of(site: u64) -> u64 {
        site.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    }

    #[test]
    fn five_hundred_sites_that_hear_of_an_authority_at_once_ask_a_few_each_second() {
        let now = Instant::now();
        let mut each_second = vec![0; 501];
        for site in 0..500 {
            let mut schedule = Schedule::new(now);
            schedule.hear(authority(1, 500), dice_of(site), now);
            let (_, at) = schedule.next.unwrap();
            each_second[at.duration_since(now).as_secs() as usize] += 1;
        }
        assert!(each_second.iter().max() <= Some(&10), "{each_second:?}");
        assert_eq!(each_second[500], 0);
    }

    #[test]
    fn a_move_is_tried_until_the_hub_knows_that_it_is_made() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.hear(authority(1, 100), 7_000, now);
        let first = Fingerprint::from_bytes([1; 32]);
        schedule.hear(authority(1, 100), 1_000, now);
        assert_eq!(schedule.wanted(now + Duration::from_secs(6)), None);
        let mut at = now + Duration::from_secs(7);
        assert_eq!(schedule.wanted(at), Some(first), "as it was heard first");
        assert_eq!(schedule.handle(&Outcome::NotDue, None, at), LOOK);
        assert_eq!(schedule.due(), at);

        at += schedule.handle(&Outcome::NoAnswer, Some(first), at);
        assert_eq!(schedule.wanted(at), Some(first));
        let pause = schedule.handle(&Outcome::Moved, Some(first), at);
        assert_eq!((pause, schedule.wanted(at)), (Duration::ZERO, Some(first)));
        schedule.handle(&Outcome::Renewed, Some(first), at);
        assert_eq!((schedule.next, schedule.due()), (None, at + RENEWED));

        schedule.hear(authority(2, 1), 0, at);
        let second = Fingerprint::from_bytes([2; 32]);
        assert_eq!(schedule.wanted(at), Some(second), "the next rotation");
        at += schedule.handle(&Outcome::failed(&"no"), Some(second), at);
        assert_eq!(schedule.wanted(at), Some(second), "it is tried again");
    }

    /// How often an edge asks within `time`, if its certificate always seems to be old and this
    /// comes of it, and how often the log hears of it.
    fn asks(outcome: &Outcome, time: Duration) -> (u32, u32) {
        let mut schedule = Schedule::new(Instant::now());
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
